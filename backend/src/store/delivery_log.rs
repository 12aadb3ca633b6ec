//! The log of deliveries, and replays from it.

use std::collections::HashSet;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::outbox::{Attempt, PAYLOAD, SNAPSHOT, payload};
use super::reader::Reader;
use super::sql::Sql;
use super::webhooks::Webhook;
use super::{Dialect, Store, StoreError, instant_of, optional_instant_of};
use crate::webhooks::Trigger;

/// Maximum number of events that one replay sends.
pub(crate) const REPLAYED_AT_ONCE: u32 = 1_000;

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

impl Store {
    /// A page of the deliveries to a webhook, newest first.
    pub(crate) async fn deliveries(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        (skip, size): (i64, i64),
        mut reader: Reader,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        // One statement, so that deliveries and attempts are consistent.
        let mut sql =
            Sql::new("SELECT d.seq, e.id AS event_id, e.event, e.created_at, d.delivered_at, d.due_at, ");
        sql.push(PAYLOAD).push(", a.at, a.http_status, a.error, a.response_body FROM (SELECT w.*");
        filter.push(&mut sql, self.dialect, webhook);
        sql.push(" ORDER BY w.seq DESC LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        sql.push(
            ") d JOIN webhook_events e ON e.seq = d.event_seq
             LEFT JOIN webhook_attempts a ON a.delivery_seq = d.seq ",
        );
        sql.push(SNAPSHOT).push(" ORDER BY d.seq DESC, a.seq");
        let mut records: Vec<(i64, DeliveryRecord)> = Vec::new();
        for row in reader.all(sql).await? {
            let seq = row.try_get("seq")?;
            let attempt = attempt(&row)?;
            match records.last_mut() {
                Some((last, record)) if *last == seq => record.attempts.extend(attempt),
                _ => records.push((seq, record(&row, attempt)?)),
            }
        }
        Ok(records.into_iter().map(|(_, record)| record).collect())
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

    /// The ids that are not those of events that the webhook received.
    pub(crate) async fn unknown_events(
        &self,
        webhook: &Webhook,
        ids: &[String],
    ) -> Result<Vec<String>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut sql = Sql::new("SELECT e.id FROM webhook_events e WHERE e.id");
        sql.in_texts(self.dialect, ids).push(
            " AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_seq = e.seq AND d.webhook_seq = ",
        );
        sql.bind(webhook.seq).push(")");
        let known = sql.all(&self.read).await?;
        let known = known.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<String>, _>>()?;
        Ok(ids.iter().filter(|id| !known.contains(*id)).cloned().collect())
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
}

fn record(row: &AnyRow, attempt: Option<Attempt>) -> Result<DeliveryRecord, StoreError> {
    Ok(DeliveryRecord {
        event_id: row.try_get("event_id")?,
        event: row.try_get("event")?,
        payload: payload(row)?,
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
