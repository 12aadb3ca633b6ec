//! The real clock, for gateways that live by it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;

/// Time since the Unix epoch.
#[must_use]
pub fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a real gateway's windows follow the real clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How much is left at `now` of the current window, windows being aligned to the epoch.
#[must_use]
pub fn left_of(window: Duration, now: Duration) -> Duration {
    let into = now.as_nanos() % window.as_nanos();
    window.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX)))
}

/// Waits, if need be, until at least `story` is left of the current window.
pub fn wait_for_room(window: Duration, story: Duration) {
    let left = left_of(window, now());
    if left < story {
        pass(left);
    }
}

/// Lets time pass.
pub fn pass(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "only for a window of the real clock to end")]
    std::thread::sleep(time);
}

/// Asks until `probe` has an answer, for what can be asked but does not report by itself.
///
/// # Errors
/// When there is none within `patience`; `what` says what was waited for.
pub fn eventually<T>(
    what: &str,
    patience: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    #[expect(clippy::disallowed_methods, reason = "the patience of a test is real time")]
    let started = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if started.elapsed() > patience {
            bail!("{what}: not within {patience:?}");
        }
        #[expect(clippy::disallowed_methods, reason = "between two questions")]
        std::thread::sleep(Duration::from_millis(10));
    }
}
