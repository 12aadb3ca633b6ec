//! What a request of a class costs if that is known only after the response, and which responses cost nothing.

use core::num::NonZeroU32;
use core::ops::RangeInclusive;

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{HeaderName, MetadataPath, Units};
use crate::grpc;
use crate::read::error::{ConfigError, Instead};
#[cfg(feature = "schema")]
use crate::read::schema::given;
use crate::read::{NonEmpty, Value, fields, forms};

/// Units that a request of a class consumes when it arrives, and the place of its actual cost. JSON: a number, or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Units that a request consumes when it arrives.
    pub units: NonZeroU32,
    /// Where the actual cost is, if it is known only after the response.
    pub actual: Option<CostSource>,
}

fields! {
    /// A cost that is known after the response.
    struct CostAfterResponse as "CostAfterResponse" derive() {
        /// Units that the request consumes when it arrives. It is at most the limit of each quota of the class. It stands if the actual cost
        /// does not become known.
        reserve: Units,
        /// Where the actual cost is. What the request cost less than the reserve is given back. Any excess is charged, even past the limit.
        actual: CostSource,
    }
}

/// The place that has the actual cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A header of the response, by its name in lower case.
    ResponseHeader(String),
    /// A property, by its path, whose parts are joined by NUL. It is read when the stream ends.
    Metadata(Vec<u8>),
}

fields! {
    /// A place that has the actual cost of a request, a whole number of units. Exactly one of `response_header` and `metadata` is required.
    struct ActualCost as "ActualCost" derive() where {"oneOf": [given("response_header"), given("metadata")]} {
        /// Name of a header of the upstream's response. Of a gRPC response, the filter reads the trailers as well.
        response_header: Option<HeaderName>,
        /// Path of a value in the metadata of the request, which the filter reads when the stream ends.
        metadata: Option<MetadataPath>,
    }
}

forms! {
    CostSource, |definitions| ActualCost::schema(definitions);
    object => match ActualCost::read(object)? {
        ActualCost { response_header: Some(name), metadata: None } => Ok(Self::ResponseHeader(name.to_ascii_lowercase())),
        ActualCost { response_header: None, metadata: Some(MetadataPath(path)) } => Ok(Self::Metadata(path)),
        ActualCost { response_header: Some(_), metadata: Some(_) } => {
            Err(ConfigError::new("give either response_header or metadata, not both"))
        }
        ActualCost { response_header: None, metadata: None } => Err(ConfigError::new("give response_header or metadata")),
    },
}

impl Cost {
    /// The cost of a request of a class that states none.
    pub(super) const ONE: Self = Self { units: NonZeroU32::MIN, actual: None };
}

forms! {
    Cost: r#"a whole number of units, or {"reserve": 1000, "actual": {"response_header": "x-cost"}}"#,
    |definitions| json!({"anyOf": [Units::schema(definitions), CostAfterResponse::schema(definitions)]});
    Value::Number(Some(0)) => {
        Err(ConfigError::new("expected 1 or more; list requests that are free of charge in exempt"))
    },
    number @ Value::Number(Some(_)) => Units::read(number).map(|Units(units)| Self { units, actual: None }),
    object @ Value::Object(_) => {
        let CostAfterResponse { reserve, actual } = CostAfterResponse::read(object)?;
        Ok(Self { units: reserve.0, actual: Some(actual) })
    },
}

fields! {
    /// Responses that give back what their request was charged. At least one of `statuses` and `grpc` is required.
    pub struct Refund as "Refund" derive(Clone, Debug, Default, PartialEq, Eq) checked by check
        where {"anyOf": [given("statuses"), given("grpc")]}
    {
        /// Statuses of these responses: numbers from 200 to 599, and `"2xx"`, `"3xx"`, `"4xx"` or `"5xx"`. The gateway's own responses, such
        /// as a 503 or a 504 in place of the upstream's, count as well. Requests that the filter refuses are never charged. A gRPC response
        /// counts by the status that Envoy maps its code to, such as 503 for `UNAVAILABLE`, unless `grpc` is given.
        statuses: Option<NonEmpty<Status>>,
        /// Codes of gRPC responses, by the names of gRPC's documentation, such as `"UNAVAILABLE"`. Without `statuses`, a response that is not
        /// gRPC counts by the code that Envoy maps its status to, such as `UNAVAILABLE` for 429, 502, 503 and 504. A success has no code.
        grpc: Option<NonEmpty<Code>>,
    }
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

    fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self { statuses: None, grpc: None } => Err(ConfigError::new("give statuses, grpc or both")),
            _ => Ok(()),
        }
    }
}

forms! {
    Status: r#"a status from 200 to 599, or "2xx", "3xx", "4xx" or "5xx""#,
    |_definitions| json!({"anyOf": [
        {"type": "integer", "minimum": 200, "maximum": 599},
        {"type": "string", "pattern": "^[2-5]xx$"},
    ]});
    Value::Number(Some(status @ 200..=599)) => Ok(Self(status as u16..=status as u16)),
    Value::Text(text) if text == "2xx" => Ok(Self(200..=299)),
    Value::Text(text) if text == "3xx" => Ok(Self(300..=399)),
    Value::Text(text) if text == "4xx" => Ok(Self(400..=499)),
    Value::Text(text) if text == "5xx" => Ok(Self(500..=599)),
}

forms! {
    Code: r#"the name of a gRPC status code, such as "UNAVAILABLE""#,
    |_definitions| json!({"type": "string", "enum": grpc::names().collect::<Vec<_>>()});
    Value::Text(text) => grpc::code(&text).map(Self).ok_or_else(|| {
        let names: Vec<_> = grpc::names().collect();
        ConfigError::new(format!("unknown gRPC status code, {}", Instead { given: &text, names: &names }))
    }),
}
