//! The error envelope `{"error": {"code", "message", "doc_url"}}` of the published API. Each status has one code.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::availability::Away;
use crate::store::{NameConflict, StoreError};
use crate::when::rfc3339;

/// The error code, which determines the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// 400: the request is malformed.
    BadRequest,
    /// 401: the key is missing or unknown.
    Unauthorized,
    /// 403: the key does not have permission.
    Forbidden,
    /// 404: the workspace has no such object.
    NotFound,
    /// 405: the path exists, but not with this method.
    MethodNotAllowed,
    /// 408: the request was not received or answered in time.
    RequestTimeout,
    /// 409: the object already exists.
    Conflict,
    /// 410: the link has expired.
    Gone,
    /// 413: the body is larger than [`crate::bodies::MAX_BODY_BYTES`].
    PayloadTooLarge,
    /// 415: the body has a content coding, such as gzip.
    UnsupportedMediaType,
    /// 422: the request is well-formed, but a field is invalid.
    UnprocessableEntity,
    /// 500: an internal error.
    InternalServerError,
    /// 503: the service cannot answer now. `Retry-After` states when to retry.
    ServiceUnavailable,
}

impl Code {
    /// The HTTP status of this code.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::UnprocessableEntity => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InternalServerError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
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
    /// The invalid field, if the error concerns one. The message contains it too.
    pub field: Option<InvalidField>,
    /// Whether the database had no space left.
    pub(crate) is_exhaustion: bool,
}

/// Marks a response to a request for which the database had no space left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhausted;

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    /// The path of the field: `url`, `geo.DE` or `tagIds[3]`.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, is_exhaustion: false }
    }

    /// An internal error. The caller logs the cause, which the response does not contain.
    pub(crate) fn internal() -> Self {
        Self::new(Code::InternalServerError, "An internal server error occurred.")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    /// The error for an invalid field. `issue` is an issue code of the published validator.
    pub(crate) fn invalid(issue: &str, path: &str, message: &str) -> Self {
        Self {
            field: Some(InvalidField { path: path.to_owned(), reason: message.to_owned() }),
            ..Self::new(Code::UnprocessableEntity, format!("{issue}: {path}: {message}"))
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_interruption() {
            tracing::warn!("a query exceeded its time limit and was interrupted");
            let message = "The query took too long and was interrupted. Narrow its range or filters, or try again \
                           later.";
            return Self::new(Code::ServiceUnavailable, message);
        }
        if let StoreError::Expired { kept_from } = error {
            let kept_from = rfc3339(kept_from);
            let message = format!(
                "Invalid range: clicks from before {kept_from} are deleted. The earliest start is {kept_from}. For \
                 earlier times, only counts by link and by whole UTC hours are available."
            );
            return Self::invalid("custom", "start", &message);
        }
        match error {
            StoreError::Repeated => {
                return Self::conflict("A request with this Idempotency-Key is in progress.");
            }
            StoreError::AnswerTooLarge => {
                let message = "The answer is too large to be kept for the Idempotency-Key. Create fewer links in one call.";
                return Self::new(Code::UnprocessableEntity, message);
            }
            _ => {}
        }
        if error.is_unavailability() {
            tracing::warn!(%error, "the database is unavailable or busy");
            return Away.into();
        }
        if error.is_exhaustion() {
            tracing::error!(%error, "the database has no space left");
            let message = "The database has no space left. Try again later.";
            return Self { is_exhaustion: true, ..Self::new(Code::ServiceUnavailable, message) };
        }
        tracing::error!(error = %error, "database error");
        Self::internal()
    }
}

impl From<Away> for ApiError {
    fn from(_: Away) -> Self {
        Self::new(Code::ServiceUnavailable, "The database does not answer. Try again later.")
    }
}

impl From<NameConflict> for ApiError {
    fn from(conflict: NameConflict) -> Self {
        let code = match conflict {
            NameConflict::Taken(_) => Code::Conflict,
            NameConflict::TooMany(_) => Code::Forbidden,
        };
        Self::new(code, conflict.to_string())
    }
}

/// The body of an error.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody {
    #[schema(inline)]
    error: ErrorFields,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ErrorFields {
    #[schema(inline)]
    code: Code,
    message: String,
    doc_url: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let doc_url = format!("https://www.rfc-editor.org/rfc/rfc9110#status.{}", status.as_u16());
        let error = ErrorFields { code: self.code, message: self.message, doc_url };
        let mut response = (status, Json(ErrorBody { error })).into_response();
        if self.code == Code::ServiceUnavailable {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.is_exhaustion {
            response.extensions_mut().insert(Exhausted);
        }
        response
    }
}
