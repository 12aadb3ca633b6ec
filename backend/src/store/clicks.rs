//! Recording of clicks: their rows, and the totals and rollups of what was really inserted, in one transaction.
//!
//! Each click has a unique id. One that is recorded again, because the answer to a commit was lost or a process was killed before it removed
//! the click from its log, is neither inserted nor counted.

use rustc_hash::FxHashMap;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::retention::HORIZON;
use super::rollups::{DAY, HOUR, Table};
use super::sql::Sql;
use super::{Store, StoreError, Transaction, from_json, to_json};
use crate::domain::click::{Click, ClickRef};
use crate::domain::destination::UtmParameters;

/// Maximum number of clicks of a transaction. SQLite has one writer, and the writes of all customers wait while it is busy, which must not
/// take a tenth of a second. Fewer would take longer for each click.
pub(crate) const RECORDED_AT_ONCE: usize = 2_000;

/// Whether clicks may have been recorded before this process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    First,
    /// They may have been recorded and have expired since. Those from before the horizon are left out, so that none counts twice.
    Again,
}

/// What the transaction that recorded clicks has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Clicks that were not in the database before.
    pub(crate) inserted: usize,
    /// Clicks on links that do not exist any more.
    pub(crate) orphaned: usize,
}

/// A clicked link and its workspace.
#[derive(Clone, Copy)]
struct Clicked {
    seq: i64,
    workspace_seq: i64,
}

/// The workspace, the link and the time of a click that was inserted.
type Inserted = (i64, i64, i64);

impl Store {
    /// Records clicks, with the totals and rollups. Clicks on missing links, and those that are recorded already, are left out. Returns the
    /// number of the others.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails. The clicks of earlier transactions are recorded then.
    pub async fn record_clicks(&self, clicks: &[Click]) -> Result<usize, StoreError> {
        let mut recorded = 0;
        for clicks in clicks.chunks(RECORDED_AT_ONCE) {
            let clicks: Vec<ClickRef<'_>> = clicks.iter().map(ClickRef::from).collect();
            recorded += self.record(&clicks, Found::First).await?.inserted;
        }
        Ok(recorded)
    }

    /// Records clicks in one transaction.
    pub(crate) async fn record(&self, clicks: &[ClickRef<'_>], found: Found) -> Result<Recorded, StoreError> {
        if clicks.is_empty() {
            return Ok(Recorded::default());
        }
        let mut transaction = self.begin().await?;
        // Processes record one after the other. The numbers of clicks are then in the order of the commits, so that the cursor of a
        // webhook passes over none.
        let mut sql = Sql::new(HORIZON);
        sql.lock(" FOR NO KEY UPDATE");
        let horizon = sql.number(&mut *transaction).await?;
        let links = lock_clicked(&mut transaction, clicks).await?;
        let mut rows = Vec::with_capacity(clicks.len());
        let mut orphaned = 0;
        for click in clicks {
            match links.get(click.link_id) {
                Some(_) if found == Found::Again && click.at < horizon => {}
                Some(link) => rows.push((*link, click)),
                None => orphaned += 1,
            }
        }
        let inserted = insert(&mut transaction, rows).await?;
        if !inserted.is_empty() {
            count(&mut transaction, to_json("clicks", &inserted)?).await?;
        }
        transaction.commit().await?;
        Ok(Recorded { inserted: inserted.len(), orphaned })
    }
}

/// The clicked links by id, locked against deletion until the transaction ends.
async fn lock_clicked(
    transaction: &mut Transaction,
    clicks: &[ClickRef<'_>],
) -> Result<FxHashMap<String, Clicked>, StoreError> {
    let mut ids: Vec<&str> = clicks.iter().map(|click| click.link_id).collect();
    ids.sort_unstable();
    ids.dedup();
    // One row with all links, because reading many rows takes longer than finding them.
    let mut sql = Sql::by(
        "SELECT json_group_array(json_array(l.id, l.seq, l.workspace_seq)) FROM links l WHERE l.id IN ",
        "SELECT CAST(COALESCE(json_agg(json_build_array(c.id, c.seq, c.workspace_seq)), '[]') AS TEXT)
         FROM (SELECT l.id, l.seq, l.workspace_seq FROM links l WHERE l.id IN ",
    );
    // Deleted links have no domain.
    sql.texts(&ids).push(" AND l.domain <> ''").lock(" ORDER BY l.seq FOR KEY SHARE) c");
    let found: String = sql.one(&mut **transaction).await?.try_get(0)?;
    let found: Vec<(String, i64, i64)> = from_json("links", &found)?;
    Ok(found.into_iter().map(|(id, seq, workspace_seq)| (id, Clicked { seq, workspace_seq })).collect())
}

// Each statement takes all its rows as one argument, because binding thousands of values takes longer than writing the rows.

/// The values of a row of `clicks`, as a list.
struct Values<'a>(Clicked, &'a ClickRef<'a>);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(link, click) = self;
        let mut values = serializer.serialize_seq(None)?;
        values.serialize_element(click.id)?;
        for number in [link.workspace_seq, link.seq, click.at] {
            values.serialize_element(&number)?;
        }
        for text in [click.destination, click.ip].iter().chain(&click.visitor) {
            values.serialize_element(text)?;
        }
        for parameter in UtmParameters::of(click.destination).values() {
            values.serialize_element(parameter.as_deref().unwrap_or_default())?;
        }
        values.end()
    }
}

/// Inserts the rows of clicks that are not in the database. Returns what was inserted.
async fn insert(
    transaction: &mut Transaction,
    mut clicks: Vec<(Clicked, &ClickRef<'_>)>,
) -> Result<Vec<Inserted>, StoreError> {
    // Rows of one link are neighbours in an index. The sort is stable, so that the clicks of a link keep their order.
    clicks.sort_by_key(|(link, _)| link.seq);
    let mut sql = Sql::new(
        "INSERT INTO clicks (id, workspace_seq, link_seq, at, url, ip, continent, country, region, city, device, browser,
         os, user_agent, trigger, referer, referer_url, utm_source, utm_medium, utm_campaign, utm_term, utm_content) SELECT value->>0, CAST(value->>1 AS BIGINT), CAST(value->>2 AS BIGINT),
         CAST(value->>3 AS BIGINT), value->>4, value->>5, value->>6, value->>7, value->>8, value->>9, value->>10, value->>11,
         value->>12, value->>13, value->>14, value->>15, value->>16, value->>17, value->>18, value->>19,
         value->>20, value->>21 FROM ",
    );
    let rows: Vec<Values<'_>> = clicks.into_iter().map(|(link, click)| Values(link, click)).collect();
    sql.each(to_json("clicks", &rows)?).in_order();
    sql.push(" ON CONFLICT (id) DO NOTHING RETURNING workspace_seq, link_seq, at");
    let inserted = sql.all(&mut **transaction).await?;
    let of = |row: &AnyRow| Ok((row.try_get("workspace_seq")?, row.try_get("link_seq")?, row.try_get("at")?));
    inserted.iter().map(of).collect()
}

/// Adds clicks to the totals of their links and to the rollups. The rows of each statement are sorted. Two processes that count the same links
/// then wait for each other instead of deadlocking.
async fn count(transaction: &mut Transaction, clicks: String) -> Result<(), StoreError> {
    let mut sql = Sql::new(
        "INSERT INTO link_totals (link_seq, clicks, last_clicked)
         SELECT CAST(value->>1 AS BIGINT), COUNT(*), MAX(CAST(value->>2 AS BIGINT)) FROM ",
    );
    sql.each(clicks.clone()).push(
        " WHERE TRUE GROUP BY 1 ORDER BY 1 ON CONFLICT (link_seq) DO UPDATE SET
         clicks = link_totals.clicks + excluded.clicks, last_clicked = CASE
         WHEN excluded.last_clicked > link_totals.last_clicked THEN excluded.last_clicked ELSE link_totals.last_clicked END",
    );
    sql.execute(&mut **transaction).await?;
    for (rollup, length) in [(Table::Hourly, HOUR), (Table::Daily, DAY)] {
        let mut sql = Sql::new("INSERT INTO ");
        sql.push(rollup.name())
            .push(" (workspace_seq, bucket, link_seq, clicks) SELECT CAST(value->>0 AS BIGINT), ");
        sql.push("CAST(value->>2 AS BIGINT) - CAST(value->>2 AS BIGINT) % ").bind(length);
        sql.push(", CAST(value->>1 AS BIGINT), COUNT(*) FROM ").each(clicks.clone());
        sql.push(" WHERE TRUE GROUP BY 1, 2, 3 ORDER BY 1, 2, 3");
        sql.push(" ON CONFLICT (workspace_seq, bucket, link_seq) DO UPDATE SET clicks = ");
        sql.push(rollup.name()).push(".clicks + excluded.clicks");
        sql.execute(&mut **transaction).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::sample::{NOW, Sample};
    use super::*;

    #[tokio::test]
    async fn a_click_counts_once_however_often_it_is_recorded() {
        let sample = Sample::new().await;
        let (store, now) = (&sample.store, NOW);
        let link = sample.links(1, &serde_json::json!({"url": "https://example.com"})).await.remove(0);
        let clicks: Vec<Click> =
            (0..10).map(|n| Click::new(&link.id, now + SignedDuration::from_mins(n))).collect();
        let gone = Click::new("link_gone", now);
        let refs = |range: std::ops::Range<usize>| {
            clicks[range].iter().chain([&gone]).map(ClickRef::from).collect::<Vec<_>>()
        };
        let horizon = now + SignedDuration::from_mins(8);
        //  clicks, whether an earlier process may have recorded them, the minute of the horizon, what is inserted and all
        for (range, found, inserted, all) in [
            (0..4, Found::First, 4, 4),
            (0..4, Found::First, 0, 4),
            (2..6, Found::Again, 2, 6),
            (0..10, Found::Again, 2, 8),
            (0..10, Found::First, 2, 10),
        ] {
            if all == 8 {
                store.expire_clicks(horizon).await.unwrap();
            }
            let recorded = store.record(&refs(range.clone()), found).await.unwrap();
            assert_eq!(recorded, Recorded { inserted, orphaned: 1 }, "{range:?} {found:?}");
            for table in [
                "SELECT COUNT(*) FROM clicks",
                "SELECT CAST(SUM(clicks) AS BIGINT) FROM clicks_daily",
                "SELECT CAST(SUM(clicks) AS BIGINT) FROM clicks_hourly",
                "SELECT CAST(SUM(clicks) AS BIGINT) FROM link_totals",
            ] {
                assert_eq!(sample.number(table).await, all, "{range:?}: {table}");
            }
        }
    }
}
