//! The fleet: gateways that share quotas through a ledger.

use core::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer};

use super::error::{At as _, ConfigError};
use super::forms::{Forms, read_by_forms};
use super::leaf::{Authority, Millis, Text};
use super::service::{Secret, authority};
use crate::count::holding::{Beyond, Sharing};

/// How long a request waits for the ledger, in milliseconds.
const TIMEOUTS: core::ops::RangeInclusive<u32> = 1..=5_000;
/// How long a count holds units that it does not use, in milliseconds.
const TERMS: core::ops::RangeInclusive<u32> = 100..=60_000;
/// How much use is held in advance, in milliseconds: what follows a burst for as long as its rate is not forgotten.
const AHEAD: u32 = 10_000;
/// A term has room for this many timeouts: a count gives back what it holds only when no call of it can be in flight.
const TIMEOUTS_IN_A_TERM: u32 = 4;

/// Gateways that share quotas.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Fleet"))]
#[serde(deny_unknown_fields)]
pub struct FleetSettings {
    /// The gateway's cluster of the ledger.
    pub cluster: Text,
    /// Host that calls name as `:authority`, with or without a port. Its default is that of `directory.authority`.
    authority: Option<Authority>,
    /// Bearer token that the filter sends to the ledger: a string, or `{"env": "NAME"}` for the value of an environment variable of the
    /// gateway, as in `directory`. By default the filter sends no token.
    pub bearer: Option<Secret>,
    /// How long a request waits for the ledger at most, from `1ms` to `5s`. `on_unavailable` decides then.
    #[serde(default = "default_timeout")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "250ms")))]
    timeout: Millis,
    /// How long a gateway holds units that it does not use, from `100ms` to `60s`, and at least four times `timeout`. It is also how long a
    /// gateway goes without asking when the ledger has nothing left.
    #[serde(default = "default_term")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "1s")))]
    term: Millis,
    /// Policy for a request that finds too little in its gateway's share while the ledger does not answer.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {"local": 10})))]
    pub on_unavailable: OnUnavailable,
    #[serde(default, rename = "domain", deserialize_with = "without_domain")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    _domain: (),
    #[serde(default, rename = "limits", deserialize_with = "without_limits")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    _limits: (),
    #[serde(default, rename = "min_window", deserialize_with = "without_windows")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    _min_window: (),
    #[serde(default, rename = "window_index", deserialize_with = "without_windows")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    _window_index: (),
    #[serde(default, rename = "local_percent", deserialize_with = "without_percent")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    _local_percent: (),
}

const fn default_timeout() -> Millis {
    Millis(250)
}

const fn default_term() -> Millis {
    Millis(1_000)
}

/// Without the bearer token.
impl fmt::Debug for FleetSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetSettings").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl FleetSettings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (field, given, range) in [("timeout", self.timeout, TIMEOUTS), ("term", self.term, TERMS)] {
            if !range.contains(&given.0) {
                let problem = format!("expected {} ms to {} s", range.start(), range.end() / 1_000);
                return Err(ConfigError::new(problem).given(&format_args!("{} ms", given.0))).at(field);
            }
        }
        if self.term.0 < TIMEOUTS_IN_A_TERM * self.timeout.0 {
            let problem =
                format!("expected at least four times timeout, {} ms", TIMEOUTS_IN_A_TERM * self.timeout.0);
            return Err(ConfigError::new(problem).given(&format_args!("{} ms", self.term.0))).at("term");
        }
        Ok(())
    }

    /// The `:authority` of calls.
    #[must_use]
    pub fn authority(&self) -> &str {
        authority(&self.cluster, self.authority.as_ref())
    }

    /// How quotas are shared. `in_shadow`: nothing is refused.
    #[must_use]
    pub fn sharing(&self, in_shadow: bool) -> Sharing {
        let beyond = match self.on_unavailable {
            OnUnavailable::Local(percent) => Beyond::Percent(percent),
            OnUnavailable::Allow => Beyond::All,
            OnUnavailable::Deny => Beyond::Nothing,
        };
        Sharing { timeout: self.timeout.0, term: self.term.0, ahead: AHEAD, beyond, in_shadow }
    }
}

/// Policy for a request that finds too little in its gateway's share while the ledger does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Each gateway admits this percentage of the limit beyond its share, at least one request, in the whole window.
    Local(u8),
    /// Forward the request.
    Allow,
    /// Answer 503.
    Deny,
}

impl Default for OnUnavailable {
    fn default() -> Self {
        Self::Local(10)
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Local {
    /// Percentage of each limit that a gateway admits beyond its share in a window, at least one request.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    local: u8,
}

impl<'de> Forms<'de> for OnUnavailable {
    const EXPECTED: &'static str = r#""allow", "deny", or {"local": 10} for a percentage of the limit"#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Self::or_refused(None),
        }
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let Local { local } = Local::deserialize(MapAccessDeserializer::new(object))?;
        Self::or_refused((1..=100).contains(&local).then_some(Self::Local(local)))
    }
}

read_by_forms!(OnUnavailable, |generator| {"anyOf": [{"const": "allow"}, {"const": "deny"}, generator.subschema_for::<Local>()]});

/// Refuses fields of a fleet on a rate-limit service.
macro_rules! gone {
    ($($refuse:ident: $instead:literal)+) => {$(
        fn $refuse<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
            Err(D::Error::custom($instead))
        }
    )+};
}

gone! {
    without_domain: "the ledger has no domains; set namespace to keep two fleets on one ledger apart"
    without_limits: "limits are those of the plans; leave the field out"
    without_windows: "a fleet shares quotas of every window; leave the field out"
    without_percent: r#"write "on_unavailable": {"local": 10}"#
}
