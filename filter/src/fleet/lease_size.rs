//! How many units a call asks the rate-limit service for.
//!
//! The service adds what it is asked for before it looks at the limit. A call for more than is left grants nothing, and uses up what was
//! left for the whole fleet until the window ends. And units that one gateway holds are units that another may be short of. So a
//! lease is as large as the key's rate makes it likely to be used, and at most a part of what was left.

use crate::count::lease::{Lease, REFILL_AHEAD, WindowTime};
use crate::quota::Quota;

/// A refill is at most one part in this many of what is likely to be left by now,
const PARTS_OF_LEFT: u128 = 3;
/// and at most this percentage of the gateway's fair share of it, which is in proportion to what each gateway has taken.
const PERCENT_OF_FAIR_SHARE: u128 = 75;
/// However little is left, one part in this many of the limit may be asked for. What is lost if another gateway asks at the same time is
/// less than that, once in a window for the whole fleet.
const PARTS_OF_LIMIT: u32 = 20;
/// If what is likely to be left does not last for this many milliseconds at the present rate, at most that part of the limit is asked
/// for: what the last answer reported as left is used up by the time that the next call arrives.
const SOON: u128 = 2_000;

/// Most units beyond a debt that one call asks for on behalf of requests that wait.
#[must_use]
pub fn most_for_waiting(quota: &Quota, cost: u32) -> u32 {
    (quota.limit.get() / PARTS_OF_LIMIT).max(cost).max(1)
}

/// Units to ask for beyond what waiting requests need, when `used` units are used and this worker's calls in flight ask for
/// `in_flight`: what the gateway owes, and what is likely to be used.
#[must_use]
pub fn refill(quota: &Quota, used: u32, in_flight: u32, lease: &Lease, time: WindowTime) -> u32 {
    let limit = quota.limit.get();
    // What is owed is used up already, so that it is asked for whole.
    let debt = lease.lacking(used, 0);
    let Some(left) = lease.left(limit) else {
        // A window has just begun: a part of what this gateway used in the one before is likely to be used, and to be left.
        let begins = time.elapsed < time.left / PARTS_OF_LIMIT;
        let first = if begins { lease.before.min(limit) / 4 } else { 0 };
        return debt.saturating_add(first);
    };
    // The products of limits, rates and shares below do not fit in 64 bits.
    let (granted, others) = (u128::from(lease.granted), u128::from(taken_by_others(lease, time)));
    let likely_left = u128::from(limit).saturating_sub(granted + others).min(left.into());
    let of_limit = u128::from(left.min(limit / PARTS_OF_LIMIT));
    // While requests wait, the rate has just risen, and what was left is not what is left.
    let is_soon_exhausted = u128::from(present_rate(lease, used, time)) * (granted + others) * SOON
        >= likely_left * granted * 1000;
    let most = match in_flight {
        0 if !is_soon_exhausted => {
            let fair_share = likely_left * granted / (granted + others).max(1) * PERCENT_OF_FAIR_SHARE / 100;
            (likely_left / PARTS_OF_LEFT).min(fair_share).max(of_limit)
        }
        _ => of_limit,
    };
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    // What is held already is used first.
    debt.saturating_add(lease.likely_in(used, time, time.left).saturating_sub(lease.room(used)).min(most))
}

/// Units a second that this gateway uses of late.
fn present_rate(lease: &Lease, used: u32, time: WindowTime) -> u64 {
    let since = time.elapsed.saturating_sub(lease.rate_from).max(REFILL_AHEAD);
    u64::from(used.saturating_sub(lease.rate_used)) * 1000 / u64::from(since)
}

/// Units that the other gateways are likely to have taken by now. Since the last answer they have gone on at the mean rate that it showed.
/// If it came too early to show a rate, they go on as in the window before, or else like this gateway.
fn taken_by_others(lease: &Lease, time: WindowTime) -> u64 {
    let (seen, granted) = (u64::from(lease.taken_by_others().unwrap_or(0)), u64::from(lease.granted));
    if lease.answered >= REFILL_AHEAD {
        seen * u64::from(time.elapsed.max(lease.answered)) / u64::from(lease.answered)
    } else if lease.before > 0 {
        seen.max(granted * u64::from(lease.others_before) / u64::from(lease.before))
    } else {
        seen.max(granted)
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use super::*;
    use crate::quota::Mode;
    use crate::window::Window;

    #[test]
    fn the_largest_numbers_have_a_size_too() {
        let quota = Quota {
            name: String::new(),
            limit: NonZeroU32::MAX,
            window: Window::DAY,
            mode: Mode::Enforced,
            refundable: true,
        };
        for granted in [1, u32::MAX / 2, u32::MAX] {
            let lease = Lease { granted, taken: u32::MAX - 1, answered: 250, ..Lease::NONE };
            for used in [0, granted, u32::MAX] {
                let time = WindowTime { elapsed: 86_000_000, left: 400_000 };
                assert!(refill(&quota, used, 0, &lease, time) <= lease.lacking(used, 0).saturating_add(1));
            }
        }
    }
}
