//! The use of quotas: `GET /usage` for a workspace, batches of reports from gateways, and the page for operators.

mod batch;
mod page;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::api::caller::Caller;
use crate::api::selection::{INTERVALS, range};
use crate::api::state::Shared;
use crate::domain::usage::Sums;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::UsageGroup;

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/usage", routing::get(usage))
}

/// The endpoints for gateways and operators.
pub(crate) fn internal_router() -> Router<Shared> {
    batch::router().merge(page::router())
}

const GROUPINGS: [(&str, UsageGroup); 6] = [
    ("count", UsageGroup::Total),
    ("day", UsageGroup::Day),
    ("hour", UsageGroup::Hour),
    ("class", UsageGroup::Class),
    ("key", UsageGroup::Key),
    ("plan", UsageGroup::Plan),
];

async fn usage(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let (by, now) = (query.choice("groupBy", &GROUPINGS)?.unwrap_or(UsageGroup::Total), app.clock.now());
    let interval = query.choice("interval", &INTERVALS)?;
    let (start, end) = range(&query, now, &TimeZone::UTC, interval)?;
    let from = start.map_or(0, |start| start.as_millisecond().max(0));
    let to = end.as_millisecond().max(-1) + 1;
    let reader = &mut app.store.reader().await?;
    let groups = app.store.usage_of(reader, &caller.workspace, (from, to.max(from)), by, now).await?;
    let entry = |(group, sums): (String, Sums)| {
        let Sums { requests, units, refused } = sums;
        let field = match by {
            UsageGroup::Total => return json!(sums),
            UsageGroup::Day | UsageGroup::Hour => "start",
            UsageGroup::Class => "class",
            UsageGroup::Key => "key",
            UsageGroup::Plan => "plan",
        };
        // What is counted by subscriber has no key, and not every caller a plan.
        let group = if group.is_empty() { Value::Null } else { Value::String(group) };
        json!({ (field): group, "requests": requests, "units": units, "refused": refused })
    };
    let mut entries: Vec<Value> = groups.into_iter().map(entry).collect();
    Ok(match by {
        UsageGroup::Total => Json(entries.pop().unwrap_or_else(|| json!(Sums::default()))).into_response(),
        _ => Json(entries).into_response(),
    })
}
