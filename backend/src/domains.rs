//! The domains on which a workspace may create links. The options of `serve` list all domains, and `backend domains`
//! assigns some of them to workspaces.

use axum::extract::State;
use axum::{Json, Router, routing};
use serde::Serialize;
use url::Url;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::query::Query;
use crate::state::Shared;
use crate::when::rfc3339;

/// Default and maximum number of domains on a page.
pub(crate) const PAGE_SIZE: i64 = 50;

/// The text is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?}: expected a host name in ASCII, such as go.example.com")]
pub struct InvalidDomain {
    name: String,
}

/// Checks the name of a domain and converts it to lower case.
///
/// # Errors
/// [`InvalidDomain`] if the text is not a host name.
pub fn parse_domain(name: &str) -> Result<String, InvalidDomain> {
    let domain = name.to_ascii_lowercase();
    let url = Url::parse(&format!("https://{domain}/"));
    match url.as_ref().map(Url::domain) {
        Ok(Some(host)) if host == domain => Ok(domain),
        Ok(_) | Err(_) => Err(InvalidDomain { name: name.to_owned() }),
    }
}

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/domains", routing::get(list))
}

/// A domain as responses show it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Domain))]
#[serde(rename_all = "camelCase")]
pub(crate) struct DomainBody {
    /// `dom_` and the domain.
    id: String,
    slug: String,
    /// Always true, because the operator configures the domains.
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
    /// The time at which the domain was assigned to the workspace, or the workspace was created if the domain is not
    /// assigned.
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
    let names: Vec<&str> = app.public_url.domains().collect();
    let assigned = app.store.assigned_among(&names).await?;
    let body = |name: &str| {
        let since = match assigned.get(name) {
            Some(domain) if domain.workspace != caller.workspace.id => return None,
            Some(domain) => domain.assigned_at,
            None => caller.workspace.created_at,
        };
        Some(DomainBody {
            id: format!("dom_{name}"),
            slug: name.to_owned(),
            verified: true,
            primary: name == app.public_url.default_domain(),
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
        })
    };
    let domains = names.into_iter().filter(|name| name.contains(&search)).filter_map(body);
    let (skip, size) = (skip.try_into().unwrap_or(usize::MAX), size.try_into().unwrap_or(usize::MAX));
    Ok(Json(domains.skip(skip).take(size).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_host_name() {
        for (name, expected) in [
            ("go.example.com", Some("go.example.com")),
            ("Go.Example.COM", Some("go.example.com")),
            ("localhost", Some("localhost")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("bücher.example", None),
            ("", None),
            ("go.example.com:8080", None),
            ("go.example.com/r", None),
            ("https://go.example.com", None),
            ("me@go.example.com", None),
            ("10.0.0.1", None),
            ("go example", None),
        ] {
            assert_eq!(parse_domain(name).ok().as_deref(), expected, "{name:?}");
        }
    }
}
