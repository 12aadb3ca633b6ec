//! What operators see: the subscribers, their tightest quotas, and what they used in the last hour and day.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::sums::{Range, SUMMED, Whose, by_account, push_source, sums_of};
use crate::domain::usage::{Account, Sums, Tightest};
use crate::store::reader::{Queries, Reader};
use crate::store::rollups::{DAY, HOUR};
use crate::store::sql::Sql;
use crate::store::{Store, StoreError, instant_of, optional_instant_of};

/// Most thresholds that are shown of a subscriber.
const THRESHOLDS: i64 = 100;

/// Which subscribers come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageOrder {
    /// The largest share of the tightest quota.
    Share,
    /// The most units in the last 24 hours.
    Used,
    /// The most refusals in the last 24 hours.
    Refused,
}

/// A subscriber and its usage.
#[derive(Clone, Debug, Default)]
pub struct SubscriberUsage {
    /// The subscriber's id.
    pub subscriber: String,
    /// The id of its organisation at its last report, or an empty text.
    pub organisation: String,
    /// Its plan at its last report.
    pub plan: String,
    /// The quota of which the smallest share is left, if its window has not ended.
    pub tightest: Option<Tightest>,
    /// The sums of the last hour by the start of the minute, in Unix milliseconds.
    pub(crate) last_hour: BTreeMap<i64, Sums>,
    /// The sums of the last 24 hours by the start of the hour, in Unix milliseconds.
    pub(crate) last_day: BTreeMap<i64, Sums>,
    /// The start of the first minute of the last 24 hours with a refusal.
    pub first_refusal: Option<Timestamp>,
}

impl SubscriberUsage {
    /// The sums of the last 24 hours.
    #[must_use]
    pub fn day(&self) -> Sums {
        let mut day = Sums::default();
        self.last_day.values().for_each(|sums| day += *sums);
        day
    }
}

/// The last report of a caller in a class.
#[derive(Clone, Debug)]
pub(crate) struct UsageCaller {
    pub(crate) account: Account,
    pub(crate) reported_at: Timestamp,
    /// None if its window has ended.
    pub(crate) tightest: Option<Tightest>,
}

/// A threshold and the deliveries of its event.
#[derive(Clone, Debug)]
pub(crate) struct ReachedThreshold {
    pub(crate) class: String,
    pub(crate) quota: String,
    pub(crate) share: i64,
    pub(crate) limit: i64,
    pub(crate) used: i64,
    pub(crate) until: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) deliveries: i64,
    pub(crate) delivered: i64,
    pub(crate) pending: i64,
}

/// What there is to know of a subscriber.
#[derive(Clone, Debug)]
pub(crate) struct UsageDetails {
    pub(crate) usage: SubscriberUsage,
    pub(crate) callers: Vec<UsageCaller>,
    /// The sums of its accounts in the last 24 hours.
    pub(crate) accounts: Vec<(Account, Sums)>,
    /// The latest first.
    pub(crate) thresholds: Vec<ReachedThreshold>,
}

impl Store {
    /// The first subscribers in an order.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub async fn list_usage(
        &self,
        order: UsageOrder,
        most: i64,
        now: Timestamp,
    ) -> Result<Vec<SubscriberUsage>, StoreError> {
        let on = &mut *self.read.acquire().await?;
        let subscribers = in_order(on, order, None, (0, most), now).await?;
        describe(on, &subscribers, now).await
    }

    /// A page of the subscribers, those with the largest share first, whose id or organisation contains a text.
    pub(crate) async fn usage_page(
        &self,
        reader: &mut Reader,
        search: Option<&str>,
        page: (i64, i64),
        now: Timestamp,
    ) -> Result<Vec<SubscriberUsage>, StoreError> {
        let subscribers = in_order(reader, UsageOrder::Share, search, page, now).await?;
        describe(reader, &subscribers, now).await
    }

    /// All about one subscriber. None if no gateway has reported any usage of it.
    pub(crate) async fn usage_of_subscriber(
        &self,
        reader: &mut Reader,
        subscriber: &str,
        now: Timestamp,
    ) -> Result<Option<UsageDetails>, StoreError> {
        let subscribers = [subscriber.to_owned()];
        let callers = callers(reader, &subscribers, now).await?;
        if callers.is_empty() {
            return Ok(None);
        }
        let usage = describe(reader, &subscribers, now).await?.pop().unwrap_or_default();
        let accounts = by_account(reader, Whose::Subscribers(&subscribers), Range::last(DAY, now)).await?;
        let mut sql = Sql::new(
            "SELECT t.class, t.quota, t.share, t.quota_limit, t.used, t.window_end, t.reached_at, COUNT(d.seq) AS deliveries,
             COUNT(d.delivered_at) AS delivered, COUNT(d.due_at) AS pending FROM usage_thresholds t
             LEFT JOIN webhook_events e ON e.id = 'evt_' || t.id LEFT JOIN webhook_deliveries d ON d.event_seq = e.seq
             WHERE t.subscriber = ",
        );
        sql.bind(subscriber.to_owned())
            .push(" GROUP BY t.id ORDER BY t.reached_at DESC, t.id LIMIT ")
            .bind(THRESHOLDS);
        let thresholds = reader.all(sql).await?;
        let thresholds = thresholds.iter().map(threshold).collect::<Result<_, _>>()?;
        Ok(Some(UsageDetails { usage, callers, accounts, thresholds }))
    }
}

/// The ids of the subscribers on a page.
async fn in_order(
    on: &mut impl Queries,
    order: UsageOrder,
    search: Option<&str>,
    (skipped, most): (i64, i64),
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let mut sql = Sql::new("SELECT a.subscriber, ");
    match order {
        // A share counts until its window ends.
        UsageOrder::Share => {
            sql.push("CAST(MAX(CASE WHEN a.until > ").bind(now.as_millisecond());
            sql.push(" THEN a.share ELSE -1 END) AS BIGINT) AS place FROM usage_callers a");
        }
        UsageOrder::Used | UsageOrder::Refused => {
            sql.push(if order == UsageOrder::Used { "CAST(SUM(s.units)" } else { "CAST(SUM(s.refused)" });
            sql.push(" AS BIGINT) AS place");
            push_source(&mut sql, Whose::All, Range::last(DAY, now));
        }
    }
    sql.push(" WHERE a.subscriber <> ''");
    if let Some(search) = search {
        sql.push(" AND (")
            .contains("a.subscriber", search)
            .push(" OR ")
            .contains("a.organisation", search)
            .push(")");
    }
    sql.push(" GROUP BY a.subscriber ORDER BY place DESC, a.subscriber LIMIT ").bind(most);
    sql.push(" OFFSET ").bind(skipped);
    let rows = on.all(sql).await?;
    Ok(rows.iter().map(|row| row.try_get("subscriber")).collect::<Result<_, _>>()?)
}

/// The usage of subscribers, in this order.
async fn describe(
    on: &mut impl Queries,
    subscribers: &[String],
    now: Timestamp,
) -> Result<Vec<SubscriberUsage>, StoreError> {
    let of = |subscriber: &String| SubscriberUsage {
        subscriber: subscriber.clone(),
        ..SubscriberUsage::default()
    };
    let mut all: Vec<SubscriberUsage> = subscribers.iter().map(of).collect();
    let places: HashMap<&String, usize> =
        subscribers.iter().enumerate().map(|(place, of)| (of, place)).collect();
    let mut last_report = vec![Timestamp::MIN; all.len()];
    for UsageCaller { account, reported_at, tightest } in callers(on, subscribers, now).await? {
        let Some(place) = places.get(&account.subscriber).copied() else { continue };
        let usage = &mut all[place];
        if reported_at >= last_report[place] {
            last_report[place] = reported_at;
            (usage.organisation, usage.plan) = (account.organisation, account.plan);
        }
        let share = |tightest: &Option<Tightest>| tightest.as_ref().map(Tightest::share);
        if share(&tightest) > share(&usage.tightest) {
            usage.tightest = tightest;
        }
    }
    for (length, step) in [(HOUR, HOUR / 60), (DAY, HOUR)] {
        let mut sql = Sql::new("SELECT a.subscriber, s.bucket / ");
        sql.bind(step).push(" AS place, ").push(SUMMED);
        push_source(&mut sql, Whose::Subscribers(subscribers), Range::last(length, now));
        sql.push(" GROUP BY 1, 2");
        for row in on.all(sql).await? {
            let Some(place) = places.get(&row.try_get::<String, _>("subscriber")?) else { continue };
            let usage = &mut all[*place];
            let sums = if length == HOUR { &mut usage.last_hour } else { &mut usage.last_day };
            sums.insert(row.try_get::<i64, _>("place")? * step, sums_of(&row)?);
        }
    }
    let mut sql = Sql::new(
        "SELECT a.subscriber, MIN(t.bucket) AS at FROM usage_accounts a JOIN usage_minutes t ON t.account_seq = a.seq",
    );
    sql.push(" WHERE t.refused > 0 AND t.bucket >= ").bind(Range::last(DAY, now).from);
    sql.push(" AND a.subscriber").in_texts(subscribers).push(" GROUP BY a.subscriber");
    for row in on.all(sql).await? {
        let Some(place) = places.get(&row.try_get::<String, _>("subscriber")?) else { continue };
        all[*place].first_refusal = Some(instant_of(&row, "at")?);
    }
    Ok(all)
}

async fn callers(
    on: &mut impl Queries,
    subscribers: &[String],
    now: Timestamp,
) -> Result<Vec<UsageCaller>, StoreError> {
    let mut sql = Sql::new(
        "SELECT c.subscriber, c.key_prefix, c.class, c.organisation, c.plan, c.reported_at, c.quota, c.quota_limit, c.used, c.until
         FROM usage_callers c WHERE c.subscriber",
    );
    sql.in_texts(subscribers).push(" ORDER BY c.subscriber, c.key_prefix, c.class");
    on.all(sql).await?.iter().map(|row| caller(row, now)).collect()
}

fn caller(row: &AnyRow, now: Timestamp) -> Result<UsageCaller, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column);
    let account = Account {
        subscriber: text("subscriber")?,
        organisation: text("organisation")?,
        key: text("key_prefix")?,
        class: text("class")?,
        plan: text("plan")?,
    };
    let tightest = match optional_instant_of(row, "until")?.filter(|until| *until > now) {
        Some(until) => {
            let (limit, used) = (row.try_get("quota_limit")?, row.try_get("used")?);
            Some(Tightest { quota: text("quota")?, limit, used, until })
        }
        None => None,
    };
    Ok(UsageCaller { account, reported_at: instant_of(row, "reported_at")?, tightest })
}

fn threshold(row: &AnyRow) -> Result<ReachedThreshold, StoreError> {
    Ok(ReachedThreshold {
        class: row.try_get("class")?,
        quota: row.try_get("quota")?,
        share: row.try_get("share")?,
        limit: row.try_get("quota_limit")?,
        used: row.try_get("used")?,
        until: instant_of(row, "window_end")?,
        at: instant_of(row, "reached_at")?,
        deliveries: row.try_get("deliveries")?,
        delivered: row.try_get("delivered")?,
        pending: row.try_get("pending")?,
    })
}
