//! Deciding a request: its caller, its class, its quotas, and the answer.

pub mod host;
pub mod limiter;
pub mod log_limiter;
pub mod metric;
pub mod operators;
pub mod outcome;
pub mod reply;
pub mod response_headers;
pub mod tally;
pub mod usage;
pub mod verdict;
