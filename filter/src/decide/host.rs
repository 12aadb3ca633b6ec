//! What deciding needs of the host besides counters.

use crate::count::shared_data::HostError;
pub use crate::count::swap::{CounterHost, LogLevel};

/// The host as the limiter needs it.
pub trait Host: CounterHost {
    /// `proxy_get_property`, its path's parts joined by NUL; `None` if the request has none, or one without a value.
    ///
    /// # Errors
    /// Any status but Ok, NotFound and SerializationFailure, which is how a null comes.
    fn property(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, HostError>;

    /// 16 bytes of WASI's `random_get`.
    ///
    /// # Errors
    /// Any answer but success.
    fn random(&mut self) -> Result<[u8; 16], HostError>;
}
