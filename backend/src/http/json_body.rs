//! Request bodies with JSON.

use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fields;
use super::value_count::{MAX_JSON_VALUES, has_too_many_values};
use crate::apart;
use crate::api::places::Received;
use crate::http::error::ApiError;

/// A request body with the fields of an object.
#[derive(Debug)]
pub(crate) struct Fields<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Fields<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let JsonBody(body) = JsonBody::from_request(request, state).await?;
        Ok(Self(fields::read(&body, "")?))
    }
}

/// A request body with any JSON value.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) Value);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let SizedJsonBody { value, .. } = SizedJsonBody::from_request(request, state).await?;
        Ok(Self(value))
    }
}

/// A request body with any JSON value, and its size.
#[derive(Debug)]
pub(crate) struct SizedJsonBody {
    pub(crate) value: Value,
    pub(crate) bytes: usize,
}

/// Parses the body that was read before the request had a place.
impl<S: Sync> FromRequest<S> for SizedJsonBody {
    type Rejection = ApiError;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, ApiError> {
        let body = request.extensions_mut().remove::<Received>();
        let Received(body) = body.ok_or_else(ApiError::internal)?;
        let bytes = body.len();
        Ok(Self { value: apart::run_on(bytes, move || parse(&body)).await?, bytes })
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    // RFC 8259, section 8.1: a parser may ignore a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if has_too_many_values(body) {
        let message = format!("Too big: expected the body to have <={MAX_JSON_VALUES} JSON values");
        return Err(ApiError::invalid("too_big", "", &message));
    }
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("Invalid JSON format in request body: {error}.")))
}
