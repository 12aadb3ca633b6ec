//! Deletes the rows of deleted links, tags, folders and webhooks, expired clicks and usage, and old webhook events, and drops events that have
//! waited for too long, in the background. Each transaction is small, so that other writers do not wait long. Several processes may do so at the same time.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::domain::clock::Clock;
use crate::domain::public_url::PublicUrl;
use crate::domain::retention::Retention;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// Pause between two steps, in which other writers proceed.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval of the checks without a notification. They find what other processes have deleted.
const EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Retention of webhook events for the log and replays. It is much longer than all attempts take.
const EVENTS_KEPT: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Maximum time for which an event waits for its first attempt, which bounds how far a webhook may be behind. It is documented.
const ATTEMPTED_WITHIN: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Why such an event was dropped, in the log of deliveries.
const TOO_LATE: &str = "dropped: no attempt within three days";
/// Why an event about an expired click was dropped.
const EXPIRED: &str = "dropped: the click has expired";

/// What the background tasks use.
#[derive(Clone)]
pub(crate) struct Background {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) public: PublicUrl,
    pub(crate) metrics: Metrics,
    pub(crate) retention: Retention,
}

/// Runs until `stop` is true or its sender is dropped. `deleted` notifies it of deletions. The next process deletes the remaining rows.
pub(crate) async fn run(background: Background, deleted: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    let clock = &background.clock;
    while !*stop.borrow() {
        let now = clock.now();
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        while !*stop.borrow() {
            match step(&background, now).await {
                Ok(true) => tokio::time::sleep(PAUSE).await,
                Ok(false) => break,
                Err(error) => {
                    tracing::error!(%error, "could not delete rows in the background");
                    break;
                }
            }
        }
        tokio::select! {
            () = deleted.notified() => {}
            () = clock.wait_until(next) => {}
            // This branch is also taken when the sender is dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

/// Deletes some rows of each kind, so that none waits until all others are deleted. False if there are none.
async fn step(background: &Background, now: Timestamp) -> Result<bool, StoreError> {
    let Background { store, public, metrics, .. } = background;
    let attempted_before = now.saturating_sub(ATTEMPTED_WITHIN).unwrap_or(Timestamp::MIN);
    let events = store.drop_unattempted_deliveries(attempted_before, TOO_LATE, now).await?;
    let clicks = store.drop_unattempted_clicks(attempted_before, TOO_LATE, public, now).await?;
    metrics.webhook_events_dropped(events + clicks.unwrap_or(0));
    let events_before = now.saturating_sub(EVENTS_KEPT).unwrap_or(Timestamp::MIN);
    let deleted = [
        events > 0 || clicks.is_some(),
        expire(background, now).await?,
        store.sweep(events_before).await?,
        store.free_keys(now).await?,
        store.expire_usage(now).await?,
    ];
    Ok(deleted.contains(&true))
}

/// Deletes some expired clicks, or the webhook events about them. False if there are none.
async fn expire(background: &Background, now: Timestamp) -> Result<bool, StoreError> {
    let Background { store, public, metrics, retention, .. } = background;
    // The horizon never moves back, even if the operator has extended the retention.
    let kept_from = store.expire_clicks(retention.kept_from(now)).await?;
    if kept_from == Timestamp::UNIX_EPOCH {
        return Ok(false);
    }
    // Otherwise webhooks that are behind would not hear of these clicks, and no count would say so.
    if let Some(dropped) = store.drop_unattempted_clicks(kept_from, EXPIRED, public, now).await? {
        metrics.webhook_events_dropped(dropped);
        return Ok(true);
    }
    let deleted = store.delete_expired_clicks(kept_from).await?;
    Ok(store.delete_expired_click_events(kept_from).await? || deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tag::Tag;
    use crate::store::sample::{NOW, Sample, public};
    use crate::store::{LinkSelector, NewWebhook};

    #[tokio::test]
    async fn no_kind_of_rows_waits_until_all_others_are_deleted() {
        let sample = Sample::new().await;
        let (store, workspace) = (&sample.store, &sample.workspace);
        let link = sample.links(1, &serde_json::json!({"url": "https://example.com"})).await.remove(0);
        let tag = store.create_label(workspace, Tag::named("t")).await.unwrap();
        let webhook = store.create_webhook(workspace, &NewWebhook::of_clicks(), 1, NOW).await.unwrap();
        store.delete_links(workspace, &[LinkSelector::Id(link.id)], NOW).await.unwrap();
        store.delete_label::<Tag>(workspace, &tag.id).await.unwrap();
        store.delete_webhook(workspace, &webhook.id).await.unwrap();
        let (clock, metrics) = (Clock::system(), Metrics::new());
        let (store, retention) = (store.clone(), Retention::new(None));
        let background = Background { store: store.clone(), clock, public: public(), metrics, retention };
        assert!(step(&background, NOW).await.unwrap());
        assert!(!store.sweep(NOW).await.unwrap(), "after one step");
        assert!(!step(&background, NOW).await.unwrap());
    }
}
