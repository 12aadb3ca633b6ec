//! The outbox: events that are to be delivered.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::delivery_log::record_attempt;
use super::sql::Sql;
use super::webhook_scope::listeners;
use super::webhooks::Webhook;
use super::{Dialect, Store, StoreError, Transaction, Workspace, to_json};
use crate::domain::delivery::{Attempt, DueDelivery, DueWebhook, WithoutRoom};
use crate::domain::event::Event;
use crate::domain::link::Link;
use crate::domain::public_url::PublicUrl;

/// Maximum number of deliveries that one transaction drops.
const DROPPED_AT_ONCE: i64 = 50;

/// The condition that a delivery `d` had an attempt, as the index has it.
const RETRIES: &str = " AND CASE d.attempts WHEN 0 THEN 1 ELSE 0 END = 0";
/// The condition that a delivery `d` had no attempt, as the index has it.
const FIRST_ATTEMPTS: &str = " AND CASE d.attempts WHEN 0 THEN 1 ELSE 0 END = 1";

/// What this process is to send.
#[derive(Debug, Default)]
pub(crate) struct Leased {
    /// The numbers of the deliveries.
    pub(crate) deliveries: Vec<i64>,
    /// A webhook may hear of more clicks, which were not read.
    pub(crate) more: bool,
}

impl Store {
    /// Up to `limit` enabled webhooks with due deliveries: the first one of each workspace, the second ones, and so on, each in
    /// the order of their oldest due delivery. The query reads one delivery of each webhook.
    pub(crate) async fn webhooks_due(
        &self,
        now: Timestamp,
        without: &WithoutRoom,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError> {
        let mut sql = Sql::new("");
        push_webhooks_due(&mut sql, now, without, limit);
        sql.all(&self.read).await?.iter().map(due_webhook).collect()
    }

    /// Takes deliveries up to a number for each webhook: retries first, oldest first, then first attempts, and then the next clicks. Until
    /// `lease` has passed, no other process takes them. After that they are due again, because their process has died.
    pub(crate) async fn lease_deliveries(
        &self,
        webhooks: &[(i64, usize)],
        lease: SignedDuration,
        now: Timestamp,
        public: &PublicUrl,
    ) -> Result<Leased, StoreError> {
        let leased_until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
        let mut transaction = self.begin().await?;
        let mut leased = Leased::default();
        for (webhook, most) in webhooks {
            let most = leased.deliveries.len() + most;
            for attempts in [RETRIES, FIRST_ATTEMPTS] {
                let left = i64::try_from(most - leased.deliveries.len()).unwrap_or(0);
                if left == 0 {
                    break;
                }
                let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = ");
                sql.bind(leased_until.as_millisecond());
                sql.push(
                    " WHERE seq IN (SELECT d.seq FROM webhook_deliveries d WHERE d.due_at IS NOT NULL AND d.webhook_seq = ",
                );
                sql.bind(*webhook).push(attempts).push(" AND d.due_at <= ").bind(now.as_millisecond());
                sql.push(" ORDER BY d.due_at, d.seq LIMIT ").bind(left);
                sql.lock(" FOR UPDATE SKIP LOCKED");
                sql.push(") RETURNING seq");
                for row in sql.all(&mut *transaction).await? {
                    leased.deliveries.push(row.try_get::<i64, _>(0)?);
                }
            }
            if leased.deliveries.len() < most {
                let left = most - leased.deliveries.len();
                let taken = self.take_clicks(&mut transaction, *webhook, left, leased_until, public).await?;
                leased.deliveries.extend(taken.deliveries);
                leased.more |= taken.more;
            }
        }
        transaction.commit().await?;
        Ok(leased)
    }

    /// The deliveries that this process has leased. They are not read in the transaction that leases them: payloads may be large,
    /// and SQLite has one writer.
    pub(crate) async fn leased_deliveries(
        &self,
        seqs: &[i64],
        now: Timestamp,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let mut sql = Sql::new(
            "SELECT d.seq, d.webhook_seq, h.workspace_seq, e.id AS event_id, h.url, h.secret, d.attempts, d.due_at, ",
        );
        sql.push("e.payload, CASE WHEN h.old_secret_until > ").bind(now.as_millisecond());
        sql.push(
            " THEN h.old_secret END AS old_secret FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
             JOIN webhooks h ON h.seq = d.webhook_seq",
        );
        sql.push(
            " WHERE h.workspace_seq > 0 AND h.disabled_at IS NULL AND d.due_at IS NOT NULL AND d.seq IN ",
        );
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

    /// Drops some deliveries from before an instant that no attempt was made for, because their webhook is disabled or too slow. They
    /// fail for this reason. Returns their number.
    pub(crate) async fn drop_unattempted_deliveries(
        &self,
        before: Timestamp,
        reason: &str,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let unattempted = || {
            let mut sql = Sql::new("SELECT d.seq FROM webhook_deliveries d WHERE d.due_at IS NOT NULL");
            sql.push(FIRST_ATTEMPTS).push(" AND d.due_at < ").bind(before.as_millisecond());
            sql.push(" ORDER BY d.webhook_seq, d.due_at LIMIT ").bind(DROPPED_AT_ONCE);
            sql
        };
        // Usually there are none, and a reader is enough to find that out.
        if unattempted().optional(&self.read).await?.is_none() {
            return Ok(0);
        }
        let mut transaction = self.begin().await?;
        let mut sql = unattempted();
        sql.lock(" FOR UPDATE SKIP LOCKED");
        let rows = sql.all(&mut *transaction).await?;
        let attempt = Attempt::failed(now, reason.to_owned());
        for row in &rows {
            let delivery = row.try_get(0)?;
            record_attempt(delivery, &attempt).execute(&mut *transaction).await?;
            let mut sql = Sql::new("UPDATE webhook_deliveries SET due_at = NULL WHERE seq = ");
            sql.bind(delivery);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(rows.len())
    }

    /// Writes an event for one webhook, regardless of its triggers. False if the webhook was deleted.
    pub(crate) async fn send_to(
        &self,
        workspace: &Workspace,
        webhook: &Webhook,
        event: Event,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        if !keep_webhook(&mut transaction, webhook).await? {
            return Ok(false);
        }
        let (due, events) = (Some(event.created_at), [(event, vec![webhook.seq])]);
        enqueue_to(&mut transaction, workspace.seq, &events, due).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// Keeps a webhook from being deleted until the transaction ends. Transactions that keep the same one run one after another. False if it
/// was deleted.
pub(super) async fn keep_webhook(
    transaction: &mut Transaction,
    webhook: &Webhook,
) -> Result<bool, StoreError> {
    let mut sql = Sql::new("SELECT h.seq FROM webhooks h WHERE h.workspace_seq > 0 AND h.seq = ");
    sql.bind(webhook.seq).lock(" FOR NO KEY UPDATE");
    Ok(sql.optional(&mut **transaction).await?.is_some())
}

fn push_webhooks_due(sql: &mut Sql, now: Timestamp, without: &WithoutRoom, limit: usize) {
    // Jumps by index from one webhook with a pending delivery to the next.
    sql.push(
        "WITH RECURSIVE w (seq) AS (
         SELECT MIN(d.webhook_seq) FROM webhook_deliveries d WHERE d.due_at IS NOT NULL
         UNION ALL
         SELECT (SELECT MIN(d.webhook_seq) FROM webhook_deliveries d
         WHERE d.due_at IS NOT NULL AND d.webhook_seq > w.seq) FROM w WHERE w.seq IS NOT NULL),
         q (webhook_seq, due) AS (",
    );
    for attempts in [RETRIES, FIRST_ATTEMPTS] {
        sql.push(
            "SELECT w.seq, (SELECT MIN(d.due_at) FROM webhook_deliveries d WHERE d.due_at IS NOT NULL AND d.webhook_seq = w.seq",
        );
        sql.push(attempts).push(") FROM w UNION ALL ");
    }
    sql.push(
        "SELECT h.seq, (SELECT c.at FROM clicks c WHERE c.workspace_seq = h.workspace_seq AND c.seq > h.click_cursor
         ORDER BY c.seq LIMIT 1) FROM webhooks h WHERE h.click_cursor IS NOT NULL AND h.disabled_at IS NULL)
         SELECT r.webhook_seq, r.workspace_seq FROM (SELECT h.seq AS webhook_seq, h.workspace_seq, MIN(q.due) AS due,
         ROW_NUMBER() OVER (PARTITION BY h.workspace_seq ORDER BY MIN(q.due), h.seq) AS place
         FROM q JOIN webhooks h ON h.seq = q.webhook_seq WHERE h.workspace_seq > 0 AND h.disabled_at IS NULL AND NOT h.seq",
    );
    sql.in_numbers(&without.webhooks).push(" AND NOT h.workspace_seq");
    sql.in_numbers(&without.workspaces).push(" AND q.due <= ").bind(now.as_millisecond());
    sql.push(" GROUP BY h.seq, h.workspace_seq) r ORDER BY r.place, r.due, r.webhook_seq LIMIT ")
        .bind(i64::try_from(limit).unwrap_or(i64::MAX));
}

/// Writes an event about `link`, which the transaction has stored, for each webhook that receives it.
pub(super) async fn enqueue(
    transaction: &mut Transaction,
    workspace_seq: i64,
    link: &Link,
    event: Event,
) -> Result<(), StoreError> {
    let listening = listeners(transaction, workspace_seq, event.trigger, Some(&link.id)).await?;
    let due = Some(event.created_at);
    enqueue_to(transaction, workspace_seq, &[(event, listening)], due).await?;
    Ok(())
}

/// Writes events, with one delivery of each event to each of its webhooks, which is due at `due` or never. Another webhook may have had the event of a click before. Returns the
/// numbers of the deliveries.
pub(super) async fn enqueue_to(
    transaction: &mut Transaction,
    workspace_seq: i64,
    events: &[(Event, Vec<i64>)],
    due: Option<Timestamp>,
) -> Result<Vec<i64>, StoreError> {
    let mut rows = Vec::new();
    for (event, _) in events.iter().filter(|(_, webhooks)| !webhooks.is_empty()) {
        let payload = to_json("webhook payload", event)?;
        rows.push((&event.id, event.trigger.name(), payload, event.created_at.as_millisecond()));
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut sql =
        Sql::new("INSERT INTO webhook_events (workspace_seq, id, event, payload, created_at) SELECT CAST(");
    sql.bind(workspace_seq)
        .push(" AS BIGINT), value->>0, value->>1, value->>2, CAST(value->>3 AS BIGINT) FROM ");
    sql.each(to_json("webhook events", &rows)?).in_order();
    sql.push(" ON CONFLICT (id) DO NOTHING RETURNING id, seq");
    let mut written = sql.all(&mut **transaction).await?;
    if written.len() < rows.len() {
        let ids: Vec<&String> = rows.iter().map(|(id, ..)| *id).collect();
        let mut sql = Sql::new("SELECT e.id, e.seq FROM webhook_events e WHERE e.id");
        sql.in_texts(&ids).lock(" FOR KEY SHARE");
        written = sql.all(&mut **transaction).await?;
    }
    // PostgreSQL may read the whole table of events if their numbers are left to a join.
    let seqs = written.iter().map(|row| Ok((row.try_get("id")?, row.try_get("seq")?)));
    let seqs = seqs.collect::<Result<HashMap<String, i64>, sqlx::Error>>()?;
    let mut deliveries = Vec::new();
    for (event, webhooks) in events {
        let Some(seq) = seqs.get(&event.id) else { continue };
        let due_at = due.map(Timestamp::as_millisecond);
        deliveries.extend(webhooks.iter().map(|webhook| (*seq, *webhook, due_at)));
    }
    let mut sql = Sql::new(
        "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
         SELECT CAST(value->>0 AS BIGINT), CAST(value->>1 AS BIGINT), 0, CAST(value->>2 AS BIGINT) FROM ",
    );
    sql.each(to_json("webhook deliveries", &deliveries)?).in_order().push(" RETURNING seq");
    let written = sql.all(&mut **transaction).await?;
    Ok(written.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
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
        payload: text("payload")?,
        url: text("url")?,
        secret: text("secret")?,
        old_secret: row.try_get("old_secret")?,
        attempts: u32::try_from(attempts).map_err(|error| StoreError::corrupt("webhook attempts", &error))?,
        leased_until: row.try_get("due_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn no_delivery_is_read_to_learn_which_webhooks_something_waits_for() {
        let sample = Sample::new().await;
        let mut sql = Sql::new("");
        push_webhooks_due(&mut sql, Timestamp::UNIX_EPOCH, &WithoutRoom::default(), 1);
        let steps = sql.steps(&sample.store.write).await;
        let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" d ")).collect();
        assert!(reads.len() >= 3, "{steps:?}");
        for step in reads {
            assert!(step.starts_with("SEARCH d USING COVERING INDEX webhook_deliveries_due"), "{step}");
        }
    }
}
