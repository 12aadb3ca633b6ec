//! The grammar of quotas: `60/minute`, or an object with more.

use core::num::NonZeroU32;
use core::str::FromStr;

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{Name, Units, duration};
#[cfg(feature = "schema")]
use crate::count::entry::MAX_QUOTAS;
use crate::quota::Mode;
use crate::read::error::ConfigError;
use crate::read::{Entries, Value, fields, forms};
use crate::window::{DAY, Window};

fields! {
    /// A limit in a window: a text such as `"60/minute"`, or an object. The text takes a limit and `second`, `minute`, `hour`, `day`, `week`, `month`, `year`, `billing_month`
    /// or `billing_year`.
    pub struct QuotaTerms as "Quota" derive(Clone, Debug, PartialEq, Eq, Hash)
        or r#"a quota such as "60/minute" or {"limit": 60, "window": "90s"}"#
            {"type": "string", "pattern": format!("^{LIMIT}/({UNIT})$")} by Self::from_text,
    {
        /// Units in a window. It is at least the cost of the class.
        pub limit: Units,
        /// `second`, `minute`, `hour`, `day` (UTC), `week` (from Monday on, UTC), `month` or `year` (UTC calendar), `billing_month` or `billing_year`
        /// (from the subscriber's `billing_anchor` on), or a duration such as `90s`, `5m`, `2h` or `7d`, of at most 366 days.
        pub window: Window,
        /// Name of the quota in the IETF headers: 1 to 32 of `a-z`, `0-9`, `_` and `-`. The default is the name of the class, followed by
        /// the window if the class has several quotas.
        pub name: Option<Name>,
        /// Whether the quota refuses requests.
        pub mode: Mode = "enforced",
        /// Whether refunds also credit this quota. `false` protects the upstream from clients that retry what fails.
        pub refundable: bool = true,
    }
}

impl QuotaTerms {
    fn from_text(text: &str) -> Result<Self, ConfigError> {
        text.parse().map_err(ConfigError::new)
    }
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
            Window::named(unit).ok_or("unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year")?;
        Ok(Self { limit: Units(limit), window, name: None, mode: Mode::Enforced, refundable: true })
    }
}

/// The longest window, in seconds: a leap year.
const LONGEST: u32 = 366 * DAY;

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(window) = Self::named(text) {
            return Ok(window);
        }
        let seconds = duration(text).ok_or(
            "unknown window, expected second, minute, hour, day, week, month, year, billing_month, billing_year or whole seconds, minutes, hours or days such as 90s, 5m, 2h, 7d",
        )?;
        match seconds.map(|seconds| (seconds, NonZeroU32::new(seconds))) {
            Some((seconds, _)) if seconds > LONGEST => {
                Err(format!("a window of {seconds} s is longer than the longest, 366 days ({LONGEST} s)"))
            }
            Some((_, Some(seconds))) => Ok(Self::of_seconds(seconds)),
            Some((_, None)) | None => Err("a window is 1 s to 366 days long".to_owned()),
        }
    }
}

forms! {
    Window: r#"a window such as "minute" or "90s""#,
    |_definitions| json!({"type": "string", "pattern": format!("^({UNIT}|{LIMIT}[smhd])$")});
    Value::Text(text) => text.parse().map_err(|problem: String| ConfigError::new(problem)),
}

forms! {
    Grant: r#"a list of quotas such as ["60/minute"], or "unlimited""#,
    |definitions| {
        let quotas = json!({"type": "array", "items": QuotaTerms::schema(definitions), "minItems": 1, "maxItems": MAX_QUOTAS});
        let doc = format!("Up to {MAX_QUOTAS} quotas, all of which apply, or `\"unlimited\"`. Two quotas of the same mode have different windows.");
        definitions.define("Quotas", &doc, json!({"anyOf": [{"const": "unlimited"}, quotas]}))
    };
    Value::Text(text) if text == "unlimited" => Ok(Self::Unlimited),
    list @ Value::List(_) => Vec::read(list).map(Self::Quotas),
}

/// A whole number of at least 1. Only the filter checks the upper bound.
#[cfg(feature = "schema")]
const LIMIT: &str = "0*[1-9][0-9]*";
#[cfg(feature = "schema")]
const UNIT: &str = "second|minute|hour|day|week|month|year|billing_month|billing_year";

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
        assert_eq!((limit.0, window), (NonZeroU32::MAX, Window::CALENDAR_MONTH));
    }

    #[test]
    fn a_window_is_refused_with_its_mistake() {
        let refusal = |text: &str| text.parse::<Window>().unwrap_err();
        for text in ["", "s", "fortnight", "9", "1.5h", "-1s", "90 s", "é"] {
            assert!(refusal(text).starts_with("unknown window"), "{text}");
        }
        for text in ["0s", "4294967296s", "99999999999999999999s", "50000d"] {
            assert_eq!(refusal(text), "a window is 1 s to 366 days long", "{text}");
        }
        for (text, given) in [("367d", 31_708_800), ("31622401s", 31_622_401)] {
            let expected = format!("a window of {given} s is longer than the longest, 366 days (31622400 s)");
            assert_eq!(refusal(text), expected, "{text}");
        }
        for text in ["366d", "31622400s", "8784h"] {
            assert_eq!(text.parse(), Ok(Window::of_seconds(NonZeroU32::new(31_622_400).unwrap())), "{text}");
        }
    }
}
