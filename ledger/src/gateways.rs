//! The gateways that this process heard.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ledger_wire::Hex128;
use tokio::time::Instant;

/// How long a gateway counts after it was heard.
const HEARD: Duration = Duration::from_secs(10);

/// When each gateway was heard last, of those that were in the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Gateways(Mutex<HashMap<Hex128, Instant>>);

impl Gateways {
    /// Notes that `gateway` was heard at `now`, and counts those of the last ten seconds, this one among them.
    pub(crate) fn hear(&self, gateway: Hex128, now: Instant) -> u32 {
        let mut gateways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gateways.retain(|_, at| now - *at <= HEARD);
        gateways.insert(gateway, now);
        u32::try_from(gateways.len()).unwrap_or(u32::MAX)
    }

    /// How many were heard lately since the epoch began at `began`, and how many only before.
    pub(crate) fn count(&self, began: Option<Instant>, now: Instant) -> (usize, usize) {
        let gateways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = gateways.values().copied().filter(|at| now - *at <= HEARD);
        let (current, earlier): (Vec<_>, Vec<_>) = recent.partition(|at| Some(*at) >= began);
        (current.len(), earlier.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_counts_for_ten_seconds() {
        let (gateways, start) = (Gateways::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
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
            assert_eq!(gateways.hear(Hex128(gateway), at(now)), heard, "{now}");
            assert_eq!(gateways.count(Some(at(5_000)), at(now)), (current, earlier), "{now}");
        }
        assert_eq!(gateways.count(None, at(21_502)), (1, 0));
    }
}
