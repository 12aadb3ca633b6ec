//! The deletion of expired clicks and of the webhook events that contain them.

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::{Background, PAUSE};
use crate::domain::retention::Retention;
use crate::store::StoreError;

/// Interval of the checks for expired clicks.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Why an event was dropped, in the log of deliveries.
const EXPIRED: &str = "dropped: the click has expired";

/// Deletes expired clicks until `stop` is true or its sender is dropped. The next process deletes the remaining clicks.
/// Several processes may delete clicks of one database at the same time.
pub(crate) async fn run(background: Background, retention: Retention, mut stop: watch::Receiver<bool>) {
    let clock = &background.clock;
    while !*stop.borrow() {
        let now = clock.now();
        if let Err(error) = delete_expired(&background, retention, now, &stop).await {
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
    background: &Background,
    retention: Retention,
    now: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<(), StoreError> {
    let Background { store, public, metrics, .. } = background;
    // The horizon never moves back, even if the operator has extended the retention.
    let kept_from = store.expire_clicks(retention.kept_from(now)).await?;
    if kept_from == Timestamp::UNIX_EPOCH {
        return Ok(());
    }
    // Otherwise webhooks that are behind would not hear of these clicks, and no count would say so.
    while !*stop.borrow()
        && let Some(dropped) = store.drop_unattempted_clicks(kept_from, EXPIRED, public, now).await?
    {
        metrics.webhook_events_dropped(dropped);
        tokio::time::sleep(PAUSE).await;
    }
    for workspace in store.workspaces_with_expired_clicks(kept_from).await? {
        while !*stop.borrow() && store.delete_expired_clicks(workspace, kept_from).await? {
            tokio::time::sleep(PAUSE).await;
        }
    }
    while !*stop.borrow() && store.delete_expired_click_events(kept_from).await? {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
