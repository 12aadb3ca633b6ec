//! Deciding where a fleet shares its quotas: by leases, and without the service by what the configuration says.

use std::sync::Arc;

use super::{DecideError, Limiter, Places, Request, open};
use crate::config::{Config, OnUnavailable};
use crate::count::consume::{Beyond, Charged, Shared, Shortage};
use crate::count::counters::Place;
use crate::count::entry::Count;
use crate::count::lease::{Lease, WindowTime};
use crate::decide::host::Host;
use crate::decide::outcome::Outcome;
use crate::decide::reply::Reply;
use crate::decide::verdict::Verdict;
use crate::fleet::lease_size;
use crate::fleet::protocol::{FleetId, Grant, Response};
use crate::quota::{Mode, Quota, QuotaSet};
use crate::time::Timestamp;

/// A request whose quotas a fleet shares: all that deciding it again needs.
#[derive(Clone, Debug)]
pub struct LeasedRequest {
    /// The subscriber's plan, as an index into [`crate::config::Catalog::plans`].
    pub plan: usize,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// The place of its record.
    pub counter: Place,
    /// Who is counted, as the fleet names them.
    pub who: FleetId,
    /// The quotas of the class.
    pub quotas: Arc<QuotaSet>,
    /// Units that the request costs.
    pub cost: u32,
}

/// A lease that a decision asks for.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The request that was decided.
    pub request: LeasedRequest,
    /// What it needs.
    pub need: Need,
}

/// Why a lease is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// The request waits for it; nothing is decided yet.
    Shortage(Shortage),
    /// The request was admitted, and what the gateway holds of this quota runs low. The quota is an index into those of the class.
    Refill(usize),
}

/// A lease that a call was sent for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The quota, as an index into those of the class.
    pub quota: usize,
    /// Units; at least 1.
    pub units: u32,
    /// Whether other workers see in the record that a refill is in flight.
    pub refill: bool,
}

impl LeasedRequest {
    fn request(&self) -> Request {
        Request { plan: Some(self.plan), class: self.class }
    }

    /// The quota at an index into those of the class.
    #[must_use]
    pub fn quota(&self, index: usize) -> Option<&Quota> {
        self.quotas.quotas().get(index)
    }
}

impl Limiter {
    /// Decides a request by what this gateway holds, for the first time or again.
    pub fn decide_leased(&mut self, host: &mut impl Host, request: &LeasedRequest) -> Verdict {
        self.decide_beyond(host, request, Beyond::Ask)
    }

    /// Decides a request that finds too little leased while the rate-limit service does not answer.
    pub fn decide_without_service(&mut self, host: &mut impl Host, request: &LeasedRequest) -> Verdict {
        match self.config.fleet.as_ref().map(|fleet| fleet.on_unavailable) {
            Some(OnUnavailable::Allow) => self.decide_beyond(host, request, Beyond::Pass),
            Some(OnUnavailable::Local(percent)) => self.decide_beyond(host, request, Beyond::Own { percent }),
            Some(OnUnavailable::Deny) | None => {
                // A quota that the service has reported as exhausted is refused as such.
                let verdict = self.decide_beyond(host, request, Beyond::Ask);
                match verdict.lease {
                    Some(ref lease) if matches!(lease.need, Need::Shortage(_)) => {
                        let reply = Reply::fleet_unavailable();
                        request.request().refused(&self.config, [Outcome::Error], reply)
                    }
                    _ => verdict,
                }
            }
        }
    }

    fn decide_beyond(&mut self, host: &mut impl Host, request: &LeasedRequest, beyond: Beyond) -> Verdict {
        let config = Arc::clone(&self.config);
        match self.charge_leased(host, &config, request, beyond) {
            Ok(verdict) => verdict,
            Err(error) => self.failed(host, &request.request(), error),
        }
    }

    pub(super) fn charge_leased(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        leased: &LeasedRequest,
        beyond: Beyond,
    ) -> Result<Verdict, DecideError> {
        let Some(fleet) = &config.fleet else { return Err(DecideError::NoFleet) };
        // A request in shadow mode never waits.
        let beyond = if config.enforcement == Mode::Shadow { Beyond::Pass } else { beyond };
        let request = leased.request();
        let shared = Some(Shared { terms: &fleet.terms, beyond });
        let places = Places { own: leased.counter, organisation: None };
        let (counted, mut verdict) =
            self.count(host, config, &request, places, &leased.quotas, shared, None)?;
        let need = match counted.charged {
            Charged::Short(shortage) => Some(Need::Shortage(shortage)),
            Charged::Admitted { low } => low.map(Need::Refill),
            Charged::Refused => None,
        };
        verdict.lease = need.map(|need| Box::new(LeaseRequest { request: leased.clone(), need }));
        Ok(verdict)
    }

    /// Claims the refill of the quota `index` for `milliseconds`, so that no other worker asks for one. Returns what to ask for; `None` if
    /// a refill is in flight already or is not needed. This worker's calls in flight ask for `in_flight` units; `at_least` units are
    /// asked for in any case.
    pub fn claim_refill(
        &mut self,
        host: &mut impl Host,
        leased: &LeasedRequest,
        index: usize,
        milliseconds: u32,
        (in_flight, at_least): (u32, u32),
    ) -> Option<Asked> {
        let terms = self.config.fleet.as_ref()?.terms;
        let quota = leased.quota(index)?;
        let units = self.change_lease(host, leased, quota, |count, now| {
            let time = WindowTime::of(count.window, count.index, now)?;
            let units = match count.lease.may_refill(&terms, quota, time) {
                true => lease_size::refill(quota, count.used, in_flight, &count.lease, time),
                false => 0,
            };
            // More than what was left is not granted, and uses it up.
            let left = count.lease.left(quota.limit.get()).unwrap_or(u32::MAX);
            let units = units.min(left.saturating_sub(in_flight)).max(at_least);
            count.lease.refill_until = time.elapsed.saturating_add(milliseconds);
            (units > 0).then_some(units)
        })?;
        Some(Asked { quota: index, units, refill: true })
    }

    /// Credits an answer to the window that it names. Whether it was: an answer about a window that is not current is dropped.
    pub fn credit(
        &mut self,
        host: &mut impl Host,
        leased: &LeasedRequest,
        asked: Asked,
        response: Response,
    ) -> bool {
        let Some(quota) = leased.quota(asked.quota) else { return false };
        let limit = quota.limit.get();
        let credited = self.change_lease(host, leased, quota, |count, now| {
            let named = response.window_index(quota.window, now).unwrap_or(count.index);
            let lease = &mut count.lease;
            if asked.refill {
                lease.refill_until = 0;
            }
            if named != count.index {
                return asked.refill.then_some(false);
            }
            let known = lease.left(limit).unwrap_or(limit);
            let left = match response.grant {
                Grant::Units { left } => left.unwrap_or(known.saturating_sub(asked.units)),
                Grant::OverLimit { left } => left.unwrap_or(known.min(asked.units.saturating_sub(1))),
                Grant::Unlimited => limit,
                Grant::Unconfigured => return None,
            };
            lease.granted = match response.grant {
                Grant::Units { .. } => lease.granted.saturating_add(asked.units),
                Grant::Unlimited => Lease::UNLIMITED,
                Grant::OverLimit { .. } | Grant::Unconfigured => lease.granted,
            };
            // Answers may arrive out of order; what is left never grows.
            lease.taken = limit.saturating_sub(left.min(known));
            let time = WindowTime::of(quota.window, count.index, now);
            lease.answered_at(time.map_or(0, |time| time.elapsed), count.used);
            Some(true)
        });
        credited.unwrap_or(false)
    }

    fn change_lease<T>(
        &mut self,
        host: &mut impl Host,
        leased: &LeasedRequest,
        quota: &Quota,
        change: impl FnMut(&mut Count, Timestamp) -> Option<T>,
    ) -> Option<T> {
        let counters = open(&mut self.counters, &self.config, host);
        let changed =
            counters.and_then(|counters| Ok(counters.change_lease(host, leased.counter, quota, change)?));
        changed.unwrap_or_else(|error| {
            self.log_error(host, "a lease could not be stored", error);
            None
        })
    }
}
