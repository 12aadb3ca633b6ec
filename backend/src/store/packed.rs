//! Packed clicks: rows that contain many clicks, for fast queries. There are rows of the single clicks of a minute, and
//! of the sums by link of an hour or a day.
//!
//! The packed rows always equal the clicks. A minute is packed after its end, under the lock that recording also takes.
//! The transaction that records a later click of the minute updates the packed rows. Packed rows still contain deleted
//! links. Readers skip them, because the link no longer exists.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Any, Row, Transaction};

use super::sql::Sql;
use super::{Dialect, Store, StoreError};

pub(super) const MINUTE: i64 = 60_000;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;

/// Lengths of the periods with sums, in ascending order.
const LENGTHS: [i64; 2] = [HOUR, DAY];
/// Number of clicks after which a transaction packs no further minute.
const CLICKS_PER_TRANSACTION: usize = 10_000;

/// The clicks of a minute in order of time: the offset in milliseconds, and the link's number.
pub(super) type Minute = Vec<(u16, u64)>;
/// The links in the order of their numbers, with their clicks.
pub(super) type Sums = Vec<(u64, u64)>;

fn pack<T: Serialize>(clicks: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_allocvec(clicks).map_err(|error| StoreError::corrupt("clicks", &error))
}

pub(super) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|error| StoreError::corrupt("packed clicks", &error))
}

/// The start of the period of `length` that contains `at`.
pub(super) fn start_of(at: i64, length: i64) -> i64 {
    at - at.rem_euclid(length)
}

fn number(seq: i64) -> Result<u64, StoreError> {
    u64::try_from(seq).map_err(|error| StoreError::corrupt("link number", &error))
}

/// A click in the minute that starts at `minute`.
fn click(minute: i64, at: i64, link: i64) -> Result<(u16, u64), StoreError> {
    let offset = u16::try_from(at - minute).map_err(|error| StoreError::corrupt("click", &error))?;
    Ok((offset, number(link)?))
}

impl Store {
    /// The workspaces with unpacked clicks before `until`.
    pub(crate) async fn unpacked_workspaces(&self, until: Timestamp) -> Result<Vec<i64>, StoreError> {
        let until = start_of(until.as_millisecond(), MINUTE);
        let mut sql = Sql::new(
            "SELECT p.workspace_seq FROM packed_workspaces p WHERE EXISTS (SELECT 1 FROM clicks c
             WHERE c.workspace_seq = p.workspace_seq AND c.at >= p.packed_until AND c.at < ",
        );
        sql.bind(until).push(") ORDER BY p.workspace_seq");
        let rows = sql.all(&self.read).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Packs a bounded number of a workspace's clicks before `until` in one transaction. True if there are more.
    pub(crate) async fn pack_clicks(&self, workspace: i64, until: Timestamp) -> Result<bool, StoreError> {
        let until = start_of(until.as_millisecond(), MINUTE);
        let mut transaction = self.begin().await?;
        let packed = self.lock_packed(&mut transaction, &BTreeSet::from([workspace])).await?;
        let Some(packed_until) = packed.get(&workspace).copied().filter(|packed| *packed < until) else {
            return Ok(false);
        };
        let mut clicks = 0;
        let mut next = packed_until;
        let mut minutes = BTreeSet::from([packed_until]);
        while next < until && clicks < CLICKS_PER_TRANSACTION {
            let mut sql = Sql::new("SELECT MIN(c.at) FROM clicks c WHERE c.workspace_seq = ");
            sql.bind(workspace).push(" AND c.at >= ").bind(next).push(" AND c.at < ").bind(until);
            let Some(first) = sql.one(&mut *transaction).await?.try_get::<Option<i64>, _>(0)? else {
                next = until;
                break;
            };
            let minute = start_of(first, MINUTE);
            let mut sql = Sql::new("SELECT c.at, c.link_seq FROM clicks c WHERE c.workspace_seq = ");
            sql.bind(workspace).push(" AND c.at >= ").bind(minute);
            sql.push(" AND c.at < ").bind(minute + MINUTE).push(" ORDER BY c.at");
            let rows = sql.all(&mut *transaction).await?;
            let packed = rows
                .iter()
                .map(|row| click(minute, row.try_get("at")?, row.try_get("link_seq")?))
                .collect::<Result<Minute, StoreError>>()?;
            write_minute(&mut transaction, workspace, minute, &packed).await?;
            clicks += packed.len();
            minutes.insert(minute);
            next = minute + MINUTE;
        }
        // Sums of completed periods. The finer sums come first, because the coarser are computed from them.
        for length in LENGTHS {
            let starts: BTreeSet<i64> = minutes.iter().map(|minute| start_of(*minute, length)).collect();
            for start in starts.into_iter().filter(|start| start + length <= next) {
                sum_up(&mut transaction, workspace, length, start).await?;
            }
        }
        let mut sql = Sql::new("UPDATE packed_workspaces SET packed_until = ");
        sql.bind(next).push(" WHERE workspace_seq = ").bind(workspace);
        sql.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(next < until)
    }

    /// The instant before which each workspace's clicks are packed. It is locked until the transaction ends.
    pub(super) async fn lock_packed(
        &self,
        transaction: &mut Transaction<'static, Any>,
        workspaces: &BTreeSet<i64>,
    ) -> Result<BTreeMap<i64, i64>, StoreError> {
        let mut sql = Sql::new(
            "SELECT p.workspace_seq, p.packed_until FROM packed_workspaces p WHERE p.workspace_seq IN ",
        );
        sql.list(workspaces.iter().copied()).push(" ORDER BY p.workspace_seq");
        if self.dialect == Dialect::Postgres {
            sql.push(" FOR UPDATE");
        }
        let rows = sql.all(&mut **transaction).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
}

/// Adds late clicks, given as instant and link, to the packed rows of a workspace.
pub(super) async fn fold_in(
    transaction: &mut Transaction<'static, Any>,
    workspace: i64,
    packed_until: i64,
    late: &[(i64, i64)],
) -> Result<(), StoreError> {
    let mut minutes: BTreeMap<i64, Minute> = BTreeMap::new();
    for (at, link) in late {
        let minute = start_of(*at, MINUTE);
        minutes.entry(minute).or_default().push(click(minute, *at, *link)?);
    }
    for (minute, clicks) in minutes {
        let mut sql = Sql::new("SELECT p.clicks FROM packed_minutes p WHERE p.workspace_seq = ");
        sql.bind(workspace).push(" AND p.bucket = ").bind(minute);
        let mut all: Minute = stored(transaction, sql).await?;
        all.extend(clicks);
        all.sort_by_key(|(offset, _)| *offset);
        write_minute(transaction, workspace, minute, &all).await?;
    }
    for length in LENGTHS {
        let mut added: BTreeMap<i64, BTreeMap<u64, u64>> = BTreeMap::new();
        for (at, link) in late.iter().filter(|(at, _)| start_of(*at, length) + length <= packed_until) {
            *added.entry(start_of(*at, length)).or_default().entry(number(*link)?).or_default() += 1;
        }
        for (start, mut sums) in added {
            let mut sql = Sql::new("SELECT p.sums FROM packed_sums p WHERE p.workspace_seq = ");
            sql.bind(workspace).push(" AND p.length = ").bind(length).push(" AND p.bucket = ").bind(start);
            let before: Sums = stored(transaction, sql).await?;
            add(&mut sums, before);
            write_sums(transaction, workspace, length, start, sums).await?;
        }
    }
    Ok(())
}

fn add(sums: &mut BTreeMap<u64, u64>, more: Sums) {
    for (link, clicks) in more {
        *sums.entry(link).or_default() += clicks;
    }
}

/// Computes the sums of a period from its parts.
async fn sum_up(
    transaction: &mut Transaction<'static, Any>,
    workspace: i64,
    length: i64,
    start: i64,
) -> Result<(), StoreError> {
    let mut sums = BTreeMap::new();
    let mut sql = if length == HOUR {
        Sql::new("SELECT p.clicks FROM packed_minutes p WHERE p.workspace_seq = ")
    } else {
        let mut sql = Sql::new("SELECT p.sums FROM packed_sums p WHERE p.length = ");
        sql.bind(HOUR).push(" AND p.workspace_seq = ");
        sql
    };
    sql.bind(workspace).push(" AND p.bucket >= ").bind(start).push(" AND p.bucket < ").bind(start + length);
    for row in sql.all(&mut **transaction).await? {
        let bytes: Vec<u8> = row.try_get(0)?;
        if length == HOUR {
            add(&mut sums, unpack::<Minute>(&bytes)?.into_iter().map(|(_, link)| (link, 1)).collect());
        } else {
            add(&mut sums, unpack(&bytes)?);
        }
    }
    if sums.is_empty() {
        return Ok(());
    }
    write_sums(transaction, workspace, length, start, sums).await
}

/// The unpacked value of the only column and row, or the default if there is no row.
async fn stored<T: DeserializeOwned + Default>(
    transaction: &mut Transaction<'static, Any>,
    sql: Sql,
) -> Result<T, StoreError> {
    match sql.optional(&mut **transaction).await? {
        Some(row) => unpack(&row.try_get::<Vec<u8>, _>(0)?),
        None => Ok(T::default()),
    }
}

async fn write_minute(
    transaction: &mut Transaction<'static, Any>,
    workspace: i64,
    minute: i64,
    clicks: &Minute,
) -> Result<(), StoreError> {
    let mut sql = Sql::new("INSERT INTO packed_minutes (workspace_seq, bucket, clicks) VALUES (");
    sql.bind(workspace).push(", ").bind(minute).push(", ").bind(pack(clicks)?);
    sql.push(") ON CONFLICT (workspace_seq, bucket) DO UPDATE SET clicks = excluded.clicks");
    sql.execute(&mut **transaction).await?;
    Ok(())
}

async fn write_sums(
    transaction: &mut Transaction<'static, Any>,
    workspace: i64,
    length: i64,
    start: i64,
    sums: BTreeMap<u64, u64>,
) -> Result<(), StoreError> {
    let sums: Sums = sums.into_iter().collect();
    let mut sql = Sql::new("INSERT INTO packed_sums (workspace_seq, length, bucket, sums) VALUES (");
    sql.bind(workspace).push(", ").bind(length).push(", ").bind(start).push(", ").bind(pack(&sums)?);
    sql.push(") ON CONFLICT (workspace_seq, length, bucket) DO UPDATE SET sums = excluded.sums");
    sql.execute(&mut **transaction).await?;
    Ok(())
}
