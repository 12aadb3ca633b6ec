//! The endpoints of a webhook's deliveries: the log and replays.

use axum::extract::State;
use axum::response::Response;
use axum::{Json, Router, routing};
use serde::Serialize;
use serde_json::{Value, json};

use super::{enabled, not_found};
use crate::api::caller::Caller;
use crate::api::json_array::json_array;
use crate::api::state::Shared;
use crate::domain::delivery::Attempt;
use crate::domain::when::rfc3339;
use crate::http::error::{ApiError, Code};
use crate::http::path::{Name, Names};
use crate::http::query::Query;
use crate::store::DeliveryRecord;

/// Default and maximum number of deliveries on a page.
pub(crate) const PAGE_SIZE: i64 = 100;

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/webhooks/{id}/deliveries", routing::get(list))
        .route("/webhooks/{id}/deliveries/{event}/replay", routing::post(replay))
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    Name(id): Name,
    query: Query,
) -> Result<Response, ApiError> {
    let webhook = app.store.webhook(&caller.workspace, &id).await?.ok_or_else(not_found)?;
    let cursor = |id: &str| {
        DeliveryBody::seq(id).ok_or_else(|| {
            ApiError::new(Code::UnprocessableEntity, "Invalid cursor: expected the id of a delivery.")
        })
    };
    let before = query.filter("startingAfter")?.map(cursor).transpose()?;
    let size = query.page_size(PAGE_SIZE)?;
    let mut reader = app.store.reader().await?;
    let deliveries = app.store.page_of_deliveries(&webhook, before, size, &mut reader).await?;
    drop(reader);
    json_array(deliveries.into_iter().map(DeliveryBody::of)).await
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

/// What the id of a delivery begins with.
const PREFIX: &str = "dlv_";

/// The delivery of an event to a webhook, with all attempts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryBody {
    /// The id of this delivery, which is a cursor. A replayed event has several.
    id: String,
    event_id: String,
    event: String,
    /// `pending`, `delivered` or `failed`.
    status: &'static str,
    created_at: String,
    next_attempt_at: Option<String>,
    request_body: String,
    attempts: Vec<Attempt>,
}

impl DeliveryBody {
    /// The number of the delivery with an id.
    fn seq(id: &str) -> Option<i64> {
        id.strip_prefix(PREFIX)?.parse().ok()
    }

    fn of(record: DeliveryRecord) -> Self {
        let status = match (record.delivered_at, record.due_at) {
            (Some(_), _) => "delivered",
            (None, Some(_)) => "pending",
            (None, None) => "failed",
        };
        Self {
            id: format!("{PREFIX}{}", record.seq),
            event_id: record.event_id,
            event: record.event,
            status,
            created_at: rfc3339(record.created_at),
            next_attempt_at: record.due_at.map(rfc3339),
            request_body: record.payload,
            attempts: record.attempts,
        }
    }
}
