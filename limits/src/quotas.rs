//! The quotas that a fleet leases, as a service tells them apart.

use std::collections::{BTreeMap, BTreeSet};

use filter::config::{Config, CountBy, Entitlement, FleetSettings};
use filter::count::fingerprint::Who;
use filter::quota::Mode;
use filter::window::Window;

/// A window that services have. The filter takes no other for a quota that a fleet shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

impl Unit {
    const fn of(window: Window) -> Option<Self> {
        match window {
            Window::SECOND => Some(Self::Second),
            Window::MINUTE => Some(Self::Minute),
            Window::HOUR => Some(Self::Hour),
            Window::DAY => Some(Self::Day),
            Window::Seconds(_) | Window::CalendarMonth => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    pub(crate) const fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 60 * 60,
            Self::Day => 24 * 60 * 60,
        }
    }
}

/// The limits of a plan in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfPlan {
    /// The plan's own, if it has any.
    pub(crate) limit: Option<u32>,
    /// Those who have another, by their name in descriptors.
    pub(crate) agreed: BTreeMap<String, Agreed>,
}

/// A subscriber's own limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Units in a window.
    pub(crate) limit: u32,
    /// The subscriber.
    pub(crate) subscriber: String,
}

/// Quotas by class, window and plan. Those in shadow mode are not there: they are counted by each gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quotas(pub(crate) BTreeMap<String, BTreeMap<Unit, BTreeMap<String, OfPlan>>>);

impl Quotas {
    pub(crate) fn of(config: &Config, fleet: &FleetSettings) -> Self {
        let mut quotas = Self::default();
        for (plan, entitlements) in &config.catalog.plans {
            for (class, entitlement) in entitlements.iter().enumerate() {
                let class = config.class_name(class);
                for (unit, limit) in leased(entitlement) {
                    quotas.of_plan(class, unit, plan).limit = Some(limit);
                }
            }
        }
        for known in config.subscribers.roster().iter() {
            let Some((_, agreement)) = config.subscribers.get(known.digest) else { continue };
            let Some((plan, granted)) = config.catalog.plans.get(agreement.plan) else { continue };
            let id = hex::encode(fleet.id(match config.count_by {
                CountBy::Key => Who::Key(known.digest),
                CountBy::Subscriber => Who::Subscriber(known.subscriber),
            }));
            for (class, (own, of_plan)) in agreement.entitlements.iter().zip(granted).enumerate() {
                let class = config.class_name(class);
                let of_plan: BTreeSet<_> = leased(of_plan).collect();
                for (unit, limit) in leased(own).filter(|own| !of_plan.contains(own)) {
                    let agreed = Agreed { limit, subscriber: known.subscriber.to_owned() };
                    quotas.of_plan(class, unit, plan).agreed.insert(id.clone(), agreed);
                }
            }
        }
        quotas
    }

    fn of_plan(&mut self, class: &str, unit: Unit, plan: &str) -> &mut OfPlan {
        let windows = self.0.entry(class.to_owned()).or_default();
        windows.entry(unit).or_default().entry(plan.to_owned()).or_default()
    }
}

/// The windows and limits that are leased of what is granted.
fn leased(entitlement: &Entitlement) -> impl Iterator<Item = (Unit, u32)> {
    let quotas = match entitlement {
        Entitlement::Quotas(quotas) => quotas.quotas(),
        Entitlement::NotInPlan | Entitlement::Unlimited => &[],
    };
    let enforced = quotas.iter().filter(|quota| quota.mode == Mode::Enforced);
    enforced.filter_map(|quota| Some((Unit::of(quota.window)?, quota.limit.get())))
}
