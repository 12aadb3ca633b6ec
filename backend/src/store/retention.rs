//! The horizon: clicks from before it have expired. Queries that need them are refused at once, and their rows are
//! deleted bit by bit. Totals and rollups go on counting them.
//!
//! The horizon is written down before anything is deleted, and never moves back. So a reader, which sees one state of the
//! database, knows of every deletion that it sees, also of those by other processes and under earlier settings.

use jiff::Timestamp;
use sqlx::Row;

use super::ROWS_PER_STEP;
use super::analytics::{Selection, push_source};
use super::reader::Reader;
use super::rollups::{HOUR, Table, pieces, start_of};
use super::sql::Sql;
use super::{Store, StoreError, Workspace, instant};

/// Selects the horizon, in Unix milliseconds.
pub(super) const HORIZON: &str = "SELECT r.kept_from FROM retention r";

/// The horizon in Unix milliseconds: the one that is written down, or the operator's if that is later.
pub(super) async fn kept_from(reader: &mut Reader, retained_from: Timestamp) -> Result<i64, StoreError> {
    Ok(reader.number(Sql::new(HORIZON)).await?.max(retained_from.as_millisecond()))
}

impl Store {
    /// Refuses a query that needs expired clicks. The query is answered from rollups up to `coarsest`. Rollups also state
    /// whether there were such clicks.
    pub(super) async fn refuse_expired(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
        coarsest: Table,
    ) -> Result<(), StoreError> {
        let (from, to) = selection.range();
        let mut needed = pieces(from, to, coarsest);
        needed.retain(|piece| piece.table == Table::Clicks);
        if needed.is_empty() {
            return Ok(());
        }
        let kept_from = kept_from(reader, selection.kept_from).await?;
        for piece in needed.iter().filter(|piece| piece.from < kept_from) {
            // Whole hours without conditions on clicks, which rollups answer for.
            let until = start_of(piece.to + HOUR - 1, HOUR).min(kept_from);
            let about_links = selection.conditions.iter().filter(|condition| !condition.column.is_of_click());
            let expired = Selection {
                start: instant(start_of(piece.from, HOUR))?,
                end: instant(until - 1)?,
                conditions: about_links.cloned().collect(),
                kept_from: selection.kept_from,
            };
            let mut sql = Sql::new("SELECT c.link_seq");
            push_source(&mut sql, workspace, &expired, Table::Daily);
            sql.push(" LIMIT 1");
            if reader.optional(sql).await?.is_some() {
                return Err(StoreError::Expired { kept_from: instant(kept_from)? });
            }
        }
        Ok(())
    }

    /// Moves the horizon on to an instant, which has to be on an hour, and returns where it is.
    pub(crate) async fn expire_clicks(&self, before: Timestamp) -> Result<Timestamp, StoreError> {
        let before = before.as_millisecond();
        let written = Sql::new(HORIZON).number(&self.read).await?;
        if written >= before {
            return instant(written);
        }
        let mut sql = Sql::new("UPDATE retention SET kept_from = ");
        sql.bind(before).push(" WHERE kept_from < ").bind(before);
        sql.execute(&self.write).await?;
        instant(Sql::new(HORIZON).number(&self.read).await?)
    }

    /// Deletes some clicks from before the horizon, of one workspace in one transaction. False if there are none, or another process deletes
    /// them.
    pub(crate) async fn delete_expired_clicks(&self, kept_from: Timestamp) -> Result<bool, StoreError> {
        let kept_from = kept_from.as_millisecond();
        let mut sql = Sql::new(
            "SELECT w.seq FROM workspaces w WHERE EXISTS (SELECT 1 FROM clicks c
             WHERE c.workspace_seq = w.seq AND c.at < ",
        );
        sql.bind(kept_from).push(") ORDER BY w.seq LIMIT 1");
        let Some(row) = sql.optional(&self.read).await? else { return Ok(false) };
        let mut sql =
            Sql::new("DELETE FROM clicks WHERE seq IN (SELECT c.seq FROM clicks c WHERE c.workspace_seq = ");
        sql.bind(row.try_get::<i64, _>(0)?).push(" AND c.at < ").bind(kept_from);
        sql.push(" ORDER BY c.at LIMIT ").bind(ROWS_PER_STEP);
        sql.lock(" FOR UPDATE SKIP LOCKED").push(")");
        Ok(sql.execute(&self.write).await? > 0)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::sample::Sample;
    use super::*;
    use crate::domain::click::Click;

    #[tokio::test]
    async fn expired_clicks_go_in_bounded_steps_whatever_happens_to_the_process() {
        const CLICKS: i64 = 5 * ROWS_PER_STEP / 2;
        let mut sample = Sample::new().await;
        let horizon: Timestamp = "2026-02-13T12:00:00Z".parse().unwrap();
        let link = sample.links(1, &serde_json::json!({"url": "https://example.com"})).await.remove(0);
        // One each minute, and three that are kept.
        let clicks: Vec<Click> = (-3..CLICKS)
            .map(|n| Click::new(link.id.as_str(), horizon - SignedDuration::from_mins(n + 1)))
            .collect();
        sample.store.record_clicks(&clicks).await.unwrap();
        assert_eq!(sample.store.expire_clicks(horizon).await.unwrap(), horizon);
        assert_eq!(
            sample.store.expire_clicks(Timestamp::UNIX_EPOCH).await.unwrap(),
            horizon,
            "never moves back"
        );
        let (mut clicks, mut steps) = (CLICKS + 3, 0);
        while sample.store.delete_expired_clicks(horizon).await.unwrap() {
            let clicks_left = sample.rows("clicks").await;
            assert!(clicks - clicks_left <= ROWS_PER_STEP, "{clicks} clicks became {clicks_left}");
            (clicks, steps) = (clicks_left, steps + 1);
            sample.reopen().await;
        }
        assert_eq!((clicks, steps), (3, 3));
        for counted in [
            "SELECT CAST(SUM(clicks) AS BIGINT) FROM clicks_daily",
            "SELECT CAST(SUM(clicks) AS BIGINT) FROM clicks_hourly",
        ] {
            assert_eq!(sample.number(counted).await, CLICKS + 3, "{counted}");
        }
    }
}
