//! How long clicks are kept, and the deletion of those that are older.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::store::{Store, StoreError};
use crate::sweeper::PAUSE;

/// How often expired clicks are looked for.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

const HOUR: i64 = 3_600_000;

/// How long clicks are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention(Option<SignedDuration>);

impl Retention {
    /// None keeps clicks for ever.
    pub(crate) fn new(retention: Option<Duration>) -> Self {
        Self(retention.map(|retention| SignedDuration::try_from(retention).unwrap_or(SignedDuration::MAX)))
    }

    /// The first instant whose clicks are kept: the start of the UTC hour in which the retention began. The hours before
    /// it are whole in the rollups, and what a client has learnt of it holds for some time.
    pub(crate) fn kept_from(self, now: Timestamp) -> Timestamp {
        let Some(began) = self.0.and_then(|retention| now.checked_sub(retention).ok()) else {
            return Timestamp::UNIX_EPOCH;
        };
        let began = began.as_millisecond();
        Timestamp::from_millisecond(began - began.rem_euclid(HOUR))
            .unwrap_or(Timestamp::MIN)
            .max(Timestamp::UNIX_EPOCH)
    }
}

/// Deletes expired clicks until `stop` turns true or its sender is gone. What is left then is deleted by the process that
/// is started next. Several processes on one database may do so at once.
pub(crate) async fn run(store: Store, clock: Clock, retention: Retention, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let now = clock.now();
        if let Err(error) = delete_expired(&store, retention.kept_from(now), &stop).await {
            tracing::error!(%error, "expired clicks could not be deleted");
        }
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = clock.wait_until(next) => {}
            // Also if nobody is left who could turn it.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

async fn delete_expired(
    store: &Store,
    kept_from: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<(), StoreError> {
    // Also where the operator keeps clicks longer now: whoever asks is told that these are gone.
    let kept_from = store.expire_clicks(kept_from).await?;
    if kept_from == Timestamp::UNIX_EPOCH {
        return Ok(());
    }
    for workspace in store.workspaces_with_expired_clicks(kept_from).await? {
        while !*stop.borrow() && store.delete_expired_clicks(workspace, kept_from).await? {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_are_kept_from_the_start_of_the_hour_in_which_the_retention_began() {
        const DAY: u64 = 86_400;
        let table = [
            (Some(DAY), "2026-03-15T12:34:56.789Z", "2026-03-14T12:00:00Z"),
            (Some(DAY), "2026-03-15T12:00:00Z", "2026-03-14T12:00:00Z"),
            (Some(DAY), "2026-03-15T11:59:59.999Z", "2026-03-14T11:00:00Z"),
            (Some(100 * 365 * DAY), "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
            (Some(u64::MAX), "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
            (None, "2026-03-15T12:34:56.789Z", "1970-01-01T00:00:00Z"),
        ];
        for (seconds, now, expected) in table {
            let retention = Retention::new(seconds.map(Duration::from_secs));
            assert_eq!(retention.kept_from(now.parse().unwrap()).to_string(), expected, "{seconds:?} {now}");
        }
    }
}
