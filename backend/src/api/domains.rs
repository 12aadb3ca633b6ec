//! The domains on which a workspace may create links: the default domain, and those that `backend domains` assigns to it.

use axum::extract::State;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde_json::{Value, json};

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

async fn list(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Json<Vec<Value>>, ApiError> {
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
    let body = |(name, since): (String, Timestamp)| {
        json!({
            "id": format!("dom_{name}"),
            "slug": name,
            // The operator assigns the domains.
            "verified": true,
            // The default domain of links.
            "primary": name == default,
            "archived": false,
            // Other settings are not supported.
            "placeholder": null,
            "expiredUrl": null,
            "notFoundUrl": null,
            "logo": null,
            "assetLinks": null,
            "appleAppSiteAssociation": null,
            // When the domain was assigned to the workspace, or the workspace was created.
            "createdAt": rfc3339(since),
            "updatedAt": rfc3339(since),
            "registeredDomain": null,
        })
    };
    let domains = listed.into_iter().filter(|(name, _)| name.contains(&search)).map(body);
    let (skip, size) = (skip.try_into().unwrap_or(usize::MAX), size.try_into().unwrap_or(usize::MAX));
    Ok(Json(domains.skip(skip).take(size).collect()))
}
