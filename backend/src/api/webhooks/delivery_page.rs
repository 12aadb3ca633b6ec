//! A page of deliveries as a response.

use serde::Serialize;

use crate::api::json_array::{Items, Part};
use crate::api::state::App;
use crate::domain::delivery::Attempt;
use crate::domain::when::rfc3339;
use crate::http::error::ApiError;
use crate::store::{DeliveryRecord, Reader};

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
pub(super) struct Page(pub(super) std::vec::IntoIter<Vec<i64>>);

impl Items for Page {
    async fn read(&mut self, app: &App, reader: &mut Reader) -> Result<Part, ApiError> {
        let seqs = self.0.next().unwrap_or_default();
        let mut part = Part::default();
        for record in app.store.deliveries(&seqs, reader).await? {
            part.push(&DeliveryBody::of(record))?;
        }
        Ok(part)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}
