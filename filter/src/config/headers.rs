//! Which rate-limit headers responses carry.

use core::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Unexpected, Visitor};

use super::raw;

/// The rate-limit headers of responses to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderOptions {
    /// What `X-RateLimit-Limit` states; `None` for none of the three `X-RateLimit-*` headers.
    pub x_ratelimit: Option<LimitHeader>,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy`.
    pub ietf: bool,
    /// Whether `Access-Control-Expose-Headers` lists the headers for requests with an `Origin`.
    pub expose_cors: bool,
    /// How the upstream's headers of the same names are kept from clients.
    pub upstream: UpstreamHeaders,
    /// Whether responses carry the headers if the whole filter is in shadow mode.
    pub in_shadow: bool,
    /// Origins whose scripts may read the filter's own answers.
    pub allow_origin: AllowOrigin,
}

/// Origins whose scripts may read the filter's own answers. JSON: `"*"`, or a list of origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(serde::Serialize), serde(untagged))]
pub enum AllowOrigin {
    /// None.
    #[default]
    None,
    /// Any, as `*` says.
    Any,
    /// These.
    List(Vec<String>),
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
        let raw::Headers {
            x_ratelimit,
            x_ratelimit_limit,
            ietf,
            expose_cors,
            upstream,
            in_shadow,
            allow_origin,
        } = raw;
        Self {
            x_ratelimit: x_ratelimit.then_some(x_ratelimit_limit),
            ietf,
            expose_cors,
            upstream,
            in_shadow,
            allow_origin,
        }
    }
}

impl<'de> Deserialize<'de> for AllowOrigin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OriginsVisitor;

        impl<'de> Visitor<'de> for OriginsVisitor {
            type Value = AllowOrigin;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#""*", or a list of origins such as "https://app.example""#)
            }

            fn visit_unit<E: de::Error>(self) -> Result<AllowOrigin, E> {
                Ok(AllowOrigin::None)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AllowOrigin, E> {
                match text {
                    "*" => Ok(AllowOrigin::Any),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<AllowOrigin, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(AllowOrigin::List)
            }
        }

        deserializer.deserialize_any(OriginsVisitor)
    }
}
