//! Reading the variable parts of a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::error::ApiError;

/// The one variable part of a path, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) String);

/// The two variable parts of a path, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) if is_name(&name) => Ok(Self(name)),
            Ok(_) | Err(_) => Err(invalid()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((first, second))) if is_name(&first) && is_name(&second) => Ok(Self(first, second)),
            Ok(_) | Err(_) => Err(invalid()),
        }
    }
}

/// The name in a part of a path as it was sent, if it needs no decoding.
pub(crate) fn plain(part: &str) -> Option<&str> {
    (!part.is_empty() && !part.contains('%')).then_some(part)
}

/// Bytes that are no UTF-8, and NUL, which the database cannot carry, are the name of nothing.
fn is_name(text: &str) -> bool {
    !text.contains('\0')
}

fn invalid() -> ApiError {
    ApiError::bad_request("The path is not valid.")
}
