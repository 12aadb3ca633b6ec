//! How many units a call asks the rate-limit service for.
//!
//! The service adds what it is asked for before it looks at the limit. A call for more than is left grants nothing, and uses up what was
//! left for the whole fleet until the window ends. And units that one gateway holds are units that another may be short of. So a
//! lease is as large as the key's rate makes it likely to be used, and at most a part of what was left.

use crate::count::lease::{Lease, LeaseTerms, WindowTime};
use crate::quota::Quota;

/// A refill is at most one part in this many of what the service had left. Four gateways may ask at the same time and still get
/// what they ask for.
const PARTS_OF_LEFT: u32 = 4;
/// One part in this many of the limit may be asked for however little is left: all that can be lost is less than that, once in a
/// window for the whole fleet.
const PARTS_OF_LIMIT: u32 = 20;

/// Most units beyond a debt that one call asks for on behalf of requests that wait.
#[must_use]
pub fn most_for_waiting(quota: &Quota, cost: u32) -> u32 {
    (quota.limit.get() / PARTS_OF_LIMIT).max(cost).max(1)
}

/// Units to ask for beyond what waiting requests need, when `used` units are used: what the gateway owes, and what is likely to be used. 0
/// if the quota is not leased.
#[must_use]
pub fn refill(terms: &LeaseTerms, quota: &Quota, used: u32, lease: &Lease, time: WindowTime) -> u32 {
    let limit = quota.limit.get();
    if !terms.leases(quota.window) || time.left <= terms.timeout {
        return 0;
    }
    // What is owed is used up already, so that it is asked for whole.
    let debt = lease.lacking(used, 0);
    let Some(left) = lease.left(limit) else { return debt };
    let most = (left / PARTS_OF_LEFT).max(left.min(limit / PARTS_OF_LIMIT));
    // What is held already is used first.
    debt.saturating_add(time.likely_in(used, time.left).saturating_sub(lease.room(used)).min(most))
}
