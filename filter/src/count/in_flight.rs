//! Requests in flight: how many requests have begun and not ended, by the slot of time in which they began.
//!
//! A slot lasts an eighth of the longest time that a request is counted. Nine are kept apart, so what nobody gives back is free after that time, and
//! not later than an eighth after it. Where a request stands after it has begun names the slot and the generation of the count. It is given back only
//! there, so that a reset frees all and what was begun before it gives nothing back.

use core::array;

use super::entry::Count;
use crate::time::Timestamp;

/// Slots that are kept apart: those of the longest time, and the one that goes on.
pub(super) const SLOTS: usize = 9;

impl Count {
    /// Requests by the slot that they began in, the newest first. `flow` has eight of them, and `used` all.
    fn begun(&self) -> [u16; SLOTS] {
        let bits = u128::from(self.flow.given) << 64 | u128::from(self.flow.tat);
        let mut begun = array::from_fn(|slot| bits.checked_shr(16 * slot as u32).unwrap_or(0) as u16);
        let newer = sum(begun);
        let [.., oldest] = &mut begun;
        *oldest = u16::try_from(self.used.saturating_sub(newer)).unwrap_or(u16::MAX);
        begun
    }

    fn keep(&mut self, begun: [u16; SLOTS]) {
        self.used = sum(begun);
        let bits = |of: &[u16; 4]| of.iter().rev().fold(0, |bits, begun| bits << 16 | u64::from(*begun));
        if let [tat, given] = begun.as_chunks().0 {
            (self.flow.tat, self.flow.given) = (bits(tat), bits(given));
        }
    }

    /// Goes on to `now`. `write` is the number of the next write. Returns whether requests moved from slots that the clock stepped back from.
    ///
    /// A slot that is one ahead stands. Requests of those further ahead are taken to begin now, in another generation, so that a clock that was
    /// wrong for a while keeps no place for longer than others are kept.
    pub(super) fn go_on(&mut self, now: Timestamp, write: u32) -> bool {
        let now = self.window.index_at(now);
        let mut begun = self.begun();
        let further = self.index.saturating_sub(now).saturating_sub(1) as usize;
        let passed = (now.saturating_sub(self.index) as usize).min(SLOTS);
        if further == 0 {
            begun.rotate_right(passed);
            begun.iter_mut().take(passed).for_each(|begun| *begun = 0);
            self.index = self.index.max(now);
        } else {
            let before = core::mem::take(&mut begun);
            (self.index, self.generation) = (now.saturating_add(1), write);
            for (place, requests) in before.into_iter().enumerate() {
                // Place 0 is one ahead of now, and place 1 is now.
                if let Some(begun) = begun.get_mut(place.checked_sub(further).unwrap_or(1)) {
                    *begun = begun.saturating_add(requests);
                }
            }
        }
        self.keep(begun);
        further > 0
    }

    /// Counts a request that begins, in the newest slot. There has to be room for it.
    pub(super) fn begin_request(&mut self) {
        let mut begun = self.begun();
        let [newest, ..] = &mut begun;
        *newest = newest.saturating_add(1);
        self.keep(begun);
    }

    /// Ends a request that began in this slot of this generation. Returns whether it was still counted.
    pub(super) fn end_request(&mut self, slot: u32, generation: u32) -> bool {
        let mut begun = self.begun();
        let place = self.index.checked_sub(slot).filter(|_| generation == self.generation);
        let counted = place.and_then(|place| begun.get_mut(place as usize)).filter(|begun| **begun > 0);
        let is_counted = counted.map(|begun| *begun -= 1).is_some();
        self.keep(begun);
        is_counted
    }
}

fn sum(begun: [u16; SLOTS]) -> u32 {
    begun.into_iter().map(u32::from).sum()
}

#[cfg(test)]
mod tests;
