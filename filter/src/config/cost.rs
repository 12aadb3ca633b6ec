//! What a request of a class costs if that is known only after the response, and which responses cost nothing.

use core::fmt;
use core::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor};

use super::error::ConfigError;
use super::problem::Problem;
use super::requests::{check_header, property_path};
use crate::grpc;

/// Units that a request of a class consumes. JSON: a number, or the object.
#[cfg_attr(feature = "schema", derive(serde::Serialize), serde(untagged))]
pub(super) enum Cost {
    /// Units that are known when the request arrives.
    Fixed(u32),
    /// Units that are known after the response.
    AfterResponse(CostAfterResponse),
}

/// A cost that is known after the response.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct CostAfterResponse {
    /// Units that the request consumes when it arrives. It is at most the limit of each quota of the class. It stands if the actual cost
    /// does not become known.
    pub(super) reserve: u32,
    /// Where the actual cost is. What the request cost less than the reserve is given back. What it cost more is charged, even beyond the
    /// limit.
    pub(super) actual: ActualCost,
}

/// A place that has the actual cost of a request, a whole number of units. Exactly one of `response_header` and `metadata` is required.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct ActualCost {
    /// Name of a header of the upstream's response.
    pub(super) response_header: Option<String>,
    /// Path of a value in the metadata of the request, which the filter reads when the stream ends.
    pub(super) metadata: Option<Vec<String>>,
}

/// Responses that give back what their request was charged.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(deny_unknown_fields)]
pub(super) struct RefundFields {
    /// Statuses of these responses: numbers from 200 to 599, and `"2xx"`, `"3xx"`, `"4xx"` or `"5xx"`. The gateway's own responses, such
    /// as a 503 or a 504 in place of the upstream's, count as well. Requests that the filter refuses are never charged.
    pub(super) statuses: Option<Vec<Status>>,
    /// Names of gRPC's status codes, such as `"UNAVAILABLE"`.
    pub(super) grpc: Option<Vec<String>>,
}

/// A status or a class of statuses.
#[cfg_attr(feature = "schema", derive(serde::Serialize), serde(untagged))]
pub(super) enum Status {
    /// One status.
    One(u16),
    /// A class such as `5xx`, by its text.
    Class(String),
}

/// The place that has the actual cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A header of the response, by its name in lower case.
    ResponseHeader(String),
    /// A property, by its path, whose parts are joined by NUL. It is read when the stream ends.
    Metadata(Vec<u8>),
}

/// Responses that give back what their request was charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refund {
    statuses: Vec<RangeInclusive<u16>>,
    grpc: Vec<u32>,
}

impl Refund {
    /// Whether a plain HTTP response of this status gives back the charge. Without statuses, its status stands for a gRPC code.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        match self.statuses.as_slice() {
            [] => grpc::from_http_status(status).is_some_and(|code| self.grpc.contains(&code)),
            statuses => statuses.iter().any(|range| range.contains(&status)),
        }
    }

    /// Whether a gRPC response of this code gives back the charge. Without codes, its code stands for an HTTP status.
    #[must_use]
    pub fn contains_grpc(&self, code: u32) -> bool {
        match self.grpc.as_slice() {
            [] => self.contains(grpc::http_status(code)),
            codes => codes.contains(&code),
        }
    }

    /// Whether no response gives back a charge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.statuses.is_empty() && self.grpc.is_empty()
    }
}

impl Cost {
    /// The units that a request is charged when it arrives, and the place of its actual cost.
    pub(super) fn check(self) -> Result<(u32, Option<CostSource>), ConfigError> {
        let refuse = |field, expected| Err(ConfigError::new(field, Problem::Range { expected }).given(0));
        match self {
            Self::Fixed(0) => refuse("", "1 or more; list requests that are free of charge in exempt"),
            Self::Fixed(units) => Ok((units, None)),
            Self::AfterResponse(CostAfterResponse { reserve: 0, .. }) => refuse(
                "reserve",
                "1 or more; a request that reserves nothing would be admitted beyond the limit",
            ),
            Self::AfterResponse(CostAfterResponse { reserve, actual }) => {
                let source = actual.check().map_err(|error| error.within("actual"))?;
                Ok((reserve, Some(source)))
            }
        }
    }
}

impl ActualCost {
    fn check(self) -> Result<CostSource, ConfigError> {
        match (self.response_header, self.metadata) {
            (Some(name), None) => {
                check_header(&name).map_err(|error| error.within("response_header"))?;
                Ok(CostSource::ResponseHeader(name.to_ascii_lowercase()))
            }
            (None, Some(metadata)) => property_path(&metadata).map(CostSource::Metadata),
            _ => Err(ConfigError::new("", Problem::OneOf("response_header or metadata"))),
        }
    }
}

impl RefundFields {
    pub(super) fn check(self) -> Result<Refund, ConfigError> {
        if self.statuses.is_none() && self.grpc.is_none() {
            return Err(ConfigError::new("", Problem::Invalid("give statuses, grpc or both".into())));
        }
        if self.statuses.as_ref().is_some_and(Vec::is_empty) {
            return Err(ConfigError::new("statuses", Problem::NoneGiven));
        }
        if self.grpc.as_ref().is_some_and(Vec::is_empty) {
            return Err(ConfigError::new("grpc", Problem::NoneGiven));
        }
        let check = |(index, status): (usize, Status)| {
            status.check().map_err(|error| error.within(index).within("statuses"))
        };
        let code = |(index, name): (usize, String)| {
            grpc::code(&name).ok_or_else(|| {
                let problem =
                    Problem::Invalid("expected the name of a gRPC status such as UNAVAILABLE".into());
                ConfigError::new("", problem).given(name).within(index).within("grpc")
            })
        };
        Ok(Refund {
            statuses: self.statuses.into_iter().flatten().enumerate().map(check).collect::<Result<_, _>>()?,
            grpc: self.grpc.into_iter().flatten().enumerate().map(code).collect::<Result<_, _>>()?,
        })
    }
}

impl Status {
    const EXPECTED: &'static str = r#"a status from 200 to 599, or "2xx", "3xx", "4xx" or "5xx""#;

    fn check(self) -> Result<RangeInclusive<u16>, ConfigError> {
        let refuse = || ConfigError::new("", Problem::Value { expected: Self::EXPECTED.to_owned() });
        match self {
            Self::One(status @ 200..=599) => Ok(status..=status),
            Self::One(status) => Err(refuse().given(u32::from(status))),
            Self::Class(text) => match text.as_str() {
                "2xx" => Ok(200..=299),
                "3xx" => Ok(300..=399),
                "4xx" => Ok(400..=499),
                "5xx" => Ok(500..=599),
                _ => Err(refuse().given(text)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostVisitor;

        impl<'de> Visitor<'de> for CostVisitor {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a whole number of units, or {"reserve": 1000, "actual": {"response_header": "x-cost"}}"#)
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Cost, E> {
                let fixed = u32::try_from(units).map(Cost::Fixed);
                fixed.map_err(|_| E::invalid_value(Unexpected::Unsigned(units), &self))
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Cost, E> {
                Err(E::invalid_value(Unexpected::Signed(units), &self))
            }

            fn visit_f64<E: de::Error>(self, units: f64) -> Result<Cost, E> {
                Err(E::invalid_value(Unexpected::Float(units), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
                CostAfterResponse::deserialize(MapAccessDeserializer::new(map)).map(Cost::AfterResponse)
            }
        }

        deserializer.deserialize_any(CostVisitor)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StatusVisitor;

        impl Visitor<'_> for StatusVisitor {
            type Value = Status;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Status::EXPECTED)
            }

            fn visit_u64<E: de::Error>(self, status: u64) -> Result<Status, E> {
                let status = u16::try_from(status).map(Status::One);
                status.map_err(|_| E::invalid_value(Unexpected::Other("a number"), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Status, E> {
                Ok(Status::Class(text.to_owned()))
            }
        }

        deserializer.deserialize_any(StatusVisitor)
    }
}
