//! The most clicked links.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::analytics::{MAX_ROWS, Selection, push_source};
use super::horizon::HORIZON;
use super::link_size::MAX_LINK_BYTES;
use super::links::in_background;
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

/// Maximum number of links that are loaded at once.
const LOADED: usize = 1_000;

/// Maximum size of the links that the thread of the request reads from the text of the database, in bytes. A part has less, unless
/// its links are much larger than those before.
const LARGE: usize = 2 * 1024 * 1024;

/// About the size of an entry beside the columns of its link, in bytes.
const ENTRY_BYTES: usize = 300;

/// Number of clicks that are read at once.
const CLICKS: i64 = 10_000;

/// Maximum number of clicks that are counted one by one. It takes less time than the many queries for the parts of a range.
const FEW: i64 = 2_000;

/// A row of [`load`].
type LinkRow = (i64, String, String, String, String, Option<String>, TopLinkDetails, i64);

/// The most clicked links that are not read yet, in the order of their ranks.
#[derive(Debug)]
pub(crate) struct Ranking {
    ranked: VecDeque<Count>,
    /// About the size of the last entries, in bytes.
    entry_bytes: usize,
}

/// Links in the order of their ranks, and a JSON list with the [`LinkRow`] of each that is not deleted, in any order.
#[derive(Default)]
struct Loaded {
    ranked: Vec<Count>,
    rows: String,
}

impl Ranking {
    /// Whether all links are read.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    /// Takes the next links, whose entries have about this size.
    fn take(&mut self, bytes: usize) -> Vec<Count> {
        if bytes == 0 {
            return Vec::new();
        }
        let number = (bytes / self.entry_bytes).clamp(1, LOADED);
        self.ranked.drain(..number.min(self.ranked.len())).collect()
    }

    fn put_back(&mut self, links: &[Count]) {
        for link in links.iter().rev() {
            self.ranked.push_front(*link);
        }
    }
}

impl Store {
    /// The most clicked links, in descending order of their clicks in the selection. Of links with equal clicks, the oldest is first.
    pub(crate) async fn top_links(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Ranking, StoreError> {
        let counts = if selection.conditions.is_empty() {
            self.count_by_link(reader, workspace, selection).await?
        } else {
            self.refuse_expired(reader, workspace, selection, selection.coarsest()).await?;
            self.count_by_query(reader, workspace, selection).await?
        };
        let ranked = self.best(reader, workspace, counts).await?.into();
        Ok(Ranking { ranked, entry_bytes: MAX_LINK_BYTES })
    }

    /// Reads the next links of a ranking, whose entries have about this size. Calls `entry` for each, until it breaks.
    pub(crate) async fn next_top_links<E: From<StoreError>>(
        &self,
        reader: &mut Reader,
        ranking: &mut Ranking,
        bytes: usize,
        mut entry: impl FnMut(TopLink) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (mut before, mut loaded_bytes) = (Loaded::default(), 0);
        loop {
            let next = ranking.take(bytes.saturating_sub(loaded_bytes));
            // Links become entries while the next ones are read.
            let entries = before.entries(&mut entry);
            let (loaded, entries) = tokio::join!(load(reader, self.dialect, next), entries);
            let loaded = loaded?;
            if let ControlFlow::Break(rest) = entries? {
                ranking.put_back(&loaded.ranked);
                ranking.put_back(&before.ranked[rest..]);
                return Ok(());
            }
            if loaded.ranked.is_empty() {
                return Ok(());
            }
            let entry_bytes = loaded.rows.len() / loaded.ranked.len() + ENTRY_BYTES;
            loaded_bytes += entry_bytes * loaded.ranked.len();
            ranking.entry_bytes = entry_bytes;
            before = loaded;
        }
    }

    /// The best of all counts, at most [`MAX_ROWS`], in the order of their ranks. If there are more, the next links take the ranks of
    /// deleted ones.
    async fn best(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        mut counts: Vec<Count>,
    ) -> Result<Vec<Count>, StoreError> {
        let most = usize::from(MAX_ROWS);
        let mut any = Sql::new("SELECT 1 FROM deleted_links d WHERE d.workspace_seq = ");
        any.bind(workspace.seq).push(" LIMIT 1");
        if counts.len() <= most || reader.optional(any).await?.is_none() {
            rank(&mut counts, most);
            counts.truncate(most);
            return Ok(counts);
        }
        let (mut best, mut rest) = (Vec::with_capacity(most), counts.as_mut_slice());
        while best.len() < most && !rest.is_empty() {
            let (ranked, others) = rank(rest, most - best.len());
            let mut sql = Sql::new("SELECT d.link_seq FROM deleted_links d WHERE d.workspace_seq = ");
            sql.bind(workspace.seq).push(" AND d.link_seq");
            sql.in_numbers(self.dialect, &ranked.iter().map(|(link, _)| *link).collect::<Vec<_>>());
            let deleted = reader.all(sql).await?;
            let deleted = deleted.iter().map(|row| row.try_get(0)).collect::<Result<FxHashSet<i64>, _>>()?;
            best.extend(ranked.iter().filter(|(link, _)| !deleted.contains(link)));
            rest = others;
        }
        Ok(best)
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
async fn load(reader: &mut Reader, dialect: Dialect, ranked: Vec<Count>) -> Result<Loaded, StoreError> {
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
    // PostgreSQL's list of nothing is NULL.
    let rows: Option<String> = reader.one(sql).await?.try_get(0)?;
    Ok(Loaded { ranked, rows: rows.unwrap_or_else(|| "[]".to_owned()) })
}

impl Loaded {
    /// Calls `entry` for each link until it breaks. The rest then begins at the index in the result.
    async fn entries<E: From<StoreError>>(
        &mut self,
        mut entry: impl FnMut(TopLink) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<usize>, E> {
        if self.ranked.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let rows = std::mem::take(&mut self.rows);
        let is_large = rows.len() > LARGE;
        let parse = move || from_json::<Vec<LinkRow>>("links", &rows);
        let rows = if is_large { in_background(parse).await? } else { parse()? };
        let mut links: FxHashMap<i64, LinkRow> = rows.into_iter().map(|row| (row.0, row)).collect();
        for (index, (link, clicks)) in self.ranked.iter().enumerate() {
            if let Some((_, id, domain, key, url, folder_id, details, created_at)) = links.remove(link) {
                let created_at = instant(created_at)?;
                let top = TopLink { id, domain, key, url, folder_id, details, created_at, clicks: *clicks };
                if entry(top)?.is_break() {
                    return Ok(ControlFlow::Break(index + 1));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
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
