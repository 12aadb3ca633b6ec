//! Logging what goes wrong with host calls.

use core::cell::Cell;

use crate::count::shared_data::HostError;
use crate::count::swap::CounterHost as _;
use crate::decide::host::LogLevel;
use crate::host::Gateway;
use crate::log_limiter::LogLimiter;

thread_local! {
    /// The errors of host calls in this VM. A VM runs on one thread.
    static ERRORS: Cell<LogLimiter<HostError>> = Cell::default();
}

/// What a host call returned; the default if it failed. Each failure is logged at most once a second.
pub(super) fn logged<T: Default>(result: Result<T, HostError>) -> T {
    result.inspect_err(log_error).unwrap_or_default()
}

#[cold]
fn log_error(error: &HostError) {
    let mut errors = ERRORS.take();
    if let Some(left_out) = errors.admit(*error, Gateway.now().ok()) {
        Gateway.log(LogLevel::Error, format_args!("weir: {error}{left_out}"));
    }
    ERRORS.set(errors);
}
