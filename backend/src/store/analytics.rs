//! Analytics queries: counts of clicks, in total, by group and over time.
//!
//! Whole UTC days and hours are read from the rollups, and the ends of the range from the clicks. Queries about
//! properties of single clicks read only the clicks.

use jiff::Timestamp;
use sqlx::Row;

use super::column::{Column, Level};
use super::deleted_links::push_not_deleted;
use super::reader::Reader;
use super::retention::kept_from;
use super::rollups::{DAY, HOUR, Piece, Table, pieces};
use super::sql::Sql;
use super::{Store, StoreError, Workspace, optional_instant_of};

/// Maximum number of rows in a result.
const MAX_ROWS: u16 = 5_000;

/// A condition on the value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) column: Column,
    pub(crate) values: Vec<String>,
    /// If true, the value must not be one of `values`. Links and clicks without a value match.
    pub(crate) negated: bool,
}

/// A selection of a workspace's clicks.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) start: Timestamp,
    /// The last selected instant.
    pub(crate) end: Timestamp,
    pub(crate) conditions: Vec<Condition>,
    /// The first instant whose clicks the operator keeps.
    pub(crate) kept_from: Timestamp,
}

/// The time step of a timeline. The bounds of the caller's buckets must be multiples of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// For time zones with an offset that is not a multiple of an hour.
    QuarterHour,
    Hour,
    Day,
}

impl Selection {
    /// The selected range in Unix milliseconds, half-open. There are no clicks before the epoch.
    pub(super) fn range(&self) -> (i64, i64) {
        // A start between two milliseconds excludes the earlier one.
        let start = self.start.as_millisecond();
        let ragged = i64::from(self.start.subsec_nanosecond() % 1_000_000 > 0);
        ((start + ragged).max(0), self.end.as_millisecond().max(-1) + 1)
    }

    /// The coarsest table that can evaluate the conditions. Rollups contain only the link.
    pub(super) fn coarsest(&self) -> Table {
        let about_links = self.conditions.iter().all(|condition| !condition.column.is_of_click());
        if about_links { Table::Daily } else { Table::Clicks }
    }
}

/// Appends the source `c` of a query: the columns `link_seq`, `t` (instant of the click or start of the bucket) and `n`
/// (number of clicks).
pub(super) fn push_source(sql: &mut Sql, workspace: &Workspace, selection: &Selection, coarsest: Table) {
    let (from, to) = selection.range();
    sql.push(" FROM (");
    let mut parts = pieces(from, to, coarsest);
    if parts.is_empty() {
        parts.push(Piece { table: Table::Clicks, from, to: from });
    }
    for (index, piece) in parts.iter().enumerate() {
        if index > 0 {
            sql.push(" UNION ALL ");
        }
        let (instant, clicks) = match piece.table {
            Table::Clicks => ("c.at", "1"),
            Table::Hourly | Table::Daily => ("c.bucket", "c.clicks"),
        };
        sql.push("SELECT c.link_seq, ").push(instant).push(" AS t, ").push(clicks).push(" AS n FROM ");
        sql.push(piece.table.name()).push(" c WHERE c.workspace_seq = ").bind(workspace.seq);
        sql.push(" AND ").push(instant).push(" >= ").bind(piece.from);
        sql.push(" AND ").push(instant).push(" < ").bind(piece.to);
        push_conditions(sql, workspace, selection);
    }
    sql.push(") c");
}

/// Appends the conditions of a selection on `c`, a table of clicks or a rollup.
pub(super) fn push_conditions(sql: &mut Sql, workspace: &Workspace, selection: &Selection) {
    push_not_deleted(sql, workspace);
    let (on_clicks, on_links): (Vec<&Condition>, Vec<&Condition>) =
        selection.conditions.iter().partition(|condition| condition.column.is_of_click());
    for condition in on_clicks {
        sql.push(if condition.negated { " AND NOT (" } else { " AND (" });
        // An address selects all clicks on the page, and one with a query those with this query. A region may lack its country.
        let whole = match condition.column {
            Column::URL => Some(Column::BASE_URL),
            Column::REFERER_URL => Some(Column::BASE_REFERER_URL),
            Column::REGION => Some(Column::REGION_CODE),
            _ => None,
        };
        if let Some(whole) = whole {
            sql.column(whole).push(" IN ").texts(&condition.values).push(" OR ");
        }
        match condition.column {
            Column::DEVICE | Column::BROWSER | Column::OS => {
                sql.push("lower(").column(condition.column).push(")");
            }
            column => _ = sql.column(column),
        }
        sql.push(" IN ").texts(&condition.values).push(")");
    }
    if on_links.is_empty() {
        return;
    }
    sql.push(" AND c.link_seq IN (SELECT l.seq FROM links l WHERE l.workspace_seq = ").bind(workspace.seq);
    for condition in on_links {
        let column = condition.column;
        match (column.level, condition.negated) {
            (Level::Tag, negated) => {
                sql.push(if negated { " AND l.seq NOT IN " } else { " AND l.seq IN " });
                sql.push("(SELECT lt.link_seq FROM link_tags lt JOIN tags g ON g.seq = lt.tag_seq");
                sql.push(" WHERE g.workspace_seq = ").bind(workspace.seq);
                sql.push(" AND g.id IN ").texts(&condition.values).push(")");
                continue;
            }
            (_, false) => sql.push(" AND ").column(column).push(" IN "),
            (_, true) => sql.push(" AND COALESCE(").column(column).push(", '') NOT IN "),
        };
        if column.level == Level::Folder {
            // Links may still name one that is deleted.
            sql.push("(SELECT d.id FROM folders d WHERE d.workspace_seq = ").bind(workspace.seq);
            sql.push(" AND d.id IN ").texts(&condition.values).push(")");
        } else {
            sql.texts(&condition.values);
        }
    }
    sql.push(")");
}

/// Appends the joins that `columns` need.
fn push_joins(sql: &mut Sql, columns: &[Column]) {
    let any = |levels: &[Level]| columns.iter().any(|column| levels.contains(&column.level));
    if any(&[Level::Link, Level::Folder]) {
        sql.push(" JOIN links l ON l.seq = c.link_seq");
    }
    if any(&[Level::Folder]) {
        sql.push(" JOIN folders d ON d.workspace_seq = l.workspace_seq AND d.id = l.folder_id");
    }
    if any(&[Level::Tag]) {
        sql.push(" JOIN link_tags lt ON lt.link_seq = c.link_seq");
        sql.push(" JOIN tags g ON g.seq = lt.tag_seq AND g.workspace_seq > 0");
    }
}

impl Store {
    /// Number of selected clicks.
    pub(crate) async fn count_clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<i64, StoreError> {
        let coarsest = selection.coarsest();
        self.refuse_expired(reader, workspace, selection, coarsest).await?;
        let mut sql = Sql::new("SELECT CAST(COALESCE(SUM(c.n), 0) AS BIGINT)");
        push_source(&mut sql, workspace, selection, coarsest);
        reader.number(sql).await
    }

    /// Number of clicks by the values of `columns`, in descending order. Groups without a value of the last column are left
    /// out. The columns before it locate its value, and may be unknown.
    pub(crate) async fn group_clicks(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
        columns: &[Column],
    ) -> Result<Vec<(Vec<String>, i64)>, StoreError> {
        let about_clicks = columns.iter().any(|column| column.is_of_click());
        let coarsest = if about_clicks { Table::Clicks } else { selection.coarsest() };
        self.refuse_expired(reader, workspace, selection, coarsest).await?;
        let mut sql = Sql::new("SELECT ");
        for column in columns {
            sql.column(*column).push(", ");
        }
        if about_clicks {
            let (from, to) = selection.range();
            sql.push("COUNT(*) AS total FROM clicks c");
            push_joins(&mut sql, columns);
            sql.push(" WHERE c.workspace_seq = ").bind(workspace.seq);
            sql.push(" AND c.at >= ").bind(from).push(" AND c.at < ").bind(to);
            push_conditions(&mut sql, workspace, selection);
        } else {
            sql.push("CAST(SUM(c.n) AS BIGINT) AS total");
            push_source(&mut sql, workspace, selection, coarsest);
            push_joins(&mut sql, columns);
            sql.push(" WHERE c.n > 0");
        }
        if let Some(grouped) = columns.last() {
            sql.push(" AND ").column(*grouped).push(" NOT IN ('', 'Unknown')");
        }
        sql.push(" GROUP BY ");
        for (index, column) in columns.iter().enumerate() {
            sql.push(if index > 0 { ", " } else { "" }).column(*column);
        }
        sql.push(" ORDER BY total DESC");
        for column in columns {
            sql.push(", ").column(*column);
        }
        sql.push(" LIMIT ").bind(i64::from(MAX_ROWS));
        let mut groups = Vec::new();
        for row in reader.all(sql).await? {
            let values = (0..columns.len()).map(|index| row.try_get(index)).collect::<Result<Vec<_>, _>>()?;
            groups.push((values, row.try_get("total")?));
        }
        Ok(groups)
    }

    /// The numbers of the most clicked links and their clicks in the selection, in descending order. Of links with equal clicks, the oldest
    /// is first.
    pub(crate) async fn top_links(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let coarsest = selection.coarsest();
        self.refuse_expired(reader, workspace, selection, coarsest).await?;
        let mut sql = Sql::new("SELECT c.link_seq, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, workspace, selection, coarsest);
        sql.push(" GROUP BY c.link_seq ORDER BY total DESC, c.link_seq LIMIT ").bind(i64::from(MAX_ROWS));
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get("link_seq")?, row.try_get("total")?))).collect()
    }

    /// Number of clicks by step. Each entry has the start of the step in Unix milliseconds. Steps without clicks are
    /// left out.
    pub(crate) async fn timeline(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        selection: &Selection,
        step: Step,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let (length, coarsest) = match step {
            Step::QuarterHour => (HOUR / 4, Table::Clicks),
            Step::Hour => (HOUR, Table::Hourly),
            Step::Day => (DAY, Table::Daily),
        };
        let coarsest = if selection.coarsest() == Table::Daily { coarsest } else { Table::Clicks };
        self.refuse_expired(reader, workspace, selection, coarsest).await?;
        let mut sql = Sql::new("SELECT (c.t / ");
        sql.bind(length).push(") AS step, CAST(SUM(c.n) AS BIGINT) AS total");
        push_source(&mut sql, workspace, selection, coarsest);
        sql.push(" GROUP BY 1 ORDER BY 1");
        let rows = reader.all(sql).await?;
        rows.iter().map(|row| Ok((row.try_get::<i64, _>("step")? * length, row.try_get("total")?))).collect()
    }

    /// The instant of the workspace's first click.
    pub(crate) async fn first_click(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        retained_from: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let kept_from = kept_from(reader, retained_from).await?;
        let mut sql = Sql::new("SELECT MIN(c.bucket) AS at FROM clicks_hourly c WHERE c.workspace_seq = ");
        sql.bind(workspace.seq).push(" AND c.bucket < ").bind(kept_from);
        push_not_deleted(&mut sql, workspace);
        let earlier = optional_instant_of(&reader.one(sql).await?, "at")?;
        if earlier.is_some() {
            return Ok(earlier);
        }
        let mut sql = Sql::new("SELECT MIN(c.at) AS at FROM clicks c WHERE c.workspace_seq = ");
        sql.bind(workspace.seq);
        push_not_deleted(&mut sql, workspace);
        optional_instant_of(&reader.one(sql).await?, "at")
    }
}
