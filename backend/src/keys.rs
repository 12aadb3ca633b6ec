//! Keys as operators name them: plans, limits, and the list that the gateway's configuration takes.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::store::{KeyRecord, Limits};

/// The units of a quota's window.
const UNITS: [&str; 5] = ["second", "minute", "hour", "day", "month"];
/// Longest name of a plan or class.
const MAX_NAME: usize = 32;

/// Plans whose quotas are agreed with each customer, so that the gateway has none for them.
const CUSTOM_PLANS: [&str; 1] = ["enterprise"];
/// The class of all requests that are in no other. A key without a quota for it could do nothing, so the gateway refuses a
/// configuration that has one.
const DEFAULT_CLASS: &str = "standard";

/// A plan, class or quota that the gateway would not understand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimits {
    /// Not a name.
    #[error("{name:?}: expected 1 to {MAX_NAME} of a-z, 0-9, _ and -")]
    Name {
        /// What was given.
        name: String,
    },
    /// No `=` between class and quota.
    #[error("{limit:?}: expected <class>=<quota>, such as standard=5000/minute")]
    NoClass {
        /// What was given.
        limit: String,
    },
    /// A key that would have no quota at all.
    #[error(
        "the plan {plan} has no quotas of its own: name the key's, at least {DEFAULT_CLASS}=<count>/<unit>"
    )]
    Missing {
        /// The plan.
        plan: String,
    },
    /// Not a quota.
    #[error(
        "{class}: {quota:?}: expected a count from 1 to 4294967295, / and second, minute, hour, day or month"
    )]
    Quota {
        /// Whose quota it is.
        class: String,
        /// What was given.
        quota: String,
    },
}

/// Checks the name of a plan: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
///
/// # Errors
/// [`InvalidLimits::Name`] if it is none.
pub fn parse_plan(name: &str) -> Result<String, InvalidLimits> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        return Err(InvalidLimits::Name { name: name.to_owned() });
    }
    Ok(name.to_owned())
}

/// Reads `standard=5000/minute,analytics=20/second`. A class that is named again gets another quota.
///
/// # Errors
/// [`InvalidLimits`] at the first part that is not understood.
pub fn parse_limits(text: &str) -> Result<Limits, InvalidLimits> {
    let mut limits = Limits::new();
    for part in text.split(',').map(str::trim) {
        let (class, quota) =
            part.split_once('=').ok_or_else(|| InvalidLimits::NoClass { limit: part.to_owned() })?;
        let class = parse_plan(class.trim())?;
        let quota = quota.trim();
        let understood = quota.split_once('/').is_some_and(|(count, unit)| {
            count.bytes().all(|byte| byte.is_ascii_digit())
                && count.parse::<NonZeroU32>().is_ok()
                && UNITS.contains(&unit)
        });
        if !understood {
            return Err(InvalidLimits::Quota { class, quota: quota.to_owned() });
        }
        limits.entry(class).or_default().push(quota.to_owned());
    }
    Ok(limits)
}

/// Checks that a key of a plan whose quotas are agreed with each customer brings its own.
///
/// # Errors
/// [`InvalidLimits::Missing`] if it does not.
pub fn check_limits(plan: &str, limits: Option<&Limits>) -> Result<(), InvalidLimits> {
    let has_quota = limits.is_some_and(|limits| limits.contains_key(DEFAULT_CLASS));
    if CUSTOM_PLANS.contains(&plan) && !has_quota {
        return Err(InvalidLimits::Missing { plan: plan.to_owned() });
    }
    Ok(())
}

/// A key as an entry of the gateway's `subscribers`. Every key is a subscriber of its own, since quotas are per key.
#[derive(Clone, Debug, Serialize)]
pub struct Subscriber {
    id: String,
    plan: String,
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
}

impl From<KeyRecord> for Subscriber {
    fn from(key: KeyRecord) -> Self {
        Self { id: key.id, plan: key.plan, keys: vec![format!("sha256:{}", key.sha256)], limits: key.limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_class_by_class() {
        let limits = parse_limits("standard=5000/minute, analytics=20/second,standard=100000/day").unwrap();
        assert_eq!(limits["standard"], ["5000/minute", "100000/day"]);
        assert_eq!(limits["analytics"], ["20/second"]);
    }

    #[test]
    fn what_the_gateway_would_refuse_is_refused_here() {
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
