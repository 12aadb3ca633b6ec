//! The step that every request takes: check all quotas of a counter, then consume all of them, or none.

use arrayvec::ArrayVec;

use super::entry::{Count, EntryError, MAX_QUOTAS, OpenRecord};
use super::fingerprint::Fingerprint;
use super::lease::{LeaseTerms, WindowTime, is_leasable};
use crate::quota::{Mode, Quota};
use crate::time::Timestamp;
use crate::window::Period;

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units of the limit that cannot be used any more; may exceed a limit that was lowered. Of a quota that a fleet shares, these are
    /// the units that the whole fleet has used or taken, as far as this gateway knows.
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
}

/// One standing for each quota, in the quotas' order.
pub type Standings = ArrayVec<Standing, MAX_QUOTAS>;

/// A request to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Whose counter.
    pub fingerprint: Fingerprint,
    /// The quotas of the class, each of which is charged; at most [`MAX_QUOTAS`].
    pub quotas: &'a [Quota],
    /// Units of each.
    pub cost: u32,
    /// How the gateways of a fleet share the quotas; `None` if this gateway counts for itself.
    pub shared: Option<Shared<'a>>,
}

/// How a request is charged to quotas that a fleet shares: to what the service has granted this gateway.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// When quota is leased.
    pub terms: &'a LeaseTerms,
    /// What a request may do that finds too little granted.
    pub beyond: Beyond,
}

/// What a request may do that finds too little granted of a quota that the service has not reported as exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Ask the service for more.
    Ask,
    /// Use the gateway's own share: this percentage of the limit in each window.
    Own {
        /// 0 to 100.
        percent: u8,
    },
    /// Pass. Later leases pay for it.
    Pass,
}

/// The result of charging a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// Every enforced quota had room, and all are consumed.
    Admitted {
        /// A quota of which a refill is to be asked for, as an index into those of the class.
        low: Option<usize>,
    },
    /// An enforced quota had no room; nothing is consumed.
    Refused,
    /// The gateway holds too little of a quota of which the service may have more; nothing is consumed.
    Short(Shortage),
}

/// What a request lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The quota, as an index into those of the class.
    pub quota: usize,
    /// What the record holds of its window.
    pub count: Count,
    /// Units, what the gateway owes the service included; at least 1.
    pub lacking: u32,
}

/// How a request fits in one quota.
enum Fit {
    Fits,
    Lacks(u32),
    Exhausted,
}

impl Charge<'_> {
    /// Charges every quota, or none. `next` receives the value to store in place of `entry`, which is empty if there is none, and
    /// `standings` where the counter stands afterwards. They are the caller's because moving them costs more than filling them.
    ///
    /// Returns the result, and whether the value is to be stored. A refusal is stored if use moved from a window that the clock stepped
    /// back from: it would follow the clock from window to window otherwise, and lock the client out.
    ///
    /// # Errors
    /// If the entry cannot hold the counter.
    pub fn apply(
        &self,
        entry: &[u8],
        now: Timestamp,
        next: &mut Vec<u8>,
        standings: &mut Standings,
    ) -> Result<(Charged, bool), EntryError> {
        let mut record =
            OpenRecord::open(entry, self.fingerprint, self.quotas, self.shared.is_some(), now, next)?;
        let (mut refused, mut shortage) = (false, None);
        standings.clear();
        for (place, quota) in self.quotas.iter().enumerate().take(MAX_QUOTAS) {
            let count = of(&record, quota, now);
            let fit = self.fit(quota, count);
            let exhausted = matches!(fit, Fit::Exhausted);
            if quota.mode == Mode::Enforced {
                refused |= exhausted;
                if let Fit::Lacks(lacking) = fit {
                    shortage.get_or_insert(Shortage { quota: place, count, lacking });
                }
            }
            let mut used = self.used(quota, count);
            if exhausted && self.shares(quota) {
                // What other gateways may still hold is not for this request.
                used = used.max(quota.limit.get());
            }
            let Count { index, generation, .. } = count;
            standings.push(Standing { used, index, generation, exhausted });
        }
        if refused {
            return Ok((Charged::Refused, record.moved));
        }
        if let Some(shortage) = shortage {
            return Ok((Charged::Short(shortage), record.moved));
        }
        let mut low = None;
        for (place, (quota, standing)) in self.quotas.iter().zip(&mut *standings).enumerate() {
            if self.is_first(place, quota)
                && let Some(at) = record.find(quota.window)
            {
                let mut count = of(&record, quota, now);
                count.used = count.used.saturating_add(self.cost);
                if let Some(Shared { beyond: Beyond::Own { .. }, .. }) = self.shared
                    && self.shared_with(quota).is_some()
                {
                    count.lease.own = count.lease.own.saturating_add(count.lease.lacking(count.used, 0));
                }
                record.set(at, count.used, count.lease);
            }
            let count = of(&record, quota, now);
            standing.used = self.used(quota, count);
            if let Some(Shared { terms, .. }) = self.shared
                && self.shares(quota)
                && let Some(time) = WindowTime::of(quota.window, count.index, now)
                && count.lease.is_low(terms, quota, count.used, time)
            {
                low.get_or_insert(place);
            }
        }
        Ok((Charged::Admitted { low }, true))
    }

    /// Whether no quota before this one has the same window. Quotas with windows of the same length share one count, which changes once.
    pub(super) fn is_first(&self, place: usize, quota: &Quota) -> bool {
        self.quotas.iter().take(place).all(|other| other.window != quota.window)
    }

    /// Whether a fleet shares this quota. Each gateway counts quotas in shadow mode, and those that the service has no unit for, itself.
    fn shares(&self, quota: &Quota) -> bool {
        self.shared.is_some() && quota.mode == Mode::Enforced && is_leasable(quota.window)
    }

    /// The shared quota with this quota's window: the quota itself, or the enforced one beside a quota in shadow mode.
    fn shared_with(&self, quota: &Quota) -> Option<&Quota> {
        self.quotas.iter().find(|other| other.window == quota.window && self.shares(other))
    }

    fn fit(&self, quota: &Quota, count: Count) -> Fit {
        let limit = quota.limit.get();
        let fits_limit = |used: u32| used.checked_add(self.cost).is_some_and(|used| used <= limit);
        let Some(Shared { beyond, .. }) = self.shared.filter(|_| self.shares(quota)) else {
            return if fits_limit(self.used(quota, count)) { Fit::Fits } else { Fit::Exhausted };
        };
        match count.lease.lacking(count.used, self.cost) {
            // Units that are held count for nothing once the limit has been lowered below what is used.
            0 if fits_limit(count.used) || count.lease.is_unlimited() => Fit::Fits,
            0 => Fit::Exhausted,
            lacking if count.lease.is_exhausted(limit, lacking) => Fit::Exhausted,
            lacking => match beyond {
                Beyond::Ask => Fit::Lacks(lacking),
                Beyond::Pass => Fit::Fits,
                Beyond::Own { percent } => {
                    let share = u64::from(limit) * u64::from(percent) / 100;
                    let own = u64::from(count.lease.own) + u64::from(lacking);
                    if own <= share { Fit::Fits } else { Fit::Exhausted }
                }
            },
        }
    }

    /// What a standing reports as used.
    pub(super) fn used(&self, quota: &Quota, count: Count) -> u32 {
        self.shared_with(quota).map_or(count.used, |shared| {
            let limit = shared.limit.get();
            limit - count.lease.remaining(limit, count.used)
        })
    }
}

/// The count of a quota's window in its record, which was opened with it.
pub(super) fn of(record: &OpenRecord<'_>, quota: &Quota, now: Timestamp) -> Count {
    let count = record.find(quota.window).and_then(|place| record.count(place));
    count.unwrap_or_else(|| Count::unused(quota.window, now, 0))
}

/// Where the counter stands, without using anything. `shared`: a fleet shares the quotas.
///
/// # Errors
/// If `entry` is malformed.
pub fn peek(entry: &[u8], charge: &Charge<'_>, now: Timestamp) -> Result<Standings, EntryError> {
    let (mut next, mut standings) = (Vec::new(), Standings::new());
    match (Charge { cost: 0, ..*charge }).apply(entry, now, &mut next, &mut standings) {
        Ok(_) => Ok(standings),
        Err(EntryError::Malformed) => Err(EntryError::Malformed),
        // A counter without a record has used nothing.
        Err(EntryError::Full | EntryError::TooManyWindows) => {
            Charge { cost: 0, ..*charge }.apply(&[], now, &mut next, &mut standings)?;
            Ok(standings)
        }
    }
}

#[cfg(test)]
mod tests;
