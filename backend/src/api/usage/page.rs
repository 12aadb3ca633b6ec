//! The pages for operators: `/usage`, and one for each subscriber. They need no scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use askama::Template;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::state::Shared;
use crate::domain::usage::{Account, Sums, Tightest};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::{SubscriberUsage, ToldThreshold, UsageCaller, UsageOrder};

/// Subscribers of a page.
const ROWS: i64 = 50;
const HOUR: i64 = 3_600_000;
/// What stands for itself in any part of a URL, and in double quotes of a shell.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Names come from customers. Were one not escaped, it could still run and load nothing.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/usage", routing::get(overview))
        .route("/usage/subscriber", routing::get(subscriber))
        .route("/usage/style.css", routing::get(style))
}

#[derive(Template)]
#[template(path = "usage.html")]
struct Overview<'a> {
    now: String,
    search: &'a str,
    search_link: String,
    page: i64,
    has_more: bool,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "subscriber.html")]
struct Page {
    now: String,
    row: Row,
    /// The account, the time of its last report, the tightest quota, and the command that resets it.
    callers: Vec<(Account, String, Option<Quota>, String)>,
    tables: [Table; 2],
}

/// A subscriber.
struct Row {
    account: Account,
    link: String,
    tightest: Option<Quota>,
    hour: Plot,
    day: Plot,
    /// Admitted requests, their units, and refused requests, in 24 hours.
    sums: [String; 3],
    first_refusal: Option<String>,
}

struct Quota {
    quota: String,
    /// In percent.
    share: String,
    used: String,
    until: String,
}

struct Table {
    title: &'static str,
    columns: [&'static str; 6],
    rows: Vec<[String; 6]>,
}

/// Requests over time: refused ones above those that were admitted. A bucket is one unit wide, and the picture 100 high.
#[derive(Template)]
#[template(path = "plot.html")]
struct Plot {
    width: i64,
    label: String,
    admitted: String,
    refused: String,
}

impl Plot {
    /// Draws the buckets of this length from an instant to another.
    fn of(sums: &BTreeMap<i64, Sums>, (from, to): (i64, i64), step: i64, span: &str) -> Self {
        let (first, last) = (from.div_euclid(step), to.div_euclid(step));
        let most = sums.values().map(|of| of.requests + of.refused).max().unwrap_or(0).max(1);
        let (mut admitted, mut refused, mut all) = (String::new(), String::new(), Sums::default());
        for (at, of) in sums {
            let x = at.div_euclid(step) - first;
            let admitted_to = 100 - of.requests * 100 / most;
            let refused_to = 100 - (of.requests + of.refused) * 100 / most;
            // Writing to a text does not fail.
            let _written = write!(admitted, "M{x} 100V{admitted_to}h.8V100z");
            let _written = write!(refused, "M{x} {admitted_to}V{refused_to}h.8V{admitted_to}z");
            all += *of;
        }
        let label = format!("{span}: {} admitted, {} refused", grouped(all.requests), grouped(all.refused));
        Self { width: last - first + 1, label, admitted, refused }
    }
}

impl Row {
    fn of(usage: SubscriberUsage, now: Timestamp) -> Self {
        let at = now.as_millisecond();
        Self {
            link: encoded(&usage.account.subscriber),
            tightest: usage.tightest.as_ref().map(Quota::of),
            hour: Plot::of(&usage.minutes, (at - HOUR, at), HOUR / 60, "Last hour"),
            day: Plot::of(&usage.hours, (at - 24 * HOUR, at), HOUR, "Last 24 hours"),
            sums: numbers(usage.day),
            first_refusal: usage.first_refusal.map(minute),
            account: usage.account,
        }
    }
}

impl Quota {
    fn of(of: &Tightest) -> Self {
        let share = of.percent();
        let used = format!("{} of {}", grouped(of.used), grouped(of.limit));
        Self { quota: of.quota.clone(), share, used, until: minute(of.until) }
    }
}

/// The command that resets a quota.
fn reset(account: &Account, quota: &str) -> String {
    format!(
        "curl -X POST -H \"authorization: Bearer $(cat token)\" \\\n    \"$OPERATORS/subscribers/{}/reset?class={}&quota={}\"",
        encoded(&account.subscriber),
        encoded(&account.class),
        encoded(quota),
    )
}

fn thresholds(told: Vec<ToldThreshold>) -> Table {
    let row = |(of, [deliveries, delivered, pending]): ToldThreshold| {
        let counts =
            [(delivered, "delivered"), (pending, "pending"), (deliveries - delivered - pending, "failed")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let told = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
        let used = format!("{} of {}: {} %", grouped(of.used), grouped(of.limit), of.share);
        [minute(of.at), of.class, of.quota, used, minute(of.to), told]
    };
    let columns = ["Reached", "Class", "Quota", "Used", "Until", "Webhooks"];
    Table { title: "Thresholds", columns, rows: told.into_iter().map(row).collect() }
}

fn accounts(sums: Vec<(Account, Sums)>) -> Table {
    let row = |(Account { class, key, plan, .. }, sums): (Account, Sums)| {
        let [requests, units, refused] = numbers(sums);
        [class, key, plan, requests, units, refused]
    };
    let columns = ["Class", "Key", "Plan", "Requests", "Units", "Refused"];
    Table { title: "Keys, classes and plans in 24 hours", columns, rows: sums.into_iter().map(row).collect() }
}

fn numbers(sums: Sums) -> [String; 3] {
    [sums.requests, sums.units, sums.refused].map(grouped)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

/// A number with a comma before each three digits.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let before = |place: usize| if place > 0 && (digits.len() - place).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(place, digit)| format!("{}{digit}", before(place))).collect()
}

async fn overview(State(app): State<Shared>, query: Query) -> Result<Response, ApiError> {
    let (search, now) = (query.search()?.map(str::trim), app.clock.now());
    let (skipped, size) = query.page(ROWS)?;
    // One more, to see whether a page follows.
    let mut rows = app.store.list_usage(UsageOrder::Share, search, (skipped, size + 1), now).await?;
    let has_more = i64::try_from(rows.len()).is_ok_and(|rows| rows > size);
    rows.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    let (search, page) = (search.unwrap_or_default(), skipped / size + 1);
    let rows = rows.into_iter().map(|usage| Row::of(usage, now)).collect();
    html(&Overview { now: minute(now), search, search_link: encoded(search), page, has_more, rows })
}

async fn subscriber(State(app): State<Shared>, query: Query) -> Result<Response, ApiError> {
    let (id, now) = (query.text("id").unwrap_or_default(), app.clock.now());
    let found = app.store.usage_of_subscriber(id, now).await?;
    let (usage, callers, sums, told) =
        found.ok_or_else(|| ApiError::not_found("No gateway has reported usage of this subscriber."))?;
    let caller = |(account, at, tightest): UsageCaller| {
        let reset = reset(&account, tightest.as_ref().map_or("", |of| &of.quota));
        (account, minute(at), tightest.as_ref().map(Quota::of), reset)
    };
    let callers = callers.into_iter().map(caller).collect();
    let tables = [accounts(sums), thresholds(told)];
    html(&Page { now: minute(now), row: Row::of(usage, now), callers, tables })
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../../../templates/usage.css"))
}

fn html(page: &impl Template) -> Result<Response, ApiError> {
    let body = page.render().map_err(|error| {
        tracing::error!(%error, "could not write a page");
        ApiError::internal()
    })?;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_comma_before_each_three_digits() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
    }
}
