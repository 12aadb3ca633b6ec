//! Why a request is refused, as data, and how the reply begins.

use crate::grpc;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A quota is used up: one of those in [`super::decision::Decided::charged`].
    Limited,
    /// The plan lacks the class: a retry could never succeed.
    NotInPlan,
    /// The key is unknown, and the configuration rejects those.
    UnknownKey,
    /// The request has no key, and `missing_key` rejects such requests.
    MissingKey,
    /// The request has several keys: it is not clear whose it is.
    AmbiguousKey,
    /// Upstreams may read the path in ways that select different rules.
    AmbiguousPath,
    /// The directory has not answered yet, and `not_ready` is "unavailable".
    NotReady,
    /// Counting failed, and the configuration denies then.
    CountFailed,
    /// An operator is not answered what it asks for.
    Operator(OperatorRefusal),
}

/// Why an operator is not answered what it asks for.
#[expect(missing_docs, reason = "each variant has its message")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorRefusal {
    #[error("Unauthorized: a bearer token of an operator is required.")]
    Unauthorized,
    #[error("There is no such endpoint.")]
    NoEndpoint,
    #[error("This endpoint takes {allow}.")]
    Method { allow: &'static str },
    #[error("No subscriber with a key has this id.")]
    NoSubscriber,
    #[error("The subscriber has no such key.")]
    NoKey,
    #[error("The keys of the directory are not known yet; retry in 1 s.")]
    NotReady,
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
    Failed,
}

impl OperatorRefusal {
    pub(super) fn head(&self) -> Head {
        let (status, grpc_status, details) = match self {
            Self::Unauthorized => (401, grpc::UNAUTHENTICATED, "weir_operator_unauthorized"),
            Self::NoEndpoint | Self::NoSubscriber | Self::NoKey => {
                (404, grpc::NOT_FOUND, "weir_operator_not_found")
            }
            Self::Method { .. } => (405, grpc::UNIMPLEMENTED, "weir_operator_method"),
            Self::Parameter { .. } | Self::SeveralKeys => {
                (422, grpc::INVALID_ARGUMENT, "weir_operator_parameter")
            }
            Self::NoSharedData => (501, grpc::UNIMPLEMENTED, "weir_operator_out_of_reach"),
            Self::NotReady => (503, grpc::UNAVAILABLE, "weir_directory_not_ready"),
            Self::Failed => (503, grpc::UNAVAILABLE, "weir_count_failed"),
        };
        Head {
            retry_after: matches!(self, Self::NotReady | Self::Failed).then_some(1),
            header: match self {
                Self::Unauthorized => Some(("www-authenticate", "Bearer")),
                Self::Method { allow } => Some(("allow", allow)),
                _ => None,
            },
            ..Head::new(status, grpc_status, details)
        }
    }
}

/// How a refusal begins: its statuses, its response-code details, and `Retry-After` in seconds.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) grpc_status: u32,
    pub(super) details: &'static str,
    pub(super) retry_after: Option<u64>,
    /// A header that only this refusal has, its name in lower case.
    pub(super) header: Option<(&'static str, &'static str)>,
}

impl Head {
    pub(super) const fn new(status: u16, grpc_status: u32, details: &'static str) -> Self {
        Self { status, grpc_status, details, retry_after: None, header: None }
    }

    pub(super) const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl Refusal {
    /// How the reply begins. `not_in_plan`: the status of a class that the plan lacks; `retry_after`: seconds until a used-up quota resets.
    pub(super) fn head(&self, not_in_plan: u16, retry_after: u64) -> Head {
        match self {
            Self::Limited => Head {
                // Proxies before this gateway do not retry such a 429.
                header: Some(("x-envoy-ratelimited", "true")),
                ..Head::new(429, grpc::RESOURCE_EXHAUSTED, "weir_rate_limited").retry_after(retry_after)
            },
            Self::NotInPlan => Head::new(not_in_plan, grpc::PERMISSION_DENIED, "weir_not_in_plan"),
            Self::UnknownKey => Head::new(401, grpc::UNAUTHENTICATED, "weir_unknown_key"),
            Self::MissingKey => Head::new(401, grpc::UNAUTHENTICATED, "weir_missing_key"),
            Self::AmbiguousKey => Head::new(400, grpc::INVALID_ARGUMENT, "weir_ambiguous_key"),
            Self::AmbiguousPath => Head::new(400, grpc::INVALID_ARGUMENT, "weir_ambiguous_path"),
            Self::NotReady => Head::new(503, grpc::UNAVAILABLE, "weir_directory_not_ready").retry_after(1),
            Self::CountFailed => Head::new(503, grpc::UNAVAILABLE, "weir_count_failed").retry_after(1),
            Self::Operator(refusal) => refusal.head(),
        }
    }
}
