//! Where a caller stands in all classes, as the filter answers it to the caller on `usage_path` and to operators.

use serde::Serialize;

use crate::config::{Config, Entitlement, Entitlements};
use crate::count::consume::{Charge, Standings};
use crate::count::counters::{CountError, Counter, CounterHost, Counters};
use crate::count::fingerprint::Who;
use crate::quota::Mode;

/// Where a caller stands in all classes.
///
/// ```json
/// {"plan": "pro", "classes": [{"name": "standard", "included": true, "unlimited": false, "cost": 1,
///   "quotas": [{"name": "standard", "limit": 600, "window": 60, "remaining": 599, "reset": 1767607260}]}]}
/// ```
#[derive(Debug, Serialize)]
pub struct Usage<'a> {
    plan: &'a str,
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

#[derive(Debug, Serialize)]
struct QuotaUsage<'a> {
    name: &'a str,
    limit: u32,
    /// Seconds.
    window: u64,
    /// Requests left in the window.
    remaining: u32,
    /// When the window ends, in UTC epoch seconds.
    reset: u64,
}

/// Whose usage is reported.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The key, or its subscriber.
    pub who: Who<'a>,
    /// The organisation that shares quotas.
    pub organisation: Option<&'a str>,
    /// The plan.
    pub plan: usize,
}

/// Where a caller stands. Nothing is counted.
///
/// # Errors
/// If a counter could not be read.
pub fn usage<'c>(
    counters: &mut Counters,
    host: &mut impl CounterHost,
    config: &'c Config,
    Caller { who, organisation, plan }: Caller<'_>,
    granted: &'c Entitlements,
) -> Result<Usage<'c>, CountError> {
    let mut classes = Vec::with_capacity(granted.len());
    for (class, granted) in config.catalog.classes.iter().zip(granted.iter()) {
        let quotas = match granted {
            Entitlement::NotInPlan | Entitlement::Unlimited => Vec::new(),
            Entitlement::Quotas(set) => {
                let mut standings = Standings::new();
                let organisation = organisation.map(Who::Organisation);
                for (who, quotas) in [(Some(who), set.own()), (organisation, set.shared())] {
                    let Some(who) = who.filter(|_| !quotas.is_empty()) else { continue };
                    let place = counters.place(Counter { who, class: &class.name });
                    let charge = Charge { fingerprint: place.fingerprint(), quotas, cost: 0 };
                    standings.extend(counters.standing(host, place, charge)?);
                }
                let enforced =
                    set.quotas().iter().zip(standings).filter(|(quota, _)| quota.mode == Mode::Enforced);
                enforced
                    .map(|(quota, standing)| (quota, standing, standing.period(quota)))
                    .map(|(quota, standing, period)| QuotaUsage {
                        name: &quota.name,
                        limit: quota.limit.get(),
                        window: period.end.saturating_sub(period.start),
                        remaining: quota.limit.get().saturating_sub(standing.used) / class.cost.max(1),
                        reset: period.end,
                    })
                    .collect()
            }
        };
        classes.push(ClassUsage {
            name: &class.name,
            included: *granted != Entitlement::NotInPlan,
            unlimited: *granted == Entitlement::Unlimited,
            cost: class.cost,
            quotas,
        });
    }
    Ok(Usage { plan: config.plan_name(plan), classes })
}
