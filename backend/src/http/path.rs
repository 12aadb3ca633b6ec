//! Extractors for path parameters.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::http::error::ApiError;

/// The only path parameter, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) String);

/// The two path parameters, decoded.
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

/// The parameter as sent, if it contains no escapes.
pub(crate) fn plain(part: &str) -> Option<&str> {
    (!part.is_empty() && !part.contains('%')).then_some(part)
}

/// A parameter that is not UTF-8, or contains NUL, cannot name an object: PostgreSQL does not store such values.
fn is_name(text: &str) -> bool {
    !text.contains('\0')
}

fn invalid() -> ApiError {
    ApiError::bad_request("The path is not valid.")
}
