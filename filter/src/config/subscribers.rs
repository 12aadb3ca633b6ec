//! The entitlements of known keys: a roster of keys, resolved by the plans and classes of a configuration.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::{ConfigError, Step};
use super::plans::{Class, Entitlement, Entitlements, entitlements, quotas};
use super::problem::Problem;
use super::{CountBy, digest, raw};
use crate::config::rate::Grant;
use crate::config::roster::{Known, ParentTerms, Position, Roster, RosterBuilder, Terms};
use crate::count::entry::MAX_QUOTAS;
use crate::count::fingerprint::KeyDigest;
use crate::quota::{Quota, QuotaSet};

/// A roster's keys and their entitlements.
#[derive(Debug)]
pub struct Subscribers {
    roster: Arc<Roster>,
    /// The agreement of each of the roster's terms; `None` for terms that this configuration has no plan or class for.
    agreements: Arc<[Option<Agreement>]>,
    /// The first key beyond the capacity. It and all later keys of the list are unknown.
    end: Option<Position>,
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
    /// Takes over the memory of `earlier` where it holds the same.
    pub(super) fn share_with(&mut self, earlier: &Self) {
        for (name, granted) in &mut self.plans {
            let before = earlier.plans.iter().find(|(plan, before)| plan == name && before == granted);
            if let Some((_, before)) = before {
                *granted = Arc::clone(before);
            }
        }
    }

    /// The agreement that `terms` stand for.
    ///
    /// # Errors
    /// If the plan or a class is unknown, or the default class has no quota.
    pub fn agreement(&self, terms: &Terms) -> Result<Agreement, ConfigError> {
        let Some((plan, (_, granted))) =
            self.plans.iter().enumerate().find(|(_, (name, _))| *name == terms.plan)
        else {
            let expected = self.plans.iter().map(|(name, _)| name.clone()).collect();
            return Err(ConfigError::new("plan", Problem::Unknown { kind: "plan", expected }));
        };
        let entitlements = entitlements(&terms.limits, granted.to_vec(), &self.classes)
            .map_err(|error| error.within("limits"))?;
        if entitlements.get(self.default_class).is_none_or(|given| *given == Entitlement::NotInPlan) {
            let class =
                self.classes.get(self.default_class).map_or_else(String::new, |class| class.name.clone());
            return Err(ConfigError::new("", Problem::NoDefaultQuota { plan: terms.plan.clone(), class }));
        }
        let (entitlements, organisation) = match &terms.parent {
            // Without limits, the plan's.
            None if terms.limits.is_empty() => (Arc::clone(granted), None),
            None => (entitlements.into(), None),
            Some(parent) => {
                let shared = self.shared(parent, entitlements).map_err(|error| error.within("parent"))?;
                (shared.into(), Some(parent.organisation.clone()))
            }
        };
        Ok(Agreement { plan, entitlements, organisation })
    }

    /// `entitlements` with the quotas that an organisation shares.
    fn shared(
        &self,
        parent: &ParentTerms,
        mut entitlements: Vec<Entitlement>,
    ) -> Result<Vec<Entitlement>, ConfigError> {
        if parent.organisation.is_empty() {
            return Err(ConfigError::new("organisation", Problem::NoneGiven));
        }
        for (name, grant) in &parent.limits {
            let within = |error: ConfigError| error.within(Step::Name(name.clone())).within("limits");
            let mut classes = self.classes.iter().zip(&mut entitlements);
            let Some((class, entitlement)) = classes.find(|(class, _)| class.name == *name) else {
                let expected = self.classes.iter().map(|class| class.name.clone()).collect();
                return Err(within(ConfigError::new("", Problem::Unknown { kind: "class", expected })));
            };
            let Grant::Quotas(list) = grant else { continue };
            let shared = quotas(list, class, ORGANISATION).map_err(within)?;
            let own = match entitlement {
                Entitlement::NotInPlan => continue,
                Entitlement::Unlimited => Vec::new(),
                Entitlement::Quotas(own) => own.own().to_vec(),
            };
            let is_taken = |quota: &Quota| own.iter().any(|own| own.name == quota.name);
            if let Some(index) = shared.iter().position(is_taken) {
                return Err(within(ConfigError::new("name", Problem::Duplicate).within(index)));
            }
            if own.len() + shared.len() > MAX_QUOTAS {
                return Err(within(ConfigError::new("", Problem::TooManyQuotas(own.len() + shared.len()))));
            }
            *entitlement = Entitlement::Quotas(Arc::new(QuotaSet::with_shared(own, shared)));
        }
        Ok(entitlements)
    }
}

/// The default name of an organisation's quotas.
const ORGANISATION: &str = "organisation";

impl Subscribers {
    /// Resolves a roster by the plans and classes of `catalog`. A key whose terms do not resolve is unknown.
    #[must_use]
    pub fn new(roster: Arc<Roster>, catalog: &Catalog) -> Self {
        let agreements = roster.terms().iter().map(|terms| catalog.agreement(terms).ok()).collect();
        Self { roster, agreements, end: None }
    }

    pub(super) fn check(raw: Vec<raw::Subscriber>, catalog: &Catalog) -> Result<Self, ConfigError> {
        let mut roster = RosterBuilder::default();
        let mut ids = HashSet::new();
        let mut owners = HashMap::new();
        let mut organisations = HashMap::new();
        for (index, raw::Subscriber { id, plan, keys, limits, parent }) in raw.into_iter().enumerate() {
            if !ids.insert(id.clone()) {
                return Err(ConfigError::new("id", Problem::Duplicate).within(index));
            }
            let terms = Terms { plan, limits: limits.0, parent: parent.map(Into::into) };
            catalog.agreement(&terms).map_err(|error| error.within(index))?;
            if let Some(ParentTerms { organisation, limits }) = &terms.parent {
                let (first, known) =
                    organisations.entry(organisation.clone()).or_insert_with(|| (index, limits.clone()));
                if known != limits {
                    let problem = Problem::OtherLimits(*first);
                    return Err(ConfigError::new("limits", problem).within("parent").within(index));
                }
            }
            for (place, key) in keys.iter().enumerate() {
                let refuse =
                    |problem| ConfigError::new("", problem).within(place).within("keys").within(index);
                let digest = parse_key(key).map_err(refuse)?;
                if let Some(owner) = owners.insert(digest, index) {
                    return Err(refuse(Problem::SharedKey(owner)));
                }
                roster.add(digest, &id, terms.clone()).map_err(|error| {
                    ConfigError::new("id", Problem::Invalid(error.to_string().into())).within(index)
                })?;
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
    pub(super) fn keys_of(&self, subscriber: &str) -> Vec<(Known<'_>, &Agreement)> {
        let keys = self.roster.iter().filter(|known| known.subscriber == subscriber);
        let mut keys: Vec<_> = keys.filter_map(|known| Some((known, self.agreement(known)?))).collect();
        keys.sort_unstable_by_key(|(known, _)| known.position);
        keys
    }

    fn agreement(&self, known: Known<'_>) -> Option<&Agreement> {
        if self.end.is_some_and(|end| known.position >= end) {
            return None;
        }
        self.agreements.get(known.terms)?.as_ref()
    }

    /// Whether an organisation shares quotas among keys.
    #[must_use]
    pub fn has_organisations(&self) -> bool {
        self.agreements.iter().flatten().any(|agreement| agreement.organisation.is_some())
    }

    /// Number of keys whose plan or classes this configuration does not have.
    #[must_use]
    pub fn without_agreement(&self) -> usize {
        self.roster.iter().filter(|known| self.agreement(*known).is_none()).count()
    }

    /// Upper bound of the counters' records that all keys need: one for each class with quotas, and one for each of an organisation.
    #[must_use]
    pub fn records(&self, count_by: CountBy) -> usize {
        self.needs(self.roster.iter(), count_by).sum()
    }

    /// Keeps the keys, in the order of the list, up to the first one that needs more than `records` records with those before it.
    /// Returns the number of keys that are left out.
    pub fn limit(&mut self, records: usize, count_by: CountBy) -> usize {
        if self.records(count_by) <= records {
            return 0;
        }
        let mut keys: Vec<_> = self.roster.iter().filter(|known| self.agreement(*known).is_some()).collect();
        keys.sort_unstable_by_key(|known| known.position);
        let mut needed = 0;
        let kept = self.needs(keys.iter().copied(), count_by).take_while(|more| {
            needed += more;
            needed <= records
        });
        let kept = kept.count();
        let (end, left_out) = (keys.get(kept).map(|known| known.position), keys.len() - kept);
        self.end = end;
        left_out
    }

    /// Number of records that each of `keys` may need beside the keys before it.
    fn needs<'k>(
        &'k self,
        keys: impl Iterator<Item = Known<'k>>,
        count_by: CountBy,
    ) -> impl Iterator<Item = usize> {
        let mut seen = HashSet::new();
        keys.map(move |known| {
            let Some(agreement) = self.agreement(known) else { return 0 };
            let organisation = agreement.organisation.as_deref();
            let of_class = |(class, given): (usize, &'k Entitlement)| {
                let Entitlement::Quotas(quotas) = given else { return 0 };
                let own = !quotas.own().is_empty()
                    && (count_by == CountBy::Key || seen.insert((Some(known.subscriber), None, class)));
                let shared = !quotas.shared().is_empty() && seen.insert((None, organisation, class));
                usize::from(own) + usize::from(shared)
            };
            agreement.entitlements.iter().enumerate().map(of_class).sum()
        })
    }
}

/// Reads `sha256:` and 64 hexadecimal digits.
///
/// # Errors
/// If it is anything else.
pub fn parse_key(key: &str) -> Result<KeyDigest, Problem> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        return Err(Problem::PlainKey { hash: format!("sha256:{}", hex(&digest(key.as_bytes()))) });
    };
    parse_digest(hex).ok_or(Problem::KeyHash)
}

/// Reads 64 hexadecimal digits.
#[must_use]
pub fn parse_digest(hex: &str) -> Option<KeyDigest> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let mut digest = KeyDigest::default();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = crate::request::path::decode_hex(*high, *low)?;
    }
    Some(digest)
}

/// The hexadecimal digits of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
