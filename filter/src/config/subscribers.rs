//! Who has which plan: from an API key's digest to a subscriber and what it is entitled to.

use std::collections::HashMap;

use super::error::{ConfigError, Problem};
use super::{Class, CountBy, Entitlement, Entitlements, digest, entitlements, raw};
use crate::fingerprint::KeyDigest;

/// The subscribers and their keys.
#[derive(Debug)]
pub struct Subscribers {
    subscribers: Vec<Subscriber>,
    /// What subscribers are entitled to: first the plans', then those of subscribers with limits of their own.
    tiers: Vec<Entitlements>,
    /// Sorted by digest: 36 bytes a key, found in some twenty comparisons.
    keys: Vec<(KeyDigest, u32)>,
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its id.
    pub id: String,
    /// Its plan, as an index into [`super::Config::plans`].
    pub plan: usize,
    tier: usize,
}

/// What subscribers refer to.
pub(super) struct Catalog<'c> {
    pub(super) classes: &'c [Class],
    pub(super) default_class: usize,
    pub(super) plans: &'c [(String, Entitlements)],
}

impl Subscribers {
    pub(super) fn check(raw: Vec<raw::Subscriber>, catalog: &Catalog<'_>) -> Result<Self, ConfigError> {
        let mut checked = Self {
            subscribers: Vec::with_capacity(raw.len()),
            tiers: catalog.plans.iter().map(|(_, given)| given.clone()).collect(),
            keys: Vec::new(),
        };
        let mut ids = HashMap::new();
        let mut owners = HashMap::new();
        for (index, subscriber) in raw.into_iter().enumerate() {
            let path = format!("subscribers[{index}]");
            if let Some(_earlier) = ids.insert(subscriber.id.clone(), index) {
                return Err(ConfigError::new("id", Problem::Duplicate(subscriber.id)).within(path));
            }
            for (place, key) in subscriber.keys.iter().enumerate() {
                let digest = parse_key(key)
                    .map_err(|problem| ConfigError::new(format!("keys[{place}]"), problem).within(&path))?;
                if let Some(owner) = owners.insert(digest, subscriber.id.clone()) {
                    return Err(
                        ConfigError::new(format!("keys[{place}]"), Problem::SharedKey(owner)).within(path)
                    );
                }
                checked.keys.push((digest, u32::try_from(index).unwrap_or(u32::MAX)));
            }
            let subscriber = checked.subscriber(subscriber, catalog).map_err(|error| error.within(path))?;
            checked.subscribers.push(subscriber);
        }
        checked.keys.sort_unstable();
        Ok(checked)
    }

    fn subscriber(&mut self, raw: raw::Subscriber, catalog: &Catalog<'_>) -> Result<Subscriber, ConfigError> {
        let Some((plan, (_, base))) =
            catalog.plans.iter().enumerate().find(|(_, (name, _))| *name == raw.plan)
        else {
            let names: Vec<_> = catalog.plans.iter().map(|(name, _)| name.as_str()).collect();
            let problem = Problem::Unknown { kind: "plan", name: raw.plan, expected: names.join(", ") };
            return Err(ConfigError::new("plan", problem));
        };
        let given = entitlements(raw.limits, base.clone(), catalog.classes)
            .map_err(|error| error.within("limits"))?;
        if given.get(catalog.default_class).is_none_or(|given| *given == Entitlement::NotInPlan) {
            let class = catalog
                .classes
                .get(catalog.default_class)
                .map_or_else(String::new, |class| class.name.clone());
            return Err(ConfigError::new("", Problem::NoDefaultQuota { plan: raw.plan, class }));
        }
        let tier = match self.tiers.iter().position(|tier| *tier == given) {
            Some(tier) => tier,
            None => {
                self.tiers.push(given);
                self.tiers.len() - 1
            }
        };
        Ok(Subscriber { id: raw.id, plan, tier })
    }

    /// The place of a key, for [`Subscribers::at`].
    #[must_use]
    pub fn find(&self, key: &KeyDigest) -> Option<usize> {
        self.keys.binary_search_by_key(&key, |(digest, _)| digest).ok()
    }

    /// The key at a place and its subscriber.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<(&KeyDigest, &Subscriber)> {
        let (digest, number) = self.keys.get(place)?;
        Some((digest, self.owner(usize::try_from(*number).ok()?)?))
    }

    /// The subscriber at a place in the configuration's list.
    #[must_use]
    pub fn owner(&self, number: usize) -> Option<&Subscriber> {
        self.subscribers.get(number)
    }

    /// What a subscriber is entitled to in a class.
    #[must_use]
    pub fn entitlement(&self, subscriber: &Subscriber, class: usize) -> Option<&Entitlement> {
        self.tiers.get(subscriber.tier)?.get(class)
    }

    /// How many subscribers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subscribers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// How many counters' records all keys together may need: one for each class with quotas.
    #[must_use]
    pub fn records(&self, count_by: CountBy) -> usize {
        let classes = |subscriber: &Subscriber| {
            self.tiers
                .get(subscriber.tier)
                .map_or(0, |tier| tier.iter().filter(|given| matches!(given, Entitlement::Quotas(_))).count())
        };
        match count_by {
            CountBy::Key => {
                (0..self.keys.len()).filter_map(|place| self.at(place)).map(|(_, owner)| classes(owner)).sum()
            }
            CountBy::Subscriber => self.subscribers.iter().map(classes).sum(),
        }
    }
}

fn parse_key(key: &str) -> Result<KeyDigest, Problem> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        return Err(Problem::PlainKey { hash: format!("sha256:{}", hex(&digest(key.as_bytes()))) });
    };
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let mut digest = KeyDigest::default();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return Err(Problem::KeyHash);
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = crate::classes::decode_hex(*high, *low).ok_or(Problem::KeyHash)?;
    }
    Ok(digest)
}

fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
