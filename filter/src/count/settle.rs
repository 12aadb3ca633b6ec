//! Settling a charge: once it is known what a request was due to be charged, its charge becomes that.
//!
//! A charge is settled in the very counts that it was made to, which their window, index and generation identify. Every other count is left
//! alone: that of a later window, one that a clock which stepped back has moved, and one that has begun again. So a charge is taken out of a
//! count only if the count holds it, and no count falls below what other requests have used.

use super::consume::{Charge, Standing, Standings, of};
use super::entry::{Count, EntryError, OpenRecord};
use crate::quota::Quota;
use crate::time::Timestamp;

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
    /// Settles the charge. `next` receives the value to store in place of `entry`, and `standings` where the counter stands afterwards, as in
    /// [`Charge::apply`].
    ///
    /// Returns whether the counter still has any of the counts that were charged, and whether the value is to be stored.
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
        let Charge { fingerprint, quotas, .. } = self.charge;
        let mut record = OpenRecord::open(entry, fingerprint, quotas, now, next)?;
        let mut applies = false;
        for (place, (quota, charged)) in quotas.iter().zip(self.charged).enumerate() {
            let at = record.find(quota.window).filter(|_| self.charge.is_first(place, quota));
            if let Some((at, count)) = at.and_then(|at| Some((at, record.count(at)?)))
                && (count.index, count.generation) == (charged.index, charged.generation)
            {
                record.set(at, self.settled(quota, count));
                applies = true;
            }
        }
        standings.clear();
        standings.extend(quotas.iter().zip(self.charged).map(|(quota, _)| {
            let Count { used, index, generation, .. } = of(&record, quota, now);
            Standing { used, index, generation, exhausted: false }
        }));
        Ok((applies, applies || record.moved))
    }

    /// Units used in a count once the charge is settled.
    fn settled(&self, quota: &Quota, count: Count) -> u32 {
        let charged = self.charge.cost;
        let due = match self.due {
            Due::Units(units) => units,
            Due::Refund if quota.refundable => 0,
            Due::Refund => charged,
        };
        match due.checked_sub(charged) {
            Some(more) => count.used.saturating_add(more),
            None => count.used.saturating_sub(charged - due),
        }
    }
}

#[cfg(test)]
mod tests;
