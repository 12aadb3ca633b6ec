//! The clicks of each link in a range.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::analytics::Selection;
use super::horizon::HORIZON;
use super::reader::Reader;
use super::rollups::{Piece, Table, Term, terms};
use super::sql::Sql;
use super::{Dialect, Store, StoreError, Workspace};

/// A link and its clicks.
pub(super) type Count = (i64, i64);

/// Number of clicks that are read at once.
const CLICKS: i64 = 10_000;

/// Maximum number of clicks that are counted one by one. It takes less time than the many queries for the parts of a range.
const FEW: i64 = 2_000;

impl Store {
    /// Number of clicks of each link in the range of a selection, including deleted links.
    pub(super) async fn count_by_link(
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
        let table = table.name();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for list in [vec![], vec![0], vec![7, -12], vec![i64::MAX, -i64::MAX, 1_000_000]] {
            let written: Vec<String> = list.iter().map(i64::to_string).collect();
            assert_eq!(numbers(&written.join(",")).collect::<Result<Vec<_>, _>>().unwrap(), list);
        }
        assert!(numbers("7, 1").nth(1).unwrap().is_err());
    }
}
