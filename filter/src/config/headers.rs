//! Which rate-limit headers responses carry.

use serde::Deserialize;

use super::raw;

/// The rate-limit headers of responses to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// What `X-RateLimit-Limit` states; `None` for none of the three `X-RateLimit-*` headers.
    pub x_ratelimit: Option<LimitHeader>,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy`.
    pub ietf: bool,
    /// Whether `Access-Control-Expose-Headers` lists the headers for requests with an `Origin`.
    pub expose_cors: bool,
    /// How the upstream's headers of the same names are kept from clients.
    pub upstream: UpstreamHeaders,
}

/// What `X-RateLimit-Limit` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum LimitHeader {
    /// The number of requests that the quota allows in an hour.
    PerHour,
    /// The limit of the quota's window.
    PerWindow,
}

/// How the upstream's rate-limit headers are kept from clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum UpstreamHeaders {
    /// The filter replaces them.
    Replace,
    /// There are none, because the upstream sends none or the gateway removes them. The filter adds its headers, which costs less.
    Absent,
}

impl From<raw::Headers> for HeaderOptions {
    fn from(raw: raw::Headers) -> Self {
        let raw::Headers { x_ratelimit, x_ratelimit_limit, ietf, expose_cors, upstream } = raw;
        Self { x_ratelimit: x_ratelimit.then_some(x_ratelimit_limit), ietf, expose_cors, upstream }
    }
}
