//! Classes, plans, and the quotas that a plan has in each class.

use std::sync::Arc;

use super::cost::{Cost, Refund};
use super::leaf::{Name, PlanName};
use super::quota::{Grant, Grants, QuotaTerms};
use super::requests::Match;
use crate::count::entry::MAX_QUOTAS;
use crate::quota::{Quota, QuotaSet};
use crate::read::error::{At as _, ConfigError, Instead, Quoted, differ, each};
use crate::read::{Entries, fields};
use crate::request::readings::Readings;
use crate::window::Anchor;

/// The plan under which requests without a known key are counted in metrics. No plan of a configuration has this name.
pub const NO_PLAN: &str = "none";

fields! {
    /// A group of endpoints that share quotas.
    pub struct Class as "Class" derive(Clone, Debug, PartialEq, Eq) {
        /// Name of the class: 1 to 32 of `a-z`, `0-9`, `_` and `-`.
        pub name: Name,
        /// Units that a request of this class consumes. With an object, a request reserves units, and its actual cost takes their place once it is
        /// known.
        pub cost: Cost = 1,
        /// Responses that give back what their request was charged.
        pub refund: Option<Refund>,
        /// Requests of this class. A class without a match can be the default class.
        pub matches as "match": Vec<Match> = [],
    }
}

impl Class {
    /// A class whose requests cost one unit, and that nothing matches.
    pub(super) const fn plain(name: Name) -> Self {
        Self { name, cost: Cost::ONE, refund: None, matches: Vec::new() }
    }

    /// Units that a request consumes when it arrives; at least 1.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.cost.units.get()
    }

    /// Whether a response, or the end of a stream, may change what a request of this class was charged.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.cost.actual.is_some() || self.refund.is_some()
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

    /// The same for a subscriber and its organisation whose billing periods begin there.
    pub(super) fn anchored(&self, own: Option<Anchor>, shared: Option<Anchor>) -> Self {
        let Self::Quotas(quotas) = self else { return self.clone() };
        let anchored = quotas.anchored(own, shared).map(Arc::new);
        Self::Quotas(anchored.unwrap_or_else(|| Arc::clone(quotas)))
    }
}

/// An entitlement for each class, in the order of the classes.
pub type Entitlements = Arc<[Entitlement]>;

/// The classes and plans that terms refer to.
#[derive(Debug)]
pub struct Catalog {
    /// The classes; the default class is one of them.
    pub classes: Vec<Class>,
    /// The class of a request that matches none, as an index into `classes`.
    pub default_class: usize,
    /// The plans' names and entitlements, in the order of the configuration.
    pub plans: Vec<(String, Entitlements)>,
}

impl Catalog {
    /// Checks the fields `plans`, `classes` and `default_class`.
    pub(super) fn check(
        plans: Entries<Grants, PlanName>,
        mut classes: Vec<Class>,
        default_class: &Name,
        readings: &Readings,
    ) -> Result<Self, ConfigError> {
        each(&classes, |class| each(&class.matches, |rule| rule.check(readings)).at("match"))
            .at("classes")?;
        differ("name", classes.iter().map(|class| class.name.as_bytes())).at("classes")?;
        let listed = classes.iter().position(|class| class.name == *default_class);
        let default_class = listed.unwrap_or_else(|| {
            classes.push(Class::plain(default_class.clone()));
            classes.len() - 1
        });
        if plans.0.is_empty() {
            return Err(ConfigError::new("must not be empty")).at("plans");
        }
        let plan = |(PlanName(name), limits): (PlanName, Grants)| {
            let mut granted = vec![Entitlement::NotInPlan; classes.len()];
            for_each_class(&limits, &mut granted, &classes, replace).at(&name)?;
            Ok((name, granted.into()))
        };
        let plans = plans.0.into_iter().map(plan).collect::<Result<_, _>>().at("plans")?;
        Ok(Self { classes, default_class, plans })
    }

    /// Takes over the memory of `earlier` where it holds the same.
    pub(super) fn share_with(&mut self, earlier: &Self) {
        for (name, granted) in &mut self.plans {
            let before = earlier.plans.iter().find(|(plan, before)| plan == name && before == granted);
            if let Some((_, before)) = before {
                *granted = Arc::clone(before);
            }
        }
    }
}

/// Changes the entitlement in each class that `limits` names.
pub(super) fn for_each_class(
    limits: &[(String, Grant)],
    entitlements: &mut [Entitlement],
    classes: &[Class],
    change: fn(&Class, &mut Entitlement, &Grant) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    for (given, grant) in limits {
        let mut both = classes.iter().zip(&mut *entitlements);
        let Some((class, entitlement)) = both.find(|(class, _)| *class.name == **given) else {
            let names: Vec<_> = classes.iter().map(|class| &*class.name).collect();
            let unknown = format!("unknown class, {}", Instead { given, names: &names });
            return Err(ConfigError::new(unknown)).at(given);
        };
        change(class, entitlement, grant).at(given)?;
    }
    Ok(())
}

/// Puts what is granted in a class in the place of what was.
pub(super) fn replace(
    class: &Class,
    entitlement: &mut Entitlement,
    grant: &Grant,
) -> Result<(), ConfigError> {
    *entitlement = match grant {
        Grant::Unlimited => Entitlement::Unlimited,
        Grant::Quotas(list) => Entitlement::Quotas(quota_set(list, class)?),
    };
    Ok(())
}

/// The quotas of a class.
pub(super) fn quota_set(list: &[QuotaTerms], class: &Class) -> Result<Arc<QuotaSet>, ConfigError> {
    Ok(Arc::new(QuotaSet::new(quotas(list, class, &class.name)?)))
}

/// As [`quota_set`]. A quota without a name gets `default_name`, followed by the window if there are several quotas.
pub(super) fn quotas(
    list: &[QuotaTerms],
    class: &Class,
    default_name: &str,
) -> Result<Vec<Quota>, ConfigError> {
    match list.len() {
        0 => return Err(ConfigError::new("must not be empty")),
        1..=MAX_QUOTAS => {}
        more => return Err(ConfigError::new(format!("{more} quotas, at most {MAX_QUOTAS} are possible"))),
    }
    let mut quotas: Vec<Quota> = Vec::with_capacity(list.len());
    for (index, QuotaTerms { limit, window, name, mode, refundable }) in list.iter().enumerate() {
        let quota = Quota {
            name: match name {
                Some(name) => name.to_string(),
                None if list.len() == 1 => default_name.to_owned(),
                None => format!("{default_name}-{}", window.name()),
            },
            limit: limit.0,
            window: *window,
            mode: *mode,
            refundable: *refundable,
        };
        if let Some(problem) = contradiction(&quota, &quotas, class) {
            return Err(ConfigError::new(problem)).at(index);
        }
        if quotas.iter().any(|other| other.name == quota.name) {
            let problem = "another quota of this class has the same name";
            return match name {
                Some(name) => Err(ConfigError::new(problem).given(&Quoted(name))).at("name"),
                None => {
                    let name = Quoted(&quota.name);
                    let problem =
                        format!("{problem}, {name}, which this one gets by default; give this one a name");
                    Err(ConfigError::new(problem))
                }
            }
            .at(index);
        }
        quotas.push(quota);
    }
    Ok(quotas)
}

/// Why a quota cannot stand beside others, or in its class.
fn contradiction(quota: &Quota, others: &[Quota], class: &Class) -> Option<String> {
    let mut same_window = others.iter().filter(|other| other.window == quota.window);
    let name = Quoted(&class.name);
    let units = class.units();
    Some(match (same_window.clone().any(|other| other.mode == quota.mode), &class.cost.actual) {
        (true, _) => "another quota of this class has the same window and mode; keep the lower limit".to_owned(),
        _ if same_window.any(|other| other.refundable != quota.refundable) => {
            "another quota of this class has the same window, so they share one count; give both the same value of refundable"
                .to_owned()
        }
        _ if quota.limit.get() >= quota.units(units) => return None,
        (_, Some(_)) => format!(
            "a request of class {name} reserves {units} units (its cost.reserve), more than this limit: none could ever pass"
        ),
        (_, None) => {
            format!("a request of class {name} costs {units}, more than this limit: none could ever pass")
        }
    })
}

#[cfg(test)]
mod tests;
