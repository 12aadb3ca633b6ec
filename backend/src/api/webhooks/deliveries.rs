//! The endpoints of a webhook's deliveries: the log and replays.

use axum::extract::State;
use axum::response::Response;
use axum::{Json, Router, routing};
use serde_json::{Value, json};

use super::delivery_page::DeliveryBody;
use super::{enabled, not_found};
use crate::api::caller::Caller;
use crate::api::json_array::json_array;
use crate::api::state::Shared;
use crate::http::error::{ApiError, Code};
use crate::http::path::{Name, Names};
use crate::http::query::Query;

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
