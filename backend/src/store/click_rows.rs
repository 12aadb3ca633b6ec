//! The statements that record clicks. Each statement takes all its rows as one argument, because binding thousands of
//! values takes longer than writing the rows.

use rustc_hash::FxHashMap;
use sqlx::{Any, Transaction};

use super::click_batch::{Batch, Entry};
use super::rollups::{DAY, HOUR, start_of};
use super::sql::Sql;
use super::{Dialect, StoreError, to_json};

/// The numbers of a clicked link and its workspace.
#[derive(Clone, Copy)]
pub(super) struct Clicked {
    pub(super) seq: i64,
    pub(super) workspace_seq: i64,
}

/// A click of a batch, and its link.
pub(super) struct Counted<'a> {
    pub(super) click: &'a Entry<'a>,
    pub(super) link: Clicked,
}

/// Inserts the rows of clicks, by link. Rows of one link are neighbours in an index, and others of the batch are far away.
pub(super) async fn insert_clicks(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    batch: &Batch<'_>,
    clicks: &[Counted<'_>],
) -> Result<(), StoreError> {
    let destinations: Vec<[&str; 1]> = batch.destinations().iter().map(|url| [*url]).collect();
    let mut rows: Vec<_> = clicks
        .iter()
        .map(|Counted { click, link }| {
            (click.id, link.workspace_seq, link.seq, click.at, click.destination, click.visitor, click.ip)
        })
        .collect();
    // Stable, so that the clicks of a link keep their order.
    rows.sort_by_key(|(_, _, link, ..)| *link);
    let mut sql =
        Sql::new("WITH d AS MATERIALIZED (SELECT CAST(key AS BIGINT) AS slot, value->>0 AS url FROM ");
    sql.each(dialect, to_json("clicks", &destinations)?);
    sql.push(
        "), v AS MATERIALIZED (SELECT CAST(key AS BIGINT) AS slot, value->>0 AS continent, value->>1 AS country, value->>2 AS region,
         value->>3 AS city, value->>4 AS device, value->>5 AS browser, value->>6 AS os, value->>7 AS user_agent,
         value->>8 AS via, value->>9 AS referer, value->>10 AS referer_url FROM ",
    );
    sql.each(dialect, to_json("clicks", &batch.visitors())?);
    sql.push(
        "), c AS NOT MATERIALIZED (SELECT CAST(key AS BIGINT) AS position, value->>0 AS id, CAST(value->>1 AS BIGINT) AS workspace_seq,
         CAST(value->>2 AS BIGINT) AS link_seq, CAST(value->>3 AS BIGINT) AS at,
         CAST(value->>4 AS BIGINT) AS destination, CAST(value->>5 AS BIGINT) AS visitor, value->>6 AS ip FROM ",
    );
    sql.each(dialect, to_json("clicks", &rows)?);
    // SQLite evaluates a cross join in the written order, so the rows keep theirs.
    sql.push(
        ") INSERT INTO clicks (id, workspace_seq, link_seq, at, url, continent, country, region, city, device, browser,
         os, user_agent, trigger, referer, referer_url, ip) SELECT c.id, c.workspace_seq, c.link_seq, c.at, d.url,
         v.continent, v.country, v.region, v.city, v.device, v.browser, v.os, v.user_agent, v.via, v.referer,
         v.referer_url, c.ip FROM c CROSS JOIN d CROSS JOIN v WHERE d.slot = c.destination AND v.slot = c.visitor",
    );
    if dialect == Dialect::Postgres {
        sql.push(" ORDER BY c.position");
    }
    sql.execute(&mut **transaction).await?;
    Ok(())
}

// The rows of these statements are sorted. Two processes that count the same links then wait for each other instead of
// deadlocking.

/// Adds clicks to the totals of their links.
pub(super) async fn add_to_totals(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    clicks: &[Counted<'_>],
) -> Result<(), StoreError> {
    let mut totals: FxHashMap<i64, (i64, i64)> = FxHashMap::default();
    for Counted { click, link } in clicks {
        let (count, last) = totals.entry(link.seq).or_insert((0, click.at));
        *count += 1;
        *last = (*last).max(click.at);
    }
    let mut totals: Vec<(i64, i64, i64)> =
        totals.into_iter().map(|(link, (count, last))| (link, count, last)).collect();
    totals.sort_unstable();
    let mut sql = Sql::new(
        "INSERT INTO link_totals (link_seq, clicks, last_clicked) SELECT CAST(value->>0 AS BIGINT),
         CAST(value->>1 AS BIGINT), CAST(value->>2 AS BIGINT) FROM ",
    );
    sql.each(dialect, to_json("clicks", &totals)?);
    sql.push(
        " WHERE TRUE ON CONFLICT (link_seq) DO UPDATE SET clicks = link_totals.clicks + excluded.clicks,
         last_clicked = CASE WHEN excluded.last_clicked > link_totals.last_clicked THEN excluded.last_clicked
         ELSE link_totals.last_clicked END",
    );
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// Clicks per link and UTC hour or day.
#[derive(Clone, Copy)]
pub(super) enum Rollup {
    Hourly,
    Daily,
}

/// Adds clicks to a rollup.
pub(super) async fn add_to_rollup(
    transaction: &mut Transaction<'static, Any>,
    dialect: Dialect,
    clicks: &[Counted<'_>],
    rollup: Rollup,
) -> Result<(), StoreError> {
    let (insert, add, length) = match rollup {
        Rollup::Hourly => (
            "INSERT INTO clicks_hourly (workspace_seq, bucket, link_seq, clicks)",
            " WHERE TRUE ON CONFLICT (workspace_seq, bucket, link_seq)
             DO UPDATE SET clicks = clicks_hourly.clicks + excluded.clicks",
            HOUR,
        ),
        Rollup::Daily => (
            "INSERT INTO clicks_daily (workspace_seq, bucket, link_seq, clicks)",
            " WHERE TRUE ON CONFLICT (workspace_seq, bucket, link_seq)
             DO UPDATE SET clicks = clicks_daily.clicks + excluded.clicks",
            DAY,
        ),
    };
    let mut counts: FxHashMap<(i64, i64, i64), i64> = FxHashMap::default();
    for Counted { click, link } in clicks {
        *counts.entry((link.workspace_seq, start_of(click.at, length), link.seq)).or_default() += 1;
    }
    let mut counts: Vec<(i64, i64, i64, i64)> = counts
        .into_iter()
        .map(|((workspace, bucket, link), count)| (workspace, bucket, link, count))
        .collect();
    counts.sort_unstable();
    let mut sql = Sql::new(insert);
    sql.push(
        " SELECT CAST(value->>0 AS BIGINT), CAST(value->>1 AS BIGINT), CAST(value->>2 AS BIGINT),
         CAST(value->>3 AS BIGINT) FROM ",
    );
    sql.each(dialect, to_json("clicks", &counts)?).push(add);
    sql.execute(&mut **transaction).await?;
    Ok(())
}
