//! The grammar of quotas: `60/minute`, or an object with more.

use core::num::NonZeroU32;
use core::str::FromStr;

#[cfg(feature = "schema")]
use serde_json::json;

use super::leaf::{Name, Span, Units, duration};
#[cfg(feature = "schema")]
use crate::count::entry::MAX_QUOTAS;
use crate::count::rate::LONGEST_BURST;
use crate::quota::Mode;
use crate::read::error::{At as _, ConfigError};
use crate::read::{Entries, Value, fields, forms};
use crate::window::{DAY, MAX_RATE, UNITS, Window};

/// A quota as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaTerms {
    /// Units in a window, the burst of a rate, or requests in flight.
    pub limit: Units,
    /// The window, the rate, or how long a request in flight is counted.
    pub window: Window,
    /// The name, if it is given.
    pub name: Option<Name>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Whether refunds credit it.
    pub refundable: bool,
}

fields! {
    /// At most so many units in each window.
    struct InWindow as "WindowQuota" derive() {
        /// Units in a window. It is at least the cost of the class.
        limit: Units,
        /// `second`, `minute`, `hour`, `day` (UTC), `week` (from Monday on, UTC), `month` or `year` (UTC calendar), `billing_month` or `billing_year`
        /// (from the subscriber's `billing_anchor` on), or a duration such as `90s`, `5m`, `2h` or `7d`, of at most 366 days.
        window: Window,
        /// Name of the quota in the IETF headers: 1 to 32 of `a-z`, `0-9`, `_` and `-`. The default is the name of the class, followed by
        /// the window if the class has several quotas.
        name: Option<Name>,
        /// Whether the quota refuses requests.
        mode: Mode = "enforced",
        /// Whether refunds also credit this quota. `false` protects the upstream from clients that retry what fails.
        refundable: bool = true,
    }
}

fields! {
    /// At most so many requests at once that this gateway has admitted and that have not ended, whatever they cost.
    struct InFlight as "InFlightQuota" derive() {
        /// Requests at once.
        in_flight: Requests,
        /// For how long a request is counted at the longest: `8s` to `24h`. If a VM of the gateway dies, the places of its requests are free after this time and
        /// an eighth of it. A change begins a new count.
        longest: Span<1_000, 8, DAY> = "5m",
        /// Name of the quota in the IETF headers. The default is the name of the class, followed by `-in-flight` if the class has several quotas.
        name: Option<Name>,
        /// Whether the quota refuses requests. In shadow mode it counts what it would have admitted.
        mode: Mode = "enforced",
    }
}

fields! {
    /// At most so many units at once, which flow back at a rate: in any time, at most `burst` units and those that flow back in it.
    struct AtRate as "RateQuota" derive() {
        /// How many units flow back in a `second`, `minute`, `hour` or `day`, such as `10/second`; at most 1,000,000. A change begins a new count.
        rate: UnitsPerTime,
        /// Units at once. It is at least the cost of the class, and all of them are back within 366 days.
        burst: Units,
        /// Name of the quota in the IETF headers. The default is the name of the class, followed by `-rate` if the class has several quotas.
        name: Option<Name>,
        /// Whether the quota refuses requests. In shadow mode it counts what it would have admitted.
        mode: Mode = "enforced",
        /// Whether refunds also credit this quota.
        refundable: bool = true,
    }
}

/// Requests at once. The count of those that begin in a slot of time is a `u16`.
struct Requests(Units);

forms! {
    Requests: "a whole number from 1 to 65535", |_definitions| json!({"type": "integer", "minimum": 1, "maximum": u16::MAX});
    Value::Number(Some(requests @ 1..=0xFFFF)) => Ok(Self(Units(NonZeroU32::MIN.saturating_add(requests - 1)))),
}

/// Units that flow back, and in which of [`UNITS`].
#[derive(Clone, Copy)]
struct UnitsPerTime(u32, u32);

forms! {
    UnitsPerTime: r#"a rate such as "10/second""#,
    |_definitions| json!({"type": "string", "pattern": format!("^{LIMIT}/(second|minute|hour|day)$")});
    Value::Text(text) => text.parse().map_err(|problem: &str| ConfigError::new(problem)),
}

impl FromStr for UnitsPerTime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (units, time) = text.split_once('/').ok_or("expected <units>/<time>, for example 10/second")?;
        let units = whole(units).map(NonZeroU32::get).filter(|units| *units <= MAX_RATE);
        let units = units.ok_or("the units must be a whole number from 1 to 1000000")?;
        let time = UNITS.iter().take(4).position(|(name, ..)| *name == time);
        let time = time.ok_or("unknown time, expected second, minute, hour or day")?;
        Ok(Self(units, u32::try_from(time).unwrap_or_default()))
    }
}

impl From<InWindow> for QuotaTerms {
    fn from(InWindow { limit, window, name, mode, refundable }: InWindow) -> Self {
        Self { limit, window, name, mode, refundable }
    }
}

impl From<InFlight> for QuotaTerms {
    fn from(InFlight { in_flight: Requests(limit), longest: Span(longest), name, mode }: InFlight) -> Self {
        let window = Window::of_longest(longest, mode == Mode::Shadow);
        Self { limit, window, name, mode, refundable: true }
    }
}

impl TryFrom<AtRate> for QuotaTerms {
    type Error = ConfigError;

    fn try_from(quota: AtRate) -> Result<Self, ConfigError> {
        let AtRate { rate: UnitsPerTime(units, time), burst, name, mode, refundable } = quota;
        let window = Window::of_rate(units, time, mode == Mode::Shadow);
        let takes = window.flows_back().map_or(0, |unit| unit.get().saturating_mul(burst.0.get().into()));
        if takes > LONGEST_BURST {
            return Err(ConfigError::new(
                "the units of a burst are back within 366 days; raise the rate, or lower the burst",
            ))
            .at("burst");
        }
        Ok(Self { limit: burst, window, name, mode, refundable })
    }
}

const QUOTA: &str = r#"a quota such as "60/minute", {"limit": 60, "window": "90s"}, {"rate": "10/second", "burst": 20} or {"in_flight": 10}"#;

forms! {
    QuotaTerms: QUOTA,
    |definitions| {
        let text = json!({"type": "string", "pattern": format!("^{LIMIT}/({UNIT})$")});
        let doc = "What may be used: a text such as `\"60/minute\"`, a limit in a window, a rate with a burst, or requests in flight. The text takes a limit and `second`, `minute`, `hour`, `day`, `week`, `month`, `year`, `billing_month` or `billing_year`.";
        let forms = json!([text, InWindow::schema(definitions), AtRate::schema(definitions), InFlight::schema(definitions)]);
        definitions.define("Quota", doc, json!({"anyOf": forms}))
    };
    Value::Text(text) => text.parse().map_err(|problem: &str| ConfigError::new(problem)),
    Value::Object(fields) if fields.iter().any(|(name, _)| name == "rate") => AtRate::read(Value::Object(fields))?.try_into(),
    Value::Object(fields) if fields.iter().any(|(name, _)| name == "in_flight") => InFlight::read(Value::Object(fields)).map(Into::into),
    Value::Object(fields) => InWindow::read(Value::Object(fields)).map(Into::into),
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
        let limit = whole(limit).ok_or("the limit must be a whole number from 1 to 4294967295")?;
        let window =
            Window::named(unit).ok_or("unknown unit, expected second, minute, hour, day, week, month, year, billing_month or billing_year")?;
        Ok(Self { limit: Units(limit), window, name: None, mode: Mode::Enforced, refundable: true })
    }
}

/// A number that has no sign.
fn whole(text: &str) -> Option<NonZeroU32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
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
        let doc = format!("Up to {MAX_QUOTAS} quotas, all of which apply, or `\"unlimited\"`. Two quotas of the same mode have different windows, or rates.");
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
