//! Deciding a request: its caller, its class, its quotas, and the answer.
//!
//! A request's way is [`limiter::Limiter::decide`]: read one line from the headers → route → account → charge → decision. At the response:
//! settlement → headers.

pub mod account;
mod charging;
pub mod counting;
pub mod decision;
pub mod decision_log;
pub mod headers;
pub mod host;
pub mod limiter;
mod metering;
pub mod metric;
mod operate;
pub mod operators;
pub mod outcome;
pub mod refusal;
pub mod reply;
pub mod settlement;
pub mod usage;
mod view;
pub mod waiting;

use serde::Serialize;

/// Numbers and strings as JSON.
fn json(document: &impl Serialize) -> String {
    // Writing these into memory cannot fail.
    serde_json::to_string(document).unwrap_or_default()
}
