//! Batches of reports. Each is counted once, in one transaction with all that follows from it.
//!
//! The rows of each statement are sorted. Two processes that count the same accounts then wait for each other instead of deadlocking.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use sqlx::Row;

use crate::domain::event::{Event, Trigger};
use crate::domain::usage::{Account, Batch, KNOWN_FOR, Origin, Report, Threshold, minutes_from};
use crate::store::outbox::enqueue_to;
use crate::store::rollups::HOUR;
use crate::store::sql::Sql;
use crate::store::webhook_scope::listeners;
use crate::store::{ROWS_PER_STEP, Store, StoreError, Transaction, to_json};

/// The tables of sums, and the length of their buckets.
const SUMS: [(&str, i64); 2] = [("usage_minutes", HOUR / 60), ("usage_hours", HOUR)];

impl Store {
    /// Takes a batch: adds its reports, unless they were taken before, to the sums, and writes an event for each threshold that was not told
    /// before. Returns whether webhooks are to hear of any.
    pub(crate) async fn take_usage(&self, batch: &Batch, now: Timestamp) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let untaken = number_batches(&mut transaction, &batch.reports, now).await?;
        let reports: Vec<&Report> =
            batch.reports.iter().filter(|report| untaken.contains(&report.origin)).collect();
        if !reports.is_empty() {
            add(&mut transaction, &reports).await?;
            remember_callers(&mut transaction, &reports).await?;
        }
        let is_announced = tell(&mut transaction, &batch.thresholds, now).await?;
        transaction.commit().await?;
        Ok(is_announced)
    }

    /// Deletes some minutes, numbers of batches and thresholds whose time is over. False if there are none.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn expire_usage(&self, now: Timestamp) -> Result<bool, StoreError> {
        let known_from = now.saturating_sub(KNOWN_FOR).unwrap_or(Timestamp::MIN).as_millisecond();
        // An hour more, for a query that another process has begun.
        let minutes_from = minutes_from(now) - HOUR;
        let mut deleted = 0;
        for (table, key, age, before) in [
            ("usage_minutes", "(account_seq, bucket)", "bucket", minutes_from),
            ("usage_batches", "(source, vm, number)", "taken_at", known_from),
            ("usage_thresholds", "(id)", "window_end", known_from),
        ] {
            let columns = key.trim_matches(['(', ')']);
            let mut sql = Sql::new("DELETE FROM ");
            sql.push(table)
                .push(" WHERE ")
                .push(key)
                .push(" IN (SELECT ")
                .push(columns)
                .push(" FROM ")
                .push(table);
            sql.push(" WHERE ").push(age).push(" < ").bind(before).push(" ORDER BY ").push(age);
            sql.push(" LIMIT ").bind(ROWS_PER_STEP).lock(" FOR UPDATE SKIP LOCKED").push(")");
            deleted += sql.execute(&self.write).await?;
        }
        Ok(deleted > 0)
    }
}

/// Writes down the batches of reports. Returns those that were not taken before.
async fn number_batches(
    transaction: &mut Transaction,
    reports: &[Report],
    now: Timestamp,
) -> Result<HashSet<Origin>, StoreError> {
    let origins: BTreeSet<&Origin> = reports.iter().map(|report| &report.origin).collect();
    let rows: Vec<_> = origins.iter().map(|of| (&of.source, &of.vm, of.number)).collect();
    let mut sql = Sql::new(
        "INSERT INTO usage_batches (source, vm, number, taken_at) SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(",
    );
    sql.bind(now.as_millisecond())
        .push(" AS BIGINT) FROM ")
        .each(to_json("usage batches", &rows)?)
        .in_order();
    sql.push(" ON CONFLICT DO NOTHING RETURNING source, vm, number");
    let rows = sql.all(&mut **transaction).await?;
    let origin = |row: &sqlx::any::AnyRow| {
        Ok(Origin { source: row.try_get(0)?, vm: row.try_get(1)?, number: row.try_get(2)? })
    };
    rows.iter().map(origin).collect()
}

/// Adds reports to the sums of their accounts.
async fn add(transaction: &mut Transaction, reports: &[&Report]) -> Result<(), StoreError> {
    let rows: Vec<_> = reports
        .iter()
        .map(|Report { account, from, sums, .. }| {
            let of =
                [&account.subscriber, &account.organisation, &account.key, &account.class, &account.plan];
            (of, from.as_millisecond(), sums.requests, sums.units, sums.refused)
        })
        .collect();
    let rows = to_json("usage", &rows)?;
    let mut sql = Sql::new(
        "INSERT INTO usage_accounts (subscriber, organisation, key_prefix, class, plan)
         SELECT DISTINCT value->0->>0, value->0->>1, value->0->>2, value->0->>3, value->0->>4 FROM ",
    );
    sql.each(rows.clone()).push(" WHERE TRUE ORDER BY 1, 2, 3, 4, 5 ON CONFLICT DO NOTHING");
    sql.execute(&mut **transaction).await?;
    for (table, length) in SUMS {
        let mut sql = Sql::new("INSERT INTO ");
        sql.push(table).push(
            " AS t (account_seq, bucket, requests, units, refused)
             SELECT a.seq, CAST(value->>1 AS BIGINT) - CAST(value->>1 AS BIGINT) % ",
        );
        sql.bind(length).push(
            ", CAST(SUM(CAST(value->>2 AS BIGINT)) AS BIGINT), CAST(SUM(CAST(value->>3 AS BIGINT)) AS BIGINT),
             CAST(SUM(CAST(value->>4 AS BIGINT)) AS BIGINT) FROM ",
        );
        sql.each(rows.clone()).push(
            " CROSS JOIN usage_accounts a WHERE a.subscriber = value->0->>0 AND a.organisation = value->0->>1
             AND a.key_prefix = value->0->>2 AND a.class = value->0->>3 AND a.plan = value->0->>4 GROUP BY 1, 2 ORDER BY 1, 2
             ON CONFLICT (account_seq, bucket) DO UPDATE SET requests = t.requests + excluded.requests,
             units = t.units + excluded.units, refused = t.refused + excluded.refused",
        );
        sql.execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Stores the last report of each caller in each class, with its tightest quota.
async fn remember_callers(transaction: &mut Transaction, reports: &[&Report]) -> Result<(), StoreError> {
    // All reports of a batch end at the same time.
    let of_subscribers = reports.iter().filter(|report| !report.account.subscriber.is_empty());
    let caller = |of: &Account| [&of.subscriber, &of.key, &of.class].map(Clone::clone);
    let last: BTreeMap<_, &Report> =
        of_subscribers.map(|report| (caller(&report.account), *report)).collect();
    let mut rows = Vec::with_capacity(last.len());
    for (caller, Report { account, to, tightest, .. }) in last {
        let until = tightest.as_ref().map(|of| (of.until.as_millisecond(), of.share()));
        let tightest = tightest.as_ref().map(|of| to_json("tightest quota", of)).transpose()?;
        rows.push((caller, &account.organisation, &account.plan, to.as_millisecond(), until, tightest));
    }
    let mut sql = Sql::new(
        "INSERT INTO usage_callers (subscriber, key_prefix, class, organisation, plan, reported_at, until, share, tightest)
         SELECT value->0->>0, value->0->>1, value->0->>2, value->>1, value->>2, CAST(value->>3 AS BIGINT),
         CAST(value->4->>0 AS BIGINT), CAST(value->4->>1 AS BIGINT), value->>5 FROM ",
    );
    sql.each(to_json("usage", &rows)?).in_order().push(
        " ON CONFLICT (subscriber, key_prefix, class) DO UPDATE SET organisation = excluded.organisation, plan = excluded.plan,
         reported_at = excluded.reported_at, until = excluded.until, share = excluded.share, tightest = excluded.tightest
         WHERE usage_callers.reported_at <= excluded.reported_at",
    );
    sql.execute(&mut **transaction).await?;
    Ok(())
}

/// Stores thresholds, and writes an event for the webhooks of their subscribers' workspaces. One that was told before is left out, and so is one
/// that may have been. Returns whether there are events.
async fn tell(
    transaction: &mut Transaction,
    thresholds: &[Threshold],
    now: Timestamp,
) -> Result<bool, StoreError> {
    let is_known = |of: &&Threshold| now.duration_since(of.to) < KNOWN_FOR;
    let mut thresholds: Vec<&Threshold> = thresholds.iter().filter(is_known).collect();
    if thresholds.is_empty() {
        return Ok(false);
    }
    thresholds.sort_unstable_by_key(|threshold| &threshold.id);
    let mut rows = Vec::with_capacity(thresholds.len());
    for of in &thresholds {
        let (ends, reached) = (of.to.as_millisecond(), of.at.as_millisecond());
        rows.push((&of.id, &of.subscriber, ends, reached, to_json("threshold", of)?));
    }
    let mut sql = Sql::new(
        "INSERT INTO usage_thresholds (id, subscriber, window_end, reached_at, details)
         SELECT value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(value->>3 AS BIGINT), value->>4 FROM ",
    );
    sql.each(to_json("thresholds", &rows)?).in_order().push(" ON CONFLICT DO NOTHING RETURNING id");
    let told = sql.all(&mut **transaction).await?;
    let told = told.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<String>, _>>()?;
    thresholds.retain(|threshold| told.contains(&threshold.id));
    // The directory names a subscriber by the id of its key.
    let subscribers: Vec<&String> = thresholds.iter().map(|threshold| &threshold.subscriber).collect();
    let mut sql = Sql::new("SELECT k.id, k.workspace_seq FROM api_keys k WHERE k.id");
    sql.in_texts(&subscribers);
    let workspaces = sql.all(&mut **transaction).await?;
    let workspaces = workspaces.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let workspaces = workspaces.collect::<Result<HashMap<String, i64>, sqlx::Error>>()?;
    let mut is_announced = false;
    for threshold in thresholds {
        let Some(workspace) = workspaces.get(&threshold.subscriber) else { continue };
        let webhooks = listeners(transaction, *workspace, Trigger::UsageThreshold, None).await?;
        is_announced |= !webhooks.is_empty();
        let event = Event::of_threshold(threshold.clone());
        enqueue_to(transaction, *workspace, &[(event, webhooks)], Some(now)).await?;
    }
    Ok(is_announced)
}
