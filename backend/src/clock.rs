//! Where the service gets the time from: the system, or a test's hand.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// The time as the service sees it. Cheap to clone; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Stepped(watch::Receiver<Timestamp>),
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The present instant, in whole milliseconds, which is all that the API shows and the store keeps.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the service reads the system's clock")]
    pub fn now(&self) -> Timestamp {
        let now = match &self.0 {
            Source::System => Timestamp::now(),
            Source::Stepped(at) => *at.borrow(),
        };
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    /// Returns once the clock shows `instant` or later.
    pub async fn wait_until(&self, instant: Timestamp) {
        match &self.0 {
            Source::System => {
                let wait = instant.duration_since(self.now());
                tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
            }
            Source::Stepped(at) => {
                if at.clone().wait_for(|now| *now >= instant).await.is_err() {
                    // Nobody can step the clock any more, so the instant never comes.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// A clock that stands still until it is stepped, for tests.
#[derive(Debug)]
pub struct SteppedClock(watch::Sender<Timestamp>);

impl SteppedClock {
    /// A clock that shows `instant`.
    #[must_use]
    pub fn at(instant: Timestamp) -> Self {
        Self(watch::Sender::new(instant))
    }

    /// The clock to hand to the service.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Stepped(self.0.subscribe()))
    }

    /// Steps the clock forward and wakes whatever waited for the instants passed. Saturates at the last instant that
    /// a [`Timestamp`] can show.
    pub fn advance(&self, step: Duration) {
        let step = SignedDuration::try_from(step).unwrap_or(SignedDuration::MAX);
        self.0.send_modify(|now| *now = now.saturating_add(step).unwrap_or(Timestamp::MAX));
    }
}
