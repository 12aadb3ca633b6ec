//! Headers of which Envoy keeps one entry: a repeated line is joined to it.
//!
//! These are its inline headers, those that the filters of its standard build register among them. Each kind of map has
//! its own, and Envoy 1.40 tells them when it starts, under "HTTP header map info". All others keep an entry per line.

use crate::stream::frame::Direction;

/// Of requests.
const OF_REQUESTS: [&[u8]; 68] = [
    b":authority",
    b":method",
    b":path",
    b":protocol",
    b":scheme",
    b"accept",
    b"accept-encoding",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"access-control-request-private-network",
    b"authentication",
    b"authorization",
    b"cache-control",
    b"cdn-loop",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"expect",
    b"grpc-accept-encoding",
    b"grpc-timeout",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"keep-alive",
    b"origin",
    b"pragma",
    b"proxy-connection",
    b"proxy-status",
    b"referer",
    b"te",
    b"transfer-encoding",
    b"upgrade",
    b"user-agent",
    b"via",
    b"x-client-trace-id",
    b"x-envoy-attempt-count",
    b"x-envoy-decorator-operation",
    b"x-envoy-downstream-service-cluster",
    b"x-envoy-downstream-service-node",
    b"x-envoy-expected-rq-timeout-ms",
    b"x-envoy-external-address",
    b"x-envoy-force-trace",
    b"x-envoy-hedge-on-per-try-timeout",
    b"x-envoy-internal",
    b"x-envoy-ip-tags",
    b"x-envoy-is-timeout-retry",
    b"x-envoy-max-retries",
    b"x-envoy-original-host",
    b"x-envoy-original-path",
    b"x-envoy-original-url",
    b"x-envoy-retriable-header-names",
    b"x-envoy-retriable-status-codes",
    b"x-envoy-retry-grpc-on",
    b"x-envoy-retry-on",
    b"x-envoy-upstream-alt-stat-name",
    b"x-envoy-upstream-rq-per-try-timeout-ms",
    b"x-envoy-upstream-rq-timeout-alt-response",
    b"x-envoy-upstream-rq-timeout-ms",
    b"x-envoy-upstream-stream-duration-ms",
    b"x-forwarded-client-cert",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-proto",
    b"x-request-id",
];

/// Of responses.
const OF_RESPONSES: [&[u8]; 38] = [
    b":status",
    b"access-control-allow-credentials",
    b"access-control-allow-headers",
    b"access-control-allow-methods",
    b"access-control-allow-origin",
    b"access-control-allow-private-network",
    b"access-control-expose-headers",
    b"access-control-max-age",
    b"age",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"date",
    b"etag",
    b"expires",
    b"grpc-message",
    b"grpc-status",
    b"keep-alive",
    b"last-modified",
    b"location",
    b"proxy-connection",
    b"proxy-status",
    b"server",
    b"transfer-encoding",
    b"upgrade",
    b"vary",
    b"via",
    b"x-envoy-attempt-count",
    b"x-envoy-decorator-operation",
    b"x-envoy-degraded",
    b"x-envoy-immediate-health-check-fail",
    b"x-envoy-ratelimited",
    b"x-envoy-upstream-canary",
    b"x-envoy-upstream-healthchecked-cluster",
    b"x-envoy-upstream-service-time",
    b"x-request-id",
];

/// Of the trailers of responses. Those of requests keep every line.
const OF_RESPONSE_TRAILERS: [&[u8]; 2] = [b"grpc-message", b"grpc-status"];

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
        let names: &[&[u8]] = match self {
            Self::Any => return false,
            Self::Request => &OF_REQUESTS,
            Self::Response => &OF_RESPONSES,
            Self::ResponseTrailers => &OF_RESPONSE_TRAILERS,
        };
        names.binary_search(&name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_they_can_be_searched() {
        assert!(OF_REQUESTS.is_sorted() && OF_RESPONSES.is_sorted() && OF_RESPONSE_TRAILERS.is_sorted());
    }
}
