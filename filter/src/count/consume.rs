//! The step that every request takes: check all quotas of a counter, then consume all of them, or none.

use arrayvec::ArrayVec;

use super::entry::{Count, EntryError, MAX_QUOTAS, OpenRecord};
use super::fingerprint::Fingerprint;
use crate::quota::{Mode, Quota};
use crate::time::Timestamp;
use crate::window::Period;

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units of the limit that cannot be used any more; may exceed a limit that was lowered.
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
}

impl Charge<'_> {
    /// Charges every quota, or none. `next` receives the value to store in place of `entry`, which is empty if there is none, and
    /// `standings` where the counter stands afterwards. They are the caller's because moving them costs more than filling them.
    ///
    /// Returns whether the request was admitted, and whether the value is to be stored. A refusal is stored if use moved from a window that
    /// the clock stepped back from: it would follow the clock from window to window otherwise, and lock the client out.
    ///
    /// # Errors
    /// If the entry cannot hold the counter.
    pub fn apply(
        &self,
        entry: &[u8],
        now: Timestamp,
        next: &mut Vec<u8>,
        standings: &mut Standings,
    ) -> Result<(bool, bool), EntryError> {
        let mut record = OpenRecord::open(entry, self.fingerprint, self.quotas, now, next)?;
        let mut refused = false;
        standings.clear();
        for quota in self.quotas.iter().take(MAX_QUOTAS) {
            let Count { used, index, generation, .. } = of(&record, quota, now);
            let exhausted = used.checked_add(self.cost).is_none_or(|used| used > quota.limit.get());
            refused |= exhausted && quota.mode == Mode::Enforced;
            standings.push(Standing { used, index, generation, exhausted });
        }
        if refused {
            return Ok((false, record.moved));
        }
        for (place, (quota, standing)) in self.quotas.iter().zip(&mut *standings).enumerate() {
            standing.used = standing.used.saturating_add(self.cost);
            if self.is_first(place, quota)
                && let Some(at) = record.find(quota.window)
            {
                record.set(at, standing.used);
            }
        }
        Ok((true, true))
    }

    /// Whether no quota before this one has the same window. Quotas with windows of the same length share one count, which changes once.
    pub(super) fn is_first(&self, place: usize, quota: &Quota) -> bool {
        self.quotas.iter().take(place).all(|other| other.window != quota.window)
    }
}

/// The count of a quota's window in its record, which was opened with it.
pub(super) fn of(record: &OpenRecord<'_>, quota: &Quota, now: Timestamp) -> Count {
    let count = record.find(quota.window).and_then(|place| record.count(place));
    count.unwrap_or_else(|| Count::unused(quota.window, now, 0))
}

/// Where the counter stands, without using anything.
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
