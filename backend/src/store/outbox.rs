//! The outbox: undelivered events, and the log of deliveries.

use jiff::{SignedDuration, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::webhooks::{Webhook, listeners};
use super::{Dialect, Store, StoreError, Workspace, instant_of, optional_instant_of, to_json};
use crate::links::Link;
use crate::webhooks::{Event, Trigger};

/// Maximum number of events that one replay sends.
pub(crate) const REPLAYED_AT_ONCE: u32 = 1_000;

/// A due delivery. This process owns it until the lease ends.
#[derive(Clone, Debug)]
pub(crate) struct DueDelivery {
    pub(crate) seq: i64,
    pub(crate) webhook_seq: i64,
    pub(crate) event_id: String,
    pub(crate) payload: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    /// The previous secret, during the overlap of a rotation.
    pub(crate) old_secret: Option<String>,
    /// Number of previous attempts.
    pub(crate) attempts: u32,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver accepted the event.
    Delivered,
    /// The next attempt is at this instant.
    Retry(Timestamp),
    /// The delivery failed.
    Failed,
    /// The delivery failed, and the receiver wants no more events.
    Gone,
}

/// An attempt in the log.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    pub(crate) http_status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) response_body: String,
}

/// A delivery in the log.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryRecord {
    pub(crate) event_id: String,
    pub(crate) event: String,
    pub(crate) payload: String,
    pub(crate) created_at: Timestamp,
    pub(crate) delivered_at: Option<Timestamp>,
    /// None if there will be no further attempt.
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) attempts: Vec<Attempt>,
}

/// The status of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryStatus {
    Pending,
    Delivered,
    Failed,
}

/// A filter for the deliveries to a webhook. Empty fields do not restrict it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryFilter {
    pub(crate) status: Option<DeliveryStatus>,
    pub(crate) trigger: Option<Trigger>,
    /// The earliest time of the event.
    pub(crate) start: Option<Timestamp>,
    /// The latest time of the event.
    pub(crate) end: Option<Timestamp>,
    pub(crate) event_ids: Vec<String>,
}

impl DeliveryFilter {
    /// Appends a source of the filtered deliveries `w` and their events `e`.
    fn push(&self, sql: &mut Sql, dialect: Dialect, webhook: &Webhook) {
        sql.push(
            " FROM webhook_deliveries w JOIN webhook_events e ON e.seq = w.event_seq WHERE w.webhook_seq = ",
        );
        sql.bind(webhook.seq);
        sql.push(match self.status {
            None => "",
            Some(DeliveryStatus::Pending) => " AND w.due_at IS NOT NULL",
            Some(DeliveryStatus::Delivered) => " AND w.delivered_at IS NOT NULL",
            Some(DeliveryStatus::Failed) => " AND w.due_at IS NULL AND w.delivered_at IS NULL",
        });
        if let Some(trigger) = self.trigger {
            sql.push(" AND e.event = ").bind(trigger.name().to_owned());
        }
        if let Some(start) = self.start {
            sql.push(" AND e.created_at >= ").bind(start.as_millisecond());
        }
        if let Some(end) = self.end {
            sql.push(" AND e.created_at <= ").bind(end.as_millisecond());
        }
        if !self.event_ids.is_empty() {
            let ids: Vec<&str> = self.event_ids.iter().map(String::as_str).collect();
            sql.push(" AND e.id IN ").texts(dialect, &ids);
        }
    }
}

/// The deliveries that are not made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxBacklog {
    due: Waiting,
    later: Waiting,
    disabled: Waiting,
}

/// Deliveries in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) count: i64,
    /// When the first of them fell, or falls, due.
    pub(crate) oldest: Option<Timestamp>,
}

impl OutboxBacklog {
    /// The deliveries by state: those that are due, those that are under way or to be tried later, and those to disabled
    /// webhooks.
    pub(crate) fn by_state(&self) -> [(&'static str, &Waiting); 3] {
        [("due", &self.due), ("later", &self.later), ("disabled", &self.disabled)]
    }
}

impl Store {
    /// The deliveries that are not made.
    pub(crate) async fn outbox_backlog(&self, now: Timestamp) -> Result<OutboxBacklog, StoreError> {
        let mut sql =
            Sql::new("SELECT CASE WHEN h.disabled_at IS NOT NULL THEN 'disabled' WHEN d.due_at <= ");
        sql.bind(now.as_millisecond()).push(
            " THEN 'due' ELSE 'later' END AS state, COUNT(*) AS deliveries, MIN(d.due_at) AS oldest
             FROM webhook_deliveries d JOIN webhooks h ON h.seq = d.webhook_seq WHERE d.due_at IS NOT NULL GROUP BY 1",
        );
        let mut backlog = OutboxBacklog::default();
        for row in sql.all(&self.read).await? {
            let waiting =
                Waiting { count: row.try_get("deliveries")?, oldest: optional_instant_of(&row, "oldest")? };
            match row.try_get::<String, _>("state")?.as_str() {
                "due" => backlog.due = waiting,
                "disabled" => backlog.disabled = waiting,
                _ => backlog.later = waiting,
            }
        }
        Ok(backlog)
    }

    /// Up to `limit` enabled webhooks with due deliveries, in the order of their oldest due delivery. The query reads
    /// one delivery of each webhook.
    pub(crate) async fn webhooks_due(&self, now: Timestamp, limit: i64) -> Result<Vec<i64>, StoreError> {
        let mut sql = Sql::new("");
        push_webhooks_due(&mut sql, now, limit);
        sql.all(&self.read).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Takes due deliveries, oldest first, up to a number for each webhook. Until `lease` has passed, no other process
    /// takes them. After that they are due again, because their process has died.
    pub(crate) async fn take_due_deliveries(
        &self,
        webhooks: &[(i64, i64)],
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let leased_until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
        let mut transaction = self.begin().await?;
        let mut seqs = Vec::new();
        for (webhook, limit) in webhooks {
            let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = ");
            sql.bind(leased_until.as_millisecond());
            sql.push(
                " WHERE seq IN (SELECT d.seq FROM webhook_deliveries d WHERE d.due_at IS NOT NULL AND d.webhook_seq = ",
            );
            sql.bind(*webhook).push(" AND d.due_at <= ").bind(now.as_millisecond());
            sql.push(" ORDER BY d.due_at, d.seq LIMIT ").bind(*limit);
            if self.dialect == Dialect::Postgres {
                sql.push(" FOR UPDATE SKIP LOCKED");
            }
            sql.push(") RETURNING seq");
            for row in sql.all(&mut *transaction).await? {
                seqs.push(row.try_get::<i64, _>(0)?);
            }
        }
        let mut sql = Sql::new(
            "SELECT d.seq, d.webhook_seq, e.id AS event_id, e.payload, h.url, h.secret, d.attempts,
             CASE WHEN h.old_secret_until > ",
        );
        sql.bind(now.as_millisecond()).push(
            " THEN h.old_secret END AS old_secret FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
             JOIN webhooks h ON h.seq = d.webhook_seq WHERE h.disabled_at IS NULL AND d.seq IN ",
        );
        sql.list(seqs).push(" ORDER BY d.seq");
        let due = sql.all(&mut *transaction).await?.iter().map(due_delivery).collect();
        transaction.commit().await?;
        due
    }

    /// Releases deliveries that an earlier process had taken. Only for a database of one process.
    pub(crate) async fn release_deliveries(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.dialect == Dialect::Sqlite {
            let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = ");
            sql.bind(now.as_millisecond())
                .push(" WHERE attempts = 0 AND due_at > ")
                .bind(now.as_millisecond());
            sql.execute(&self.write).await?;
        }
        Ok(())
    }

    /// Records the outcome of an attempt. A webhook is disabled after `disable_after` consecutive failed events, or if
    /// its receiver is gone.
    pub(crate) async fn finish_attempt(
        &self,
        delivery: &DueDelivery,
        attempt: &Attempt,
        outcome: &Outcome,
        disable_after: u32,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let mut sql = Sql::new(
            "INSERT INTO webhook_attempts (delivery_seq, at, http_status, error, response_body) SELECT d.seq, ",
        );
        sql.bind(attempt.at.as_millisecond()).push(", ").bind(attempt.http_status.map(i64::from)).push(", ");
        sql.bind(attempt.error.clone()).push(", ").bind(attempt.response_body.clone());
        sql.push(" FROM webhook_deliveries d WHERE d.seq = ").bind(delivery.seq);
        sql.execute(&mut *transaction).await?;

        let (due_at, delivered_at) = match outcome {
            Outcome::Delivered => (None, Some(attempt.at.as_millisecond())),
            Outcome::Retry(at) => (Some(at.as_millisecond()), None),
            Outcome::Failed | Outcome::Gone => (None, None),
        };
        let mut sql = Sql::new("UPDATE webhook_deliveries SET attempts = attempts + 1, due_at = ");
        sql.bind(due_at)
            .push(", delivered_at = ")
            .bind(delivered_at)
            .push(" WHERE seq = ")
            .bind(delivery.seq);
        sql.execute(&mut *transaction).await?;

        let at = attempt.at.as_millisecond();
        let webhook = match outcome {
            Outcome::Retry(_) => None,
            Outcome::Delivered => {
                Some(Sql::new("UPDATE webhooks SET failures = 0 WHERE failures <> 0 AND seq = "))
            }
            Outcome::Failed => {
                let mut sql = Sql::new(
                    "UPDATE webhooks SET failures = failures + 1, disabled_at = CASE WHEN failures + 1 >= ",
                );
                sql.bind(i64::from(disable_after))
                    .push(" THEN ")
                    .bind(at)
                    .push(" ELSE disabled_at END WHERE seq = ");
                Some(sql)
            }
            Outcome::Gone => {
                let mut sql = Sql::new("UPDATE webhooks SET disabled_at = ");
                sql.bind(at).push(" WHERE seq = ");
                Some(sql)
            }
        };
        if let Some(mut sql) = webhook {
            sql.bind(delivery.webhook_seq);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// A page of the deliveries to a webhook, newest first.
    pub(crate) async fn deliveries(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        skip: i64,
        size: i64,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        // One statement, so that deliveries and attempts are consistent.
        let mut sql = Sql::new(
            "SELECT d.seq, e.id AS event_id, e.event, e.payload, e.created_at, d.delivered_at, d.due_at,
             a.at, a.http_status, a.error, a.response_body
             FROM (SELECT w.*",
        );
        filter.push(&mut sql, self.dialect, webhook);
        sql.push(" ORDER BY w.seq DESC LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        sql.push(
            ") d JOIN webhook_events e ON e.seq = d.event_seq
             LEFT JOIN webhook_attempts a ON a.delivery_seq = d.seq ORDER BY d.seq DESC, a.seq",
        );
        let mut records: Vec<(i64, DeliveryRecord)> = Vec::new();
        for row in sql.all(&self.read).await? {
            let seq = row.try_get("seq")?;
            let attempt = attempt(&row)?;
            match records.last_mut() {
                Some((last, record)) if *last == seq => record.attempts.extend(attempt),
                _ => records.push((seq, record(&row, attempt)?)),
            }
        }
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Writes an event for one webhook, regardless of its triggers.
    pub(crate) async fn send_to(
        &self,
        workspace: &Workspace,
        webhook: &Webhook,
        event: Event,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        enqueue_to(&mut transaction, self.dialect, workspace.seq, &[(event, vec![webhook.seq])]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Sends an event to a webhook again. False if the webhook never received it.
    pub(crate) async fn replay(
        &self,
        webhook: &Webhook,
        event_id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut sql = Sql::new(
            "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
             SELECT d.event_seq, d.webhook_seq, 0, ",
        );
        sql.push("CAST(").bind(now.as_millisecond()).push(" AS BIGINT)");
        sql.push(
            " FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq WHERE d.webhook_seq = ",
        );
        sql.bind(webhook.seq).push(" AND e.id = ").bind(event_id.to_owned()).push(" ORDER BY d.seq LIMIT 1");
        Ok(sql.execute(&self.write).await? == 1)
    }

    /// Sends a bounded number of events to a webhook again, oldest first: those whose latest delivery matches `filter`.
    /// Returns the number of events.
    pub(crate) async fn replay_all(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut sql = Sql::new(
            "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
             SELECT w.event_seq, w.webhook_seq, 0, CAST(",
        );
        sql.bind(now.as_millisecond()).push(" AS BIGINT)");
        filter.push(&mut sql, self.dialect, webhook);
        sql.push(
            " AND NOT EXISTS (SELECT 1 FROM webhook_deliveries n WHERE n.event_seq = w.event_seq
             AND n.webhook_seq = w.webhook_seq AND n.seq > w.seq) ORDER BY w.seq LIMIT ",
        );
        sql.bind(i64::from(REPLAYED_AT_ONCE));
        Ok(sql.execute(&self.write).await?)
    }

    /// Deletes events from before `before` with their deliveries and attempts.
    pub(crate) async fn purge_events(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut sql = Sql::new("DELETE FROM webhook_events WHERE created_at < ");
        sql.bind(before.as_millisecond());
        Ok(sql.execute(&self.write).await?)
    }
}

fn push_webhooks_due(sql: &mut Sql, now: Timestamp, limit: i64) {
    // Jumps by index from one webhook with a due delivery to the next.
    sql.push(
        "WITH RECURSIVE w (seq) AS (
         SELECT MIN(d.webhook_seq) FROM webhook_deliveries d WHERE d.due_at IS NOT NULL
         UNION ALL
         SELECT (SELECT MIN(d.webhook_seq) FROM webhook_deliveries d
         WHERE d.due_at IS NOT NULL AND d.webhook_seq > w.seq) FROM w WHERE w.seq IS NOT NULL)
         SELECT q.seq FROM (SELECT h.seq, (SELECT MIN(d.due_at) FROM webhook_deliveries d
         WHERE d.due_at IS NOT NULL AND d.webhook_seq = h.seq) AS due
         FROM w JOIN webhooks h ON h.seq = w.seq WHERE h.disabled_at IS NULL) q WHERE q.due <= ",
    );
    sql.bind(now.as_millisecond()).push(" ORDER BY q.due, q.seq LIMIT ").bind(limit);
}

/// Writes an event about `link` for each webhook that receives it.
pub(super) async fn enqueue(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace_seq: i64,
    link: &Link,
    event: Event,
) -> Result<(), StoreError> {
    let webhooks = listeners(transaction, workspace_seq, event.trigger).await?;
    let listening = listening(&webhooks, link);
    if listening.is_empty() {
        return Ok(());
    }
    enqueue_to(transaction, dialect, workspace_seq, &[(event, listening)]).await
}

/// The numbers of the webhooks that receive events about `link`.
pub(super) fn listening(webhooks: &[Webhook], link: &Link) -> Vec<i64> {
    webhooks.iter().filter(|webhook| webhook.listens_to(link)).map(|webhook| webhook.seq).collect()
}

/// Writes events, with one delivery of each event to each of its webhooks.
pub(super) async fn enqueue_to(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace_seq: i64,
    events: &[(Event, Vec<i64>)],
) -> Result<(), StoreError> {
    let (mut rows, mut deliveries) = (Vec::new(), Vec::new());
    for (event, webhooks) in events {
        let payload = to_json("webhook payload", &event.payload())?;
        rows.push((&event.id, event.trigger.name(), payload, event.created_at.as_millisecond()));
        deliveries.extend(webhooks.iter().map(|webhook| (&event.id, *webhook)));
    }
    if deliveries.is_empty() {
        return Ok(());
    }
    let mut sql =
        Sql::new("INSERT INTO webhook_events (workspace_seq, id, event, payload, created_at) SELECT CAST(");
    sql.bind(workspace_seq)
        .push(" AS BIGINT), value->>0, value->>1, value->>2, CAST(value->>3 AS BIGINT) FROM ");
    sql.each(dialect, to_json("webhook events", &rows)?).in_order(dialect);
    sql.execute(&mut **transaction).await?;
    let mut sql = Sql::new(
        "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
         SELECT w.seq, CAST(value->>1 AS BIGINT), 0, w.created_at FROM ",
    );
    sql.each(dialect, to_json("webhook deliveries", &deliveries)?);
    sql.push(" CROSS JOIN webhook_events w WHERE w.id = value->>0");
    if dialect == Dialect::Postgres {
        sql.push(" ORDER BY key");
    }
    sql.execute(&mut **transaction).await?;
    Ok(())
}

fn due_delivery(row: &AnyRow) -> Result<DueDelivery, StoreError> {
    let attempts: i64 = row.try_get("attempts")?;
    let text = |column: &str| row.try_get::<String, _>(column);
    Ok(DueDelivery {
        seq: row.try_get("seq")?,
        webhook_seq: row.try_get("webhook_seq")?,
        event_id: text("event_id")?,
        payload: text("payload")?,
        url: text("url")?,
        secret: text("secret")?,
        old_secret: row.try_get("old_secret")?,
        attempts: u32::try_from(attempts).map_err(|error| StoreError::corrupt("webhook attempts", &error))?,
    })
}

fn record(row: &AnyRow, attempt: Option<Attempt>) -> Result<DeliveryRecord, StoreError> {
    Ok(DeliveryRecord {
        event_id: row.try_get("event_id")?,
        event: row.try_get("event")?,
        payload: row.try_get("payload")?,
        created_at: instant_of(row, "created_at")?,
        delivered_at: optional_instant_of(row, "delivered_at")?,
        due_at: optional_instant_of(row, "due_at")?,
        attempts: attempt.into_iter().collect(),
    })
}

/// The attempt in a row of the log. None if there was no attempt yet.
fn attempt(row: &AnyRow) -> Result<Option<Attempt>, StoreError> {
    let Some(at) = optional_instant_of(row, "at")? else { return Ok(None) };
    let status: Option<i64> = row.try_get("http_status")?;
    let status = status.map(u16::try_from).transpose();
    Ok(Some(Attempt {
        at,
        http_status: status.map_err(|error| StoreError::corrupt("webhook status", &error))?,
        error: row.try_get("error")?,
        response_body: row.try_get("response_body")?,
    }))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn no_delivery_is_read_to_learn_which_webhooks_something_waits_for() {
        let folder = TempDir::new().unwrap();
        let store =
            Store::open(&format!("sqlite:{}", folder.path().join("test.db").display())).await.unwrap();
        let mut sql = Sql::new("EXPLAIN QUERY PLAN ");
        push_webhooks_due(&mut sql, Timestamp::UNIX_EPOCH, 1);
        let plan = sql.all(&store.write).await.unwrap();
        let steps: Vec<String> = plan.iter().map(|row| row.try_get("detail").unwrap()).collect();
        let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" d ")).collect();
        assert!(reads.len() >= 3, "{steps:?}");
        for step in reads {
            assert!(step.starts_with("SEARCH d USING COVERING INDEX webhook_deliveries_due"), "{step}");
        }
    }
}
