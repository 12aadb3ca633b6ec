//! Settling. A charge is settled once it is known what the request was due to be charged: its charge becomes that.
//!
//! A charge is settled in the very counts that it was made to, which their window, index and generation identify. Every other count is left
//! alone: that of a later window, one that a clock which stepped back has moved, and one that has begun again. So a charge is taken out of a
//! count only if the count holds it, and no count falls below what other requests have used.

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
}

impl Settlement<'_> {
    /// Settles the charge. `standings` receives where the counter stands afterwards. The result is whether the counter still has any of the
    /// counts that were charged.
    pub(super) fn apply(&self, record: &mut Record, in_fleet: bool, standings: &mut Standings) -> Step<bool> {
        standings.clear();
        let mut applies = false;
        for (place, (quota, charged)) in self.charge.quotas.iter().zip(self.charged).enumerate() {
            let Some(count) = record.count(quota.window) else { continue };
            let is_first = self.charge.quotas.iter().take(place).all(|other| other.window != quota.window);
            if (count.index, count.generation) == (charged.index, charged.generation) && is_first {
                count.used = self.settled(quota, count.used);
                applies = true;
            }
            standings.push(Standing {
                used: count.used,
                index: count.index,
                generation: count.generation,
                exhausted: false,
            });
        }
        if in_fleet {
            add_others(self.charge.quotas, record, standings);
        }
        if applies || record.moved { Step::Store(applies) } else { Step::Keep(applies) }
    }

    /// Units used in a count once the charge is settled.
    fn settled(&self, quota: &Quota, used: u32) -> u32 {
        let charged = self.charge.cost;
        let due = match self.due {
            Due::Units(units) => units,
            Due::Refund if quota.refundable => 0,
            Due::Refund => charged,
        };
        match due.checked_sub(charged) {
            Some(more) => used.saturating_add(more),
            None => used.saturating_sub(charged - due),
        }
    }
}

#[cfg(test)]
mod tests;
