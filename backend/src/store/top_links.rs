//! The most clicked links.

use std::collections::VecDeque;

use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::horizon::HORIZON;
use super::reader::Reader;
use super::rollups::{Piece, Table, Term, terms};
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace, from_json, instant};

/// A link in the result, with the fields that the response needs.
#[derive(Clone, Debug)]
pub(crate) struct TopLink {
    pub(crate) id: String,
    pub(crate) domain: String,
    pub(crate) key: String,
    pub(crate) url: String,
    pub(crate) folder_id: Option<String>,
    pub(crate) details: TopLinkDetails,
    pub(crate) created_at: Timestamp,
    /// Number of clicks in the selection.
    pub(crate) clicks: i64,
}

/// The details of a link that the response contains.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TopLinkDetails {
    pub(crate) title: Option<String>,
    pub(crate) comments: Option<String>,
    pub(crate) partner_id: Option<String>,
}

/// A link and its clicks.
type Count = (i64, i64);

/// Number of links that are loaded at once.
const LOADED: usize = 1_000;

/// Number of clicks that are read at once.
const CLICKS: i64 = 10_000;

/// Maximum number of clicks that are counted one by one. It takes less time than the many queries for the parts of a range.
const FEW: i64 = 2_000;

/// A row of [`load`].
type LinkRow = (i64, String, String, String, String, Option<String>, TopLinkDetails, i64);

/// Links in the order of their ranks, and a JSON list with the [`LinkRow`] of each that is not deleted, in any order.
#[derive(Default)]
struct Loaded<'a> {
    ranked: &'a [Count],
    rows: Option<String>,
}

impl Store {
    /// Calls `entry` for each of the most clicked links, with its clicks in the selection, in descending order. Of links with equal
    /// clicks, the oldest is first.
    pub(crate) async fn top_links<E: From<StoreError>>(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
        mut entry: impl FnMut(TopLink) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut counts = if selection.conditions.is_empty() {
            self.count_by_link(reader, workspace, selection).await?
        } else {
            self.refuse_expired(reader, workspace, selection, selection.coarsest()).await?;
            self.count_by_query(reader, workspace, selection).await?
        };
        let (mut missing, mut rest) = (usize::from(MAX_ROWS), counts.as_mut_slice());
        let mut before = Loaded::default();
        while missing > 0 && !(rest.is_empty() && before.ranked.is_empty()) {
            let (ranked, others) = rank(rest, LOADED.min(missing - before.ranked.len()));
            // Links become entries while the next ones are read.
            let entries = async { before.entries(&mut entry) };
            let (loaded, entries) = tokio::join!(load(reader, self.dialect, ranked), entries);
            // Deleted links are not loaded, and the next links take their ranks.
            missing -= entries?;
            (before, rest) = (loaded?, others);
        }
        Ok(())
    }

    async fn count_by_query(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<Count>, StoreError> {
        let mut sql = Sql::new("SELECT c.link_seq, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, self.dialect, workspace, selection, selection.coarsest());
        sql.push(" GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT ").bind(i64::from(MAX_ROWS));
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get("link_seq")?, row.try_get("total")?))).collect()
    }

    /// Number of clicks of each link in the range of a selection, including deleted links.
    async fn count_by_link(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<Count>, StoreError> {
        let (from, to) = selection.range();
        let mut counts = FxHashMap::default();
        let row = self.few_clicks(reader, workspace, (from, to)).await?;
        let (number, horizon, last): (i64, i64, Option<i64>) =
            (row.try_get("number")?, row.try_get("horizon")?, row.try_get("last")?);
        let kept_from = horizon.max(selection.kept_from.as_millisecond());
        if number <= FEW && from >= kept_from {
            add(&row, 1, &mut counts)?;
            return Ok(counts.into_iter().collect());
        }
        self.refuse_expired(reader, workspace, selection, Table::Daily).await?;
        // Clicks that are only in rollups have expired.
        let until = last.map_or(0, |last| last + 1).max(horizon);
        let mut terms = VecDeque::from(terms(from, to, until));
        let mut next = self.next_sums(reader, workspace, &mut terms).await?;
        while let Some((row, sign)) = next {
            // A row is added up while the next one is read.
            let added = async { add(&row, sign, &mut counts) };
            let (read, added) = tokio::join!(self.next_sums(reader, workspace, &mut terms), added);
            added?;
            next = read?;
        }
        Ok(counts.into_iter().filter(|(_, clicks)| *clicks > 0).collect())
    }

    /// The number of clicks in `[from, to)` and the lists of [`Self::sums`], up to one more than [`FEW`]; and the instants of the
    /// horizon and of the last click.
    async fn few_clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        (from, to): (i64, i64),
    ) -> Result<AnyRow, StoreError> {
        let mut sql = Sql::new("SELECT COUNT(*) AS number, (");
        sql.push(HORIZON).push(") AS horizon, (SELECT MAX(l.at) FROM clicks l WHERE l.workspace_seq = ");
        sql.bind(workspace.seq).push(") AS last").push(self.sums());
        sql.push("(SELECT l.link_seq, 1 AS clicks FROM clicks l WHERE l.workspace_seq = ")
            .bind(workspace.seq);
        sql.push(" AND l.at >= ").bind(from).push(" AND l.at < ").bind(to);
        sql.push(" LIMIT ").bind(FEW + 1).push(") c");
        reader.one(sql).await
    }

    /// The next lists of [`Self::sums`], and their sign. What they contain is removed from `terms`. `None` if that is empty.
    async fn next_sums(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        terms: &mut VecDeque<Term>,
    ) -> Result<Option<(AnyRow, i64)>, StoreError> {
        while let Some(Term { piece, sign }) = terms.front_mut() {
            let sums = match piece.table {
                Table::Clicks => self.first_clicks(reader, workspace, *piece).await?,
                Table::Hourly | Table::Daily => self.first_bucket(reader, workspace, *piece).await?,
            };
            if let Some(row) = sums {
                piece.from = row.try_get("rest")?;
                return Ok(Some((row, *sign)));
            }
            terms.pop_front();
        }
        Ok(None)
    }

    /// The first [`CLICKS`] clicks of `piece`: where the rest begins, and the lists of [`Self::sums`].
    async fn first_clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        Piece { from, to, .. }: Piece,
    ) -> Result<Option<AnyRow>, StoreError> {
        if from >= to {
            return Ok(None);
        }
        let mut sql = Sql::new("SELECT l.at FROM clicks l WHERE l.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND l.at >= ").bind(from).push(" AND l.at < ").bind(to);
        sql.push(" ORDER BY l.at LIMIT 1 OFFSET ").bind(CLICKS);
        let rest: Option<i64> = reader.optional(sql).await?.map(|row| row.try_get(0)).transpose()?;
        // All clicks of one millisecond are read at once.
        let rest = rest.map_or(to, |rest| rest.max(from + 1));
        // They are not grouped, because that takes longer than adding them up here.
        let mut sql = Sql::new("SELECT CAST(");
        sql.bind(rest).push(" AS BIGINT) AS rest").push(self.sums());
        sql.push("(SELECT l.link_seq, 1 AS clicks FROM clicks l WHERE l.workspace_seq = ")
            .bind(workspace.seq);
        sql.push(" AND l.at >= ").bind(from).push(" AND l.at < ").bind(rest).push(") c");
        reader.optional(sql).await
    }

    /// The first bucket of a rollup in the range of `piece`: where the rest begins, and the lists of [`Self::sums`].
    async fn first_bucket(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        Piece { table, from, to }: Piece,
    ) -> Result<Option<AnyRow>, StoreError> {
        // One bucket at a time, so that no more is in memory than the links of a day. PostgreSQL reads its rows in the order of the table,
        // which takes half as long as in that of the index.
        let table = if table == Table::Daily { "clicks_daily" } else { "clicks_hourly" };
        let mut sql = Sql::new("SELECT MIN(c.bucket) + 1 AS rest");
        sql.push(self.sums()).push(table).push(" c WHERE c.workspace_seq = ").bind(workspace.seq);
        sql.push(" AND c.bucket = (SELECT MIN(b.bucket) FROM ").push(table);
        sql.push(" b WHERE b.workspace_seq = ").bind(workspace.seq);
        sql.push(" AND b.bucket >= ").bind(from).push(" AND b.bucket < ").bind(to).push(")");
        let row = reader.one(sql).await?;
        let is_empty = row.try_get::<Option<i64>, _>("rest")?.is_none();
        Ok((!is_empty).then_some(row))
    }

    /// Selects two lists in one row, because reading many rows would take longer than finding them: the links, those with more than
    /// one click with a minus sign, and the clicks of the latter. Most links have one click in an hour, and writing numbers is most
    /// of the work.
    fn sums(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => {
                ", group_concat(CASE c.clicks WHEN 1 THEN c.link_seq ELSE -c.link_seq END) AS links,
                 group_concat(c.clicks) FILTER (WHERE c.clicks <> 1) AS clicks FROM "
            }
            Dialect::Postgres => {
                ", string_agg(CAST(CASE c.clicks WHEN 1 THEN c.link_seq ELSE -c.link_seq END AS TEXT), ',') AS links,
                 string_agg(CAST(c.clicks AS TEXT), ',') FILTER (WHERE c.clicks <> 1) AS clicks FROM "
            }
        }
    }
}

/// Adds the lists of [`Store::sums`], times `sign`, to the clicks of each link. An empty list is NULL.
fn add(row: &AnyRow, sign: i64, counts: &mut FxHashMap<i64, i64>) -> Result<(), StoreError> {
    let list = |column| row.try_get::<Option<&str>, _>(column).map(Option::unwrap_or_default);
    let mut clicks = numbers(list("clicks")?);
    for link in numbers(list("links")?) {
        let link = link?;
        let missing = || StoreError::corrupt("list of numbers", &"clicks of a link are missing");
        let clicks = if link < 0 { clicks.next().ok_or_else(missing)?? } else { 1 };
        *counts.entry(link.abs()).or_default() += sign * clicks;
    }
    Ok(())
}

/// The numbers of a list such as `7,-12`. There are hundreds of thousands, and `str::parse` takes several times as long.
fn numbers(list: &str) -> impl Iterator<Item = Result<i64, StoreError>> {
    let corrupt = |byte| StoreError::corrupt("list of numbers", &format!("byte {byte}"));
    let numbers = (!list.is_empty()).then(|| list.as_bytes().split(|byte| *byte == b','));
    numbers.into_iter().flatten().map(move |number| {
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        let value = digits.iter().try_fold(0_i64, |value, byte| match byte {
            b'0'..=b'9' => Ok(value.wrapping_mul(10).wrapping_add((byte - b'0').into())),
            _ => Err(corrupt(byte)),
        })?;
        Ok(if digits.len() < number.len() { -value } else { value })
    })
}

/// The `most` links with the most clicks, in descending order, and the others. Of links with equal clicks, the oldest is first.
fn rank(counts: &mut [Count], most: usize) -> (&[Count], &mut [Count]) {
    let by_clicks = |(link, clicks): &Count| (-clicks, *link);
    if most < counts.len() {
        counts.select_nth_unstable_by_key(most, by_clicks);
    }
    let (top, others) = counts.split_at_mut(most.min(counts.len()));
    top.sort_unstable_by_key(by_clicks);
    (top, others)
}

/// Loads links that are not deleted.
async fn load<'a>(
    reader: &mut Reader,
    dialect: Dialect,
    ranked: &'a [Count],
) -> Result<Loaded<'a>, StoreError> {
    if ranked.is_empty() {
        return Ok(Loaded::default());
    }
    // One row with all links, because reading many rows takes longer than finding them.
    let mut sql = Sql::new(match dialect {
        Dialect::Sqlite => {
            "SELECT json_group_array(json_array(l.seq, l.id, l.domain, l.key, l.url, f.id, json(l.details),
             l.created_at)) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
        Dialect::Postgres => {
            "SELECT CAST(json_agg(json_build_array(l.seq, l.id, l.domain, l.key, l.url, f.id,
             CAST(l.details AS JSON), l.created_at)) AS TEXT) FROM links l
             LEFT JOIN folders f ON f.workspace_seq = l.workspace_seq AND f.id = l.folder_id WHERE l.seq"
        }
    });
    sql.in_numbers(dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
    // Deleted links have no domain.
    sql.push(" AND l.domain <> ''");
    Ok(Loaded { ranked, rows: reader.one(sql).await?.try_get(0)? })
}

impl Loaded<'_> {
    /// Calls `entry` for each link. The result is the number of calls.
    fn entries<E: From<StoreError>>(
        &self,
        mut entry: impl FnMut(TopLink) -> Result<(), E>,
    ) -> Result<usize, E> {
        let rows: Vec<LinkRow> =
            self.rows.as_deref().map_or(Ok(Vec::new()), |rows| from_json("links", rows))?;
        let number = rows.len();
        let mut links: FxHashMap<i64, LinkRow> = rows.into_iter().map(|row| (row.0, row)).collect();
        for (link, clicks) in self.ranked {
            if let Some((_, id, domain, key, url, folder_id, details, created_at)) = links.remove(link) {
                let created_at = instant(created_at)?;
                entry(TopLink { id, domain, key, url, folder_id, details, created_at, clicks: *clicks })?;
            }
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_clicks_come_first_and_of_equals_the_oldest() {
        let mut counts = [(7, 1), (3, 5), (2, 1), (9, 5)];
        let (top, others) = rank(&mut counts, 3);
        assert_eq!((top, &*others), ([(3, 5), (9, 5), (2, 1)].as_slice(), [(7, 1)].as_slice()));
        assert_eq!(rank(others, 3).0, [(7, 1)]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for list in [vec![], vec![0], vec![7, -12], vec![i64::MAX, -i64::MAX, 1_000_000]] {
            let written: Vec<String> = list.iter().map(i64::to_string).collect();
            assert_eq!(numbers(&written.join(",")).collect::<Result<Vec<_>, _>>().unwrap(), list);
        }
        assert!(numbers("7, 1").nth(1).unwrap().is_err());
    }
}
