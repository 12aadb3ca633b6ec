//! The endpoints of a webhook's deliveries: the log and replays.

use axum::extract::State;
use axum::response::Response;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::delivery_page::Page;
use super::{enabled, not_found};
use crate::api::caller::Caller;
use crate::api::json_array;
use crate::api::state::Shared;
use crate::domain::event::Trigger;
use crate::domain::when::{self, Edge};
use crate::http::body_macro::body;
use crate::http::error::{ApiError, Code};
use crate::http::fields::{Items, MAX_ITEM, Text, kept};
use crate::http::issue::Issue;
use crate::http::json_body::Fields;
use crate::http::path::{Name, Names};
use crate::http::query::Query;
use crate::store::{DeliveryFilter, DeliveryStatus, REPLAYED_AT_ONCE, ReplayedEvents};

/// Default and maximum number of deliveries on a page.
pub(crate) const PAGE_SIZE: i64 = 100;
/// The statuses of a delivery and their names in requests.
pub(crate) const STATUSES: [(&str, DeliveryStatus); 3] = [
    ("pending", DeliveryStatus::Pending),
    ("delivered", DeliveryStatus::Delivered),
    ("failed", DeliveryStatus::Failed),
];

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks/{id}/deliveries", routing::get(list))
        .route("/webhooks/{id}/deliveries/replay", routing::post(replay_all))
        .route("/webhooks/{id}/deliveries/{event}/replay", routing::post(replay))
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    query: Query,
) -> Result<Response, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    let (start, end) = range(app.clock.now(), query.filter("start")?, query.filter("end")?)?;
    let filter = DeliveryFilter {
        status: query.choice("status", &STATUSES)?,
        trigger: query.choice("event", &Trigger::ALL.map(|trigger| (trigger.name(), trigger)))?,
        start,
        end,
        event_ids: query.list("eventIds", REPLAYED_AT_ONCE as usize)?.unwrap_or_default(),
    };
    let page = query.page(PAGE_SIZE)?;
    let mut reader = app.store.reader().await?;
    let parts = app.store.page_of_deliveries(&webhook, &filter, page, &mut reader).await?;
    let begun = json_array::begin(Page(parts.into_iter()), &app, &mut reader).await?;
    Ok(json_array::in_parts(begun, app, caller.workspace.seq))
}

/// The range of events that a request selects.
fn range(
    now: Timestamp,
    start: Option<&str>,
    end: Option<&str>,
) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
    let instant = |name: &str, text: Option<&str>, edge| {
        let parsed = text.map(|text| when::parse(text, now, &TimeZone::UTC, edge)).transpose();
        parsed.map_err(|error| Issue::custom(error.to_string()).at(name))
    };
    let (start, end) = (instant("start", start, Edge::Start)?, instant("end", end, Edge::End)?);
    if start.zip(end).is_some_and(|(start, end)| start > end) {
        return Err(Issue::custom("Invalid range: start is after end").at("start"));
    }
    Ok((start, end))
}

body! {
    /// The body that selects the events to replay. A filter without a value is refused, because it would select more.
    pub(crate) struct Replay {
        status: DeliveryStatus = "`delivered` or `failed`. Pending deliveries cannot be replayed.",
        event: Trigger,
        start: Text<MAX_ITEM>,
        end: Text<MAX_ITEM>,
        event_ids: Items<{ REPLAYED_AT_ONCE as usize }>,
    }
}

/// Sends the selected events again. Without `status` and `eventIds`, it selects the failed events. Events that the webhook
/// never received cannot be selected.
async fn replay_all(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    Fields(fields): Fields<Replay>,
) -> Result<Json<Value>, ApiError> {
    let webhook = enabled(&app, &caller, &id).await?;
    let now = app.clock.now();
    let event_ids = kept(fields.event_ids, "eventIds", "array")?.map(|Items(ids)| ids);
    if event_ids.as_ref().is_some_and(Vec::is_empty) {
        return Err(Issue::empty_list().at("eventIds"));
    }
    let start = kept(fields.start, "start", "string")?.map(|Text(text)| text);
    let end = kept(fields.end, "end", "string")?.map(|Text(text)| text);
    let (start, end) = range(now, start.as_deref(), end.as_deref())?;
    let (status, trigger) =
        (kept(fields.status, "status", "string")?, kept(fields.event, "event", "string")?);
    let mut filter = DeliveryFilter { status, trigger, start, end, event_ids: event_ids.unwrap_or_default() };
    if filter.status == Some(DeliveryStatus::Pending) {
        let reason = "Expected delivered or failed: pending deliveries cannot be replayed";
        return Err(Issue::custom(reason).at("status"));
    }
    if filter.status.is_none() && filter.event_ids.is_empty() {
        filter.status = Some(DeliveryStatus::Failed);
    }
    let unknown = app.store.unknown_events(&webhook, &filter.event_ids).await?;
    if !unknown.is_empty() {
        let message = format!("Invalid eventIds detected: {}", unknown.join(", "));
        return Err(ApiError::new(Code::UnprocessableEntity, message));
    }
    let ReplayedEvents { count, more } = app.store.replay_all(&webhook, &filter, now).await?;
    app.announced.notify_one();
    Ok(Json(json!({ "replayed": count, "more": more })))
}

async fn replay(
    State(app): State<Shared>,
    caller: Caller,
    Names(id, event): Names,
) -> Result<Json<Value>, ApiError> {
    let webhook = enabled(&app, &caller, &id).await?;
    if !app.store.replay(&webhook, &event, app.clock.now()).await? {
        return Err(ApiError::not_found("Event not found."));
    }
    app.announced.notify_one();
    Ok(Json(json!({ "id": event })))
}
