//! The deliveries that wait.

use jiff::Timestamp;
use sqlx::Row;

use super::reader::Reader;
use super::sql::Sql;
use super::{Store, StoreError, instant, optional_instant_of};
use crate::domain::load::{OutboxBacklog, Waiting};

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
            oldest_unattempted: self.oldest_unattempted(reader).await?,
            due: waiting("due", "oldest_due")?,
            later: waiting("later", "oldest_later")?,
            disabled: waiting("disabled", "oldest_disabled")?,
        })
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

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[tokio::test]
    async fn the_deliveries_that_wait_are_counted_in_an_index_and_not_sorted() {
        let sample = Sample::new().await;
        let mut sql = Sql::new("");
        push_backlog(&mut sql, Timestamp::UNIX_EPOCH);
        let steps = sql.steps(&sample.store.write).await;
        let [deliveries, webhooks] = [
            "SCAN d USING COVERING INDEX webhook_deliveries_due",
            "SEARCH h USING INTEGER PRIMARY KEY (rowid=?)",
        ];
        assert_eq!(steps, [deliveries, webhooks]);
    }
}
