//! API keys in the command and in the gateway's configuration: plans, limits and subscribers.

use std::num::NonZeroU32;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

use crate::store::{KeyRecord, Limits, Terms};

/// The units of a quota's window.
const UNITS: [&str; 9] =
    ["second", "minute", "hour", "day", "week", "month", "year", "billing_month", "billing_year"];
/// Maximum length of the name of a plan or class.
const MAX_NAME: usize = 32;

/// Plans whose quotas are set per key, because the gateway has no quotas for these plans.
const CUSTOM_PLANS: [&str; 1] = ["enterprise"];
/// The class of requests that match no other class. The gateway refuses a subscriber without a quota for this class.
const DEFAULT_CLASS: &str = "standard";

/// A plan, class or quota that the gateway would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimits {
    /// The name is invalid.
    #[error("{0:?}: expected 1 to {MAX_NAME} of a-z, 0-9, _ and -")]
    Name(String),
    /// The `=` between class and quota is missing.
    #[error("{0:?}: expected <class>=<quota>, such as standard=5000/minute")]
    NoClass(String),
    /// The gateway knows other plans.
    #[error("--plan {0}: no such plan. Expected one of {plans}; --plans changes them", plans = .1.join(", "))]
    UnknownPlan(String, Vec<String>),
    /// The plan has no default quotas and the key has none either.
    #[error(
        "--limits: the plan {0} has no default quotas: set those of the key, at least {DEFAULT_CLASS}=<count>/<unit>"
    )]
    Missing(String),
    /// The text is not JSON, or not that of limits.
    #[error(r#"expected quotas by class, as `limits` of a subscriber in the gateway's configuration, such as {{"standard": ["5000/minute"]}}: {0}"#)]
    Json(String),
    /// The text is not an instant.
    #[error(
        "{0:?}: expected an instant such as 2026-01-31T09:30:00Z, or a date such as 2026-01-31, from 1970 on"
    )]
    Instant(String),
    /// The quota of a class is invalid.
    #[error("{0}: {1:?}: expected a count from 1 to 4294967295, / and {units}", units = UNITS.join(", "))]
    Quota(String, String),
}

/// Checks the name of a plan or class: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
///
/// # Errors
/// [`InvalidLimits::Name`] if the name is invalid.
pub fn parse_name(name: &str) -> Result<String, InvalidLimits> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        return Err(InvalidLimits::Name(name.to_owned()));
    }
    Ok(name.to_owned())
}

/// Parses `standard=5000/minute,analytics=20/second`. A class may occur several times, with one quota each.
///
/// # Errors
/// [`InvalidLimits`] for the first invalid part.
pub fn parse_limits(text: &str) -> Result<Limits, InvalidLimits> {
    let mut limits = Limits::new();
    for part in text.split(',').map(str::trim) {
        let (class, quota) = part.split_once('=').ok_or_else(|| InvalidLimits::NoClass(part.to_owned()))?;
        let class = parse_name(class.trim())?;
        let quota = quota.trim();
        let understood = quota.split_once('/').is_some_and(|(count, unit)| {
            count.bytes().all(|byte| byte.is_ascii_digit())
                && count.parse::<NonZeroU32>().is_ok()
                && UNITS.contains(&unit)
        });
        if !understood {
            return Err(InvalidLimits::Quota(class, quota.to_owned()));
        }
        let quotas = limits.entry(class).or_insert_with(|| Value::Array(Vec::new()));
        quotas.as_array_mut().into_iter().for_each(|quotas| quotas.push(quota.into()));
    }
    Ok(limits)
}

/// Reads limits as the gateway's configuration has them: `{"standard": ["5000/minute", {"limit": 9, "window": "90s"}], "analytics": "unlimited"}`.
/// The gateway alone knows all kinds of quotas, and `weir check` says what it thinks of them.
///
/// # Errors
/// [`InvalidLimits::Json`], or [`InvalidLimits::Name`] of a class.
pub fn read_limits(json: &[u8]) -> Result<Limits, InvalidLimits> {
    let problem = InvalidLimits::Json;
    let limits: Limits = serde_json::from_slice(json).map_err(|error| problem(error.to_string()))?;
    for (class, quotas) in &limits {
        parse_name(class)?;
        let is_list = |list: &Vec<Value>| {
            !list.is_empty() && list.iter().all(|quota| quota.is_string() || quota.is_object())
        };
        if quotas != "unlimited" && !quotas.as_array().is_some_and(is_list) {
            return Err(problem(format!("{class} has neither a list of quotas nor \"unlimited\"")));
        }
    }
    if limits.is_empty() {
        return Err(problem("there is no class in it".to_owned()));
    }
    Ok(limits)
}

/// Parses an instant at which a billing period begins. A date alone is its 00:00 UTC.
///
/// # Errors
/// [`InvalidLimits::Instant`].
pub fn parse_anchor(text: &str) -> Result<Timestamp, InvalidLimits> {
    let of_date = |date: Date| Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
    // A longer text may have a time without an offset, which is no instant, and which would be left out.
    let date = || text.parse().ok().filter(|date: &Date| date.to_string() == text).and_then(of_date);
    let instant = text.parse().ok().or_else(date);
    let whole = |instant: Timestamp| Timestamp::from_second(instant.as_second()).ok();
    let instant = instant.filter(|instant: &Timestamp| instant.as_second() >= 0).and_then(whole);
    instant.ok_or_else(|| InvalidLimits::Instant(text.to_owned()))
}

/// Checks that the gateway knows a plan, and that a key has quotas if its plan has no default quotas.
///
/// # Errors
/// [`InvalidLimits::UnknownPlan`] or [`InvalidLimits::Missing`].
pub fn check_plan(plan: &str, plans: &[String], limits: Option<&Limits>) -> Result<(), InvalidLimits> {
    if !plans.iter().any(|known| known == plan) {
        return Err(InvalidLimits::UnknownPlan(plan.to_owned(), plans.to_owned()));
    }
    let has_quota = limits.is_some_and(|limits| limits.contains_key(DEFAULT_CLASS));
    if CUSTOM_PLANS.contains(&plan) && !has_quota {
        return Err(InvalidLimits::Missing(plan.to_owned()));
    }
    Ok(())
}

/// A key as an entry of `subscribers` in the gateway's configuration. Each key is a separate subscriber, because quotas
/// apply per key.
#[derive(Clone, Debug, Serialize)]
pub struct Subscriber {
    id: String,
    plan: String,
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    billing_anchor: Option<Timestamp>,
}

impl From<KeyRecord> for Subscriber {
    fn from(key: KeyRecord) -> Self {
        let Terms { plan, limits, billing_anchor } = key.terms;
        Self { id: key.id, plan, keys: vec![format!("sha256:{}", key.sha256)], limits, billing_anchor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_by_class() {
        let limits =
            parse_limits("standard=5000/minute, analytics=20/second,standard=9/billing_month").unwrap();
        let expected =
            serde_json::json!({"standard": ["5000/minute", "9/billing_month"], "analytics": ["20/second"]});
        assert_eq!(Value::Object(limits), expected);
    }

    #[test]
    fn limits_of_any_kind_are_read_as_the_gateway_has_them() {
        let taken = r#"{"standard": ["5/week", {"limit": 9, "window": "90s"}], "analytics": "unlimited"}"#;
        assert_eq!(Value::Object(read_limits(taken.as_bytes()).unwrap()), taken.parse::<Value>().unwrap());
        for text in [
            "",
            "[]",
            "{}",
            r#"{"standard": []}"#,
            r#"{"standard": [5]}"#,
            r#"{"standard": "5/week"}"#,
            r#"{"Standard": ["5/week"]}"#,
        ] {
            assert!(read_limits(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_billing_period_begins_at_a_whole_second_in_utc() {
        let rows = [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31T09:30:00.5Z", "2026-01-31T09:30:00Z"),
            ("2026-01-31T00:30:00+01:00", "2026-01-30T23:30:00Z"),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_anchor(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "the 31st", "2026-02-30", "1969-12-31", "2026-01-31T09:30"] {
            assert!(parse_anchor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_that_the_gateway_would_refuse_are_refused() {
        for text in [
            "",
            "standard",
            "standard=",
            "=60/minute",
            "Standard=60/minute",
            "standard=60",
            "standard=0/minute",
            "standard=+6/minute",
            "standard=-6/minute",
            "standard=4294967296/minute",
            "standard=60/fortnight",
            "standard=60/minutes",
            "standard=60/minute,",
        ] {
            assert!(parse_limits(text).is_err(), "{text:?}");
        }
    }
}
