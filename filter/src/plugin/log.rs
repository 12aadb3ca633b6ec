//! Logging what goes wrong with host calls.

use core::cell::Cell;

use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::log_limiter::LogLimiter;
use crate::host::Gateway;

thread_local! {
    /// The errors of host calls in this VM. A VM runs on one thread.
    static ERRORS: Cell<LogLimiter<HostError>> = Cell::default();
}

/// Logs a failure, but each at most once a second.
pub(super) fn log_failure(result: Result<(), HostError>) {
    if let Err(error) = result {
        log_error(error);
    }
}

/// Logs an error, but each at most once a second.
#[cold]
pub(super) fn log_error(error: HostError) {
    let mut errors = ERRORS.take();
    if let Some(left_out) = errors.admit(error, Gateway.now().ok()) {
        Gateway.log(LogLevel::Error, format_args!("weir: {error}{left_out}"));
    }
    ERRORS.set(errors);
}
