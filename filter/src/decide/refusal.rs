//! Why a request is refused, as data, and how the reply begins.

/// Why a request is refused, by the message of the reply. Of the first two the reply says more.
#[expect(missing_docs, reason = "where only the message stands, it says it all")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A quota is used up: one of those in [`super::decision::Decided::charged`].
    #[error("Too many requests.")]
    Limited,
    /// The plan lacks the class: a retry could never succeed.
    #[error("The plan does not include the class.")]
    NotInPlan,
    /// The key is unknown, and the configuration rejects those.
    #[error("Unauthorized: Invalid API key.")]
    UnknownKey,
    /// The request has no key, and `missing_key` rejects such requests.
    #[error("Missing API key.")]
    MissingKey,
    /// The request has several keys: it is not clear whose it is.
    #[error("The request carries more than one API key; send exactly one.")]
    AmbiguousKey,
    /// A name that an upstream may take for a key's, with `strict_headers`.
    #[error(
        "A header or parameter is spelled almost like that of the API key; send the key as documented, once."
    )]
    RespelledKey,
    /// nginx hands over so many headers at most, and a key may be behind them.
    #[error("The request has more headers than this gateway can read.")]
    TooManyHeaders,
    /// Upstreams may read the path in ways that select different rules.
    #[error(
        "The path can be read in several ways; send it without dot segments, empty segments, parameters and encoded \
         slashes."
    )]
    AmbiguousPath,
    /// The directory has not answered yet, and `not_ready` is "unavailable".
    #[error("The keys are not known yet; retry in 1 s.")]
    NotReady,
    /// Counting failed, and the configuration denies then.
    #[error("The request could not be counted against its quota; retry in 1 s.")]
    CountFailed,
    /// The ledger does not answer, and `on_unavailable` is "deny".
    #[error("The quotas that the gateways share cannot be reached; retry in 1 s.")]
    NoLedger,
    /// Too many requests of this caller wait for the ledger.
    #[error("Too many requests wait for the quotas that the gateways share; retry in 1 s.")]
    NoPlace,
    /// The ledger has not taken up a reset.
    #[error(
        "The quota is reset at this gateway. The other gateways do not know it yet, because the ledger does not answer; retry in 1 s."
    )]
    ResetHere,
    #[error("The gateway's quota filter has no configuration.")]
    NoConfiguration,
    #[error("Unauthorized: a bearer token of an operator is required.")]
    NoOperator,
    #[error("There is no such endpoint.")]
    NoEndpoint,
    #[error("This endpoint takes {allow}.")]
    Method { allow: &'static str },
    #[error("No subscriber with a key has this id.")]
    NoSubscriber,
    #[error("The subscriber has no such key.")]
    NoSuchKey,
    #[error("The keys of the directory are not known yet; retry in 1 s.")]
    NoDirectoryYet,
    #[error("Query parameter {name}: expected {expected}.")]
    Parameter { name: &'static str, expected: String },
    #[error(
        "The subscriber has several keys with separate quotas; name one of them by the query parameter key."
    )]
    SeveralKeys,
    #[error(
        "This host has no shared data: each VM counts by itself, and operators cannot reach its counters."
    )]
    NoSharedData,
    #[error("The counters could not be reached; retry in 1 s.")]
    NoCounters,
}

impl Refusal {
    /// A query parameter of an operator's request is not what it has to be.
    pub(super) fn parameter(name: &'static str, expected: impl Into<String>) -> Self {
        Self::Parameter { name, expected: expected.into() }
    }

    /// The HTTP status, unless the configuration has another, and the response-code details.
    pub(super) fn head(&self) -> (u16, &'static str) {
        match self {
            Self::Limited => (429, "weir_rate_limited"),
            Self::NotInPlan => (403, "weir_not_in_plan"),
            Self::UnknownKey => (401, "weir_unknown_key"),
            Self::MissingKey => (401, "weir_missing_key"),
            Self::AmbiguousKey | Self::RespelledKey => (400, "weir_ambiguous_key"),
            Self::AmbiguousPath => (400, "weir_ambiguous_path"),
            Self::TooManyHeaders => (431, "weir_too_many_headers"),
            Self::NotReady | Self::NoDirectoryYet => (503, "weir_directory_not_ready"),
            Self::CountFailed | Self::NoCounters => (503, "weir_count_failed"),
            Self::NoLedger | Self::ResetHere => (503, "weir_no_ledger"),
            Self::NoPlace => (503, "weir_no_place"),
            Self::NoConfiguration => (503, "weir_no_configuration"),
            Self::NoOperator => (401, "weir_operator_unauthorized"),
            Self::NoEndpoint | Self::NoSubscriber | Self::NoSuchKey => (404, "weir_operator_not_found"),
            Self::Method { .. } => (405, "weir_operator_method"),
            Self::Parameter { .. } | Self::SeveralKeys => (422, "weir_operator_parameter"),
            Self::NoSharedData => (501, "weir_operator_out_of_reach"),
        }
    }

    /// A header that only this refusal has, its name in lower case.
    pub(super) fn header(&self) -> Option<(&'static str, &'static [u8])> {
        match self {
            // Proxies before this gateway do not retry such a 429.
            Self::Limited => Some(("x-envoy-ratelimited", b"true")),
            Self::NoOperator => Some(("www-authenticate", b"Bearer")),
            Self::Method { allow } => Some(("allow", allow.as_bytes())),
            _ => None,
        }
    }
}
