//! The grammar of quotas: `60/minute`, or an object with more.

use core::num::NonZeroU32;
use core::str::FromStr;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess};

use super::entries::Entries;
use super::forms::{Forms, read_by_forms};
use super::leaf::{Name, Units, duration};
#[cfg(feature = "schema")]
use crate::count::entry::MAX_QUOTAS;
use crate::quota::Mode;
use crate::window::Window;

/// A quota of the configuration. JSON: `"60/minute"`, or an object with these fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Quota", transform = or_rate)
)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct QuotaTerms {
    /// Units in a window. It is at least the cost of the class.
    pub limit: Units,
    /// `second`, `minute`, `hour`, `day` (UTC), `month` (UTC calendar), or a duration such as `90s`, `5m`, `2h` or `7d`.
    pub window: Window,
    /// Name of the quota in the IETF headers: 1 to 32 of `a-z`, `0-9`, `_` and `-`. The default is the name of the class, followed by
    /// the window if the class has several quotas.
    pub name: Option<Name>,
    /// Whether the quota refuses requests.
    #[serde(default)]
    pub mode: Mode,
    /// Whether refunds also credit this quota. `false` protects the upstream from clients that retry what fails.
    #[serde(default = "yes")]
    pub refundable: bool,
}

const fn yes() -> bool {
    true
}

/// The quotas of a class. JSON: a list of quotas, or `"unlimited"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// No quota limits the class.
    Unlimited,
    /// All of these quotas limit the class.
    Quotas(Vec<QuotaTerms>),
}

/// The classes of a plan, or those that a subscriber's limits replace:
/// `{"standard": ["5000/minute"], "analytics": "unlimited"}`.
pub type Grants = Entries<Grant>;

/// A quota of which only limit and window are given, such as `60/minute`.
impl FromStr for QuotaTerms {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (limit, unit) = text.split_once('/').ok_or("expected <limit>/<unit>, for example 60/minute")?;
        // A limit may not have a sign, which numbers may.
        let limit = limit.parse().ok().filter(|_| limit.bytes().all(|byte| byte.is_ascii_digit()));
        let limit = limit.ok_or("the limit must be a whole number from 1 to 4294967295")?;
        let window =
            Window::named(unit).ok_or("unknown unit, expected second, minute, hour, day or month")?;
        Ok(Self { limit: Units(limit), window, name: None, mode: Mode::Enforced, refundable: true })
    }
}

impl FromStr for Window {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if let Some(window) = Self::named(text) {
            return Ok(window);
        }
        let seconds = duration(text).ok_or(
            "unknown window, expected second, minute, hour, day, month or whole seconds, minutes, hours or days such as 90s, 5m, 2h, 7d",
        )?;
        let seconds = seconds.and_then(NonZeroU32::new).map(Self::Seconds);
        seconds.ok_or("a window is 1 to 4294967295 seconds long")
    }
}

impl Forms<'_> for Window {
    const EXPECTED: &'static str = r#"a window such as "minute" or "90s""#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Forms<'de> for QuotaTerms {
    const EXPECTED: &'static str = r#"a quota such as "60/minute" or {"limit": 60, "window": "90s"}"#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        // The derived function for the object form, which `remote` keeps apart from the trait's.
        Self::deserialize(MapAccessDeserializer::new(object))
    }
}

impl<'de> Forms<'de> for Grant {
    const EXPECTED: &'static str = r#"a list of quotas such as ["60/minute"], or "unlimited""#;

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        Self::or_refused((text == "unlimited").then_some(Self::Unlimited))
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Self::Quotas)
    }
}

/// A whole number of at least 1. Only the filter checks the upper bound.
#[cfg(feature = "schema")]
const LIMIT: &str = "0*[1-9][0-9]*";

read_by_forms!(Window, {"type": "string", "pattern": format!("^(second|minute|hour|day|month|{LIMIT}[smhd])$")});
read_by_forms!(QuotaTerms);
read_by_forms!(Grant as "Quotas", |generator| {
    "description": format!("Up to {MAX_QUOTAS} quotas, all of which apply, or `\"unlimited\"`. Two quotas of the same mode have different windows."),
    "anyOf": [
        {"const": "unlimited"},
        {"type": "array", "items": generator.subschema_for::<QuotaTerms>(), "minItems": 1, "maxItems": MAX_QUOTAS},
    ],
});

/// Describes a quota in both of its forms: the derived schema describes the object.
#[cfg(feature = "schema")]
fn or_rate(schema: &mut schemars::Schema) {
    let mut object = core::mem::take(schema);
    object.remove("description");
    *schema = schemars::json_schema!({
        "description": "A limit in a window: a text such as `\"60/minute\"`, or an object. The text takes a limit and `second`, \
            `minute`, `hour`, `day` or `month`.",
        "anyOf": [
            {"type": "string", "pattern": format!("^{LIMIT}/(second|minute|hour|day|month)$")},
            object,
        ],
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_refused_with_its_mistake() {
        let rows = [
            ("600/fortnight", "unknown unit"),
            ("600", "expected <limit>/<unit>"),
            ("/minute", "the limit"),
            ("0/minute", "the limit"),
            ("+6/minute", "the limit"),
            ("4294967296/day", "the limit"),
            ("6/Minute", "unknown unit"),
        ];
        for (text, problem) in rows {
            let refused = text.parse::<QuotaTerms>().unwrap_err();
            assert!(refused.starts_with(problem), "{text}: {refused}");
        }
        let QuotaTerms { limit, window, .. } = "4294967295/month".parse().unwrap();
        assert_eq!((limit.0, window), (NonZeroU32::MAX, Window::CalendarMonth));
    }

    #[test]
    fn a_window_is_refused_with_its_mistake() {
        let refusal = |text: &str| text.parse::<Window>().unwrap_err();
        for text in ["", "s", "fortnight", "9", "1.5h", "-1s", "90 s", "é"] {
            assert!(refusal(text).starts_with("unknown window"), "{text}");
        }
        for text in ["0s", "4294967296s", "99999999999999999999s", "50000d"] {
            assert_eq!(refusal(text), "a window is 1 to 4294967295 seconds long", "{text}");
        }
    }
}
