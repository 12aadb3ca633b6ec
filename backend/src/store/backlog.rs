//! The deliveries that wait.

use jiff::Timestamp;
use sqlx::Row;

use super::reader::Reader;
use super::sql::Sql;
use super::{Store, StoreError, instant};
use crate::domain::load::{OutboxBacklog, Waiting};

impl Store {
    /// The deliveries that are not made.
    pub(crate) async fn outbox_backlog(
        &self,
        reader: &mut Reader,
        now: Timestamp,
    ) -> Result<OutboxBacklog, StoreError> {
        let row = reader.one(backlog(now)).await?;
        let waiting = |state, count, oldest| {
            let oldest = row.try_get::<Option<i64>, _>(oldest)?.map(instant).transpose()?;
            Ok::<_, StoreError>(Waiting { state, count: row.try_get(count)?, oldest })
        };
        let deliveries = [waiting("due", 0, 1)?, waiting("later", 2, 3)?, waiting("disabled", 4, 5)?];
        Ok(OutboxBacklog { oldest_unattempted: self.oldest_unattempted(reader).await?, deliveries })
    }

    /// The time of the oldest click that an enabled webhook has not heard of.
    async fn oldest_unattempted(&self, reader: &mut Reader) -> Result<Option<Timestamp>, StoreError> {
        let sql = Sql::new(
            "SELECT MIN((SELECT c.at FROM clicks c WHERE c.workspace_seq = h.workspace_seq AND c.seq > h.click_cursor
             ORDER BY c.seq LIMIT 1)) FROM webhooks h WHERE h.workspace_seq > 0 AND h.disabled_at IS NULL",
        );
        let at: Option<i64> = reader.one(sql).await?.try_get(0)?;
        at.map(instant).transpose()
    }
}

/// A query that counts the deliveries that are not made, in each state, and finds the first of them. It has one row, because groups would be
/// sorted.
fn backlog(now: Timestamp) -> Sql {
    let mut sql = Sql::new("SELECT ");
    for state in ["h.disabled_at IS NULL AND d.due_at <= ", "h.disabled_at IS NULL AND d.due_at > "] {
        for aggregate in ["COUNT(*)", "MIN(d.due_at)"] {
            sql.push(aggregate).push(" FILTER (WHERE ").push(state).bind(now.as_millisecond()).push("), ");
        }
    }
    sql.push(
        "COUNT(*) FILTER (WHERE h.disabled_at IS NOT NULL), MIN(d.due_at) FILTER (WHERE h.disabled_at IS NOT NULL)
         FROM webhook_deliveries d JOIN webhooks h ON h.seq = d.webhook_seq
         WHERE d.due_at IS NOT NULL AND h.workspace_seq > 0",
    );
    sql
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn the_deliveries_that_wait_are_counted_in_an_index_and_not_sorted() {
        let sample = Sample::new().await;
        let steps = backlog(Timestamp::UNIX_EPOCH).steps(&sample.store.write).await;
        let [deliveries, webhooks] = [
            "SCAN d USING COVERING INDEX webhook_deliveries_due",
            "SEARCH h USING INTEGER PRIMARY KEY (rowid=?)",
        ];
        assert_eq!(steps, [deliveries, webhooks]);
    }
}
