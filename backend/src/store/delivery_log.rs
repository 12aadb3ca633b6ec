//! The log of deliveries and their attempts, and replays.

use jiff::{SignedDuration, Timestamp};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::outbox::keep_webhook;
use super::reader::Reader;
use super::sql::Sql;
use super::webhooks::Webhook;
use super::{Store, StoreError, from_json, instant, instant_of, optional_instant_of};
use crate::domain::delivery::{Attempt, DueDelivery, Outcome};

/// A delivery in the log.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryRecord {
    pub(crate) seq: i64,
    pub(crate) event_id: String,
    pub(crate) event: String,
    pub(crate) payload: String,
    pub(crate) created_at: Timestamp,
    pub(crate) delivered_at: Option<Timestamp>,
    /// None if there will be no further attempt.
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) attempts: Vec<Attempt>,
}

impl Store {
    /// The deliveries to a webhook before the number `before`, newest first.
    pub(crate) async fn page_of_deliveries(
        &self,
        webhook: &Webhook,
        before: Option<i64>,
        size: i64,
        reader: &mut Reader,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        // One statement, so that deliveries and attempts are consistent, with one row for each delivery, so that it repeats no
        // payload.
        let mut sql = Sql::new(
            "SELECT d.seq, e.id AS event_id, e.event, e.created_at, d.delivered_at, d.due_at, (SELECT ",
        );
        sql.push_by(
            "json_group_array(json_array(a.at, a.http_status, a.error, a.response_body) ORDER BY a.seq)",
            "CAST(COALESCE(json_agg(json_build_array(a.at, a.http_status, a.error, a.response_body) ORDER BY a.seq), '[]')
             AS TEXT)",
        );
        sql.push(
            " FROM webhook_attempts a WHERE a.delivery_seq = d.seq) AS attempts, e.payload
             FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq WHERE d.webhook_seq = ",
        );
        sql.bind(webhook.seq).push(" AND d.seq < ").bind(before.unwrap_or(i64::MAX));
        sql.push(" ORDER BY d.seq DESC LIMIT ").bind(size);
        reader.all(sql).await?.iter().map(record).collect()
    }

    /// Sends an event to a webhook again, unless a delivery of it is pending. False if the webhook never received it.
    pub(crate) async fn replay(
        &self,
        webhook: &Webhook,
        event_id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        // Replays of one webhook run one after another, so that no two of them find nothing pending.
        if !keep_webhook(&mut transaction, webhook).await? {
            return Ok(false);
        }
        let Some(row) = deliveries_of(webhook, event_id).optional(&mut *transaction).await? else {
            return Ok(false);
        };
        if row.try_get::<i64, _>("pending")? == 0 {
            // No foreign key keeps the event from being deleted meanwhile.
            let mut sql = Sql::new(
                "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
                 SELECT e.seq, CAST(",
            );
            sql.bind(webhook.seq).push(" AS BIGINT), 0, CAST(").bind(now.as_millisecond());
            sql.push(" AS BIGINT) FROM webhook_events e WHERE e.seq = ")
                .bind(row.try_get::<i64, _>("event_seq")?);
            sql.lock(" FOR KEY SHARE OF e");
            if sql.execute(&mut *transaction).await? == 0 {
                return Ok(false);
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Records the outcome of an attempt that ended at `ended`. A webhook is disabled if no attempt has succeeded since one failed `disable_after`
    /// before, or if its receiver is gone.
    pub(crate) async fn finish_attempt(
        &self,
        delivery: &DueDelivery,
        attempt: &Attempt,
        outcome: &Outcome,
        disable_after: SignedDuration,
        ended: Timestamp,
    ) -> Result<(), StoreError> {
        let failing_since = ended.saturating_sub(disable_after).unwrap_or(Timestamp::MIN).as_millisecond();
        let ended = ended.as_millisecond();
        let mut transaction = self.begin().await?;
        record_attempt(delivery.seq, attempt).execute(&mut *transaction).await?;
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
        if delivered_at.is_none() {
            // Otherwise the lease has ended meanwhile, and another attempt decides, or has decided.
            sql.push(" AND due_at = ").bind(delivery.leased_until);
        }
        sql.execute(&mut *transaction).await?;
        let mut sql = Sql::new("UPDATE webhooks SET ");
        match outcome {
            Outcome::Delivered => sql.push("failing_since = NULL WHERE failing_since IS NOT NULL"),
            Outcome::Retry(_) | Outcome::Failed => {
                sql.push("disabled_at = CASE WHEN failing_since <= ").bind(failing_since);
                sql.push(" THEN ")
                    .bind(ended)
                    .push(" END, failing_since = COALESCE(failing_since, ")
                    .bind(ended);
                sql.push(") WHERE disabled_at IS NULL")
            }
            Outcome::Gone => sql.push("disabled_at = ").bind(ended).push(" WHERE TRUE"),
        };
        // The sweeper holds the row of a deleted webhook while it waits for this delivery.
        sql.push(" AND workspace_seq > 0 AND seq = ").bind(delivery.webhook.seq);
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// The statement that records an attempt of a delivery, unless that was deleted.
pub(super) fn record_attempt(delivery: i64, attempt: &Attempt) -> Sql {
    let mut sql = Sql::new(
        "INSERT INTO webhook_attempts (delivery_seq, at, http_status, error, response_body) SELECT d.seq, CAST(",
    );
    sql.bind(attempt.at.as_millisecond()).push(" AS BIGINT), CAST(");
    sql.bind(attempt.http_status.map(i64::from)).push(" AS BIGINT), CAST(");
    sql.bind(attempt.error.clone()).push(" AS TEXT), CAST(");
    sql.bind(attempt.response_body.clone()).push(" AS TEXT)");
    sql.push(" FROM webhook_deliveries d WHERE d.seq = ").bind(delivery);
    sql
}

/// The number of an event, and that of its pending deliveries to a webhook. The plus keeps the database from reading all deliveries of
/// the webhook.
fn deliveries_of(webhook: &Webhook, event_id: &str) -> Sql {
    let mut sql = Sql::new(
        "SELECT d.event_seq, COUNT(d.due_at) AS pending FROM webhook_events e JOIN webhook_deliveries d ON d.event_seq = e.seq
         WHERE e.id = ",
    );
    sql.bind(event_id.to_owned())
        .push(" AND +d.webhook_seq = ")
        .bind(webhook.seq)
        .push(" GROUP BY d.event_seq");
    sql
}

fn record(row: &AnyRow) -> Result<DeliveryRecord, StoreError> {
    let attempts: String = row.try_get("attempts")?;
    let attempts: Vec<(i64, Option<u16>, Option<String>, String)> = from_json("webhook attempts", &attempts)?;
    let attempt = |(at, http_status, error, response_body)| {
        Ok(Attempt { at: instant(at)?, http_status, error, response_body })
    };
    Ok(DeliveryRecord {
        seq: row.try_get("seq")?,
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
    use super::super::NewWebhook;
    use super::super::sample::{NOW, Sample};
    use super::*;

    #[tokio::test]
    async fn an_event_is_found_without_reading_all_deliveries_of_its_webhook() {
        let sample = Sample::new().await;
        let webhook =
            sample.store.create_webhook(&sample.workspace, &NewWebhook::of_clicks(), 1, NOW).await.unwrap();
        let steps = deliveries_of(&webhook, "evt_1").steps(&sample.store.read).await;
        let by_event = |step: &String| {
            step.starts_with("SEARCH d") && step.contains("INDEX webhook_deliveries_of_event (event_seq=?")
        };
        assert!(steps.iter().any(by_event), "{steps:#?}");
    }
}
