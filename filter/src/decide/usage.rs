//! Where a caller stands in all classes, as the filter answers it to the caller on `usage_path` and to operators.

use serde::Serialize;

use super::counting::{Context, DecideError};
use super::decision::{Answer, Scope};
use super::host::Host;
use super::view::Stop;
use crate::config::roster::Known;
use crate::config::{Agreement, Config, Entitlement, Entitlements};
use crate::count::charge::{Standing, most_statements};
use crate::count::fingerprint::{KeyDigest, Who};
use crate::count::rate::Rate;
use crate::quota::{Mode, Quota};

/// Where a caller stands in all classes.
///
/// ```json
/// {"plan": "pro", "classes": [{"name": "standard", "included": true, "unlimited": false, "cost": 1,
///   "quotas": [{"name": "standard", "limit": 600, "window": 60, "remaining": 599, "reset": 1767607260}]}]}
/// ```
#[derive(Debug, Serialize)]
pub struct Usage<'a> {
    /// The key's hash, which only operators see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    plan: &'a str,
    /// In a fleet, whose use is counted. Operators see it beside the counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<Scope>,
    classes: Vec<ClassUsage<'a>>,
}

#[derive(Debug, Serialize)]
struct ClassUsage<'a> {
    name: &'a str,
    /// Whether the plan has the class at all.
    included: bool,
    /// Whether it has it without any quota.
    unlimited: bool,
    /// Units that a request uses.
    cost: u32,
    quotas: Vec<QuotaUsage<'a>>,
}

/// Where a caller stands in one quota.
#[derive(Debug, Serialize)]
pub(super) struct QuotaUsage<'a> {
    name: &'a str,
    /// Units of a window, or at once of a rate; or requests in flight.
    limit: u32,
    /// Requests in flight now.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    /// At which units flow back, such as `10/second`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    /// Seconds; of a rate, from empty to full.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    /// Units left in the window, or there now.
    remaining: u32,
    /// When the window ends, or all is there again, in UTC epoch seconds. Nobody knows it of requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<u64>,
}

impl<'a> QuotaUsage<'a> {
    pub(super) fn new(quota: &'a Quota, standing: &Standing) -> Self {
        let period = quota.window.period(standing.index);
        let is_in_flight = quota.window.is_in_flight();
        let length = quota.rate().map_or(period.end.saturating_sub(period.start), Rate::seconds);
        Self {
            name: &quota.name,
            limit: quota.limit.get(),
            in_flight: is_in_flight.then_some(standing.used),
            rate: quota.window.rate().map(|(units, _, time)| format!("{units}/{time}")),
            window: (!is_in_flight).then_some(length),
            remaining: standing.left(quota),
            reset: (!is_in_flight).then(|| standing.reset(quota)),
        }
    }
}

/// A caller with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber<'a> {
    /// The key, or its subscriber.
    pub who: Who<'a>,
    /// The subscriber's id; `None` for a key whose plan comes from metadata.
    pub id: Option<&'a str>,
    /// The organisation that shares quotas.
    pub organisation: Option<&'a str>,
    /// The plan, as an index into [`crate::config::Catalog::plans`].
    pub plan: usize,
    /// What it is entitled to in each class.
    pub entitlements: &'a Entitlements,
}

impl<'a> Subscriber<'a> {
    /// The owner of a known key.
    pub(super) fn of_agreement(config: &Config, known: Known<'a>, agreement: &'a Agreement) -> Self {
        let Agreement { plan, entitlements, organisation } = agreement;
        let (who, organisation) = (config.settings.count_by.who(known), organisation.as_deref());
        Self { who, id: Some(known.subscriber), organisation, plan: *plan, entitlements }
    }

    /// The owner of a key with this plan; `None` if the plan is not configured.
    pub(super) fn of_plan(config: &'a Config, key: &'a KeyDigest, plan: &[u8]) -> Option<Self> {
        let plans = &config.catalog.plans;
        let (plan, (_, entitlements)) =
            plans.iter().enumerate().find(|(_, (name, _))| name.as_bytes() == plan)?;
        Some(Self { who: Who::Key(key), id: None, organisation: None, plan, entitlements })
    }

    /// The quotas of a class, by whose they are: the caller's own, and those of its organisation.
    pub(super) fn quotas(self, granted: &'a Entitlement) -> impl Iterator<Item = (Who<'a>, &'a [Quota])> {
        let (own, shared) = match granted {
            Entitlement::Quotas(set) => (set.own(), set.shared()),
            Entitlement::NotInPlan | Entitlement::Unlimited => Default::default(),
        };
        let organisation = self.organisation.map(Who::Organisation);
        let parts = [(Some(self.who), own), (organisation, shared)];
        let of_someone = parts.into_iter().filter_map(|(who, quotas)| Some((who?, quotas)));
        of_someone.filter(|(_, quotas)| !quotas.is_empty())
    }

    /// Its counters: whose each is, the name of the class, and the quotas.
    pub(super) fn counters<'c>(
        self,
        config: &'c Config,
    ) -> impl Iterator<Item = (Who<'a>, &'c str, &'a [Quota])> {
        let classes = config.catalog.classes.iter().zip(self.entitlements.iter());
        classes.flat_map(move |(class, granted)| {
            self.quotas(granted).map(|(who, quotas)| (who, &*class.name, quotas))
        })
    }

    /// Statements of a call that asks about all of its quotas.
    pub(super) fn statements(self, config: &Config) -> usize {
        self.counters(config).map(|(.., quotas)| most_statements(quotas)).sum()
    }
}

impl<'c, H: Host> Context<'c, H> {
    /// The answer to a caller that asks where it stands. In a fleet the ledger is asked first, and `scope` then says what came of it.
    pub(super) fn answer_usage(
        &mut self,
        subscriber: Subscriber<'_>,
        scope: Option<Scope>,
    ) -> Result<Box<Answer>, Stop> {
        let scope = match scope {
            Some(_) => scope,
            None => self.look(&[subscriber])?,
        };
        Ok(Answer::document("weir_usage", &Usage { scope, ..self.usage(subscriber)? }))
    }

    /// Where a subscriber stands. Nothing is counted.
    pub(super) fn usage<'s>(&mut self, subscriber: Subscriber<'s>) -> Result<Usage<'s>, DecideError>
    where
        'c: 's,
    {
        let config = self.config;
        let (counters, _, host) = self.opened()?;
        let mut classes = Vec::with_capacity(subscriber.entitlements.len());
        for (class, granted) in config.catalog.classes.iter().zip(subscriber.entitlements.iter()) {
            let mut quotas = Vec::new();
            for (who, all) in subscriber.quotas(granted) {
                let counter = counters.counter(who, &class.name);
                let standings = all.iter().zip(counters.standing(host, &counter, all)?);
                let enforced = standings.filter(|(quota, _)| quota.mode == Mode::Enforced);
                quotas.extend(enforced.map(|(of, standing)| QuotaUsage::new(of, &standing)));
            }
            classes.push(ClassUsage {
                name: &class.name,
                included: *granted != Entitlement::NotInPlan,
                unlimited: *granted == Entitlement::Unlimited,
                cost: class.units(),
                quotas,
            });
        }
        Ok(Usage { key: None, plan: config.plan_name(subscriber.plan), scope: None, classes })
    }
}
