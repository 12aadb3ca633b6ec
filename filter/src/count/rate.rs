//! Rates with bursts: the generic cell rate algorithm, and how a charge is given back to it.
//!
//! In any interval at most `burst` units and those that flow back in it are admitted, net of what is given back in it, and none is refused while
//! that leaves room. A unit that has flowed back already cannot be given back: the promise would count it twice. So a charge keeps the instant
//! that it left behind, and how much had been given back until then, which others' charges behind it have lost since.

use core::num::NonZeroU64;

use crate::time::Timestamp;
use crate::window::DAY;

/// How the units of a quota flow back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Nanoseconds in which one unit does.
    unit: NonZeroU64,
    /// Nanoseconds in which all of them do.
    burst: u64,
}

/// What was used of a rate. The default has used nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// When all units will be back, in nanoseconds since the epoch: the theoretical arrival time.
    pub tat: u64,
    /// By how many nanoseconds charges that were given back have brought that forward, in all.
    pub given: u64,
}

impl Rate {
    pub(crate) fn new(unit: NonZeroU64, burst: u32) -> Self {
        Self { unit, burst: unit.get().saturating_mul(burst.into()) }
    }

    fn of(self, units: u32) -> u64 {
        self.unit.get().saturating_mul(units.into())
    }

    /// The seconds from empty to full, rounded up.
    pub(crate) fn seconds(self) -> u64 {
        self.burst.div_ceil(SECOND)
    }
}

pub(super) const SECOND: u64 = 1_000_000_000;

/// The longest time in which all units of a rate are back, in nanoseconds: 366 days.
pub(crate) const LONGEST_BURST: u64 = 366 * DAY as u64 * SECOND;

/// Bytes of a [`Flow`].
pub(super) const BYTES: usize = 16;

impl Flow {
    pub(super) fn encode(self) -> [u8; BYTES] {
        (u128::from(self.given) << 64 | u128::from(self.tat)).to_le_bytes()
    }

    pub(super) fn decode(bytes: &[u8; BYTES]) -> Self {
        let both = u128::from_le_bytes(*bytes);
        Self { tat: both as u64, given: (both >> 64) as u64 }
    }

    /// Whether all units are back.
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        self.tat <= now.nanos()
    }

    /// Takes what is further ahead than any charge leads to for the furthest that one does, so that a clock that was wrong locks nobody out for
    /// longer. Returns whether it was.
    pub(crate) fn clamp(&mut self, rate: Rate, now: Timestamp) -> bool {
        let furthest = furthest(rate, now);
        let is_further = self.tat > furthest;
        self.tat = self.tat.min(furthest);
        is_further
    }

    /// Nanoseconds until `units` are there.
    fn wait(self, units: u32, rate: Rate, now: Timestamp) -> u64 {
        self.owed(now).saturating_add(rate.of(units)).saturating_sub(rate.burst)
    }

    /// Nanoseconds until all units are back.
    fn owed(self, now: Timestamp) -> u64 {
        self.tat.saturating_sub(now.nanos())
    }

    /// Units that are there.
    pub(crate) fn left(self, rate: Rate, now: Timestamp) -> u32 {
        let left = rate.burst.saturating_sub(self.owed(now)) / rate.unit;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Seconds until `units` are there, rounded up.
    pub(crate) fn seconds_until(self, units: u32, rate: Rate, now: Timestamp) -> u64 {
        self.wait(units, rate, now).div_ceil(SECOND)
    }

    /// The second in which all units are back, since the epoch, rounded up.
    pub(crate) fn full_at(self) -> u64 {
        self.tat.div_ceil(SECOND)
    }

    /// Charges units: as many as there are, or more if a request has cost more than it had reserved. What is beyond twice the burst is forgiven.
    pub(crate) fn charge(&mut self, units: u32, rate: Rate, now: Timestamp) {
        let tat = self.tat.max(now.nanos()).saturating_add(rate.of(units));
        self.tat = tat.min(furthest(rate, now));
    }

    /// Gives units back that `charged` has left behind, unless they have flowed back already.
    pub(crate) fn give_back(&mut self, units: u32, charged: Self, rate: Rate, now: Timestamp) {
        let given_since = self.given.saturating_sub(charged.given);
        let left = charged.tat.saturating_sub(given_since).saturating_sub(now.nanos());
        let given = rate.of(units).min(left);
        self.tat = self.tat.saturating_sub(given);
        self.given = self.given.saturating_add(given);
    }
}

fn furthest(rate: Rate, now: Timestamp) -> u64 {
    now.nanos().saturating_add(rate.burst.saturating_mul(2))
}

#[cfg(test)]
mod tests;
