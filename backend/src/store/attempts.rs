//! Attempts to deliver an event: their log, and what their outcome changes.

use jiff::{SignedDuration, Timestamp};

use super::sql::Sql;
use super::{Dialect, Store, StoreError};
use crate::domain::delivery::{Attempt, DueDelivery, Outcome};

impl Store {
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
        let failing_since = ended.saturating_sub(disable_after).unwrap_or(Timestamp::MIN);
        let finished = Finished { delivery, attempt, outcome, failing_since, ended };
        match self.dialect {
            Dialect::Sqlite => {
                let mut transaction = self.begin().await?;
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
}

/// An attempt that has ended.
struct Finished<'a> {
    delivery: &'a DueDelivery,
    attempt: &'a Attempt,
    outcome: &'a Outcome,
    /// A webhook that has failed since then is disabled.
    failing_since: Timestamp,
    ended: Timestamp,
}

impl Finished<'_> {
    /// What appends the statements that record the attempt, each on another table.
    const STATEMENTS: [fn(&Self, &mut Sql); 3] =
        [Self::push_attempt, Self::push_delivery, Self::push_webhook];

    fn push_attempt(&self, sql: &mut Sql) {
        push_attempt(sql, self.delivery.seq, self.attempt);
    }

    fn push_delivery(&self, sql: &mut Sql) {
        let (due_at, delivered_at) = match self.outcome {
            Outcome::Delivered => (None, Some(self.attempt.at.as_millisecond())),
            Outcome::Retry(at) => (Some(at.as_millisecond()), None),
            Outcome::Failed | Outcome::Gone => (None, None),
        };
        sql.push("UPDATE webhook_deliveries SET attempts = attempts + 1, due_at = ").bind(due_at);
        sql.push(", delivered_at = ").bind(delivered_at).push(" WHERE seq = ").bind(self.delivery.seq);
        if delivered_at.is_none() {
            // Otherwise the lease has ended meanwhile, and another attempt decides, or has decided.
            sql.push(" AND due_at = ").bind(self.delivery.leased_until);
        }
    }

    fn push_webhook(&self, sql: &mut Sql) {
        let ended = self.ended.as_millisecond();
        match self.outcome {
            Outcome::Delivered => {
                sql.push("UPDATE webhooks SET failing_since = NULL WHERE failing_since IS NOT NULL")
            }
            Outcome::Retry(_) | Outcome::Failed => {
                sql.push("UPDATE webhooks SET disabled_at = CASE WHEN failing_since <= ");
                sql.bind(self.failing_since.as_millisecond()).push(" THEN ").bind(ended);
                sql.push(" END, failing_since = COALESCE(failing_since, ").bind(ended);
                sql.push(") WHERE disabled_at IS NULL")
            }
            Outcome::Gone => sql.push("UPDATE webhooks SET disabled_at = ").bind(ended).push(" WHERE TRUE"),
        };
        // The sweeper holds the row of a deleted webhook while it waits for this delivery.
        sql.push(" AND workspace_seq > 0 AND seq = ").bind(self.delivery.webhook.seq);
    }
}

/// Appends the statement that records an attempt of a delivery, unless that was deleted.
fn push_attempt(sql: &mut Sql, delivery: i64, attempt: &Attempt) {
    sql.push(
        "INSERT INTO webhook_attempts (delivery_seq, at, http_status, error, response_body) SELECT d.seq, CAST(",
    );
    sql.bind(attempt.at.as_millisecond()).push(" AS BIGINT), CAST(");
    sql.bind(attempt.http_status.map(i64::from)).push(" AS BIGINT), CAST(");
    sql.bind(attempt.error.clone()).push(" AS TEXT), CAST(");
    sql.bind(attempt.response_body.clone()).push(" AS TEXT)");
    sql.push(" FROM webhook_deliveries d WHERE d.seq = ").bind(delivery);
}

/// The statement that records an attempt of a delivery.
pub(super) fn record_attempt(delivery: i64, attempt: &Attempt) -> Sql {
    let mut sql = Sql::new("");
    push_attempt(&mut sql, delivery, attempt);
    sql
}
