//! What is expected of a step.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What is expected of a step. What is not given is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// The status that the client sees.
    pub status: Option<u16>,
    /// Whether the client gets its whole answer, or the connection is broken off; it waits for ever when not.
    pub ends: Option<bool>,
    /// Whether the connection is broken off.
    pub reset: Option<bool>,
    /// Response headers: the joined value, or null for a header that is absent.
    pub headers: BTreeMap<String, Option<String>>,
    /// The whole response body.
    pub body: Option<String>,
    /// A part of it.
    pub body_contains: Option<String>,
    /// Whether the filter, or the host on its behalf, answered.
    pub local_reply: Option<bool>,
    /// `%RESPONSE_CODE_DETAILS%`.
    pub details: Option<String>,
    /// Response trailers, as in `headers`.
    pub trailers: BTreeMap<String, Option<String>>,
    /// Whether the upstream gets the request.
    pub forwarded: Option<bool>,
    /// Request headers as the upstream sees them, as in `headers`; `:path` and `:method` are among them.
    pub forwarded_headers: BTreeMap<String, Option<String>>,
    /// The whole request body that the upstream gets.
    pub forwarded_body: Option<String>,
    /// Request trailers as the upstream sees them, as in `headers`.
    pub forwarded_trailers: BTreeMap<String, Option<String>>,
    /// The calls to clusters that the filter makes during the step, all of them, in order.
    pub callouts: Option<Vec<ExpectedCall>>,
    /// How often each status was given, over all requests of an `interleave`.
    pub statuses: Option<BTreeMap<u16, usize>>,
    /// Lines, or parts of lines, that the filter logs during the step.
    pub log: Vec<String>,
    /// Parts of lines that the filter must not log during the step.
    pub not_logged: Vec<String>,
    /// Counters and gauges after the step.
    pub metrics: BTreeMap<String, u64>,
    /// The most keys that shared data has after the step.
    pub shared_data_entries_at_most: Option<usize>,
    /// Whether an update is refused.
    pub refused: Option<bool>,
}

/// A call to a cluster. What is not given is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedCall {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// The headers, `:path` and `:method` among them: the joined value, or null for a header that is absent.
    pub headers: BTreeMap<String, Option<String>>,
    /// The whole body; the message of a gRPC call in its frame.
    pub body: Option<String>,
    /// A part of it.
    pub body_contains: Option<String>,
}
