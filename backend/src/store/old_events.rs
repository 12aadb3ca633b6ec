//! Deletion of old webhook events, in steps in the background.

use jiff::Timestamp;
use sqlx::Row;

use super::sql::Sql;
use super::sweep::DELIVERIES_PER_STEP;
use super::{Store, StoreError};

/// Maximum number of events that one transaction deletes.
const EVENTS_PER_STEP: i64 = 50;
/// About the most bytes of payloads that one transaction deletes.
const BYTES_PER_STEP: i64 = 256 * 1024;

impl Store {
    /// Deletes some deliveries of events from before `before`, and the events without deliveries. False if nothing is left to delete,
    /// or another process works on it.
    pub(crate) async fn purge_events(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.delete_events("", before.as_millisecond()).await
    }

    /// Deletes some deliveries of events about clicks from before the horizon, and the events without deliveries. False if nothing
    /// is left to delete, or another process works on it.
    pub(crate) async fn delete_expired_click_events(&self, kept_from: Timestamp) -> Result<bool, StoreError> {
        self.delete_events("e.event = 'link.clicked' AND ", kept_from.as_millisecond()).await
    }

    /// Deletes some deliveries of the oldest events that meet a condition, and the events without deliveries, in one transaction.
    async fn delete_events(&self, condition: &'static str, before: i64) -> Result<bool, StoreError> {
        // Usually there are none, and a reader is enough to find that out.
        if oldest_events(condition, before).optional(&self.read).await?.is_none() {
            return Ok(false);
        }
        let mut transaction = self.begin().await?;
        let mut sql = oldest_events(condition, before);
        sql.lock(self.dialect, " FOR UPDATE SKIP LOCKED");
        let mut events = Vec::new();
        for row in sql.all(&mut *transaction).await? {
            events.push((row.try_get("seq")?, row.try_get("bytes")?));
        }
        let events: Vec<i64> = first_of(events);
        let mut sql = Sql::new(
            "DELETE FROM webhook_deliveries WHERE seq IN (SELECT d.seq FROM webhook_deliveries d WHERE d.event_seq",
        );
        sql.in_numbers(self.dialect, &events);
        sql.push(" ORDER BY d.event_seq, d.seq LIMIT ").bind(DELIVERIES_PER_STEP).push(")");
        if sql.execute(&mut *transaction).await? < DELIVERIES_PER_STEP.unsigned_abs() {
            let mut sql = Sql::new("DELETE FROM webhook_events WHERE seq");
            sql.in_numbers(self.dialect, &events);
            sql.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(!events.is_empty())
    }
}

/// The oldest events from before `before` that meet a condition, with the sizes of their payloads.
fn oldest_events(condition: &'static str, before: i64) -> Sql {
    let mut sql = Sql::new(
        "SELECT e.seq, CAST(octet_length(e.payload) AS BIGINT) AS bytes FROM webhook_events e WHERE ",
    );
    sql.push(condition).push("e.created_at < ").bind(before);
    sql.push(" ORDER BY e.created_at LIMIT ").bind(EVENTS_PER_STEP);
    sql
}

/// The first of some rows, each with its size: as many as one transaction deletes, and at least one.
pub(super) fn first_of<T>(rows: Vec<(T, i64)>) -> Vec<T> {
    let mut sum = 0;
    let fits = |(row, bytes): (T, i64)| {
        let is_first = sum == 0;
        sum += bytes.max(1);
        (is_first || sum <= BYTES_PER_STEP).then_some(row)
    };
    rows.into_iter().map_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_deletes_as_many_bytes_as_fit_and_at_least_one_row() {
        const HALF: i64 = BYTES_PER_STEP / 2;
        //  sizes of the rows, rows of the step
        for (sizes, expected) in [
            (vec![], 0),
            (vec![3 * HALF, 1], 1),
            (vec![HALF, HALF, 1], 2),
            (vec![0, 3 * HALF], 1),
            (vec![1; 50], 50),
        ] {
            let rows: Vec<(usize, i64)> = sizes.iter().copied().enumerate().collect();
            assert_eq!(first_of(rows).len(), expected, "{sizes:?}");
        }
    }
}
