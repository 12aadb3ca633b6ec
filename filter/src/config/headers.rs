//! Which headers responses carry.

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::Origin;
use crate::read::{NonEmpty, Value, fields, forms, words};

fields! {
    /// Headers that the filter adds to responses.
    pub struct HeaderOptions as "Headers" derive(Clone, Debug, PartialEq, Eq) {
        /// Whether responses carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
        pub x_ratelimit: bool = true,
        /// What `X-RateLimit-Limit` states.
        pub x_ratelimit_limit: LimitHeader = "per_hour",
        /// Whether responses carry `RateLimit` and `RateLimit-Policy` of the IETF draft.
        pub ietf: bool = true,
        /// Whether `Access-Control-Expose-Headers` lists the rate-limit headers, for requests with an `Origin`.
        pub expose_cors: bool = true,
        /// How the upstream's headers of the same names are kept from clients.
        pub upstream: UpstreamHeaders = "replace",
        /// Whether responses carry rate-limit headers if `enforcement` is `"shadow"`. By default they do not: clients would see a limit that
        /// is not enforced, and beside another limiter the wrong one.
        pub in_shadow: bool = false,
        /// Origins whose scripts may read the filter's own answers, such as a 429: `"*"`, or a list of origins such as
        /// `"https://app.example"`. The filter then adds `Access-Control-Allow-Origin` to its own answers, and `Vary: Origin` for a list. Set
        /// it where the gateway's CORS filter comes after this one, as in Istio. By default the filter adds neither.
        pub allow_origin: AllowOrigin = null,
    }
}

words! {
    /// What `X-RateLimit-Limit` states.
    pub enum LimitHeader derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// The number of requests that the quota allows in an hour.
        "per_hour" => PerHour,
        /// The limit of the quota's window.
        "per_window" => PerWindow,
    }
}

words! {
    /// How the upstream's rate-limit headers are kept from clients.
    pub enum UpstreamHeaders derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// The filter replaces them.
        "replace" => Replace,
        /// There are none, because the upstream sends none or the gateway removes them. The filter adds its headers, which costs less.
        "absent" => Absent,
    }
}

/// Origins whose scripts may read the filter's own answers. JSON: `"*"`, or a list of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowOrigin {
    /// None.
    None,
    /// Any.
    Any,
    /// These.
    List(NonEmpty<Origin>),
}

forms! {
    AllowOrigin: r#""*", or a list of origins such as "https://app.example""#,
    |definitions| json!({"anyOf": [{"anyOf": [{"const": "*"}, NonEmpty::<Origin>::schema(definitions)]}, {"type": "null"}]});
    Value::Null => Ok(Self::None),
    Value::Text(text) if text == "*" => Ok(Self::Any),
    list @ Value::List(_) => NonEmpty::read(list).map(Self::List),
}
