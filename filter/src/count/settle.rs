//! Settling. A charge is settled once it is known what the request was due to be charged: its charge becomes that.
//!
//! A charge is settled in the very counts that it was made to, which their window, index and generation identify. Every other count is left
//! alone: that of a later window, one that a clock which stepped back has moved, and one that has begun again. So a charge is taken out of a
//! count only if the count holds it, and no count falls below what other requests have used. Of a rate, units that have flowed back are not given back
//! again (`rate`).
//! A request in flight is taken out once its stream has ended.

use super::charge::{Charge, Standing, Standings, add_others};
use super::entry::Record;
use super::swap::Step;
use crate::quota::Quota;

/// What a request is due to be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// What it cost: units of each quota. It may exceed what was charged, and then the limit.
    Units(u32),
    /// Nothing of refundable quotas, and of the others what was charged.
    Refund,
}

/// A charge, and what was due.
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'a> {
    /// The charge as it was made.
    pub charge: Charge<'a>,
    /// Where the counter stood after the charge.
    pub charged: &'a [Standing],
    /// What was due.
    pub due: Due,
    /// Whether the request is in flight no longer.
    pub ends: bool,
}

impl Settlement<'_> {
    /// Settles the charge. `standings` receives where the counter stands afterwards. The result is whether the counter still has any of the
    /// counts that were charged.
    pub(super) fn apply(&self, record: &mut Record, in_fleet: bool, standings: &mut Standings) -> Step<bool> {
        standings.clear();
        let mut applies = false;
        for (place, (quota, charged)) in self.charge.quotas.iter().zip(self.charged).enumerate() {
            let (at, units) = (record.at, self.due(quota));
            let Some(count) = record.count(quota.window) else { continue };
            if quota.window.is_in_flight() {
                // In shadow mode only one that was charged. Where it began stays known until it ends.
                applies |=
                    self.ends && !charged.exhausted && count.end_request(charged.index, charged.generation);
                standings.push(Standing { used: count.used, ..*charged });
                continue;
            }
            let is_first = self.charge.quotas.iter().take(place).all(|other| other.window != quota.window);
            let is_charged = (count.index, count.generation) == (charged.index, charged.generation);
            let (more, less) =
                (units.saturating_sub(self.charge.cost), self.charge.cost.saturating_sub(units));
            if let Some(rate) = quota.rate() {
                // What it cost is due whatever has flowed back; in shadow mode only of one that was charged.
                if more > 0 && !charged.exhausted {
                    count.flow.charge(more, rate, at);
                } else if is_charged && !charged.exhausted {
                    count.flow.give_back(less, charged.flow, rate, at);
                }
                applies |= is_charged || more > 0;
            } else if is_charged && is_first {
                count.used = count.used.saturating_add(more).saturating_sub(less);
                applies = true;
            }
            standings.push(Standing::of(count, quota, at));
        }
        if in_fleet {
            add_others(self.charge.quotas, record, standings);
        }
        if applies || record.moved { Step::Store(applies) } else { Step::Keep(applies) }
    }

    /// Units of the quota that are due.
    fn due(&self, quota: &Quota) -> u32 {
        match self.due {
            Due::Units(units) => units,
            Due::Refund if quota.refundable => 0,
            Due::Refund => self.charge.cost,
        }
    }
}

#[cfg(test)]
mod tests;
