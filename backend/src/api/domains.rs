//! The domains on which a workspace may create links: the default domain, and those that `backend domains` assigns to it.

use axum::extract::State;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde::Serialize;

use crate::api::caller::Caller;
use crate::api::state::Shared;
use crate::domain::when::rfc3339;
use crate::http::error::ApiError;
use crate::http::query::Query;

/// Default and maximum number of domains on a page.
pub(crate) const PAGE_SIZE: i64 = 50;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/domains", routing::get(list))
}

/// A domain as responses show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DomainBody {
    /// `dom_` and the domain.
    id: String,
    slug: String,
    /// Always true, because the operator assigns the domains.
    verified: bool,
    /// Whether this is the default domain of links.
    primary: bool,
    /// Always false.
    archived: bool,
    /// Always null, like the other settings that this service does not support.
    placeholder: Option<String>,
    expired_url: Option<String>,
    not_found_url: Option<String>,
    logo: Option<String>,
    asset_links: Option<String>,
    apple_app_site_association: Option<String>,
    /// The time at which the domain was assigned to the workspace. For the default domain, that at which the workspace was
    /// created.
    created_at: String,
    updated_at: String,
    registered_domain: Option<String>,
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    query: Query,
) -> Result<Json<Vec<DomainBody>>, ApiError> {
    let (skip, size) = query.page(PAGE_SIZE)?;
    let search = query.search()?.unwrap_or_default().to_lowercase();
    // No domain is archived, so both values select the same domains.
    query.boolean("archived")?;
    let default = app.public_url.default_domain();
    let mut listed = Vec::new();
    // The default domain is everybody's until it is assigned.
    if app.store.assigned_domain(default).await?.is_none() {
        listed.push((default.to_owned(), caller.workspace.created_at));
    }
    let assigned = app.store.domains_of(&caller.workspace).await?;
    listed.extend(assigned.into_iter().map(|domain| (domain.name, domain.assigned_at)));
    listed.sort_by_key(|(name, _)| name != default);
    let body = |(name, since): (String, Timestamp)| DomainBody {
        id: format!("dom_{name}"),
        verified: true,
        primary: name == default,
        archived: false,
        placeholder: None,
        expired_url: None,
        not_found_url: None,
        logo: None,
        asset_links: None,
        apple_app_site_association: None,
        created_at: rfc3339(since),
        updated_at: rfc3339(since),
        registered_domain: None,
        slug: name,
    };
    let domains = listed.into_iter().filter(|(name, _)| name.contains(&search)).map(body);
    let (skip, size) = (skip.try_into().unwrap_or(usize::MAX), size.try_into().unwrap_or(usize::MAX));
    Ok(Json(domains.skip(skip).take(size).collect()))
}
