//! The retention of clicks, and the deletion of expired clicks, also of those set aside, and of the webhook events that contain them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::store::{Store, StoreError};
use crate::sweeper::PAUSE;

/// Interval of the checks for expired clicks.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

const HOUR: i64 = 3_600_000;

/// The time for which clicks are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention(Option<SignedDuration>);

impl Retention {
    /// None keeps clicks forever.
    pub(crate) fn new(retention: Option<Duration>) -> Self {
        Self(retention.map(|retention| SignedDuration::try_from(retention).unwrap_or(SignedDuration::MAX)))
    }

    /// The first instant whose clicks are kept: the start of the UTC hour in which the retention began. The rollups
    /// therefore have all earlier hours completely, and the earliest start in error messages stays valid for some time.
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

/// Deletes expired clicks until `stop` is true or its sender is dropped. The next process deletes the remaining clicks.
/// Several processes may delete clicks of one database at the same time.
pub(crate) async fn run(store: Store, clock: Clock, retention: Retention, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let now = clock.now();
        if let Err(error) = delete_expired(&store, retention.kept_from(now), &stop).await {
            tracing::error!(%error, "could not delete expired clicks");
        }
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = clock.wait_until(next) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

async fn delete_expired(
    store: &Store,
    kept_from: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<(), StoreError> {
    // The horizon never moves back, even if the operator has extended the retention.
    let kept_from = store.expire_clicks(kept_from).await?;
    if kept_from == Timestamp::UNIX_EPOCH {
        return Ok(());
    }
    for workspace in store.workspaces_with_expired_clicks(kept_from).await? {
        while !*stop.borrow() && store.delete_expired_clicks(workspace, kept_from).await? {
            tokio::time::sleep(PAUSE).await;
        }
    }
    while !*stop.borrow() && store.delete_expired_click_events(kept_from).await? {
        tokio::time::sleep(PAUSE).await;
    }
    while !*stop.borrow() && store.delete_expired_set_aside(kept_from).await? {
        tokio::time::sleep(PAUSE).await;
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
