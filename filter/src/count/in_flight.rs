//! Requests in flight: how many requests have begun and not ended, by the slot of time in which they began.
//!
//! A slot lasts an eighth of `longest`. Nine are counted, so what nobody gives back is free after `longest`, and not later than an eighth after
//! that. A ticket names the slot and the generation that a request was counted in. It is given back only there, so that a reset frees all and what
//! was begun before it gives nothing back.

use core::num::NonZeroU32;

use crate::time::Timestamp;

/// Slots that are counted: those of `longest`, and the one that goes on.
pub const SLOTS: usize = 9;

/// Milliseconds of a slot for each second of `longest`.
const SLOT: u64 = 1000 / (SLOTS as u64 - 1);

/// The slot that goes on at `now`, if requests are counted for so many seconds at the longest.
#[must_use]
pub fn slot(longest: NonZeroU32, now: Timestamp) -> u32 {
    u32::try_from(now.millis() / (u64::from(longest.get()) * SLOT)).unwrap_or(u32::MAX)
}

/// The requests of a counter that have begun and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// The newest slot.
    pub newest: u32,
    /// The write of the entry that began this count.
    pub generation: u32,
    /// Requests by the slot that they began in, the newest first.
    begun: [u16; SLOTS],
}

/// The place of a request among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The slot that it began in.
    pub slot: u32,
    /// The generation of the count.
    pub generation: u32,
}

impl InFlight {
    /// How many there are.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.begun.iter().copied().map(u32::from).sum()
    }

    /// Has the slot `now` go on. `write` is the number of the next write. Returns whether requests moved from slots that the clock stepped back
    /// from.
    ///
    /// A slot that is one ahead stands. Requests of those further ahead are taken to begin now, in another generation, so that a clock that was
    /// wrong for a while keeps no place for longer than others are kept.
    pub fn go_on(&mut self, now: u32, write: u32) -> bool {
        let further = self.newest.saturating_sub(now).saturating_sub(1) as usize;
        if further == 0 {
            let passed = (now.saturating_sub(self.newest) as usize).min(SLOTS);
            self.begun.rotate_right(passed);
            self.begun.iter_mut().take(passed).for_each(|begun| *begun = 0);
            self.newest = self.newest.max(now);
            return false;
        }
        let before = core::mem::take(&mut self.begun);
        (self.newest, self.generation) = (now.saturating_add(1), write);
        for (place, requests) in before.into_iter().enumerate() {
            // Place 0 is one ahead of now, and place 1 is now.
            if let Some(begun) = self.begun.get_mut(place.checked_sub(further).unwrap_or(1)) {
                *begun = begun.saturating_add(requests);
            }
        }
        true
    }

    /// Counts a request that begins while the slot `now` goes on, for which there has to be room.
    pub fn begin(&mut self, now: u32) -> Ticket {
        if let Some(begun) = self.begun(now) {
            *begun = begun.saturating_add(1);
        }
        Ticket { slot: now, generation: self.generation }
    }

    /// Gives the place of a request back. Returns whether it was still counted.
    pub fn end(&mut self, ticket: Ticket) -> bool {
        if ticket.generation != self.generation {
            return false;
        }
        let Some(begun) = self.begun(ticket.slot).filter(|begun| **begun > 0) else { return false };
        *begun -= 1;
        true
    }

    /// Frees all places. What was begun before gives nothing back. Returns how many there were.
    pub fn reset(&mut self, write: u32) -> u32 {
        let requests = self.requests();
        (self.begun, self.generation) = ([0; SLOTS], write);
        requests
    }

    fn begun(&mut self, slot: u32) -> Option<&mut u16> {
        self.begun.get_mut(self.newest.checked_sub(slot)? as usize)
    }
}

#[cfg(test)]
mod tests;
