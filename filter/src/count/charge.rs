//! The step that every request takes: check all quotas of a counter, then consume all of them, or none.

use smallvec::SmallVec;

use super::entry::{Held, MAX_QUOTAS, Record};
use super::holding::Terms;
use super::swap::Step;
use crate::quota::{Mode, Quota};
use crate::time::Timestamp;
use crate::window::Period;

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units of the limit that are used, with those that other gateways of a fleet hold; may exceed a limit that was lowered.
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

/// How a request is charged to a counter of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<'a> {
    /// For the first time.
    First(&'a Terms),
    /// With the units that it has waited for; `refused` if the ledger has said that too few are left.
    Waited {
        /// Whether the ledger has said so.
        refused: bool,
    },
    /// While the ledger does not answer: this percentage of each limit may be used beyond the share, in the whole window, or all that
    /// requests need.
    Unavailable(Option<u8>),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It was charged to all quotas.
    Admitted,
    /// A quota has no room for it, and it was charged to none.
    Refused,
    /// The gateway's share of a quota is too small for it. It was charged to none, and may ask for more.
    Lacking,
}

impl Charge<'_> {
    /// Charges every quota, or none. `standings` receives where the counter stands afterwards. The result is what becomes of the request.
    ///
    /// A refusal is stored if use moved from a window that the clock stepped back from: it would follow the clock from window to window
    /// otherwise, and lock the client out.
    pub(super) fn apply(&self, record: &mut Record, standings: &mut Standings) -> Step<Admission> {
        let admission = self.check(record, standings);
        if admission != Admission::Admitted {
            return if record.moved { Step::Store(admission) } else { Step::Keep(admission) };
        }
        self.consume(record, standings);
        Step::Store(Admission::Admitted)
    }

    /// The same of a counter that a fleet shares.
    pub(super) fn apply_shared(
        &self,
        record: &mut Record,
        standings: &mut Standings,
        turn: Turn<'_>,
    ) -> Step<Admission> {
        self.check(record, standings);
        let admission = self.check_shares(record, standings, turn);
        if admission == Admission::Admitted {
            self.consume(record, standings);
            self.charge_shares(record);
        }
        add_others(self.quotas, record, standings);
        match admission {
            Admission::Refused | Admission::Lacking if !record.moved => Step::Keep(admission),
            _ => Step::Store(admission),
        }
    }

    /// Whether all quotas have room, and where they stand.
    fn check(&self, record: &mut Record, standings: &mut Standings) -> Admission {
        let mut admission = Admission::Admitted;
        standings.clear();
        for quota in self.quotas.iter().take(MAX_QUOTAS) {
            // The record was opened with the quotas, so it has a count for each.
            let Some(count) = record.count(quota.window) else { continue };
            let exhausted = count.used.checked_add(self.cost).is_none_or(|used| used > quota.limit.get());
            if exhausted && quota.mode == Mode::Enforced {
                admission = Admission::Refused;
            }
            standings.push(Standing {
                used: count.used,
                index: count.index,
                generation: count.generation,
                exhausted,
            });
        }
        admission
    }

    fn consume(&self, record: &mut Record, standings: &mut Standings) {
        for (quota, standing) in self.quotas.iter().zip(standings) {
            standing.used = standing.used.saturating_add(self.cost);
            // Quotas with windows of the same length share one count, which changes once.
            if let Some(count) = record.count(quota.window) {
                count.used = standing.used;
            }
        }
    }

    /// What the gateway's shares make of the request.
    fn check_shares(&self, record: &mut Record, standings: &mut Standings, turn: Turn<'_>) -> Admission {
        let (at, mut admission) = (record.at, Admission::Admitted);
        for (quota, standing) in
            self.quotas.iter().zip(standings).filter(|(quota, _)| quota.mode == Mode::Enforced)
        {
            let Some((_, Some(held))) = record.count_and_held(quota.window) else { continue };
            let room = self.room_in(held, turn, quota, at);
            standing.exhausted = room == Admission::Refused;
            if admission != Admission::Refused && room != Admission::Admitted {
                admission = room;
            }
        }
        admission
    }

    /// Charges what the gateway holds.
    fn charge_shares(&self, record: &mut Record) {
        let at = record.at;
        for (_, quota) in
            self.quotas.iter().enumerate().filter(|(place, _)| is_first_enforced(self.quotas, *place))
        {
            if let Some((count, Some(held))) = record.count_and_held(quota.window) {
                // The count was charged already.
                held.holding.used = count.used.saturating_sub(self.cost);
                held.holding.charge_beyond(self.cost, at);
            }
        }
    }

    /// What a gateway's share of `quota` makes of the request.
    fn room_in(&self, held: &Held, turn: Turn<'_>, quota: &Quota, at: Timestamp) -> Admission {
        let (holding, limit) = (&held.holding, quota.limit.get());
        let lacks = match turn {
            Turn::First(_) => holding.lacks_at_first(self.cost, limit),
            Turn::Waited { .. } | Turn::Unavailable(_) => holding.lacks(self.cost, limit),
        };
        let is_refused = match turn {
            Turn::First(terms) => holding.refuses(self.cost, limit, at, *terms),
            Turn::Waited { refused } => refused,
            Turn::Unavailable(None) => return Admission::Admitted,
            Turn::Unavailable(Some(percent)) => {
                let allowance = u64::from(limit) * u64::from(percent) / 100;
                !holding.may_go_beyond(self.cost, limit, u32::try_from(allowance).unwrap_or(limit))
            }
        };
        match (lacks, is_refused) {
            (false, _) => Admission::Admitted,
            (true, true) => Admission::Refused,
            (true, false) if matches!(turn, Turn::Unavailable(_)) => Admission::Admitted,
            (true, false) => Admission::Lacking,
        }
    }
}

/// Adds to standings what other gateways of a fleet hold.
pub(super) fn add_others(quotas: &[Quota], record: &mut Record, standings: &mut Standings) {
    if !record.is_shared() {
        return;
    }
    let enforced = quotas.iter().zip(standings).filter(|(quota, _)| quota.mode == Mode::Enforced);
    for (quota, standing) in enforced {
        if let Some((_, Some(held))) = record.count_and_held(quota.window) {
            standing.used = standing.used.saturating_add(held.holding.others);
        }
    }
}

/// Whether the quota at `place` is enforced, and the first such of its window: the one that speaks for the window's count in a fleet.
pub(super) fn is_first_enforced(quotas: &[Quota], place: usize) -> bool {
    let is_enforced = |quota: &&Quota| quota.mode == Mode::Enforced;
    let Some(quota) = quotas.get(place).filter(is_enforced) else { return false };
    let mut before = quotas.iter().take(place).filter(is_enforced);
    before.all(|other| other.window != quota.window)
}

#[cfg(test)]
mod tests;
