//! Reading the variable part of a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::error::ApiError;

/// The one variable part of a path, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) if !name.contains('\0') => Ok(Self(name)),
            // Neither is the name of anything, and the database cannot carry NUL.
            Ok(_) | Err(_) => Err(ApiError::bad_request("The path is not valid.")),
        }
    }
}
