//! Sums of usage over a range of time.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::domain::usage::{Account, Sums, minutes_from, pieces};
use crate::domain::when::rfc3339;
use crate::store::reader::{Queries, Reader};
use crate::store::rollups::{DAY, HOUR};
use crate::store::sql::Sql;
use crate::store::{Store, StoreError, Workspace, instant};

/// What an entry of an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageGroup {
    Total,
    Hour,
    Day,
    Class,
    Key,
    Plan,
}

/// Whose sums are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose<'a> {
    Workspace(&'a Workspace),
    Subscribers(&'a [String]),
    All,
}

/// A range of time in Unix milliseconds, half-open, and the time of the question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) now: Timestamp,
}

impl Range {
    /// The time of this length before now, up to now.
    pub(super) fn last(length: i64, now: Timestamp) -> Self {
        let at = now.as_millisecond();
        Self { from: (at - length).max(0), to: at + 1, now }
    }
}

/// The sums of the rows of `s`.
pub(super) const SUMMED: &str =
    "CAST(SUM(s.requests) AS BIGINT) AS requests, CAST(SUM(s.units) AS BIGINT) AS units,
    CAST(SUM(s.refused) AS BIGINT) AS refused";

/// Appends the source of a query: the sums `s` by bucket, and their accounts `a`.
pub(super) fn push_source(sql: &mut Sql, whose: Whose<'_>, range: Range) {
    let [before, hours, after] = pieces(range.from, range.to, minutes_from(range.now));
    let mut separator = " FROM (";
    for (table, (from, to)) in [("usage_hours", hours), ("usage_minutes", before), ("usage_minutes", after)] {
        if from == to && table == "usage_minutes" {
            continue;
        }
        sql.push(separator)
            .push("SELECT t.account_seq, t.bucket, t.requests, t.units, t.refused FROM ")
            .push(table);
        sql.push(" t WHERE t.bucket >= ").bind(from).push(" AND t.bucket < ").bind(to);
        match whose {
            Whose::Workspace(workspace) => {
                sql.push(
                    " AND t.account_seq IN (SELECT w.seq FROM usage_accounts w JOIN api_keys k ON k.id = w.subscriber WHERE k.workspace_seq = ",
                );
                sql.bind(workspace.seq).push(")");
            }
            Whose::Subscribers(subscribers) => {
                sql.push(" AND t.account_seq IN (SELECT w.seq FROM usage_accounts w WHERE w.subscriber");
                sql.in_texts(subscribers).push(")");
            }
            Whose::All => {}
        }
        separator = " UNION ALL ";
    }
    sql.push(") s JOIN usage_accounts a ON a.seq = s.account_seq");
}

pub(super) fn sums_of(row: &AnyRow) -> Result<Sums, StoreError> {
    Ok(Sums {
        requests: row.try_get("requests")?,
        units: row.try_get("units")?,
        refused: row.try_get("refused")?,
    })
}

/// The sums of each account.
pub(super) async fn by_account(
    on: &mut impl Queries,
    whose: Whose<'_>,
    range: Range,
) -> Result<Vec<(Account, Sums)>, StoreError> {
    let mut sql = Sql::new("SELECT a.subscriber, a.organisation, a.key_prefix, a.class, a.plan, ");
    sql.push(SUMMED);
    push_source(&mut sql, whose, range);
    sql.push(" GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5");
    let rows = on.all(sql).await?;
    let account = |row: &AnyRow| {
        let text = |column: &str| row.try_get::<String, _>(column);
        let account = Account {
            subscriber: text("subscriber")?,
            organisation: text("organisation")?,
            key: text("key_prefix")?,
            class: text("class")?,
            plan: text("plan")?,
        };
        Ok((account, sums_of(row)?))
    };
    rows.iter().map(account).collect()
}

impl Store {
    /// The sums of a workspace from one instant to another, in groups: instants, or names. Groups without usage are left out.
    pub(crate) async fn usage_of(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        (from, to): (i64, i64),
        by: UsageGroup,
        now: Timestamp,
    ) -> Result<Vec<(String, Sums)>, StoreError> {
        let mut sql = Sql::new("SELECT ");
        let step = match by {
            UsageGroup::Hour => Some(HOUR),
            UsageGroup::Day => Some(DAY),
            UsageGroup::Total | UsageGroup::Class | UsageGroup::Key | UsageGroup::Plan => None,
        };
        match by {
            UsageGroup::Total => sql.push("''"),
            UsageGroup::Class => sql.push("a.class"),
            UsageGroup::Key => sql.push("a.key_prefix"),
            UsageGroup::Plan => sql.push("a.plan"),
            UsageGroup::Hour | UsageGroup::Day => sql.push("s.bucket / ").bind(step),
        };
        sql.push(" AS place, ").push(SUMMED);
        push_source(&mut sql, Whose::Workspace(workspace), Range { from, to, now });
        sql.push(" GROUP BY 1 ORDER BY 1");
        let rows = reader.all(sql).await?;
        let group = |row: &AnyRow| {
            let place = match step {
                Some(length) => rfc3339(instant(row.try_get::<i64, _>("place")? * length)?),
                None => row.try_get("place")?,
            };
            Ok((place, sums_of(row)?))
        };
        rows.iter().map(group).collect()
    }

    /// The sums of each account from one instant to another, of all subscribers or of one.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn export_usage(
        &self,
        (from, to): (Timestamp, Timestamp),
        subscriber: Option<String>,
        now: Timestamp,
    ) -> Result<Vec<(Account, Sums)>, StoreError> {
        let range = Range { from: from.as_millisecond(), to: to.as_millisecond(), now };
        let subscribers: Vec<String> = subscriber.into_iter().collect();
        let whose = if subscribers.is_empty() { Whose::All } else { Whose::Subscribers(&subscribers) };
        by_account(&mut *self.read.acquire().await?, whose, range).await
    }
}
