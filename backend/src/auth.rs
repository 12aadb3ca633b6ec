//! Authentication by API key.

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use crate::error::{ApiError, Code};
use crate::state::Shared;
use crate::store::Workspace;
use crate::{admission, permits};

/// The workspace of the request's API key (`Authorization: Bearer <key>`). A request accesses only the data of this
/// workspace. A request that needs a permit of the workspace waits for it. A request with a body acquires its permit after
/// the body is read, so that a slow sender holds none.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) workspace: Workspace,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = Self { workspace: workspace(parts, app).await? };
        app.permits.require(&caller.workspace, parts);
        if parts.method == Method::GET || parts.method == Method::DELETE {
            permits::acquire(&parts.extensions).await;
        }
        Ok(caller)
    }
}

/// The caller of an analytics query, which needs a permit of [`crate::admission`] instead.
#[derive(Clone, Debug)]
pub(crate) struct AnalyticsCaller(pub(crate) Caller);

impl FromRequestParts<Shared> for AnalyticsCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = Caller { workspace: workspace(parts, app).await? };
        app.permits.require_to_pass(&caller.workspace, parts);
        admission::soon(permits::acquire(&parts.extensions)).await?;
        Ok(Self(caller))
    }
}

/// The workspace of the request's key.
async fn workspace(parts: &Parts, app: &Shared) -> Result<Workspace, ApiError> {
    let workspace = app.store.workspace_of_key(bearer_key(parts)?).await?;
    workspace.ok_or_else(|| ApiError::new(Code::Unauthorized, "Unauthorized: Invalid API key."))
}

/// The key of the request. A key that is not UTF-8 is an unknown key.
fn bearer_key(parts: &Parts) -> Result<&[u8], ApiError> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
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
