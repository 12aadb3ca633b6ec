//! The endpoints of a webhook's deliveries: the log and replays.

use axum::extract::State;
use axum::response::Response;
use axum::{Json, Router, routing};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::input::trigger;
use super::{delivery_page, enabled, not_found};
use crate::auth::Caller;
use crate::body::{Fields, JsonBody, MAX_ITEM, empty_list, unknown_option};
use crate::error::{ApiError, Code};
use crate::long_read;
use crate::path::{Name, Names};
use crate::query::Query;
use crate::state::Shared;
use crate::store::{DeliveryFilter, DeliveryStatus, REPLAYED_AT_ONCE, ReplayedEvents};
use crate::when::{self, Edge};

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
    let value_of = |name: &str| Ok(query.filter(name)?.map(str::to_owned));
    let event_ids = query.list("eventIds", REPLAYED_AT_ONCE as usize)?;
    let filter = delivery_filter(app.clock.now(), value_of, event_ids)?;
    let (page, store) = (query.page(PAGE_SIZE)?, app.store.clone());
    let read = long_read::run(&app, move |mut reader| async move {
        let mut parts = store.page_of_deliveries(&webhook, &filter, page, &mut reader).await?.into_iter();
        let first = match parts.next() {
            Some(seqs) => store.deliveries(&seqs, &mut reader).await?,
            None => Vec::new(),
        };
        Ok((first, parts))
    });
    let (first, rest) = read.await?;
    delivery_page::page(first, rest)?.answer(app, caller.workspace).await
}

/// The deliveries that a request selects. `value_of` returns the value of a field of the request.
fn delivery_filter(
    now: Timestamp,
    value_of: impl Fn(&str) -> Result<Option<String>, ApiError>,
    event_ids: Option<Vec<String>>,
) -> Result<DeliveryFilter, ApiError> {
    let status = value_of("status")?.map(|word| {
        let status = STATUSES.into_iter().find(|(name, _)| *name == word).map(|(_, status)| status);
        status.ok_or_else(|| unknown_option("status", &STATUSES.map(|(name, _)| name)))
    });
    let instant = |name: &str, edge| {
        let parsed = value_of(name)?.map(|text| when::parse(&text, now, &TimeZone::UTC, edge));
        parsed.transpose().map_err(|error| ApiError::invalid("custom", name, &error.to_string()))
    };
    let (start, end) = (instant("start", Edge::Start)?, instant("end", Edge::End)?);
    if start.zip(end).is_some_and(|(start, end)| start > end) {
        return Err(ApiError::invalid("custom", "start", "Invalid range: start is after end"));
    }
    Ok(DeliveryFilter {
        status: status.transpose()?,
        trigger: value_of("event")?.map(|event| trigger(&Value::String(event), "event")).transpose()?,
        start,
        end,
        event_ids: event_ids.unwrap_or_default(),
    })
}

/// Sends the selected events again. Without `status` and `eventIds`, it selects the failed events. Events that the webhook
/// never received cannot be selected.
async fn replay_all(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let fields = Fields::of(&body, "")?;
    let webhook = enabled(&app, &caller, &id).await?;
    let now = app.clock.now();
    let event_ids = fields.texts("eventIds", REPLAYED_AT_ONCE as usize)?.set();
    if event_ids.as_ref().is_some_and(Vec::is_empty) {
        return Err(empty_list("eventIds"));
    }
    let mut filter = delivery_filter(now, |name| Ok(fields.text(name, MAX_ITEM)?.set()), event_ids)?;
    if filter.status == Some(DeliveryStatus::Pending) {
        let reason = "Expected delivered or failed: pending deliveries cannot be replayed";
        return Err(fields.invalid("status", reason));
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
