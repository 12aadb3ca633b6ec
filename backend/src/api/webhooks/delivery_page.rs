//! A page of deliveries as a response.

use serde::Serialize;

use crate::domain::delivery::Attempt;
use crate::domain::when::rfc3339;
use crate::store::DeliveryRecord;

/// What the id of a delivery begins with.
const PREFIX: &str = "dlv_";

/// The delivery of an event to a webhook, with all attempts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryBody {
    /// The id of this delivery, which is a cursor. A replayed event has several.
    id: String,
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
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttemptBody {
    timestamp: String,
    http_status: Option<u16>,
    error: Option<String>,
    response_body: String,
}

impl DeliveryBody {
    /// The number of the delivery with an id.
    pub(super) fn seq(id: &str) -> Option<i64> {
        id.strip_prefix(PREFIX)?.parse().ok()
    }

    pub(super) fn of(record: DeliveryRecord) -> Self {
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
            id: format!("{PREFIX}{}", record.seq),
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
