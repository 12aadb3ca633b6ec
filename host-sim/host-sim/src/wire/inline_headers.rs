//! Headers of which Envoy keeps one entry: a repeated line is joined to it.
//!
//! These are its inline headers, those that the filters of its standard build register among them. Each kind of map has
//! its own, and Envoy 1.40 logs them when it starts, under "HTTP header map info". All others keep an entry per line.

use std::{collections::BTreeSet, sync::LazyLock};

use crate::wire::frame::Direction;

static OF_REQUESTS: LazyLock<Names> = LazyLock::new(|| {
    names(
        ":authority :method :path :protocol :scheme accept accept-encoding access-control-request-headers \
         access-control-request-method access-control-request-private-network authentication authorization \
         cache-control cdn-loop connection content-encoding content-length content-type expect \
         grpc-accept-encoding grpc-timeout if-match if-modified-since if-none-match if-range \
         if-unmodified-since keep-alive origin pragma proxy-connection proxy-status referer te \
         transfer-encoding upgrade user-agent via x-client-trace-id x-envoy-attempt-count \
         x-envoy-decorator-operation x-envoy-downstream-service-cluster x-envoy-downstream-service-node \
         x-envoy-expected-rq-timeout-ms x-envoy-external-address x-envoy-force-trace \
         x-envoy-hedge-on-per-try-timeout x-envoy-internal x-envoy-ip-tags x-envoy-is-timeout-retry \
         x-envoy-max-retries x-envoy-original-host x-envoy-original-path x-envoy-original-url \
         x-envoy-retriable-header-names x-envoy-retriable-status-codes x-envoy-retry-grpc-on \
         x-envoy-retry-on x-envoy-upstream-alt-stat-name x-envoy-upstream-rq-per-try-timeout-ms \
         x-envoy-upstream-rq-timeout-alt-response x-envoy-upstream-rq-timeout-ms \
         x-envoy-upstream-stream-duration-ms x-forwarded-client-cert x-forwarded-for x-forwarded-host \
         x-forwarded-port x-forwarded-proto x-request-id",
    )
});

static OF_RESPONSES: LazyLock<Names> = LazyLock::new(|| {
    names(
        ":status access-control-allow-credentials access-control-allow-headers \
         access-control-allow-methods access-control-allow-origin access-control-allow-private-network \
         access-control-expose-headers access-control-max-age age cache-control connection \
         content-encoding content-length content-type date etag expires grpc-message grpc-status \
         keep-alive last-modified location proxy-connection proxy-status server transfer-encoding upgrade \
         vary via x-envoy-attempt-count x-envoy-decorator-operation x-envoy-degraded \
         x-envoy-immediate-health-check-fail x-envoy-ratelimited x-envoy-upstream-canary \
         x-envoy-upstream-healthchecked-cluster x-envoy-upstream-service-time x-request-id",
    )
});

/// Those of requests keep every line.
static OF_RESPONSE_TRAILERS: LazyLock<Names> = LazyLock::new(|| names("grpc-message grpc-status"));

type Names = BTreeSet<&'static [u8]>;

fn names(listed: &'static str) -> Names {
    listed.split_ascii_whitespace().map(str::as_bytes).collect()
}

/// The pseudo-header that `host` is another name of in the headers of requests.
pub(super) const AUTHORITY: &[u8] = b":authority";

/// What a map holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// Anything: every line is kept.
    #[default]
    Any,
    Request,
    Response,
    ResponseTrailers,
}

impl Kind {
    /// Of a message's headers.
    pub(crate) fn of_headers(direction: Direction) -> Self {
        match direction {
            Direction::Request => Self::Request,
            Direction::Response => Self::Response,
        }
    }

    /// Of a message's trailers.
    pub(crate) fn of_trailers(direction: Direction) -> Self {
        match direction {
            Direction::Request => Self::Any,
            Direction::Response => Self::ResponseTrailers,
        }
    }

    /// The name that a map keeps for this one.
    pub(super) fn own_name(self, name: &[u8]) -> &[u8] {
        if self == Self::Request && name.eq_ignore_ascii_case(b"host") { AUTHORITY } else { name }
    }

    /// Whether a repeated line of `name`, in lower case, is joined to the first.
    pub(crate) fn joins(self, name: &[u8]) -> bool {
        let names = match self {
            Self::Any => return false,
            Self::Request => &OF_REQUESTS,
            Self::Response => &OF_RESPONSES,
            Self::ResponseTrailers => &OF_RESPONSE_TRAILERS,
        };
        names.contains(name)
    }
}
