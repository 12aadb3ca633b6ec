//! Deliveries of events to webhooks, and their attempts.

use jiff::Timestamp;
use serde::Serialize;

use super::when::as_rfc3339;

/// A webhook with due deliveries, or clicks that it has not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueWebhook {
    pub(crate) seq: i64,
    pub(crate) workspace_seq: i64,
}

/// The webhooks and workspaces for which no delivery may be taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithoutRoom {
    pub(crate) webhooks: Vec<i64>,
    pub(crate) workspaces: Vec<i64>,
}

/// A due delivery. This process owns it until the lease ends.
#[derive(Clone, Debug)]
pub(crate) struct DueDelivery {
    pub(crate) seq: i64,
    pub(crate) webhook: DueWebhook,
    pub(crate) event_id: String,
    pub(crate) payload: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    /// The previous secret, during the overlap of a rotation.
    pub(crate) old_secret: Option<String>,
    /// Number of previous attempts.
    pub(crate) attempts: u32,
    /// The end of the lease, in Unix milliseconds.
    pub(crate) leased_until: i64,
}

/// An attempt in the log. If the receiver could not be reached, there is no status, and the error states the reason.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    #[serde(rename = "timestamp", serialize_with = "as_rfc3339")]
    pub(crate) at: Timestamp,
    pub(crate) http_status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) response_body: String,
}

impl Attempt {
    /// An attempt without an answer.
    pub(crate) fn failed(at: Timestamp, reason: String) -> Self {
        Self { at, http_status: None, error: Some(reason), response_body: String::new() }
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver accepted the event.
    Delivered,
    /// The next attempt is at this instant.
    Retry(Timestamp),
    /// The delivery failed.
    Failed,
    /// The delivery failed, and the receiver wants no more events.
    Gone,
}
