//! API keys in the command and in the gateway's configuration: plans, limits and subscribers.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::store::{KeyRecord, Limits};

/// The units of a quota's window.
const UNITS: [&str; 5] = ["second", "minute", "hour", "day", "month"];
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
    #[error("{name:?}: expected 1 to {MAX_NAME} of a-z, 0-9, _ and -")]
    Name {
        /// The input.
        name: String,
    },
    /// The `=` between class and quota is missing.
    #[error("{limit:?}: expected <class>=<quota>, such as standard=5000/minute")]
    NoClass {
        /// The input.
        limit: String,
    },
    /// The gateway does not know the plan.
    #[error("--plan {plan}: no such plan. Expected {}; --plans changes them", one_of(plans))]
    UnknownPlan {
        /// The plan.
        plan: String,
        /// The plans that the gateway knows.
        plans: Vec<String>,
    },
    /// The plan has no default quotas and the key has none either.
    #[error(
        "--limits: the plan {plan} has no default quotas: set those of the key, at least {DEFAULT_CLASS}=<count>/<unit>"
    )]
    Missing {
        /// The plan.
        plan: String,
    },
    /// The quota is invalid.
    #[error(
        "{class}: {quota:?}: expected a count from 1 to 4294967295, / and second, minute, hour, day or month"
    )]
    Quota {
        /// The class of the quota.
        class: String,
        /// The input.
        quota: String,
    },
}

/// The words of a choice: `a, b or c`.
fn one_of(words: &[String]) -> String {
    match words {
        [others @ .., before, last] => {
            let others: String = others.iter().flat_map(|word| [word.as_str(), ", "]).collect();
            format!("{others}{before} or {last}")
        }
        words => words.concat(),
    }
}

/// Checks the name of a plan or class: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
///
/// # Errors
/// [`InvalidLimits::Name`] if the name is invalid.
pub fn parse_name(name: &str) -> Result<String, InvalidLimits> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        return Err(InvalidLimits::Name { name: name.to_owned() });
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
        let (class, quota) =
            part.split_once('=').ok_or_else(|| InvalidLimits::NoClass { limit: part.to_owned() })?;
        let class = parse_name(class.trim())?;
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

/// Checks that the gateway knows a plan, and that a key has quotas if its plan has no default quotas.
///
/// # Errors
/// [`InvalidLimits::UnknownPlan`] or [`InvalidLimits::Missing`].
pub fn check_plan(plan: &str, plans: &[String], limits: Option<&Limits>) -> Result<(), InvalidLimits> {
    if !plans.iter().any(|known| known == plan) {
        return Err(InvalidLimits::UnknownPlan { plan: plan.to_owned(), plans: plans.to_owned() });
    }
    let has_quota = limits.is_some_and(|limits| limits.contains_key(DEFAULT_CLASS));
    if CUSTOM_PLANS.contains(&plan) && !has_quota {
        return Err(InvalidLimits::Missing { plan: plan.to_owned() });
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
    fn limits_are_parsed_by_class() {
        let limits = parse_limits("standard=5000/minute, analytics=20/second,standard=100000/day").unwrap();
        assert_eq!(limits["standard"], ["5000/minute", "100000/day"]);
        assert_eq!(limits["analytics"], ["20/second"]);
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
