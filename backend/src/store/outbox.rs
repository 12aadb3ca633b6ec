//! The outbox: events that are to be delivered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::listeners::Listeners;
use super::reader::Reader;
use super::sql::Sql;
use super::webhooks::Webhook;
use super::{Dialect, Store, StoreError, Workspace, optional_instant_of, to_json};
use crate::links::Link;
use crate::webhooks::{Event, LinkSnapshot};

/// An attempt in the log.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    pub(crate) http_status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) response_body: String,
}

/// A webhook with due deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueWebhook {
    pub(crate) seq: i64,
    pub(crate) workspace_seq: i64,
}

/// The webhooks and workspaces for which no delivery may be taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithoutRoom {
    pub(crate) webhooks: Vec<i64>,
    pub(crate) workspaces: Vec<i64>,
}

/// A due delivery. This process owns it until the lease ends.
#[derive(Clone, Debug)]
pub(crate) struct DueDelivery {
    pub(crate) seq: i64,
    pub(crate) webhook: DueWebhook,
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

/// The pending deliveries.
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
    pub(crate) async fn outbox_backlog(
        &self,
        reader: &mut Reader,
        now: Timestamp,
    ) -> Result<OutboxBacklog, StoreError> {
        let mut sql = Sql::new("");
        push_backlog(&mut sql, now);
        let row = reader.one(sql).await?;
        let waiting = |count, oldest| {
            Ok::<_, StoreError>(Waiting {
                count: row.try_get(count)?,
                oldest: optional_instant_of(&row, oldest)?,
            })
        };
        Ok(OutboxBacklog {
            due: waiting("due", "oldest_due")?,
            later: waiting("later", "oldest_later")?,
            disabled: waiting("disabled", "oldest_disabled")?,
        })
    }

    /// Up to `limit` enabled webhooks with due deliveries: the first one of each workspace, the second ones, and so on, each in
    /// the order of their oldest due delivery. The query reads one delivery of each webhook.
    pub(crate) async fn webhooks_due(
        &self,
        now: Timestamp,
        without: &WithoutRoom,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError> {
        let mut sql = Sql::new("");
        push_webhooks_due(&mut sql, self.dialect, now, without, limit);
        sql.all(&self.read).await?.iter().map(due_webhook).collect()
    }

    /// Takes due deliveries, oldest first, up to a number for each webhook. Until `lease` has passed, no other process
    /// takes them. After that they are due again, because their process has died.
    pub(crate) async fn lease_deliveries(
        &self,
        webhooks: &[(i64, i64)],
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<i64>, StoreError> {
        let leased_until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
        let turn = self.turn().await;
        let mut transaction = self.begin_in(turn.as_ref()).await?;
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
        transaction.commit().await?;
        Ok(seqs)
    }

    /// The deliveries that this process has leased. They are not read in the transaction that leases them: payloads may be large,
    /// and SQLite has one writer.
    pub(crate) async fn leased_deliveries(
        &self,
        seqs: &[i64],
        now: Timestamp,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let mut sql = Sql::new(
            "SELECT d.seq, d.webhook_seq, h.workspace_seq, e.id AS event_id, h.url, h.secret, d.attempts, ",
        );
        sql.push(PAYLOAD).push(", CASE WHEN h.old_secret_until > ").bind(now.as_millisecond());
        sql.push(
            " THEN h.old_secret END AS old_secret FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
             JOIN webhooks h ON h.seq = d.webhook_seq",
        );
        sql.push(SNAPSHOT).push(" WHERE h.workspace_seq > 0 AND h.disabled_at IS NULL AND d.seq IN ");
        sql.list(seqs.iter().copied()).push(" ORDER BY d.seq");
        sql.all(&self.read).await?.iter().map(due_delivery).collect()
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
        let finished = Finished { delivery, attempt, outcome, disable_after };
        match self.dialect {
            Dialect::Sqlite => {
                let turn = self.turn().await;
                let mut transaction = self.begin_in(turn.as_ref()).await?;
                for push in Finished::STATEMENTS {
                    let mut sql = Sql::new("");
                    push(&finished, &mut sql);
                    sql.execute(&mut *transaction).await?;
                }
                transaction.commit().await?;
            }
            // One round trip instead of five.
            Dialect::Postgres => {
                let mut sql = Sql::new("");
                for (name, push) in
                    ["WITH a AS (", "), d AS (", "), h AS ("].into_iter().zip(Finished::STATEMENTS)
                {
                    push(&finished, sql.push(name));
                }
                sql.push(") SELECT 1");
                sql.execute(&self.write).await?;
            }
        }
        Ok(())
    }

    /// Writes an event for one webhook, regardless of its triggers. False if the webhook was deleted.
    pub(crate) async fn send_to(
        &self,
        workspace: &Workspace,
        webhook: &Webhook,
        event: Event,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        if !keep_webhook(&mut transaction, self.dialect, webhook).await? {
            return Ok(false);
        }
        enqueue_to(&mut transaction, self.dialect, workspace.seq, &[(event, vec![webhook.seq])]).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// An attempt that has ended.
struct Finished<'a> {
    delivery: &'a DueDelivery,
    attempt: &'a Attempt,
    outcome: &'a Outcome,
    disable_after: u32,
}

impl Finished<'_> {
    /// What appends the statements that record the attempt, each on another table.
    const STATEMENTS: [fn(&Self, &mut Sql); 3] =
        [Self::push_attempt, Self::push_delivery, Self::push_webhook];

    fn push_attempt(&self, sql: &mut Sql) {
        let Self { attempt, delivery, .. } = self;
        sql.push(
            "INSERT INTO webhook_attempts (delivery_seq, at, http_status, error, response_body) SELECT d.seq, CAST(",
        );
        sql.bind(attempt.at.as_millisecond()).push(" AS BIGINT), CAST(");
        sql.bind(attempt.http_status.map(i64::from)).push(" AS BIGINT), CAST(");
        sql.bind(attempt.error.clone()).push(" AS TEXT), CAST(");
        sql.bind(attempt.response_body.clone()).push(" AS TEXT)");
        sql.push(" FROM webhook_deliveries d WHERE d.seq = ").bind(delivery.seq);
    }

    fn push_delivery(&self, sql: &mut Sql) {
        let (due_at, delivered_at) = match self.outcome {
            Outcome::Delivered => (None, Some(self.attempt.at.as_millisecond())),
            Outcome::Retry(at) => (Some(at.as_millisecond()), None),
            Outcome::Failed | Outcome::Gone => (None, None),
        };
        sql.push("UPDATE webhook_deliveries SET attempts = attempts + 1, due_at = ").bind(due_at);
        sql.push(", delivered_at = ").bind(delivered_at).push(" WHERE seq = ").bind(self.delivery.seq);
    }

    fn push_webhook(&self, sql: &mut Sql) {
        let at = self.attempt.at.as_millisecond();
        match self.outcome {
            // Only the last attempt decides.
            Outcome::Retry(_) => sql.push("UPDATE webhooks SET failures = failures WHERE FALSE"),
            Outcome::Delivered => sql.push("UPDATE webhooks SET failures = 0 WHERE failures <> 0"),
            Outcome::Failed => {
                sql.push(
                    "UPDATE webhooks SET failures = failures + 1, disabled_at = CASE WHEN failures + 1 >= ",
                )
                .bind(i64::from(self.disable_after));
                sql.push(" THEN ").bind(at).push(" ELSE disabled_at END WHERE TRUE")
            }
            Outcome::Gone => sql.push("UPDATE webhooks SET disabled_at = ").bind(at).push(" WHERE TRUE"),
        };
        // The sweeper holds the row of a deleted webhook while it waits for this delivery.
        sql.push(" AND workspace_seq > 0 AND seq = ").bind(self.delivery.webhook.seq);
    }
}

/// Keeps a webhook from being deleted until the transaction ends. Transactions that keep the same one run one after another. False if it
/// was deleted.
pub(super) async fn keep_webhook(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    webhook: &Webhook,
) -> Result<bool, StoreError> {
    let mut sql = Sql::new("SELECT h.seq FROM webhooks h WHERE h.workspace_seq > 0 AND h.seq = ");
    sql.bind(webhook.seq).lock(dialect, " FOR NO KEY UPDATE");
    Ok(sql.optional(&mut **transaction).await?.is_some())
}

/// Appends a query that counts the deliveries that are not made in one row. Groups would be sorted.
fn push_backlog(sql: &mut Sql, now: Timestamp) {
    let states = [
        ("h.disabled_at IS NULL AND d.due_at <= ", ") AS due", ") AS oldest_due"),
        ("h.disabled_at IS NULL AND d.due_at > ", ") AS later", ") AS oldest_later"),
    ];
    sql.push("SELECT ");
    for (condition, count, oldest) in states {
        for (aggregate, name) in [("COUNT(*)", count), ("MIN(d.due_at)", oldest)] {
            sql.push(aggregate).push(" FILTER (WHERE ").push(condition);
            sql.bind(now.as_millisecond()).push(name).push(", ");
        }
    }
    sql.push(
        "COUNT(*) FILTER (WHERE h.disabled_at IS NOT NULL) AS disabled,
         MIN(d.due_at) FILTER (WHERE h.disabled_at IS NOT NULL) AS oldest_disabled
         FROM webhook_deliveries d JOIN webhooks h ON h.seq = d.webhook_seq
         WHERE d.due_at IS NOT NULL AND h.workspace_seq > 0",
    );
}

fn push_webhooks_due(sql: &mut Sql, dialect: Dialect, now: Timestamp, without: &WithoutRoom, limit: usize) {
    // Jumps by index from one webhook with a due delivery to the next.
    sql.push(
        "WITH RECURSIVE w (seq) AS (
         SELECT MIN(d.webhook_seq) FROM webhook_deliveries d WHERE d.due_at IS NOT NULL
         UNION ALL
         SELECT (SELECT MIN(d.webhook_seq) FROM webhook_deliveries d
         WHERE d.due_at IS NOT NULL AND d.webhook_seq > w.seq) FROM w WHERE w.seq IS NOT NULL)
         SELECT r.webhook_seq, r.workspace_seq FROM (SELECT q.webhook_seq, q.workspace_seq, q.due,
         ROW_NUMBER() OVER (PARTITION BY q.workspace_seq ORDER BY q.due, q.webhook_seq) AS place
         FROM (SELECT h.seq AS webhook_seq, h.workspace_seq, (SELECT MIN(d.due_at) FROM webhook_deliveries d
         WHERE d.due_at IS NOT NULL AND d.webhook_seq = h.seq) AS due
         FROM w JOIN webhooks h ON h.seq = w.seq WHERE h.workspace_seq > 0 AND h.disabled_at IS NULL AND NOT h.seq",
    );
    sql.in_numbers(dialect, &without.webhooks).push(" AND NOT h.workspace_seq");
    sql.in_numbers(dialect, &without.workspaces).push(") q WHERE q.due <= ").bind(now.as_millisecond());
    sql.push(") r ORDER BY r.place, r.due, r.webhook_seq LIMIT ")
        .bind(i64::try_from(limit).unwrap_or(i64::MAX));
}

/// Writes an event about `link`, which the transaction has stored, for each webhook that receives it.
pub(super) async fn enqueue(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace_seq: i64,
    link: &Link,
    event: Event,
) -> Result<(), StoreError> {
    let listeners = Listeners::find(transaction, dialect, workspace_seq, event.trigger).await?;
    let listening = listeners.of_link(transaction, dialect, &link.id).await?;
    enqueue_to(transaction, dialect, workspace_seq, &[(event, listening)]).await
}

/// Writes events, with one delivery of each event to each of its webhooks.
pub(super) async fn enqueue_to(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    workspace_seq: i64,
    events: &[(Event, Vec<i64>)],
) -> Result<(), StoreError> {
    let (mut rows, mut snapshots) = (Vec::new(), BTreeMap::new());
    for (event, _) in events.iter().filter(|(_, webhooks)| !webhooks.is_empty()) {
        let payload = event.payload().map_err(|error| StoreError::corrupt("webhook payload", &error))?;
        let snapshot = event.snapshot().map(|snapshot| &snapshot.id);
        let at = event.created_at.as_millisecond();
        rows.push((&event.id, event.trigger.name(), payload, at, snapshot));
        if let Some(LinkSnapshot { id, body }) = event.snapshot().map(Arc::as_ref) {
            let (_, last_event_at) = snapshots.entry(id).or_insert((body, at));
            *last_event_at = at.max(*last_event_at);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    if !snapshots.is_empty() {
        let snapshots = snapshots.into_iter().map(|(id, (body, at))| Ok((id, to_json("link", body)?, at)));
        let snapshots = snapshots.collect::<Result<Vec<_>, StoreError>>()?;
        let mut sql = Sql::new(
            "INSERT INTO link_snapshots (id, body, last_event_at) SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT) FROM ",
        );
        sql.each(dialect, to_json("links of webhook events", &snapshots)?);
        sql.execute(&mut **transaction).await?;
    }
    let mut sql = Sql::new(
        "INSERT INTO webhook_events (workspace_seq, id, event, payload, created_at, link_snapshot) SELECT CAST(",
    );
    sql.bind(workspace_seq)
        .push(" AS BIGINT), value->>0, value->>1, value->>2, CAST(value->>3 AS BIGINT), value->>4 FROM ");
    sql.each(dialect, to_json("webhook events", &rows)?).in_order(dialect).push(" RETURNING id, seq");
    let written = sql.all(&mut **transaction).await?;
    // PostgreSQL may read the whole table of events if their numbers are left to a join.
    let seqs = written.iter().map(|row| Ok((row.try_get("id")?, row.try_get("seq")?)));
    let seqs = seqs.collect::<Result<HashMap<String, i64>, sqlx::Error>>()?;
    let mut deliveries = Vec::new();
    for (event, webhooks) in events {
        let Some(seq) = seqs.get(&event.id) else { continue };
        let due_at = event.created_at.as_millisecond();
        deliveries.extend(webhooks.iter().map(|webhook| (*seq, *webhook, due_at)));
    }
    let mut sql = Sql::new(
        "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
         SELECT CAST(value->>0 AS BIGINT), CAST(value->>1 AS BIGINT), 0, CAST(value->>2 AS BIGINT) FROM ",
    );
    sql.each(dialect, to_json("webhook deliveries", &deliveries)?).in_order(dialect);
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// The columns from which [`payload`] is read, of an event `e` and [`SNAPSHOT`].
pub(super) const PAYLOAD: &str = "e.payload, s.body AS link";
/// Joins the snapshot `s` of an event `e`.
pub(super) const SNAPSHOT: &str = " LEFT JOIN link_snapshots s ON s.id = e.link_snapshot";

/// The payload in a row with the columns [`PAYLOAD`].
pub(super) fn payload(row: &AnyRow) -> Result<String, sqlx::Error> {
    let payload = row.try_get("payload")?;
    let link: Option<String> = row.try_get("link")?;
    Ok(match link {
        Some(link) => Event::payload_with(payload, &link),
        None => payload,
    })
}

fn due_webhook(row: &AnyRow) -> Result<DueWebhook, StoreError> {
    Ok(DueWebhook { seq: row.try_get("webhook_seq")?, workspace_seq: row.try_get("workspace_seq")? })
}

fn due_delivery(row: &AnyRow) -> Result<DueDelivery, StoreError> {
    let attempts: i64 = row.try_get("attempts")?;
    let text = |column: &str| row.try_get::<String, _>(column);
    Ok(DueDelivery {
        seq: row.try_get("seq")?,
        webhook: due_webhook(row)?,
        event_id: text("event_id")?,
        payload: payload(row)?,
        url: text("url")?,
        secret: text("secret")?,
        old_secret: row.try_get("old_secret")?,
        attempts: u32::try_from(attempts).map_err(|error| StoreError::corrupt("webhook attempts", &error))?,
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The steps of a query.
    async fn steps(store: &Store, sql: Sql) -> Vec<String> {
        let plan = sql.explained().all(&store.write).await.unwrap();
        plan.iter().map(|row| row.try_get("detail").unwrap()).collect()
    }

    #[tokio::test]
    async fn the_deliveries_that_wait_are_counted_in_an_index_and_not_sorted() {
        let folder = TempDir::new().unwrap();
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let mut sql = Sql::new("");
        push_backlog(&mut sql, Timestamp::UNIX_EPOCH);
        let steps = steps(&store, sql).await;
        let [deliveries, webhooks] = [
            "SCAN d USING COVERING INDEX webhook_deliveries_due",
            "SEARCH h USING INTEGER PRIMARY KEY (rowid=?)",
        ];
        assert_eq!(steps, [deliveries, webhooks]);
    }

    #[tokio::test]
    async fn no_delivery_is_read_to_learn_which_webhooks_something_waits_for() {
        let folder = TempDir::new().unwrap();
        let store = Store::open_or_create(&format!("sqlite:{}", folder.path().join("test.db").display()))
            .await
            .unwrap();
        let mut sql = Sql::new("");
        push_webhooks_due(&mut sql, Dialect::Sqlite, Timestamp::UNIX_EPOCH, &WithoutRoom::default(), 1);
        let steps = steps(&store, sql).await;
        let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" d ")).collect();
        assert!(reads.len() >= 3, "{steps:?}");
        for step in reads {
            assert!(step.starts_with("SEARCH d USING COVERING INDEX webhook_deliveries_due"), "{step}");
        }
    }
}
