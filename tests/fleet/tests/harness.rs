//! The harness itself: every gateway and every worker takes part, and what it counts is what there was.

use std::time::Duration;

use fleet::load::{Load, Pace, subscribers};
use fleet::{Limiter, Setup};
use serde_json::json;

#[test]
fn gateways_that_share_nothing_admit_the_quota_each() {
    const LIMIT: u64 = 30;
    let configuration = json!({
        "plans": {"free": {"standard": [format!("{LIMIT}/minute")]}},
        "subscribers": subscribers(3, "free"),
    });
    let fleet = Setup::new(Limiter::Weir(configuration)).gateways(3).workers(2).start().unwrap();
    // The kernel deals connections out by chance: each worker gets one of this many.
    let load = Load { connections: 32, ..Load::new(3, Pace::Unbounded, Duration::from_secs(1)) };
    let seen = load.offer(&fleet).unwrap();
    let total = seen.total();
    assert_eq!((seen.calls, total.other, seen.astride), (0, 0, 0), "{seen}");
    assert_eq!(seen.admitted().collect::<Vec<_>>(), [3 * LIMIT; 3], "{seen}");
    let answers: usize = seen.latencies.values().map(Vec::len).sum();
    assert_eq!(answers as u64, total.admitted + total.refused);
    assert!(seen.latency(200, 0.5).unwrap() <= seen.latency(200, 0.99).unwrap());
    assert_eq!(fleet.gateways.len(), 3);
    for gateway in &fleet.gateways {
        assert!(gateway.connections_by_worker().unwrap().iter().all(|taken| *taken > 0));
    }
}

#[test]
fn a_rate_is_kept() {
    let configuration = json!({
        "plans": {"free": {"standard": ["100000/minute"]}},
        "subscribers": subscribers(5, "free"),
    });
    let fleet = Setup::new(Limiter::Weir(configuration)).start().unwrap();
    let seen = Load::new(5, Pace::PerSecond(100), Duration::from_secs(2)).offer(&fleet).unwrap();
    assert_eq!(seen.total().admitted + seen.astride, 200, "{seen}");
    assert!(seen.admitted().all(|admitted| admitted == 40), "{seen}");
    assert!(seen.took >= Duration::from_millis(1900), "{seen}");
}
