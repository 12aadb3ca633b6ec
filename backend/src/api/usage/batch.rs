//! `POST /internal/usage`: takes a batch of reports from a gateway, in the batch format of CloudEvents.

use std::collections::HashSet;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, routing};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::apart;
use crate::api::internal::authorised;
use crate::api::state::Shared;
use crate::domain::usage::{Account, Batch, Origin, Report, Sums, Threshold, Tightest};
use crate::http::error::{ApiError, Code};
use crate::http::fields::{MAX_ITEM, Text, Whole, kind, read};
use crate::http::issue::Issue;
use crate::http::json_body::parse;

/// Maximum size of a batch, in bytes. Gateways send at most a quarter of it.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of events in a batch. The writes of all customers wait while SQLite takes one.
const MAX_EVENTS: usize = 2_000;

pub(super) fn router() -> Router<Shared> {
    Router::new().route("/internal/usage", routing::post(take)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

/// The name of a class, a plan or a quota.
type Name = Text<64>;
/// An id. With the names, it has to fit into an entry of an index.
type Id = Text<MAX_ITEM>;
/// A number of requests or units. The sum of millions fits into a number of the database.
type Count = Whole<0, { 1 << 40 }>;

#[derive(Debug, Deserialize)]
struct Envelope {
    id: Id,
    source: Id,
    #[serde(rename = "type")]
    kind: Kind,
    subject: Option<Id>,
    time: Option<Timestamp>,
    #[serde(default)]
    data: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Kind {
    #[serde(rename = "weir.usage")]
    Usage,
    #[serde(rename = "weir.usage.strangers")]
    Strangers,
    #[serde(rename = "weir.threshold")]
    Threshold,
}

#[derive(Debug, Deserialize)]
struct Used {
    from: Timestamp,
    to: Timestamp,
    key: Option<Text<16>>,
    organisation: Option<Id>,
    class: Name,
    plan: Option<Name>,
    requests: Count,
    units: Count,
    refused: Count,
    tightest: Option<Quota>,
}

#[derive(Debug, Deserialize)]
struct Quota {
    quota: Name,
    limit: Whole<1, { 1 << 40 }>,
    used: Count,
    /// A quota without a window has none.
    to: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct Reached {
    class: Name,
    quota: Name,
    share: Whole<1, 100>,
    limit: Whole<1, { 1 << 40 }>,
    used: Count,
    from: Timestamp,
    to: Timestamp,
}

async fn take(
    State(app): State<Shared>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, ApiError> {
    authorised(&app, &headers)?;
    let refused = |error: BytesRejection| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(Code::PayloadTooLarge, error.body_text()),
        _ => ApiError::bad_request(error.body_text()),
    };
    let body = body.map_err(refused)?;
    let batch = apart::run_on(body.len(), move || batch(&parse(&body)?)).await?;
    if app.store.take_usage(&batch, app.clock.now()).await? {
        app.announced.notify_one();
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a batch as a whole.
fn batch(value: &Value) -> Result<Batch, ApiError> {
    let Value::Array(events) = value else { return Err(Issue::wrong_type("array", kind(value)).at("batch")) };
    if events.len() > MAX_EVENTS {
        return Err(Issue::too_many(MAX_EVENTS).at("batch"));
    }
    let (mut batch, mut ids) = (Batch::default(), HashSet::new());
    for (place, event) in events.iter().enumerate() {
        let at = format!("[{place}]");
        let Envelope { id: Text(id), source: Text(source), kind, subject, time, data } = read(event, &at)?;
        if !ids.insert((source.clone(), id.clone())) {
            return Err(Issue::custom("An earlier event has this id and source").at(&format!("{at}.id")));
        }
        let subject = subject.map(|Text(subject)| subject);
        let missing = || Issue::wrong_type("string", "undefined").at(&format!("{at}.subject"));
        let at_data = format!("{at}.data");
        let subscriber = match kind {
            Kind::Strangers => String::new(),
            Kind::Usage | Kind::Threshold => subject.ok_or_else(missing)?,
        };
        if kind == Kind::Threshold {
            batch.thresholds.push(threshold(id, subscriber, time, read(&data, &at_data)?, &at_data)?);
        } else {
            let origin = origin(source, &id)
                .ok_or_else(|| Issue::custom("Expected <vm>-<batch>-<place>").at(&format!("{at}.id")))?;
            batch.reports.push(report(origin, subscriber, read(&data, &at_data)?, &at_data)?);
        }
    }
    Ok(batch)
}

/// The batch of an event, from its id `<vm>-<batch>-<place>`.
fn origin(source: String, id: &str) -> Option<Origin> {
    let (batch, place) = id.rsplit_once('-')?;
    let (vm, number) = batch.rsplit_once('-')?;
    let (number, place) = (number.parse::<u64>().ok()?, place.parse::<u64>());
    let vm = Some(vm).filter(|vm| !vm.is_empty() && place.is_ok())?;
    Some(Origin { source, vm: vm.to_owned(), number: i64::try_from(number).ok()? })
}

fn report(origin: Origin, subscriber: String, used: Used, at: &str) -> Result<Report, ApiError> {
    let Used { from, to, key, organisation, class: Text(class), plan, requests, units, refused, tightest } =
        used;
    check_range(from, to, at)?;
    let (organisation, key, plan) = (text(organisation), text(key), text(plan));
    let account = Account { subscriber, organisation, key, class, plan };
    let sums = Sums { requests: whole(requests), units: whole(units), refused: whole(refused) };
    let tightest = tightest.map(|Quota { quota: Text(quota), limit, used, to: until }| Tightest {
        quota,
        limit: whole(limit),
        used: whole(used),
        until: until.unwrap_or(to),
    });
    Ok(Report { origin, account, from, to, sums, tightest })
}

fn threshold(
    id: String,
    subscriber: String,
    time: Option<Timestamp>,
    reached: Reached,
    at: &str,
) -> Result<Threshold, ApiError> {
    let Reached { class: Text(class), quota: Text(quota), share, limit, used, from, to } = reached;
    check_range(from, to, at)?;
    let (share, limit, used) = (whole(share), whole(limit), whole(used));
    Ok(Threshold { id, at: time.unwrap_or(from), subscriber, class, quota, share, limit, used, from, to })
}

/// Refuses an interval that ends before it begins, or begins before the first hour that is counted.
fn check_range(from: Timestamp, to: Timestamp, at: &str) -> Result<(), ApiError> {
    let (field, issue) = match () {
        () if from < Timestamp::UNIX_EPOCH => ("from", "Invalid range: from is before 1970"),
        () if to < from => ("to", "Invalid range: to is before from"),
        () => return Ok(()),
    };
    Err(Issue::custom(issue).at(&format!("{at}.{field}")))
}

fn text<const MAX: usize>(text: Option<Text<MAX>>) -> String {
    text.map_or_else(String::new, |Text(text)| text)
}

fn whole<const MIN: u64, const MAX: u64>(Whole(number): Whole<MIN, MAX>) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
