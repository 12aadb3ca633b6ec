//! Waiting for what other processes and threads do.

use std::time::Duration;

use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use super::AgainstError;

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(10);

/// A runtime for what one thread waits for.
pub(super) fn runtime() -> Result<Runtime, AgainstError> {
    Builder::new_current_thread().enable_all().build().map_err(AgainstError::system("cannot wait"))
}

/// Asks until `probe` has an answer. `what` names what is waited for.
///
/// # Errors
/// When there is no answer within `patience`.
pub(super) fn until<T>(
    what: &'static str,
    patience: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> Result<T, AgainstError> {
    let runtime = runtime()?;
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Err(AgainstError::Patience { what, seconds: patience.as_secs() });
        }
        // A probe may have a runtime of its own, so it runs between two turns of this one.
        runtime.block_on(async { sleep(INTERVAL).await });
    }
}

/// Lets time pass.
pub(super) fn pass(time: Duration) -> Result<(), AgainstError> {
    runtime()?.block_on(async { sleep(time).await });
    Ok(())
}
