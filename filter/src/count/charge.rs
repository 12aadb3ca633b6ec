//! The step that every request takes: check all quotas of a counter, then consume all of them, or none.

use smallvec::SmallVec;

use super::entry::{MAX_QUOTAS, Record};
use super::swap::Step;
use crate::quota::{Mode, Quota};
use crate::window::Period;

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units of the limit that are used; may exceed a limit that was lowered.
    pub used: u32,
    /// The place in time of the window in which the request was counted.
    pub index: u32,
    /// The generation of the count in that window.
    pub generation: u32,
    /// Whether the request did not fit.
    pub exhausted: bool,
}

impl Standing {
    /// The window in which the request was counted, of `quota`, whose standing this is.
    #[must_use]
    pub fn period(&self, quota: &Quota) -> Period {
        quota.window.period(self.index)
    }

    /// Units left of `quota`, whose standing this is. A limit that was lowered below what is used leaves none.
    #[must_use]
    pub fn left(&self, quota: &Quota) -> u32 {
        quota.limit.get().saturating_sub(self.used)
    }
}

/// One standing for each quota, in the quotas' order.
pub type Standings = SmallVec<[Standing; 2]>;

/// A request to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The quotas of the class, each of which is charged; at most [`MAX_QUOTAS`].
    pub quotas: &'a [Quota],
    /// Units of each.
    pub cost: u32,
}

impl Charge<'_> {
    /// Charges every quota, or none. `standings` receives where the counter stands afterwards. The result is whether the request was
    /// admitted.
    ///
    /// A refusal is stored if use moved from a window that the clock stepped back from: it would follow the clock from window to window
    /// otherwise, and lock the client out.
    pub(super) fn apply(&self, record: &mut Record, standings: &mut Standings) -> Step<bool> {
        let mut refused = false;
        standings.clear();
        for quota in self.quotas.iter().take(MAX_QUOTAS) {
            // The record was opened with the quotas, so it has a count for each.
            let Some(count) = record.count(quota.window) else { continue };
            let exhausted = count.used.checked_add(self.cost).is_none_or(|used| used > quota.limit.get());
            refused |= exhausted && quota.mode == Mode::Enforced;
            standings.push(Standing {
                used: count.used,
                index: count.index,
                generation: count.generation,
                exhausted,
            });
        }
        if refused {
            return if record.moved { Step::Store(false) } else { Step::Keep(false) };
        }
        for (quota, standing) in self.quotas.iter().zip(standings) {
            standing.used = standing.used.saturating_add(self.cost);
            // Quotas with windows of the same length share one count, which changes once.
            if let Some(count) = record.count(quota.window) {
                count.used = standing.used;
            }
        }
        Step::Store(true)
    }
}

#[cfg(test)]
mod tests;
