//! Deletion of webhooks. No request finds a deleted webhook, and its deliveries are deleted in steps in the background.
//!
//! A deleted webhook belongs to workspace 0. Its URL can therefore be used again, and the outbox leaves its deliveries out.

use super::sql::Sql;
use super::{Store, StoreError, Workspace};

impl Store {
    /// Deletes a webhook. The sweeper deletes its deliveries. False if the workspace has no such webhook.
    pub(crate) async fn delete_webhook(&self, workspace: &Workspace, id: &str) -> Result<bool, StoreError> {
        // The row remains for a while, but not the secrets.
        let mut sql = Sql::new(
            "UPDATE webhooks SET workspace_seq = 0, url = id, secret = '', old_secret = NULL WHERE workspace_seq = ",
        );
        sql.bind(workspace.seq).push(" AND id = ").bind(id.to_owned());
        Ok(sql.execute(&self.write).await? == 1)
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use tempfile::TempDir;

    use super::super::sweep::DELIVERIES_PER_STEP;
    use super::super::{NewLink, NewWebhook};
    use super::*;
    use crate::domain::click::Click;
    use crate::domain::link_input::LinkInput;
    use crate::domain::public_url::PublicUrl;

    const ATTEMPTS: i64 = 10;

    async fn rows(store: &Store, query: &'static str) -> i64 {
        Sql::new(query).number(&store.read).await.unwrap()
    }

    /// The deliveries and the attempts that are left.
    async fn left(store: &Store) -> (i64, i64) {
        let deliveries = rows(store, "SELECT COUNT(*) FROM webhook_deliveries").await;
        (deliveries, rows(store, "SELECT COUNT(*) FROM webhook_attempts").await)
    }

    /// A store in a folder, with a webhook that had `clicks` deliveries of ten attempts each.
    async fn with_deliveries(folder: &TempDir, clicks: i64) -> (Store, Workspace, String) {
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let (now, public) = (Timestamp::UNIX_EPOCH, PublicUrl::parse("https://s.test").unwrap());
        let workspace = store.create_workspace("test", now).await.unwrap();
        let new = NewWebhook::of_clicks();
        let webhook = store.create_webhook(&workspace, &new, 1, now).await.unwrap();
        let body = serde_json::json!({"url": "https://example.com"});
        let new = NewLink::of(LinkInput::create(&body, "", now).unwrap(), &public);
        let made = store.create_links(&workspace, &[new], now, None).await.unwrap();
        let link = made.into_iter().next().unwrap().unwrap();
        let clicks: Vec<Click> = (0..clicks).map(|_| Click::new(&link.id, now)).collect();
        store.record_clicks(&clicks).await.unwrap();
        // As if a process had taken them all.
        let all = [(webhook.seq, clicks.len())];
        let leased = store.lease_deliveries(&all, SignedDuration::ZERO, now, &public).await.unwrap();
        assert_eq!(leased.deliveries.len(), clicks.len());
        let mut sql =
            Sql::new("INSERT INTO webhook_attempts (delivery_seq, at, response_body) SELECT d.seq, 0, ''");
        sql.push(" FROM webhook_deliveries d, json_each('[1,2,3,4,5,6,7,8,9,10]')");
        sql.execute(&store.write).await.unwrap();
        (store, workspace, webhook.id)
    }

    #[tokio::test]
    async fn deliveries_of_a_deleted_webhook_are_deleted_in_bounded_steps_by_one_process_after_another() {
        const DELIVERIES: i64 = 5 * DELIVERIES_PER_STEP / 2;
        let folder = TempDir::new().unwrap();
        let (mut store, workspace, id) = with_deliveries(&folder, DELIVERIES).await;
        assert!(!store.sweep().await.unwrap(), "none is deleted");
        assert!(store.delete_webhook(&workspace, &id).await.unwrap());
        assert!(!store.delete_webhook(&workspace, &id).await.unwrap(), "only once");
        assert_eq!(left(&store).await, (DELIVERIES, ATTEMPTS * DELIVERIES), "none in the request");
        for expected in [DELIVERIES - DELIVERIES_PER_STEP, DELIVERIES - 2 * DELIVERIES_PER_STEP, 0] {
            assert!(store.sweep().await.unwrap());
            assert_eq!(left(&store).await, (expected, ATTEMPTS * expected));
            store.close().await;
            store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
                .await
                .unwrap();
        }
        assert!(!store.sweep().await.unwrap());
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM webhooks").await, 0);
    }

    #[tokio::test]
    async fn old_events_are_deleted_in_bounded_steps() {
        const DELIVERIES: i64 = 5 * DELIVERIES_PER_STEP / 2;
        let folder = TempDir::new().unwrap();
        let (store, ..) = with_deliveries(&folder, DELIVERIES).await;
        let before = Timestamp::UNIX_EPOCH;
        assert!(!store.purge_events(before).await.unwrap(), "none is older");
        // Each event is replayed twice.
        let replays = "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts)
                       SELECT d.event_seq, d.webhook_seq, 0 FROM webhook_deliveries d, json_each('[1,2]')";
        Sql::new(replays).execute(&store.write).await.unwrap();
        let before = before + SignedDuration::from_millis(1);
        let (mut steps, mut deliveries, mut events) = (0, 3 * DELIVERIES, DELIVERIES);
        while store.purge_events(before).await.unwrap() {
            steps += 1;
            let (now_left, _) = left(&store).await;
            let events_left = rows(&store, "SELECT COUNT(*) FROM webhook_events").await;
            assert!(deliveries - now_left <= DELIVERIES_PER_STEP, "{deliveries} became {now_left}");
            assert!(events - events_left <= DELIVERIES_PER_STEP, "{events} became {events_left}");
            (deliveries, events) = (now_left, events_left);
        }
        assert_eq!((deliveries, events), (0, 0));
        assert!(steps >= 8, "{steps} steps");
    }
}
