//! The answers to requests that the database refuses, or cannot serve.

use crate::domain::conflict::Conflict;
use crate::domain::when::rfc3339;
use crate::http::error::{ApiError, Code};
use crate::store::StoreError;

impl From<Conflict> for ApiError {
    fn from(conflict: Conflict) -> Self {
        let code = match &conflict {
            Conflict::Key
            | Conflict::ExternalId
            | Conflict::Name(_)
            | Conflict::Url
            | Conflict::Assigned(..)
            | Conflict::HasLinks(..)
            | Conflict::Overlap(_) => Code::Conflict,
            Conflict::Domain | Conflict::TooMany(..) => Code::Forbidden,
            // As in the published API.
            Conflict::UnknownInScope { .. } => Code::BadRequest,
            Conflict::Unknown { .. }
            | Conflict::OtherTags(_)
            | Conflict::TooLong { .. }
            | Conflict::TooLarge
            | Conflict::NoIds(_)
            | Conflict::OtherScope(..) => Code::UnprocessableEntity,
        };
        Self::new(code, conflict.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let error = match error {
            StoreError::Conflict(conflict) => return conflict.into(),
            error => error,
        };
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
        if error.is_unavailability() {
            tracing::warn!(%error, "the database is unavailable or busy");
            return Self::unavailable();
        }
        if error.is_exhaustion() {
            tracing::error!(%error, "the database has no space left or is read-only");
            let message = "The database has no space left or is read-only. Try again later.";
            return Self::new(Code::ServiceUnavailable, message);
        }
        tracing::error!(error = %error, "database error");
        Self::internal()
    }
}
