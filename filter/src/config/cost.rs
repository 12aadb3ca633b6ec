//! What a request of a class costs if that is known only after the response, and which responses cost nothing.

use core::num::NonZeroU32;
use core::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess};

use super::error::Instead;
use super::forms::{Forms, read_by_forms};
use super::leaf::{HeaderName, MetadataPath, NonEmpty, Units};
use crate::grpc;

/// Units that a request of a class consumes when it arrives, and the place of its actual cost. JSON: a number, or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Units that a request consumes when it arrives.
    pub units: NonZeroU32,
    /// Where the actual cost is, if it is known only after the response.
    pub actual: Option<CostSource>,
}

/// A cost that is known after the response.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct CostAfterResponse {
    /// Units that the request consumes when it arrives. It is at most the limit of each quota of the class. It stands if the actual cost
    /// does not become known.
    reserve: Units,
    /// Where the actual cost is. What the request cost less than the reserve is given back. Any excess is charged, even past the limit.
    #[cfg_attr(feature = "schema", schemars(with = "ActualCost"))]
    actual: CostSource,
}

/// The place that has the actual cost of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ActualCost")]
pub enum CostSource {
    /// A header of the response, by its name in lower case.
    ResponseHeader(String),
    /// A property, by its path, whose parts are joined by NUL. It is read when the stream ends.
    Metadata(Vec<u8>),
}

/// A place that has the actual cost of a request, a whole number of units. Exactly one of `response_header` and `metadata` is required.
#[derive(Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("oneOf" = [super::leaf::given("response_header"), super::leaf::given("metadata")]))
)]
#[serde(deny_unknown_fields)]
struct ActualCost {
    /// Name of a header of the upstream's response. Of a gRPC response, the filter reads the trailers as well.
    response_header: Option<HeaderName>,
    /// Path of a value in the metadata of the request, which the filter reads when the stream ends.
    metadata: Option<MetadataPath>,
}

impl TryFrom<ActualCost> for CostSource {
    type Error = &'static str;

    fn try_from(ActualCost { response_header, metadata }: ActualCost) -> Result<Self, &'static str> {
        match (response_header, metadata) {
            (Some(name), None) => Ok(Self::ResponseHeader(name.to_ascii_lowercase())),
            (None, Some(MetadataPath(path))) => Ok(Self::Metadata(path)),
            (Some(_), Some(_)) => Err("give either response_header or metadata, not both"),
            (None, None) => Err("give response_header or metadata"),
        }
    }
}

impl Cost {
    /// The cost of a request of a class that states none.
    pub(super) const ONE: Self = Self { units: NonZeroU32::MIN, actual: None };
}

impl<'de> Forms<'de> for Cost {
    const EXPECTED: &'static str =
        r#"a whole number of units, or {"reserve": 1000, "actual": {"response_header": "x-cost"}}"#;

    fn number<E: Error>(number: Option<u32>) -> Result<Self, E> {
        if number == Some(0) {
            return Err(E::custom("expected 1 or more; list requests that are free of charge in exempt"));
        }
        let units = number.and_then(NonZeroU32::new);
        Self::or_refused(units.map(|units| Self { units, actual: None }))
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let cost = CostAfterResponse::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Self { units: cost.reserve.0, actual: Some(cost.actual) })
    }
}

/// Responses that give back what their request was charged. At least one of `statuses` and `grpc` is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(extend("anyOf" = [super::leaf::given("statuses"), super::leaf::given("grpc")]))
)]
#[serde(deny_unknown_fields)]
pub struct Refund {
    /// Statuses of these responses: numbers from 200 to 599, and `"2xx"`, `"3xx"`, `"4xx"` or `"5xx"`. The gateway's own responses, such
    /// as a 503 or a 504 in place of the upstream's, count as well. Requests that the filter refuses are never charged. A gRPC response
    /// counts by the status that Envoy maps its code to, such as 503 for `UNAVAILABLE`, unless `grpc` is given.
    statuses: Option<NonEmpty<Status>>,
    /// Codes of gRPC responses, by the names of gRPC's documentation, such as `"UNAVAILABLE"`. Without `statuses`, a response that is not
    /// gRPC counts by the code that Envoy maps its status to, such as `UNAVAILABLE` for 429, 502, 503 and 504. A success has no code.
    grpc: Option<NonEmpty<Code>>,
}

/// A status, or a class of statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Status(RangeInclusive<u16>);

/// A gRPC code, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(u32);

impl Refund {
    /// Whether a plain HTTP response of this status gives back the charge. Without `statuses`, its status stands for a gRPC code.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        match &self.statuses {
            Some(NonEmpty(statuses)) => statuses.iter().any(|Status(range)| range.contains(&status)),
            None => grpc::from_http_status(status).is_some_and(|code| self.lists(code)),
        }
    }

    /// Whether a gRPC response of this code gives back the charge. Without `grpc`, its code stands for an HTTP status.
    #[must_use]
    pub fn contains_grpc(&self, code: u32) -> bool {
        match &self.grpc {
            Some(_) => self.lists(code),
            None => self.statuses.is_some() && self.contains(grpc::http_status(code)),
        }
    }

    fn lists(&self, code: u32) -> bool {
        self.grpc.as_ref().is_some_and(|NonEmpty(codes)| codes.contains(&Code(code)))
    }

    /// Whether no response gives back a charge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.statuses.is_none() && self.grpc.is_none()
    }
}

impl Forms<'_> for Status {
    const EXPECTED: &'static str = r#"a status from 200 to 599, or "2xx", "3xx", "4xx" or "5xx""#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        match text {
            "2xx" => Ok(Self(200..=299)),
            "3xx" => Ok(Self(300..=399)),
            "4xx" => Ok(Self(400..=499)),
            "5xx" => Ok(Self(500..=599)),
            _ => Self::or_refused(None),
        }
    }

    fn number<E: Error>(number: Option<u32>) -> Result<Self, E> {
        match number.and_then(|number| u16::try_from(number).ok()) {
            Some(status @ 200..=599) => Ok(Self(status..=status)),
            _ => Self::or_refused(None),
        }
    }
}

impl Forms<'_> for Code {
    const EXPECTED: &'static str = r#"the name of a gRPC status code, such as "UNAVAILABLE""#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        grpc::code(text).map(Self).ok_or_else(|| {
            let names: Vec<_> = grpc::names().collect();
            E::custom(format_args!("unknown gRPC status code, {}", Instead { given: text, names: &names }))
        })
    }
}

read_by_forms!(Cost, |generator| {"anyOf": [
    {"type": "integer", "minimum": 1, "maximum": u32::MAX},
    generator.subschema_for::<CostAfterResponse>(),
]});
read_by_forms!(Status, {"anyOf": [
    {"type": "integer", "minimum": 200, "maximum": 599},
    {"type": "string", "pattern": "^[2-5]xx$"},
]});
read_by_forms!(Code, {"type": "string", "enum": grpc::names().collect::<Vec<_>>()});
