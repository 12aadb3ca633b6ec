//! The gateways that this process heard.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ledger_wire::Hex128;

/// How long a gateway counts after it was heard, in milliseconds.
const HEARD: u64 = 10_000;
/// How often a clock that is off is named in the log, in milliseconds.
const NAMED: u64 = 60_000;

/// The gateways that were heard in the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Gateways(Mutex<HashMap<Hex128, Heard>>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: u64,
    clock_named: u64,
}

impl Gateways {
    /// Notes that `gateway` was heard at `now`, and counts those of the last ten seconds, this one among them.
    pub(crate) fn hear(&self, gateway: Hex128, now: u64) -> u32 {
        let mut gateways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match gateways.get_mut(&gateway) {
            Some(heard) => heard.at = now,
            None => {
                // Only here can the map grow, so only here must it shrink.
                gateways.retain(|_, heard| is_recent(*heard, now));
                gateways.insert(gateway, Heard { at: now, clock_named: 0 });
            }
        }
        let count = gateways.values().filter(|heard| is_recent(**heard, now)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether the log is to name the clock of `gateway`, which is off.
    pub(crate) fn name_clock(&self, gateway: Hex128, now: u64) -> bool {
        let mut gateways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = gateways.get_mut(&gateway).filter(|heard| now.abs_diff(heard.clock_named) >= NAMED);
        due.map(|heard| heard.clock_named = now).is_some()
    }

    /// How many were heard since the epoch began at `began`, and how many only before.
    pub(crate) fn count(&self, began: u64, now: u64) -> (usize, usize) {
        let gateways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = gateways.values().filter(|heard| is_recent(**heard, now));
        let (current, earlier): (Vec<&Heard>, Vec<&Heard>) = recent.partition(|heard| heard.at >= began);
        (current.len(), earlier.len())
    }
}

/// Also after the clock has stepped back.
fn is_recent(heard: Heard, now: u64) -> bool {
    now.abs_diff(heard.at) <= HEARD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_counts_for_ten_seconds() {
        let gateways = Gateways::default();
        //  time, gateway, how many were heard then, those since 5,000 and before
        for (now, gateway, heard, current, earlier) in [
            (1_000, 1, 1, 0, 1),
            (1_500, 1, 1, 0, 1),
            (4_000, 2, 2, 0, 2),
            (6_000, 2, 2, 1, 1),
            (11_500, 3, 3, 2, 1),
            (11_501, 3, 2, 2, 0),
            (16_001, 1, 2, 2, 0),
        ] {
            assert_eq!(gateways.hear(Hex128(gateway), now), heard, "{now}");
            assert_eq!(gateways.count(5_000, now), (current, earlier), "{now}");
        }
    }

    #[test]
    fn a_clock_is_named_once_a_minute() {
        let gateways = Gateways::default();
        gateways.hear(Hex128(1), 100_000);
        for (now, is_named) in [(100_000, true), (100_001, false), (159_999, false), (160_000, true)] {
            gateways.hear(Hex128(1), now);
            assert_eq!(gateways.name_clock(Hex128(1), now), is_named, "{now}");
        }
        assert!(!gateways.name_clock(Hex128(2), 100_000), "a gateway that was not heard");
    }
}
