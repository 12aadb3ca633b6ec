//! The use of quotas: `GET /usage` for a workspace, batches of reports from gateways, and the page for operators.

mod batch;
mod page;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use jiff::tz::TimeZone;
use serde_json::json;

use crate::api::caller::Caller;
use crate::api::selection::{INTERVALS, range};
use crate::api::state::Shared;
use crate::domain::usage::Sums;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::store::{USAGE_GROUPS, USAGE_TOTAL};

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/usage", routing::get(usage))
}

/// The endpoints for gateways and operators.
pub(crate) fn internal_router() -> Router<Shared> {
    batch::router().merge(page::router())
}

async fn usage(State(app): State<Shared>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let (by, now) = (query.choice("groupBy", &USAGE_GROUPS)?.unwrap_or(USAGE_TOTAL), app.clock.now());
    let interval = query.choice("interval", &INTERVALS)?;
    let (start, end) = range(&query, now, &TimeZone::UTC, interval)?;
    let from = start.map_or(0, |start| start.as_millisecond().max(0));
    let range = (from, (end.as_millisecond() + 1).max(from));
    let reader = &mut app.store.reader().await?;
    let mut groups = app.store.usage_of(reader, &caller.workspace, range, by, now).await?;
    if by.field.is_empty() {
        return Ok(Json(groups.pop().unwrap_or_default().1).into_response());
    }
    let entry = |(group, Sums { requests, units, refused }): (String, Sums)| {
        // What is counted by subscriber has no key, and not every caller a plan.
        let group = Some(group).filter(|group| !group.is_empty());
        json!({ (by.field): group, "requests": requests, "units": units, "refused": refused })
    };
    Ok(Json(groups.into_iter().map(entry).collect::<Vec<_>>()).into_response())
}
