//! The entitlements of known keys: a roster of keys, resolved by the plans and classes of a configuration.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::digest::KeyHash;
use super::leaf::Text;
use super::plans::{Catalog, Class, Entitlement, Entitlements, for_each_class, quotas, replace};
use super::quota::{Grant, Grants};
use super::roster::{Known, Owner, ParentTerms, Roster, Terms};
use crate::count::entry::MAX_QUOTAS;
use crate::count::fingerprint::{KeyDigest, Who};
use crate::quota::{Quota, QuotaSet};
use crate::read::error::{At as _, ConfigError, Instead, Quoted, differ};
use crate::read::{fields, words};
use crate::window::Anchor;

/// Most keys that a configuration lists. Every VM holds them once for each configuration that differs, and a VM that runs out of memory
/// while it is configured leaves its gateway without limits.
const MAX_KEYS: usize = 10_000;

fields! {
    /// The owner of keys.
    pub(super) struct Subscriber as "Subscriber" derive(Debug) {
        /// Unique id.
        id: Text,
        /// Name of a plan.
        plan: String,
        /// SHA-256 of each key, as `sha256:` and 64 hexadecimal digits. A plain key is refused.
        keys: Vec<KeyHash> = [],
        /// Quotas by class that replace those of the plan. Classes that are not named here keep the plan's quotas.
        limits: Grants = {},
        /// An instant at which a billing period begins: `billing_month` and `billing_year` begin on its day and at its time (UTC), in a shorter month on
        /// the last day. Without it they are the calendar's.
        billing_anchor: Option<Anchor>,
        /// The organisation that the subscriber belongs to. A request is charged to the quotas of its key and to those of the organisation.
        parent: Option<ParentTerms>,
    }
}

words! {
    /// The owner of a quota.
    pub enum CountBy derive(Clone, Copy, Debug, PartialEq, Eq) {
        /// Each key has a separate quota.
        "key" => Key,
        /// The keys of a subscriber share one quota.
        "subscriber" => Subscriber,
    }
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
    /// The agreement of each of the roster's terms.
    agreements: Arc<[Agreement]>,
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
        let mut given = granted.to_vec();
        for_each_class(&terms.limits, &mut given, &self.classes, replace).at("limits")?;
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
                let shared = for_each_class(&parent.limits, &mut given, &self.classes, share);
                shared.at("limits").at("parent")?;
                (given.into(), Some(parent.organisation.0.clone()))
            }
            // Those of the plan are in memory once.
            None if terms.limits.is_empty() => (Arc::clone(granted), None),
            None => (given.into(), None),
        };
        let of_parent = terms.parent.as_ref().and_then(|parent| parent.billing_anchor);
        let entitlements = match (terms.billing_anchor, of_parent) {
            (None, None) => entitlements,
            (own, shared) => entitlements.iter().map(|given| given.anchored(own, shared)).collect(),
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
    /// Checks the field `subscribers`.
    pub(super) fn check(list: Vec<Subscriber>, catalog: &Catalog) -> Result<Self, ConfigError> {
        let keys = list.iter().map(|subscriber| subscriber.keys.len()).sum::<usize>();
        if keys > MAX_KEYS {
            let problem =
                format!("{keys} keys, at most {MAX_KEYS} are possible here; use directory for more");
            return Err(ConfigError::new(problem));
        }
        differ("id", list.iter().map(|subscriber| subscriber.id.as_bytes()))?;
        let mut roster = Roster::default();
        let (mut places, mut organisations, mut agreements) = (HashMap::new(), HashMap::new(), Vec::new());
        for (index, Subscriber { id, plan, keys, limits, billing_anchor, parent }) in
            list.into_iter().enumerate()
        {
            let terms = Terms { plan, limits: limits.0, billing_anchor, parent };
            if !places.contains_key(&terms) {
                agreements.push(catalog.agreement(&terms).at(index)?);
            }
            if let Some(ParentTerms { organisation, limits, billing_anchor }) = &terms.parent {
                let of_first = organisations.entry(organisation.clone());
                let (first, of_first, anchor) =
                    of_first.or_insert_with(|| (index, limits.clone(), *billing_anchor));
                if anchor != billing_anchor {
                    let problem =
                        format!("subscribers[{first}] gives the same organisation another billing_anchor");
                    return Err(ConfigError::new(problem)).at("billing_anchor").at("parent").at(index);
                }
                // In any order.
                if of_first.len() != limits.len()
                    || !of_first.iter().all(|of_class| limits.contains(of_class))
                {
                    let problem = format!("subscribers[{first}] gives the same organisation other limits");
                    return Err(ConfigError::new(problem)).at("limits").at("parent").at(index);
                }
            }
            let keys: Vec<_> = keys.into_iter().map(|KeyHash(digest)| digest).collect();
            for (place, digest) in keys.iter().enumerate() {
                if let Some(owner) = roster.keys.insert(*digest, index) {
                    let problem = format!("subscribers[{owner}] has the same key");
                    return Err(ConfigError::new(problem)).at(place).at("keys").at(index);
                }
            }
            let terms = *places.entry(terms).or_insert_with_key(|terms| {
                roster.terms.push(terms.clone());
                roster.terms.len() - 1
            });
            roster.owners.push(Owner { id: id.0, keys, terms });
        }
        Ok(Self { roster: Arc::new(roster), agreements: agreements.into() })
    }

    /// Takes over the memory of `earlier` where it holds the same.
    pub(super) fn share_with(&mut self, earlier: &Self, catalog: &Catalog) {
        if self.roster == earlier.roster {
            self.roster = Arc::clone(&earlier.roster);
        }
        // By the plans that the catalog has taken over.
        self.agreements =
            self.roster.terms.iter().filter_map(|terms| catalog.agreement(terms).ok()).collect();
        if self.agreements == earlier.agreements {
            self.agreements = Arc::clone(&earlier.agreements);
        }
    }

    /// The subscribers and their keys.
    #[must_use]
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// A known key and its agreement.
    #[must_use]
    pub fn get(&self, key: &KeyDigest) -> Option<(Known<'_>, &Agreement)> {
        let (digest, owner) = self.roster.keys.get_key_value(key)?;
        let owner = self.roster.owners.get(*owner)?;
        Some((Known { digest, subscriber: &owner.id }, self.agreement(owner)?))
    }

    /// The known keys of a subscriber and their agreements, in the order of the list.
    #[must_use]
    pub fn keys_of(&self, subscriber: &str) -> Vec<(Known<'_>, &Agreement)> {
        let owner = self.roster.owners.iter().find(|owner| owner.id == subscriber);
        let keys = owner.into_iter().flat_map(|owner| owner.keys.iter().map(move |digest| (digest, owner)));
        keys.filter_map(|(digest, owner)| {
            Some((Known { digest, subscriber: &owner.id }, self.agreement(owner)?))
        })
        .collect()
    }

    fn agreement(&self, owner: &Owner) -> Option<&Agreement> {
        self.agreements.get(owner.terms)
    }

    /// The agreements that subscribers of the configuration have, each once.
    #[must_use]
    pub fn agreements(&self) -> &[Agreement] {
        &self.agreements
    }

    /// Whether an organisation shares quotas among keys.
    #[must_use]
    pub fn has_organisations(&self) -> bool {
        self.agreements.iter().any(|agreement| agreement.organisation.is_some())
    }

    /// Upper bound of the counters' records that all keys need: one for each class with quotas, and one for each of an organisation.
    #[must_use]
    pub fn records(&self, count_by: CountBy) -> usize {
        let mut seen = HashSet::new();
        let with_keys = self.roster.owners.iter().filter(|owner| !owner.keys.is_empty());
        let needed =
            with_keys.filter_map(|owner| Some((owner, self.agreement(owner)?))).map(|(owner, agreement)| {
                let counted = if count_by == CountBy::Key { owner.keys.len() } else { 1 };
                let of_class = |(class, given): (usize, &Entitlement)| {
                    let Entitlement::Quotas(quotas) = given else { return 0 };
                    let shared = !quotas.shared().is_empty()
                        && seen.insert((agreement.organisation.as_deref(), class));
                    usize::from(shared) + if quotas.own().is_empty() { 0 } else { counted }
                };
                agreement.entitlements.iter().enumerate().map(of_class).sum::<usize>()
            });
        needed.sum()
    }
}
