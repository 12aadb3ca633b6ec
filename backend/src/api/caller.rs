//! Authentication by API key.
//!
//! The routes of the API are within [`authenticated`], and within it [`super::places::in_place`] turns an [`Authenticated`] request into one
//! with a [`Caller`]. A handler cannot have a workspace in another way, so that none runs before its request has waited.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;

use crate::api::state::Shared;
use crate::http::error::{ApiError, Code};
use crate::store::Workspace;

/// The workspace of the request's API key (`Authorization: Bearer <key>`). A request accesses only the data of this workspace. It
/// has a place among the requests of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) workspace: Workspace,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(ApiError::internal)
    }
}

/// The workspace of a request that has waited for nothing yet.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated(pub(crate) Workspace);

/// Middleware that finds the workspace of the request's key.
pub(crate) async fn authenticated(
    State(app): State<Shared>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let found = app.store.workspace_of_key(bearer_key(request.headers())?).await?;
    let workspace =
        found.ok_or_else(|| ApiError::new(Code::Unauthorized, "Unauthorized: Invalid API key."))?;
    request.extensions_mut().insert(Authenticated(workspace));
    Ok(next.run(request).await)
}

/// The key of the request. A key that is not UTF-8 is an unknown key.
fn bearer_key(headers: &HeaderMap) -> Result<&[u8], ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(ApiError::new(Code::Unauthorized, "Missing Authorization header."));
    };
    // A gateway that counts requests could otherwise read a different key from the one that the service reads.
    if values.next().is_some() {
        return Err(ApiError::bad_request("More than one Authorization header."));
    }
    match value.as_bytes().split_at_checked("Bearer ".len()) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Ok(key.trim_ascii()),
        _ => Err(ApiError::bad_request(
            "Misconfigured authorization header. Did you forget to add 'Bearer '? Expected: Authorization: Bearer <key>",
        )),
    }
}
