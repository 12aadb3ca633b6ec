//! The host's two clocks: the wall, which can be set back, and the monotonic one, which only goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// A clock that a test steps by hand, or the machine's own.
///
/// Clones show and move the same time. Guests read the wall with `proxy_get_current_time_nanoseconds` and WASI's clock
/// 0, and the monotonic clock with WASI's clock 1. Timers and time-outs run on the monotonic clock.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Virtual(Arc<Stepped>),
    Real { start: Instant },
}

#[derive(Debug)]
struct Stepped {
    wall: AtomicU64,
    monotonic: AtomicU64,
}

/// Nanoseconds; saturates at the year 2554.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock {
    /// A clock that stands at `wall` until it is stepped. A time before 1970 counts as 1970.
    ///
    /// Takes a [`SystemTime`] or what turns into one, such as a `jiff::Timestamp`.
    pub fn at(wall: impl Into<SystemTime>) -> Self {
        Self::at_unix(wall.into().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// A clock that stands at this much after 1970-01-01T00:00:00Z until it is stepped.
    pub fn at_unix(since_epoch: Duration) -> Self {
        Self(Source::Virtual(Arc::new(Stepped {
            wall: AtomicU64::new(nanos(since_epoch)),
            // A machine that has been up for an hour: zero would hide faults of code that subtracts from it.
            monotonic: AtomicU64::new(nanos(Duration::from_secs(3600))),
        })))
    }

    /// The machine's clocks. Stepping them does nothing.
    #[expect(clippy::disallowed_methods, reason = "this is the crate's one real clock")]
    pub fn real() -> Self {
        Self(Source::Real { start: Instant::now() })
    }

    /// The wall, in time since 1970.
    #[expect(clippy::disallowed_methods, reason = "this is the crate's one real clock")]
    pub fn wall(&self) -> Duration {
        match &self.0 {
            Source::Virtual(stepped) => Duration::from_nanos(stepped.wall.load(Ordering::SeqCst)),
            Source::Real { .. } => {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
            }
        }
    }

    /// The monotonic clock, in time since an instant that only this process knows.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::Virtual(stepped) => Duration::from_nanos(stepped.monotonic.load(Ordering::SeqCst)),
            Source::Real { start } => start.elapsed(),
        }
    }

    pub(crate) fn wall_nanos(&self) -> u64 {
        nanos(self.wall())
    }

    pub(crate) fn monotonic_nanos(&self) -> u64 {
        nanos(self.monotonic())
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        self.advance_monotonic(by);
        self.step(|wall| wall.saturating_add(nanos(by)));
    }

    /// Lets time pass on the monotonic clock alone, as when the wall is held back.
    pub fn advance_monotonic(&self, by: Duration) {
        if let Source::Virtual(stepped) = &self.0 {
            stepped.monotonic.fetch_add(nanos(by), Ordering::SeqCst);
        }
    }

    /// Sets the wall, forward or back; the monotonic clock stands.
    pub fn set_wall(&self, to: impl Into<SystemTime>) {
        let to = to.into().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.step(|_| nanos(to));
    }

    /// Sets the wall back, as a time server may; the monotonic clock stands.
    pub fn step_wall_back(&self, by: Duration) {
        self.step(|wall| wall.saturating_sub(nanos(by)));
    }

    fn step(&self, next: impl Fn(u64) -> u64) {
        if let Source::Virtual(stepped) = &self.0 {
            stepped.wall.store(next(stepped.wall.load(Ordering::SeqCst)), Ordering::SeqCst);
        }
    }
}

impl Default for Clock {
    /// 2026-01-01T00:00:00Z: the start of a month, a day, an hour and a minute.
    fn default() -> Self {
        Self::at_unix(Duration::from_secs(1_767_225_600))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_may_step_back_while_the_monotonic_clock_goes_on() {
        let clock = Clock::at_unix(Duration::from_secs(100));
        let before = clock.monotonic();
        clock.advance(Duration::from_secs(10));
        clock.step_wall_back(Duration::from_secs(60));
        assert_eq!(clock.wall(), Duration::from_secs(50));
        assert_eq!(clock.monotonic() - before, Duration::from_secs(10));
    }
}
