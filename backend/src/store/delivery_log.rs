//! The log of deliveries. A page is read in parts, because payloads may be large.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::Deserialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::reader::Reader;
use super::sql::Sql;
use super::webhooks::Webhook;
use super::{Dialect, Store, StoreError, from_json, instant, instant_of, optional_instant_of};
use crate::domain::delivery::Attempt;
use crate::domain::event::Trigger;

/// About the most bytes of payloads and attempts in a part of a page.
const PART_BYTES: i64 = 512 * 1024;
/// What an attempt takes at most, in bytes.
const ATTEMPT_BYTES: i64 = 1024;

/// The condition that a delivery `w` was given up.
pub(super) const FAILED: &str = " AND w.due_at IS NULL AND w.delivered_at IS NULL";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
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
    pub(super) fn push(&self, sql: &mut Sql, dialect: Dialect, webhook: &Webhook) {
        sql.push(if self.event_ids.is_empty() {
            " FROM webhook_deliveries w JOIN webhook_events e ON e.seq = w.event_seq WHERE w.webhook_seq = "
        } else {
            // The plus keeps the database from reading all deliveries of the webhook instead of those of the events.
            " FROM webhook_events e CROSS JOIN webhook_deliveries w WHERE w.event_seq = e.seq AND +w.webhook_seq = "
        });
        sql.bind(webhook.seq);
        sql.push(match self.status {
            None => "",
            Some(DeliveryStatus::Pending) => " AND w.due_at IS NOT NULL",
            Some(DeliveryStatus::Delivered) => " AND w.delivered_at IS NOT NULL",
            Some(DeliveryStatus::Failed) => FAILED,
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
    /// The deliveries on a page of the log of a webhook, newest first, in parts of a bounded size. Each has at least one.
    pub(crate) async fn page_of_deliveries(
        &self,
        webhook: &Webhook,
        filter: &DeliveryFilter,
        (skip, size): (i64, i64),
        reader: &mut Reader,
    ) -> Result<Vec<Vec<i64>>, StoreError> {
        let mut sql = Sql::new("SELECT d.seq, CAST(octet_length(e.payload) + d.attempts * ");
        sql.bind(ATTEMPT_BYTES).push(" AS BIGINT) AS bytes FROM (SELECT w.seq, w.event_seq, w.attempts");
        filter.push(&mut sql, self.dialect, webhook);
        sql.push(" ORDER BY w.seq DESC LIMIT ").bind(size).push(" OFFSET ").bind(skip);
        sql.push(") d JOIN webhook_events e ON e.seq = d.event_seq ORDER BY d.seq DESC");
        let mut deliveries = Vec::new();
        for row in reader.all(sql).await? {
            deliveries.push((row.try_get("seq")?, row.try_get("bytes")?));
        }
        Ok(parts(&deliveries))
    }

    /// The deliveries with these numbers, newest first.
    pub(crate) async fn deliveries(
        &self,
        seqs: &[i64],
        reader: &mut Reader,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        // One statement, so that deliveries and attempts are consistent, with one row for each delivery, so that it repeats no
        // payload.
        let mut sql =
            Sql::new("SELECT e.id AS event_id, e.event, e.created_at, d.delivered_at, d.due_at, (SELECT ");
        sql.push(match self.dialect {
            Dialect::Sqlite => {
                "json_group_array(json_array(a.at, a.http_status, a.error, a.response_body) ORDER BY a.seq)"
            }
            Dialect::Postgres => {
                "CAST(COALESCE(json_agg(json_build_array(a.at, a.http_status, a.error, a.response_body) ORDER BY a.seq), '[]')
                 AS TEXT)"
            }
        });
        sql.push(" FROM webhook_attempts a WHERE a.delivery_seq = d.seq) AS attempts, e.payload");
        sql.push(" FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq WHERE d.seq")
            .in_numbers(self.dialect, seqs)
            .push(" ORDER BY d.seq DESC");
        reader.all(sql).await?.iter().map(record).collect()
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
        // The plus keeps the database from reading all deliveries of the webhook.
        let mut sql = Sql::new("SELECT e.id FROM webhook_events e WHERE e.id");
        sql.in_texts(self.dialect, ids).push(
            " AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_seq = e.seq AND +d.webhook_seq = ",
        );
        sql.bind(webhook.seq).push(")");
        let known = sql.all(&self.read).await?;
        let known = known.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<String>, _>>()?;
        Ok(ids.iter().filter(|id| !known.contains(*id)).cloned().collect())
    }
}

/// The numbers of deliveries, each with its size in bytes, in parts.
fn parts(deliveries: &[(i64, i64)]) -> Vec<Vec<i64>> {
    let (mut parts, mut part, mut sum) = (Vec::new(), Vec::new(), 0);
    for (seq, bytes) in deliveries {
        if sum + bytes > PART_BYTES && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            sum = 0;
        }
        part.push(*seq);
        sum += bytes;
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn record(row: &AnyRow) -> Result<DeliveryRecord, StoreError> {
    let attempts: String = row.try_get("attempts")?;
    let attempts: Vec<(i64, Option<u16>, Option<String>, String)> = from_json("webhook attempts", &attempts)?;
    let attempt = |(at, http_status, error, response_body)| {
        Ok(Attempt { at: instant(at)?, http_status, error, response_body })
    };
    Ok(DeliveryRecord {
        event_id: row.try_get("event_id")?,
        event: row.try_get("event")?,
        payload: row.try_get("payload")?,
        created_at: instant_of(row, "created_at")?,
        delivered_at: optional_instant_of(row, "delivered_at")?,
        due_at: optional_instant_of(row, "due_at")?,
        attempts: attempts.into_iter().map(attempt).collect::<Result<_, StoreError>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_as_many_deliveries_as_fit_and_at_least_one() {
        const HALF: i64 = PART_BYTES / 2;
        //  sizes of the deliveries, deliveries in each part
        for (sizes, expected) in [
            (vec![], vec![]),
            (vec![1], vec![1]),
            (vec![HALF, HALF, 1], vec![2, 1]),
            (vec![3 * HALF, 1, 3 * HALF], vec![1, 1, 1]),
            (vec![1; 100], vec![100]),
        ] {
            let deliveries: Vec<(i64, i64)> = (0..).zip(sizes).collect();
            let parts = parts(&deliveries);
            assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), expected, "{deliveries:?}");
            assert_eq!(parts.concat(), deliveries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
        }
    }
}
