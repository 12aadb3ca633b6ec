//! Classes, plans, and the quotas that a plan has in each class.

use std::sync::Arc;

use super::cost::{CostSource, Refund};
use super::error::{ConfigError, Step};
use super::problem::Problem;
use super::rate::{Grant, QuotaTerms};
use super::raw;
use super::requests::Paths;
use crate::count::entry::MAX_QUOTAS;
use crate::decide::outcome::NO_PLAN;
use crate::quota::{Quota, QuotaSet};
use crate::request::classes::Match;

/// A class of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The class's name.
    pub name: String,
    /// Units that a request consumes when it arrives; at least 1.
    pub cost: u32,
    /// Where the actual cost of a request is, if it is known only after the response.
    pub actual: Option<CostSource>,
    /// Responses that give back what their request was charged.
    pub refund: Refund,
    /// Requests of this class, unless an earlier class matches them.
    pub matches: Vec<Match>,
}

impl Class {
    /// A class whose requests cost one unit, and that nothing matches.
    pub(super) fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), cost: 1, actual: None, refund: Refund::default(), matches: Vec::new() }
    }

    /// Whether a response, or the end of a stream, may change what a request of this class was charged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.actual.is_some() || !self.refund.is_empty()
    }
}

/// What a plan, or a subscriber's limits, allow in a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entitlement {
    /// The class is not in the plan.
    NotInPlan,
    /// No quota limits the class.
    Unlimited,
    /// All of these quotas limit the class.
    Quotas(Arc<QuotaSet>),
}

impl Entitlement {
    /// The quotas, none if the class is not in the plan or unlimited.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        match self {
            Self::NotInPlan | Self::Unlimited => &[],
            Self::Quotas(quotas) => quotas.quotas(),
        }
    }
}

/// An entitlement for each class, in the order of the classes.
pub type Entitlements = Arc<[Entitlement]>;

pub(super) const NAME: &str = "1 to 32 of a-z, 0-9, _ and -";
const PLAN_NAME: &str = "1 to 64 of A-Z, a-z, 0-9, _ and -, and not \"none\", which is the plan of strangers";

pub(super) fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

fn is_plan_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name != NO_PLAN
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Refuses a name that is not `valid`; `expected` describes a valid one.
pub(super) fn check_name(
    name: &str,
    expected: &'static str,
    valid: fn(&str) -> bool,
) -> Result<(), ConfigError> {
    if valid(name) { Ok(()) } else { Err(ConfigError::new("", Problem::Name { expected }).given(name)) }
}

/// The classes, among them the default class, and the default class's index.
pub(super) fn classes(
    raw: Vec<raw::Class>,
    default: &str,
    paths: &Paths,
) -> Result<(Vec<Class>, usize), ConfigError> {
    let mut classes: Vec<Class> = Vec::new();
    for (index, class) in raw.into_iter().enumerate() {
        let class =
            check_class(class, &classes, paths).map_err(|error| error.within(index).within("classes"))?;
        classes.push(class);
    }
    let default_class = match classes.iter().position(|class| class.name == default) {
        Some(index) => index,
        None => {
            check_name(default, NAME, is_name).map_err(|error| error.within("default_class"))?;
            classes.push(Class::plain(default));
            classes.len() - 1
        }
    };
    Ok((classes, default_class))
}

fn check_class(raw: raw::Class, others: &[Class], paths: &Paths) -> Result<Class, ConfigError> {
    check_name(&raw.name, NAME, is_name).map_err(|error| error.within("name"))?;
    if others.iter().any(|other| other.name == raw.name) {
        return Err(ConfigError::new("name", Problem::Duplicate).given(raw.name));
    }
    let (cost, actual) = raw.cost.check().map_err(|error| error.within("cost"))?;
    let refund =
        raw.refund.map(|refund| refund.check().map_err(|error| error.within("refund"))).transpose()?;
    let matches = paths.matches(raw.matches).map_err(|error| error.within("match"))?;
    Ok(Class { name: raw.name, cost, actual, refund: refund.unwrap_or_default(), matches })
}

/// The plans' names and entitlements.
pub(super) fn plans(
    raw: raw::Entries<raw::Grants>,
    classes: &[Class],
) -> Result<Vec<(String, Entitlements)>, ConfigError> {
    if raw.0.is_empty() {
        return Err(ConfigError::new("", Problem::NoneGiven));
    }
    let plan = |(name, limits): (String, raw::Grants)| {
        check_name(&name, PLAN_NAME, is_plan_name)?;
        let none = vec![Entitlement::NotInPlan; classes.len()];
        let granted = entitlements(&limits.0, none, classes)
            .map(Into::into)
            .map_err(|error| error.within(Step::Name(name.clone())))?;
        Ok((name, granted))
    };
    raw.0.into_iter().map(plan).collect()
}

/// `base`, with the classes that `limits` names replaced.
pub(super) fn entitlements(
    limits: &[(String, Grant)],
    mut base: Vec<Entitlement>,
    classes: &[Class],
) -> Result<Vec<Entitlement>, ConfigError> {
    for (name, grant) in limits {
        let mut entitlements = classes.iter().zip(&mut base);
        let granted = match entitlements.find(|(class, _)| class.name == *name) {
            Some((class, entitlement)) => match grant {
                Grant::Unlimited => Ok(Entitlement::Unlimited),
                Grant::Quotas(list) => quota_set(list, class).map(Entitlement::Quotas),
            }
            .map(|granted| *entitlement = granted),
            None => {
                let expected = classes.iter().map(|class| class.name.clone()).collect();
                Err(ConfigError::new("", Problem::Unknown { kind: "class", expected }))
            }
        };
        granted.map_err(|error| error.within(Step::Name(name.clone())))?;
    }
    Ok(base)
}

/// The quotas of a class.
pub(super) fn quota_set(raw: &[QuotaTerms], class: &Class) -> Result<Arc<QuotaSet>, ConfigError> {
    Ok(Arc::new(QuotaSet::new(quotas(raw, class, &class.name)?)))
}

/// As [`quota_set`]. A quota without a name gets `default_name`, followed by the window if there are several quotas.
pub(super) fn quotas(
    raw: &[QuotaTerms],
    class: &Class,
    default_name: &str,
) -> Result<Vec<Quota>, ConfigError> {
    if raw.is_empty() {
        return Err(ConfigError::new("", Problem::NoneGiven));
    }
    if raw.len() > MAX_QUOTAS {
        return Err(ConfigError::new("", Problem::TooManyQuotas(raw.len())));
    }
    let single = raw.len() == 1;
    let mut quotas: Vec<Quota> = Vec::with_capacity(raw.len());
    for (index, QuotaTerms { limit, window, name, mode, refundable }) in raw.iter().enumerate() {
        let (limit, window, mode, refundable) = (*limit, *window, *mode, *refundable);
        let refuse = |problem| Err(ConfigError::new("", problem).within(index));
        let name = match name {
            Some(name) => {
                check_name(name, NAME, is_name).map_err(|error| error.within("name").within(index))?;
                name.clone()
            }
            None if single => default_name.to_owned(),
            None => format!("{default_name}-{}", window.short_name()),
        };
        if quotas.iter().any(|other| other.name == name) {
            return Err(ConfigError::new("name", Problem::Duplicate).given(name).within(index));
        }
        if quotas.iter().any(|other| other.window == window && other.mode == mode) {
            return refuse(Problem::SameWindow);
        }
        if quotas.iter().any(|other| other.window == window && other.refundable != refundable) {
            return refuse(Problem::SharedCount);
        }
        if limit.get() < class.cost {
            let (class, cost, reserved) = (class.name.clone(), class.cost, class.actual.is_some());
            return refuse(match reserved {
                true => Problem::ReserveOverLimit { class, reserve: cost },
                false => Problem::CostOverLimit { class, cost },
            });
        }
        quotas.push(Quota { name, limit, window, mode, refundable });
    }
    Ok(quotas)
}

#[cfg(test)]
mod tests;
