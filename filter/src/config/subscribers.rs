//! The entitlements of known keys: a roster of keys, resolved by the plans and classes of a configuration.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use super::digest::KeyHash;
use super::entries::repeated;
use super::error::{At as _, ConfigError};
use super::error::{Instead, Quoted};
use super::plans::{Catalog, Class, Entitlement, Entitlements, entitlements, for_each_class, quotas};
use super::rate::{Grant, Grants};
use super::roster::{Known, ParentTerms, Roster, RosterBuilder, Terms};
use crate::count::entry::MAX_QUOTAS;
use crate::count::fingerprint::{KeyDigest, Who};
use crate::quota::{Quota, QuotaSet};

/// Most keys that a configuration lists. Every VM holds them once for each configuration that differs, and a VM that runs out of memory
/// while it is configured leaves its gateway without limits.
const MAX_KEYS: usize = 10_000;

/// The owner of keys.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    /// Unique id.
    id: String,
    /// Name of a plan.
    plan: String,
    /// SHA-256 of each key, as `sha256:` and 64 hexadecimal digits. A plain key is refused.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = [])))]
    keys: Vec<KeyHash>,
    /// Quotas by class that replace those of the plan. Classes that are not named here keep the plan's quotas.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = {})))]
    limits: Grants,
    /// The organisation that the subscriber belongs to. A request is charged to the quotas of its key and to those of the organisation.
    parent: Option<ParentTerms>,
}

/// The owner of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// Each key has a separate quota.
    #[default]
    Key,
    /// The keys of a subscriber share one quota.
    Subscriber,
}

impl CountBy {
    /// Who is counted for requests with this key.
    #[must_use]
    pub fn who(self, key: Known<'_>) -> Who<'_> {
        match self {
            Self::Key => Who::Key(key.digest),
            Self::Subscriber => Who::Subscriber(key.subscriber),
        }
    }
}

/// A roster's keys and their entitlements.
#[derive(Debug)]
pub struct Subscribers {
    roster: Arc<Roster>,
    /// The agreement of each of the roster's terms; `None` for terms that this configuration has no plan or class for.
    agreements: Arc<[Option<Agreement>]>,
}

/// The plan and the entitlements that terms stand for in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The plan, as an index into [`Catalog::plans`].
    pub plan: usize,
    /// The entitlement in each class.
    pub entitlements: Entitlements,
    /// The organisation that shares quotas, by its id.
    pub organisation: Option<String>,
}

impl Catalog {
    /// Whether the terms of a plan alone stand for an agreement, without making it.
    #[must_use]
    pub fn grants(&self, plan: &str) -> bool {
        let granted = self.plans.iter().find(|(name, _)| *name == plan).map(|(_, granted)| granted);
        let default = granted.and_then(|granted| granted.get(self.default_class));
        default.is_some_and(|given| *given != Entitlement::NotInPlan)
    }

    /// The agreement that `terms` stand for.
    ///
    /// # Errors
    /// If the plan or a class is unknown, or the default class has no quota.
    pub fn agreement(&self, terms: &Terms) -> Result<Agreement, ConfigError> {
        let plan = self.plans.iter().position(|(name, _)| *name == terms.plan);
        let Some((plan, (_, granted))) = plan.and_then(|plan| Some((plan, self.plans.get(plan)?))) else {
            let names: Vec<_> = self.plans.iter().map(|(name, _)| name.as_str()).collect();
            let instead = Instead { given: &terms.plan, names: &names };
            return Err(ConfigError::new(format!("unknown plan, {instead}"))).at("plan");
        };
        let mut given = entitlements(&terms.limits, granted.to_vec(), &self.classes).at("limits")?;
        if given.get(self.default_class).is_none_or(|given| *given == Entitlement::NotInPlan) {
            let class = self.classes.get(self.default_class).map(|class| &*class.name);
            return Err(ConfigError::new(format!(
                "plan {} has no quota for the default class {}, and limits gives none: the subscriber could call nothing",
                Quoted(&terms.plan),
                Quoted(class.unwrap_or_default())
            )));
        }
        let (entitlements, organisation) = match &terms.parent {
            Some(parent) => {
                let shared = for_each_class(&parent.limits, &mut given, &self.classes, &share);
                shared.at("limits").at("parent")?;
                (given.into(), Some(parent.organisation.0.clone()))
            }
            // Those of the plan are in memory once.
            None if terms.limits.is_empty() => (Arc::clone(granted), None),
            None => (given.into(), None),
        };
        Ok(Agreement { plan, entitlements, organisation })
    }
}

/// Adds the quotas of a class that an organisation shares.
fn share(class: &Class, entitlement: &mut Entitlement, grant: &Grant) -> Result<(), ConfigError> {
    let Grant::Quotas(list) = grant else { return Ok(()) };
    let shared = quotas(list, class, ORGANISATION)?;
    let own = match entitlement {
        Entitlement::NotInPlan => return Ok(()),
        Entitlement::Unlimited => Vec::new(),
        Entitlement::Quotas(own) => own.own().to_vec(),
    };
    let is_taken = |quota: &Quota| own.iter().any(|own| own.name == quota.name);
    if let Some(index) = shared.iter().position(is_taken) {
        let problem = "a quota of the subscriber has the same name; give this one another";
        return Err(ConfigError::new(problem)).at(index);
    }
    let both = own.len() + shared.len();
    if both > MAX_QUOTAS {
        let problem =
            format!("{both} quotas with those of the subscriber, at most {MAX_QUOTAS} are possible");
        return Err(ConfigError::new(problem));
    }
    *entitlement = Entitlement::Quotas(Arc::new(QuotaSet::with_shared(own, shared)));
    Ok(())
}

/// The default name of an organisation's quotas.
const ORGANISATION: &str = "organisation";

impl Subscribers {
    /// Resolves a roster by the plans and classes of `catalog`. A key whose terms do not resolve is unknown.
    #[must_use]
    pub fn new(roster: Arc<Roster>, catalog: &Catalog) -> Self {
        let agreements = roster.terms().iter().map(|terms| catalog.agreement(terms).ok()).collect();
        Self { roster, agreements }
    }

    /// Checks the field `subscribers`.
    pub(super) fn check(list: Vec<Subscriber>, catalog: &Catalog) -> Result<Self, ConfigError> {
        let keys = list.iter().map(|subscriber| subscriber.keys.len()).sum::<usize>();
        if keys > MAX_KEYS {
            let problem =
                format!("{keys} keys, at most {MAX_KEYS} are possible here; use directory for more");
            return Err(ConfigError::new(problem));
        }
        if let Some(index) = repeated(list.iter().map(|subscriber| subscriber.id.as_bytes())) {
            return Err(ConfigError::new("given twice")).at("id").at(index);
        }
        let mut roster = RosterBuilder::default();
        let mut owners = HashMap::new();
        let mut organisations = HashMap::new();
        for (index, subscriber) in list.into_iter().enumerate() {
            let Subscriber { id, plan, keys, limits, parent } = subscriber;
            let terms = Terms { plan, limits: limits.0, parent };
            catalog.agreement(&terms).at(index)?;
            if let Some(ParentTerms { organisation, limits }) = &terms.parent {
                let of_first = organisations.entry(organisation.clone());
                let (first, of_first) = of_first.or_insert_with(|| (index, limits.clone()));
                if of_first != limits {
                    let problem = format!("subscribers[{first}] gives the same organisation other limits");
                    return Err(ConfigError::new(problem)).at("limits").at("parent").at(index);
                }
            }
            for (place, KeyHash(digest)) in keys.into_iter().enumerate() {
                if let Some(owner) = owners.insert(digest, index) {
                    let problem = format!("subscribers[{owner}] has the same key");
                    return Err(ConfigError::new(problem)).at(place).at("keys").at(index);
                }
                let added = roster.add(digest, &id, terms.clone());
                added.map_err(|error| ConfigError::new(error.to_string())).at("id").at(index)?;
            }
        }
        let (roster, _) = roster.build();
        Ok(Self::new(Arc::new(roster), catalog))
    }

    /// Takes over the memory of `earlier` where it holds the same.
    pub(super) fn share_with(&mut self, earlier: &Self, catalog: &Catalog) {
        if self.roster == earlier.roster {
            self.roster = Arc::clone(&earlier.roster);
        }
        // By the plans that the catalog has taken over.
        self.agreements = Self::new(Arc::clone(&self.roster), catalog).agreements;
        if self.agreements == earlier.agreements {
            self.agreements = Arc::clone(&earlier.agreements);
        }
    }

    /// The keys.
    #[must_use]
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// A known key and its agreement.
    #[must_use]
    pub fn get(&self, key: &KeyDigest) -> Option<(Known<'_>, &Agreement)> {
        let known = self.roster.at(self.roster.find(key)?)?;
        Some((known, self.agreement(known)?))
    }

    /// The known keys of a subscriber and their agreements, in the order of the list. Looks at all keys.
    #[must_use]
    pub fn keys_of(&self, subscriber: &str) -> Vec<(Known<'_>, &Agreement)> {
        let of_subscriber = self.roster.iter().filter(|known| known.subscriber == subscriber);
        let mut keys: Vec<_> = of_subscriber.collect();
        keys.sort_unstable_by_key(|known| known.position);
        keys.into_iter().filter_map(|known| Some((known, self.agreement(known)?))).collect()
    }

    fn agreement(&self, known: Known<'_>) -> Option<&Agreement> {
        self.agreements.get(known.terms)?.as_ref()
    }

    /// Whether an organisation shares quotas among keys.
    #[must_use]
    pub fn has_organisations(&self) -> bool {
        self.agreements.iter().flatten().any(|agreement| agreement.organisation.is_some())
    }

    /// Upper bound of the counters' records that all keys need: one for each class with quotas, and one for each of an organisation.
    #[must_use]
    pub fn records(&self, count_by: CountBy) -> usize {
        let mut seen = HashSet::new();
        let needed = self.roster.iter().map(|known| {
            let Some(agreement) = self.agreement(known) else { return 0 };
            let organisation = agreement.organisation.as_deref();
            let of_class = |(class, given): (usize, &Entitlement)| {
                let Entitlement::Quotas(quotas) = given else { return 0 };
                let own = !quotas.own().is_empty()
                    && (count_by == CountBy::Key || seen.insert((Some(known.subscriber), None, class)));
                let shared = !quotas.shared().is_empty() && seen.insert((None, organisation, class));
                usize::from(own) + usize::from(shared)
            };
            agreement.entitlements.iter().enumerate().map(of_class).sum::<usize>()
        });
        needed.sum()
    }
}
