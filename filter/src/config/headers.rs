//! Which headers responses carry.

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess};

use super::forms::{Forms, read_by_forms};
use super::leaf::{NonEmpty, Origin};

/// Headers that the filter adds to responses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Headers"))]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the configuration")]
pub struct HeaderOptions {
    /// Whether responses carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    pub x_ratelimit: bool,
    /// What `X-RateLimit-Limit` states.
    pub x_ratelimit_limit: LimitHeader,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy` of the IETF draft.
    pub ietf: bool,
    /// Whether `Access-Control-Expose-Headers` lists the rate-limit headers, for requests with an `Origin`.
    pub expose_cors: bool,
    /// How the upstream's headers of the same names are kept from clients.
    pub upstream: UpstreamHeaders,
    /// Whether responses carry rate-limit headers if `enforcement` is `"shadow"`. By default they do not: clients would see a limit that
    /// is not enforced, and beside another limiter the wrong one.
    pub in_shadow: bool,
    /// Origins whose scripts may read the filter's own answers, such as a 429: `"*"`, or a list of origins such as
    /// `"https://app.example"`. The filter then adds `Access-Control-Allow-Origin` to its own answers, and `Vary: Origin` for a list. Set
    /// it where the gateway's CORS filter comes after this one, as in Istio. By default the filter adds neither.
    pub allow_origin: AllowOrigin,
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self {
            x_ratelimit: true,
            x_ratelimit_limit: LimitHeader::PerHour,
            ietf: true,
            expose_cors: true,
            upstream: UpstreamHeaders::Replace,
            in_shadow: false,
            allow_origin: AllowOrigin::None,
        }
    }
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

/// Origins whose scripts may read the filter's own answers. JSON: `"*"`, or a list of origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowOrigin {
    /// None.
    #[default]
    None,
    /// Any.
    Any,
    /// These.
    List(NonEmpty<Origin>),
}

impl<'de> Forms<'de> for AllowOrigin {
    const EXPECTED: &'static str = r#""*", or a list of origins such as "https://app.example""#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        Self::or_refused((text == "*").then_some(Self::Any))
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        NonEmpty::deserialize(SeqAccessDeserializer::new(list)).map(Self::List)
    }
}

read_by_forms!(AllowOrigin, |generator| {"anyOf": [{"const": "*"}, generator.subschema_for::<NonEmpty<Origin>>()]});
