//! Sums of usage over a range of time, in Unix milliseconds and half-open.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::domain::usage::{Account, Sums, minutes_from, pieces};
use crate::domain::when::rfc3339;
use crate::store::reader::{Queries, Reader};
use crate::store::sql::Sql;
use crate::store::{Store, StoreError, Workspace, instant};

/// What an entry of an answer is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsageGroup {
    /// The name of its field. The total has none.
    pub(crate) field: &'static str,
    value: &'static str,
    /// Length of a period, in milliseconds, if the value is the number of one.
    period: Option<i64>,
}

const fn group(field: &'static str, value: &'static str, period: Option<i64>) -> UsageGroup {
    UsageGroup { field, value, period }
}

pub(crate) const USAGE_TOTAL: UsageGroup = group("", "''", None);
pub(crate) const USAGE_GROUPS: [(&str, UsageGroup); 6] = [
    ("count", USAGE_TOTAL),
    ("day", group("start", "s.bucket / 86400000", Some(86_400_000))),
    ("hour", group("start", "s.bucket / 3600000", Some(3_600_000))),
    ("class", group("class", "a.class", None)),
    ("key", group("key", "a.key_prefix", None)),
    ("plan", group("plan", "a.plan", None)),
];

/// The sums of the rows of `s`.
pub(super) const SUMMED: &str =
    "CAST(SUM(s.requests) AS BIGINT) AS requests, CAST(SUM(s.units) AS BIGINT) AS units,
    CAST(SUM(s.refused) AS BIGINT) AS refused";

/// The range of this length up to now.
pub(super) fn last(length: i64, now: Timestamp) -> (i64, i64) {
    ((now.as_millisecond() - length).max(0), now.as_millisecond() + 1)
}

/// Appends the source of a query: the sums `s` by bucket, and their accounts `a`, of some subscribers or of all.
pub(super) fn push_source(sql: &mut Sql, of: Option<&[String]>, (from, to): (i64, i64), now: Timestamp) {
    let [before, hours, after] = pieces(from, to, minutes_from(now));
    let tables = [("usage_hours", hours), ("usage_minutes", before), ("usage_minutes", after)];
    for (place, (table, (from, to))) in tables.into_iter().enumerate() {
        sql.push(if place == 0 { " FROM (" } else { " UNION ALL " });
        sql.push("SELECT t.account_seq, t.bucket, t.requests, t.units, t.refused FROM ").push(table);
        sql.push(" t WHERE t.bucket >= ").bind(from).push(" AND t.bucket < ").bind(to);
        if let Some(subscribers) = of {
            sql.push(" AND t.account_seq IN (SELECT w.seq FROM usage_accounts w WHERE w.subscriber");
            sql.in_texts(subscribers).push(")");
        }
    }
    sql.push(") s JOIN usage_accounts a ON a.seq = s.account_seq");
}

pub(super) fn sums_of(row: &AnyRow) -> Result<Sums, StoreError> {
    let [requests, units, refused] = ["requests", "units", "refused"].map(|column| row.try_get(column));
    Ok(Sums { requests: requests?, units: units?, refused: refused? })
}

pub(super) fn account_of(row: &AnyRow) -> Result<Account, StoreError> {
    let columns = ["subscriber", "organisation", "key_prefix", "class", "plan"];
    let [subscriber, organisation, key, class, plan] = columns.map(|column| row.try_get(column));
    Ok(Account {
        subscriber: subscriber?,
        organisation: organisation?,
        key: key?,
        class: class?,
        plan: plan?,
    })
}

/// The sums of each account.
pub(super) async fn by_account(
    on: &mut impl Queries,
    of: Option<&[String]>,
    range: (i64, i64),
    now: Timestamp,
) -> Result<Vec<(Account, Sums)>, StoreError> {
    let mut sql = Sql::new("SELECT a.subscriber, a.organisation, a.key_prefix, a.class, a.plan, ");
    sql.push(SUMMED);
    push_source(&mut sql, of, range, now);
    sql.push(" GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5");
    on.all(sql).await?.iter().map(|row| Ok((account_of(row)?, sums_of(row)?))).collect()
}

impl Store {
    /// The sums of a workspace in groups. Those without usage are left out.
    pub(crate) async fn usage_of(
        &self,
        reader: &mut Reader,
        workspace: &Workspace,
        range: (i64, i64),
        by: UsageGroup,
        now: Timestamp,
    ) -> Result<Vec<(String, Sums)>, StoreError> {
        // The directory names a subscriber by the id of its key.
        let mut sql = Sql::new("SELECT k.id FROM api_keys k WHERE k.workspace_seq = ");
        sql.bind(workspace.seq);
        let keys = reader.all(sql).await?;
        let keys = keys.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut sql = Sql::new("SELECT ");
        sql.push(by.value).push(" AS place, ").push(SUMMED);
        push_source(&mut sql, Some(&keys), range, now);
        sql.push(" GROUP BY 1 ORDER BY 1");
        let group = |row: &AnyRow| {
            let place = match by.period {
                Some(length) => rfc3339(instant(row.try_get::<i64, _>("place")? * length)?),
                None => row.try_get("place")?,
            };
            Ok((place, sums_of(row)?))
        };
        reader.all(sql).await?.iter().map(group).collect()
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
        let range = (from.as_millisecond(), to.as_millisecond());
        by_account(
            &mut *self.read.acquire().await?,
            subscriber.as_ref().map(std::slice::from_ref),
            range,
            now,
        )
        .await
    }
}
