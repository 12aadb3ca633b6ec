//! A page of deliveries as a response.

use serde::Serialize;

use crate::error::ApiError;
use crate::json_list::JsonList;
use crate::json_parts::{Items, JsonParts};
use crate::state::App;
use crate::store::{Attempt, DeliveryRecord, Reader};
use crate::when::rfc3339;

/// The delivery of an event to a webhook, with all attempts.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Delivery)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryBody {
    event_id: String,
    event: String,
    /// `pending`, `delivered` or `failed`.
    status: &'static str,
    created_at: String,
    next_attempt_at: Option<String>,
    request_body: String,
    attempts: Vec<AttemptBody>,
}

/// One attempt. If the receiver could not be reached, `httpStatus` is null and `error` states the reason.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Attempt)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttemptBody {
    timestamp: String,
    http_status: Option<u16>,
    error: Option<String>,
    response_body: String,
}

impl DeliveryBody {
    fn of(record: DeliveryRecord) -> Self {
        let status = match (record.delivered_at, record.due_at) {
            (Some(_), _) => "delivered",
            (None, Some(_)) => "pending",
            (None, None) => "failed",
        };
        let attempt = |attempt: Attempt| AttemptBody {
            timestamp: rfc3339(attempt.at),
            http_status: attempt.http_status,
            error: attempt.error,
            response_body: attempt.response_body,
        };
        Self {
            event_id: record.event_id,
            event: record.event,
            status,
            created_at: rfc3339(record.created_at),
            next_attempt_at: record.due_at.map(rfc3339),
            request_body: record.payload,
            attempts: record.attempts.into_iter().map(attempt).collect(),
        }
    }
}

/// The parts of a page that are not read.
#[derive(Debug)]
pub(super) struct Page(std::vec::IntoIter<Vec<i64>>);

/// A page: the deliveries of its first part, and then those of the other parts.
pub(super) fn page(
    first: Vec<DeliveryRecord>,
    rest: std::vec::IntoIter<Vec<i64>>,
) -> Result<JsonParts<Page>, ApiError> {
    Ok(JsonParts::new(list(first)?, Page(rest)))
}

impl Items for Page {
    async fn read(&mut self, app: &App, reader: &mut Reader) -> Result<JsonList, ApiError> {
        let seqs = self.0.next().unwrap_or_default();
        list(app.store.deliveries(&seqs, reader).await?)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

fn list(records: Vec<DeliveryRecord>) -> Result<JsonList, ApiError> {
    let mut list = JsonList::default();
    for record in records {
        list.push(&DeliveryBody::of(record))?;
    }
    Ok(list)
}
