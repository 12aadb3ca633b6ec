//! Turns at the only writer of SQLite, for transactions of the background and of bulk calls.
//!
//! The writer serves transactions in the order of their arrival. With turns, a customer's transaction waits for at most one of these.
//! While customers write, there is a pause after each turn: as long as the turn, and at most 50 ms.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Maximum number of rows that one transaction deletes or updates in the background.
pub(super) const ROWS_PER_STEP: i64 = 500;

/// Customers write until this time has passed since the beginning of their last transaction.
const RECENT: Duration = Duration::from_secs(1);
/// Maximum pause after a turn.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The turns. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    last: Arc<tokio::sync::Mutex<Option<Taken>>>,
    customers_wrote: Arc<Mutex<Option<Instant>>>,
}

/// A turn that is over.
#[derive(Clone, Copy, Debug)]
struct Taken {
    took: Duration,
    until: Instant,
}

/// A turn. The next one begins after it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    last: OwnedMutexGuard<Option<Taken>>,
    since: Instant,
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn take(&self) -> Turn {
        let last = Arc::clone(&self.last).lock_owned().await;
        let pause = pause(*last, self.customers_wrote(), Instant::now());
        // The shortest sleep takes a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Turn { last, since: Instant::now() }
    }

    /// Whether a customer's transaction has begun recently.
    pub(super) fn customers_write(&self) -> bool {
        self.customers_wrote().is_some_and(|wrote| is_recent(wrote, Instant::now()))
    }

    fn customers_wrote(&self) -> Option<Instant> {
        *self.customers_wrote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A customer's transaction begins.
    pub(super) fn customer_writes(&self) {
        *self.customers_wrote.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let until = Instant::now();
        *self.last = Some(Taken { took: until.duration_since(self.since), until });
    }
}

fn is_recent(wrote: Instant, now: Instant) -> bool {
    now.duration_since(wrote) < RECENT
}

/// The pause before the next turn: so that the time since the last one is as long as that one was, if customers write.
fn pause(last: Option<Taken>, customers_wrote: Option<Instant>, now: Instant) -> Duration {
    match (last, customers_wrote) {
        (Some(Taken { took, until }), Some(wrote)) if is_recent(wrote, now) => {
            took.min(LONGEST_PAUSE).saturating_sub(now.duration_since(until))
        }
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_pause_as_long_as_the_last_turn_while_customers_write() {
        let ms = Duration::from_millis;
        let now = Instant::now() + Duration::from_secs(60);
        //  duration of the last turn, time since it ended, time since a customer wrote, pause
        for (took, ended, wrote, expected) in [
            (ms(8), ms(0), Some(ms(0)), ms(8)),
            (ms(8), ms(5), Some(ms(999)), ms(3)),
            (ms(8), ms(20), Some(ms(10)), ms(0)),
            (ms(8), ms(0), Some(RECENT), ms(0)),
            (ms(8), ms(0), None, ms(0)),
            (ms(900), ms(0), Some(ms(0)), LONGEST_PAUSE),
        ] {
            let last = Some(Taken { took, until: now - ended });
            let pause = pause(last, wrote.map(|wrote| now - wrote), now);
            assert_eq!(pause, expected, "{took:?} until {ended:?} ago, {wrote:?}");
        }
        assert_eq!(pause(None, Some(now), now), ms(0));
    }

    #[tokio::test]
    async fn one_turn_begins_after_another() {
        let turns = Turns::default();
        let first = turns.take().await;
        let mut second = Box::pin(turns.take());
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut second).await.is_err());
        drop(first);
        second.await;
    }
}
