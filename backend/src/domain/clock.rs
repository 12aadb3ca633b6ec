//! The service's source of time: the system clock or a clock that tests control.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// The service's clock. Cheap to clone; all clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Stepped(watch::Receiver<Timestamp>),
}

impl Clock {
    /// The system clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The current time in whole milliseconds, the precision of the API and the store.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the service reads the system's clock")]
    pub fn now(&self) -> Timestamp {
        let now = match &self.0 {
            Source::System => Timestamp::now(),
            Source::Stepped(at) => *at.borrow(),
        };
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// Waits until the clock shows `instant` or later.
    pub async fn wait_until(&self, instant: Timestamp) {
        match &self.0 {
            Source::System => {
                let wait = instant.duration_since(self.now());
                tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
            }
            Source::Stepped(at) => {
                if at.clone().wait_for(|now| *now >= instant).await.is_err() {
                    // The sender is gone, so the instant cannot be reached.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// A clock for tests. It moves only when it is stepped.
#[derive(Debug)]
pub struct SteppedClock(watch::Sender<Timestamp>);

impl SteppedClock {
    /// A clock that shows `instant`.
    #[must_use]
    pub fn at(instant: Timestamp) -> Self {
        Self(watch::Sender::new(instant))
    }

    /// The clock for the service.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Stepped(self.0.subscribe()))
    }

    /// Advances the clock and wakes the tasks that wait for the passed instants. Saturates at the maximum
    /// [`Timestamp`].
    pub fn advance(&self, step: Duration) {
        let step = SignedDuration::try_from(step).unwrap_or(SignedDuration::MAX);
        self.0.send_modify(|now| *now = now.saturating_add(step).unwrap_or(Timestamp::MAX));
    }
}
