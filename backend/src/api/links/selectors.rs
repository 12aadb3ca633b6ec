//! How requests name links.

use crate::http::error::ApiError;
use crate::store::LinkSelector;

/// A link in a path or a list: its id, or `ext_` and its external id.
pub(crate) fn selector(id: &str) -> LinkSelector {
    match id.strip_prefix("ext_") {
        Some(external) => LinkSelector::ExternalId(external.to_owned()),
        None => LinkSelector::Id(id.to_owned()),
    }
}

/// An external id in a query. The prefix `ext_` is required.
pub(crate) fn external_id(text: &str) -> Result<LinkSelector, ApiError> {
    match text.strip_prefix("ext_") {
        Some(id) => Ok(LinkSelector::ExternalId(id.to_owned())),
        None => Err(ApiError::bad_request("Invalid externalId. Did you forget to prefix it with `ext_`?")),
    }
}

/// A key and its domain in a query. As in the creation of links, slashes at the ends of the key do not count.
pub(crate) fn key(domain: &str, key: &str) -> LinkSelector {
    LinkSelector::Key { domain: domain.to_lowercase(), key: key.trim_matches('/').to_owned() }
}

/// The error for a link that the workspace does not have.
pub(crate) fn not_found() -> ApiError {
    ApiError::not_found("Link not found.")
}
