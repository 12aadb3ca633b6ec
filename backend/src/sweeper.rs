//! Deletes the rows of deleted links, tags, folders and webhooks, and old webhook events, in the background. Each
//! transaction is small, so that other writers do not wait long.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// Pause between two steps, in which other writers proceed.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Interval of the checks without a notification. They find what other processes have deleted.
const EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Retention of webhook events for the log and replays. It is much longer than all attempts take.
const EVENTS_KEPT: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Runs until `stop` is true or its sender is dropped. The next process deletes the remaining rows.
pub(crate) async fn run(store: Store, clock: Clock, deleted: Arc<Notify>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let now = clock.now();
        let next = now.saturating_add(EVERY).unwrap_or(Timestamp::MAX);
        while !*stop.borrow() {
            match step(&store, now).await {
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
async fn step(store: &Store, now: Timestamp) -> Result<bool, StoreError> {
    let events_before = now.saturating_sub(EVENTS_KEPT).unwrap_or(Timestamp::MIN);
    let deleted = [
        store.delete_rows().await?,
        store.sweep_tags().await?,
        store.sweep_folders().await?,
        store.sweep_webhooks().await?,
        store.purge_events(events_before).await?,
        store.free_keys(now).await?,
        store.sweep_answers(now).await?,
    ];
    Ok(deleted.contains(&true))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::links::PublicUrl;
    use crate::links::input::LinkInput;
    use crate::store::{LinkSelector, NewLink, NewWebhook};
    use crate::webhooks::{ScopeInput, Trigger};

    #[tokio::test]
    async fn no_kind_of_rows_waits_until_all_others_are_deleted() {
        let folder = TempDir::new().unwrap();
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        let body = serde_json::json!({"url": "https://example.com"});
        let new = NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let link = store.create_links(&workspace, &[new], now, None, None).await.unwrap().remove(0).unwrap();
        let tag = store.create_tag(&workspace, "t", None, now, None).await.unwrap().unwrap();
        let new = NewWebhook {
            name: "rx".to_owned(),
            url: "https://rx.test/".to_owned(),
            secret: None,
            triggers: vec![Trigger::Clicked],
            scope: ScopeInput::default(),
        };
        let webhook = store.create_webhook(&workspace, &new, 1, now, None).await.unwrap().unwrap();
        store.delete_links(&workspace, &[LinkSelector::Id(link.id)], now).await.unwrap();
        store.delete_tag(&workspace, &tag.id).await.unwrap();
        store.delete_webhook(&workspace, &webhook.id).await.unwrap();
        assert!(step(&store, now).await.unwrap());
        let left = [
            store.delete_rows().await.unwrap(),
            store.sweep_tags().await.unwrap(),
            store.sweep_webhooks().await.unwrap(),
        ];
        assert_eq!(left, [false; 3], "after one step");
        assert!(!step(&store, now).await.unwrap());
    }
}
