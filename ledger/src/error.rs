//! Why the service cannot run.

use std::error::Error;

/// Why an option, or a file that it names, cannot be used.
pub(crate) type Reason = Box<dyn Error + Send + Sync>;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ServeError {
    /// An option with the file or the address that it names, or what the system refuses.
    what: String,
    #[source]
    reason: Reason,
}

impl ServeError {
    pub(crate) fn new(what: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}
