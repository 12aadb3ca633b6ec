//! Replays: events that are sent to a webhook again.

use jiff::Timestamp;
use sqlx::Row;

use super::delivery_log::{DeliveryFilter, DeliveryStatus, FAILED};
use super::outbox::keep_webhook;
use super::sql::Sql;
use super::webhooks::Webhook;
use super::{Dialect, Store, StoreError};

/// Maximum number of events that one call sends.
pub(crate) const REPLAYED_AT_ONCE: u32 = 1_000;
/// Maximum number of deliveries that one query reads to find those that match.
const SCANNED_AT_ONCE: i64 = 5_000;
/// Maximum number of events that one transaction sends.
const PER_TRANSACTION: usize = 250;

/// The condition that a delivery `w` has come to an end and is the latest one of its event. The subquery is an entry of an index. With NOT
/// EXISTS, PostgreSQL may compare all deliveries of an event with each other.
const LATEST: &str = " AND w.due_at IS NULL AND w.seq = (SELECT MAX(n.seq) FROM webhook_deliveries n
    WHERE n.event_seq = w.event_seq AND n.webhook_seq = w.webhook_seq)";

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayedEvents {
    pub(crate) count: u64,
    /// Further events match.
    pub(crate) more: bool,
}

impl Store {
    /// Sends an event to a webhook again. False if the webhook never received it.
    pub(crate) async fn replay(
        &self,
        webhook: &Webhook,
        event_id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let sql = replay_of_event(self.dialect, webhook, event_id, now);
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Sends a bounded number of events to a webhook again, oldest first: those whose latest delivery matches `filter` and is
    /// not pending.
    pub(crate) async fn replay_all(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        now: Timestamp,
    ) -> Result<ReplayedEvents, StoreError> {
        let most = REPLAYED_AT_ONCE as usize;
        let mut found = self.replayable(webhook, filter, most + 1).await?;
        let more = found.len() > most;
        found.truncate(most);
        let mut count = 0;
        for deliveries in found.chunks(PER_TRANSACTION) {
            count += self.send_again(webhook, deliveries, now).await?;
        }
        Ok(ReplayedEvents { count, more })
    }

    /// The first `most` deliveries that can be replayed, oldest first. The writer does not wait for this search.
    async fn replayable(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        most: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let (mut found, mut after) = (Vec::new(), 0);
        while found.len() < most {
            let last = if filter.event_ids.is_empty() {
                last_of_scan(webhook, filter, after).one(&self.read).await?.try_get(0)?
            } else {
                // There is one query. It finds the deliveries of the events by index.
                (after == 0).then_some(i64::MAX)
            };
            let Some(last) = last else { break };
            let limit = most - found.len();
            for row in matching(self.dialect, webhook, filter, (after, last), limit).all(&self.read).await? {
                found.push(row.try_get(0)?);
            }
            after = last;
        }
        Ok(found)
    }

    /// Sends the events of these deliveries again, unless they were replayed since or the webhook was deleted. Returns their
    /// number.
    async fn send_again(
        &self,
        webhook: &Webhook,
        deliveries: &[i64],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let (_turn, mut transaction) = self.begin_in_turn().await?;
        // Two replays of one webhook run one after the other, so that they do not send the same events.
        if !keep_webhook(&mut transaction, self.dialect, webhook).await? {
            return Ok(0);
        }
        let mut sql = Sql::new(
            "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
             SELECT w.event_seq, w.webhook_seq, 0, CAST(",
        );
        sql.bind(now.as_millisecond()).push(
            " AS BIGINT) FROM webhook_deliveries w JOIN webhook_events e ON e.seq = w.event_seq WHERE w.seq",
        );
        sql.in_numbers(self.dialect, deliveries).push(LATEST).push(" ORDER BY w.seq");
        sql.lock(self.dialect, " FOR KEY SHARE OF e");
        let sent = sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(sent)
    }
}

/// The statement that sends an event again, unless the event or the webhook was deleted. The plus keeps the database from reading all
/// deliveries of the webhook.
fn replay_of_event(dialect: Dialect, webhook: &Webhook, event_id: &str, now: Timestamp) -> Sql {
    let mut sql = Sql::new(
        "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
         SELECT d.event_seq, d.webhook_seq, 0, CAST(",
    );
    sql.bind(now.as_millisecond()).push(
        " AS BIGINT) FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
         JOIN webhooks h ON h.seq = d.webhook_seq AND h.workspace_seq > 0 WHERE +d.webhook_seq = ",
    );
    sql.bind(webhook.seq).push(" AND e.id = ").bind(event_id.to_owned()).push(" ORDER BY d.seq LIMIT 1");
    sql.lock(dialect, " FOR KEY SHARE OF e, h");
    sql
}

/// The last of the next deliveries to a webhook that one query reads. Null after the last delivery.
fn last_of_scan(webhook: &Webhook, filter: &DeliveryFilter, after: i64) -> Sql {
    let mut sql =
        Sql::new("SELECT MAX(s.seq) FROM (SELECT w.seq FROM webhook_deliveries w WHERE w.webhook_seq = ");
    sql.bind(webhook.seq);
    if filter.status == Some(DeliveryStatus::Failed) {
        sql.push(FAILED);
    }
    sql.push(" AND w.seq > ").bind(after).push(" ORDER BY w.seq LIMIT ").bind(SCANNED_AT_ONCE).push(") s");
    sql
}

/// The first deliveries after one and up to another that can be replayed.
fn matching(
    dialect: Dialect,
    webhook: &Webhook,
    filter: &DeliveryFilter,
    (after, last): (i64, i64),
    limit: usize,
) -> Sql {
    let mut sql = Sql::new("SELECT w.seq");
    filter.push(&mut sql, dialect, webhook);
    sql.push(LATEST).push(" AND w.seq > ").bind(after).push(" AND w.seq <= ").bind(last);
    sql.push(" ORDER BY w.seq LIMIT ").bind(i64::try_from(limit).unwrap_or(i64::MAX));
    sql
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::NewWebhook;
    use super::*;

    #[tokio::test]
    async fn a_search_reads_only_the_deliveries_that_may_match() {
        let folder = TempDir::new().unwrap();
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let workspace = store.create_workspace("test", now).await.unwrap();
        let new = NewWebhook::of_clicks();
        let webhook = store.create_webhook(&workspace, &new, 1, now, None).await.unwrap().unwrap();
        let failed = DeliveryFilter { status: Some(DeliveryStatus::Failed), ..DeliveryFilter::default() };
        let delivered =
            DeliveryFilter { status: Some(DeliveryStatus::Delivered), ..DeliveryFilter::default() };
        let named = DeliveryFilter { event_ids: vec!["evt_1".to_owned()], ..DeliveryFilter::default() };
        //  filter, how it finds the deliveries
        for (filter, expected) in [
            (&failed, "INDEX webhook_deliveries_failed (webhook_seq=? AND seq>?"),
            (&delivered, "INDEX webhook_deliveries_of_webhook (webhook_seq=? AND seq>?"),
            (&named, "INDEX webhook_deliveries_of_event (event_seq=?"),
        ] {
            let mut steps = Vec::new();
            for sql in
                [last_of_scan(&webhook, filter, 0), matching(store.dialect, &webhook, filter, (0, 9), 9)]
            {
                steps.extend(sql.steps(&store.read).await);
            }
            let finds = |step: &String| step.starts_with("SEARCH w") && step.contains(expected);
            assert!(steps.iter().any(finds), "{expected}: {steps:#?}");
            let later =
                "SEARCH n USING COVERING INDEX webhook_deliveries_of_event (event_seq=? AND webhook_seq=?)";
            assert!(steps.iter().any(|step| step == later), "{steps:#?}");
            assert!(!steps.iter().any(|step| step.starts_with("SCAN w")), "{steps:#?}");
        }
        let steps = replay_of_event(store.dialect, &webhook, "evt_1", now).steps(&store.read).await;
        let by_event = |step: &String| {
            step.starts_with("SEARCH d") && step.contains("INDEX webhook_deliveries_of_event (event_seq=?")
        };
        assert!(steps.iter().any(by_event), "{steps:#?}");
    }
}
