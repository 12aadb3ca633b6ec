//! The error envelope `{"error": {"code", "message", "doc_url"}}` of the published API. Each status has one code.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

/// The error code, which determines the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// 400: the request is malformed.
    BadRequest = 400,
    /// 401: the key is missing or unknown.
    Unauthorized = 401,
    /// 403: the key does not have permission.
    Forbidden = 403,
    /// 404: the workspace has no such object.
    NotFound = 404,
    /// 405: the path exists, but not with this method.
    MethodNotAllowed = 405,
    /// 408: the request was not received or answered in time.
    RequestTimeout = 408,
    /// 409: the object already exists.
    Conflict = 409,
    /// 410: the link has expired.
    Gone = 410,
    /// 413: the body is larger than [`crate::MAX_BODY_BYTES`].
    PayloadTooLarge = 413,
    /// 415: the body has a content coding, such as gzip.
    UnsupportedMediaType = 415,
    /// 422: the request is well-formed, but a field is invalid.
    UnprocessableEntity = 422,
    /// 500: an internal error.
    InternalServerError = 500,
    /// 503: the service cannot answer now. `Retry-After` states when to retry.
    ServiceUnavailable = 503,
}

impl Code {
    /// The HTTP status of this code.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self as u16).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The error code.
    pub code: Code,
    /// The human-readable message.
    pub message: String,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// An internal error. The caller logs the cause, which the response does not contain.
    pub(crate) fn internal() -> Self {
        Self::new(Code::InternalServerError, "An internal server error occurred.")
    }

    /// The request was not received or answered within its time limit.
    pub(crate) fn timed_out() -> Self {
        Self::new(Code::RequestTimeout, "The request took too long.")
    }

    /// The database does not answer in time.
    pub(crate) fn unavailable() -> Self {
        Self::new(Code::ServiceUnavailable, "The database does not answer. Try again later.")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The error for an invalid field. `issue` is an issue code of the published validator.
    pub(crate) fn invalid(issue: &str, path: &str, message: &str) -> Self {
        Self::new(Code::UnprocessableEntity, format!("{issue}: {path}: {message}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let doc_url = format!("https://www.rfc-editor.org/rfc/rfc9110#status.{}", status.as_u16());
        let error = json!({ "code": self.code, "message": self.message, "doc_url": doc_url });
        let mut response = (status, Json(json!({ "error": error }))).into_response();
        if self.code == Code::ServiceUnavailable {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
