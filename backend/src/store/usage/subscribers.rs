//! What operators see: the subscribers, their tightest quotas, and what they used in the last hour and day.

use std::collections::{BTreeMap, HashMap};

use clap::ValueEnum;
use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sums::{SUMMED, account_of, by_account, last, push_source, sums_of};
use crate::domain::usage::{Account, Sums, Threshold, Tightest};
use crate::store::reader::Reader;
use crate::store::rollups::{DAY, HOUR, start_of};
use crate::store::sql::Sql;
use crate::store::{Store, StoreError, from_json, instant_of};

/// Which subscribers come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsageOrder {
    /// The most units in the last 24 hours.
    Used,
    /// The most refusals in the last 24 hours.
    Refused,
    /// The largest share of the tightest quota.
    Share,
}

/// The usage of a subscriber.
#[derive(Clone, Debug, Default)]
pub struct SubscriberUsage {
    /// The subscriber, and the others of its last report.
    pub account: Account,
    /// The quota of which the smallest share is left, if its window has not ended.
    pub tightest: Option<Tightest>,
    /// The sums of the last 24 hours.
    pub day: Sums,
    /// The start of the first minute of the last 24 hours with a refusal.
    pub first_refusal: Option<Timestamp>,
    /// By the starts of minutes and hours, in Unix milliseconds.
    pub(crate) minutes: BTreeMap<i64, Sums>,
    pub(crate) hours: BTreeMap<i64, Sums>,
}

/// The last report of a caller in a class, its time, and the tightest quota, unless its window has ended.
pub(crate) type UsageCaller = (Account, Timestamp, Option<Tightest>);
/// A threshold, and how many deliveries of its event there are, have arrived and are to come.
pub(crate) type ToldThreshold = (Threshold, [i64; 3]);
/// A subscriber, its callers, the sums of its accounts in the last 24 hours, and its thresholds, the latest first.
pub(crate) type UsageDetails = (SubscriberUsage, Vec<UsageCaller>, Vec<(Account, Sums)>, Vec<ToldThreshold>);

impl Store {
    /// Some subscribers after the first `page.0` in an order, whose id or organisation contains a text, and at most `page.1`.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn list_usage(
        &self,
        order: UsageOrder,
        search: Option<&str>,
        page: (i64, i64),
        now: Timestamp,
    ) -> Result<Vec<SubscriberUsage>, StoreError> {
        let reader = &mut self.reader_for_metrics().await?;
        let subscribers = in_order(reader, order, search, page, now).await?;
        describe(reader, &subscribers, now).await
    }

    /// All about one subscriber. None if no gateway has reported any usage of it.
    pub(crate) async fn usage_of_subscriber(
        &self,
        subscriber: &str,
        now: Timestamp,
    ) -> Result<Option<UsageDetails>, StoreError> {
        let reader = &mut self.reader_for_metrics().await?;
        let subscribers = [subscriber.to_owned()];
        let callers = callers(reader, &subscribers, now).await?;
        let Some(usage) = describe(reader, &subscribers, now).await?.pop().filter(|_| !callers.is_empty())
        else {
            return Ok(None);
        };
        let accounts = by_account(reader, Some(&subscribers), last(DAY, now), now).await?;
        let mut sql = Sql::new(
            "SELECT t.details, t.reached_at, COUNT(d.seq), COUNT(d.delivered_at), COUNT(d.due_at) FROM usage_thresholds t
             LEFT JOIN webhook_events e ON e.id = 'evt_' || t.id LEFT JOIN webhook_deliveries d ON d.event_seq = e.seq
             WHERE t.subscriber = ",
        );
        sql.bind(subscriber.to_owned()).push(" GROUP BY t.id ORDER BY t.reached_at DESC, t.id LIMIT 100");
        let thresholds = reader.all(sql).await?;
        let threshold = |row: &AnyRow| {
            let of = from_json::<Threshold>("threshold", &row.try_get::<String, _>(0)?)?;
            let deliveries = [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?];
            Ok::<_, StoreError>((Threshold { at: instant_of(row, "reached_at")?, ..of }, deliveries))
        };
        let thresholds = thresholds.iter().map(threshold).collect::<Result<_, _>>()?;
        Ok(Some((usage, callers, accounts, thresholds)))
    }
}

/// The ids of the subscribers on a page.
async fn in_order(
    on: &mut Reader,
    order: UsageOrder,
    search: Option<&str>,
    (skipped, most): (i64, i64),
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let mut sql = Sql::new("SELECT a.subscriber, CAST(");
    if order == UsageOrder::Share {
        sql.push("MAX(CASE WHEN a.until > ").bind(now.as_millisecond());
        sql.push(" THEN a.share ELSE -1 END) AS BIGINT) AS place FROM usage_callers a");
    } else {
        sql.push(if order == UsageOrder::Used { "SUM(s.units)" } else { "SUM(s.refused)" });
        sql.push(" AS BIGINT) AS place");
        push_source(&mut sql, None, last(DAY, now), now);
    }
    sql.push(" WHERE a.subscriber <> ''");
    if let Some(search) = search {
        sql.push(" AND (").contains("a.subscriber", search).push(" OR ");
        sql.contains("a.organisation", search).push(")");
    }
    sql.push(" GROUP BY a.subscriber ORDER BY place DESC, a.subscriber LIMIT ").bind(most);
    sql.push(" OFFSET ").bind(skipped);
    Ok(on.all(sql).await?.iter().map(|row| row.try_get("subscriber")).collect::<Result<_, _>>()?)
}

/// The usage of subscribers, in this order.
async fn describe(
    on: &mut Reader,
    subscribers: &[String],
    now: Timestamp,
) -> Result<Vec<SubscriberUsage>, StoreError> {
    let mut all: HashMap<String, SubscriberUsage> = HashMap::new();
    for (account, _, tightest) in callers(on, subscribers, now).await? {
        let usage = all.entry(account.subscriber.clone()).or_default();
        usage.account = account;
        if tightest.as_ref().map(Tightest::share) > usage.tightest.as_ref().map(Tightest::share) {
            usage.tightest = tightest;
        }
    }
    for (length, step) in [(HOUR, HOUR / 60), (DAY, HOUR)] {
        let mut sql = Sql::new("SELECT a.subscriber, s.bucket / ");
        sql.bind(step).push(" AS place, ").push(SUMMED);
        push_source(&mut sql, Some(subscribers), last(length, now), now);
        sql.push(" GROUP BY 1, 2");
        for row in on.all(sql).await? {
            let usage = all.entry(row.try_get("subscriber")?).or_default();
            let (at, sums) = (row.try_get::<i64, _>("place")? * step, sums_of(&row)?);
            if length == HOUR {
                usage.minutes.insert(at, sums);
            } else {
                usage.hours.insert(at, sums);
                usage.day += sums;
            }
        }
    }
    let mut sql = Sql::new(
        "SELECT a.subscriber, MIN(t.bucket) AS at FROM usage_accounts a JOIN usage_minutes t ON t.account_seq = a.seq
         WHERE t.refused > 0 AND t.bucket >= ",
    );
    sql.bind(start_of(last(DAY, now).0, HOUR / 60))
        .push(" AND a.subscriber")
        .in_texts(subscribers)
        .push(" GROUP BY a.subscriber");
    for row in on.all(sql).await? {
        all.entry(row.try_get("subscriber")?).or_default().first_refusal = Some(instant_of(&row, "at")?);
    }
    Ok(subscribers.iter().filter_map(|subscriber| all.remove(subscriber)).collect())
}

/// The callers of subscribers, the last that were reported last.
async fn callers(
    on: &mut Reader,
    subscribers: &[String],
    now: Timestamp,
) -> Result<Vec<UsageCaller>, StoreError> {
    let mut sql = Sql::new(
        "SELECT c.subscriber, c.key_prefix, c.class, c.organisation, c.plan, c.reported_at, c.tightest FROM usage_callers c
         WHERE c.subscriber",
    );
    sql.in_texts(subscribers).push(" ORDER BY c.reported_at, c.class, c.key_prefix");
    let caller = |row: &AnyRow| {
        let tightest: Option<String> = row.try_get("tightest")?;
        let tightest = tightest.map(|of| from_json::<Tightest>("tightest quota", &of)).transpose()?;
        let tightest = tightest.filter(|of| of.until > now);
        Ok((account_of(row)?, instant_of(row, "reported_at")?, tightest))
    };
    on.all(sql).await?.iter().map(caller).collect()
}
