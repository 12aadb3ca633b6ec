//! The answer to a request whose link cannot be stored.

use crate::error::{ApiError, Code};
use crate::store::LinkConflict;

impl From<LinkConflict> for ApiError {
    fn from(conflict: LinkConflict) -> Self {
        let code = match conflict {
            LinkConflict::Key | LinkConflict::ExternalId => Code::Conflict,
            LinkConflict::Domain => Code::Forbidden,
            LinkConflict::Unknown { .. }
            | LinkConflict::OtherTags(_)
            | LinkConflict::TooLong(_)
            | LinkConflict::TooLarge(_) => Code::UnprocessableEntity,
        };
        Self::new(code, conflict.to_string())
    }
}
