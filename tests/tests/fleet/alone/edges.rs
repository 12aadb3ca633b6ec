//! Boundaries between windows, and clocks that disagree about them: no window is exceeded, whatever its index and whoever names it.

use std::time::Duration;

use serde_json::json;
use tests::clock::{left_of, now};
use tests::policy::Policy;

use crate::clients::{Seen, Traffic, send, send_at};
use crate::fleet::{Fleet, Shape, Store};

const SECOND: Duration = Duration::from_secs(1);
const TEN: Duration = Duration::from_secs(10);
const FAR: Duration = Duration::from_millis(40);
/// The plans, by name, limit and window; a plan's name is that of its customer's key, too.
const PLANS: [(&str, usize, &str); 3] = [("ten", 60, "10s"), ("second", 100, "1s"), ("eight", 8, "1s")];

fn policy() -> Policy {
    let plans = PLANS.map(|(name, limit, window)| {
        (name.to_owned(), json!({"standard": [{"limit": limit, "window": window}]}))
    });
    let policy = Policy::contract().unwrap().with("plans", plans.into_iter().collect());
    PLANS.iter().fold(policy, |policy, (name, _, _)| policy.subscriber(name, name, name))
}

fn assert_never_over(form: &str, seen: &Seen, limit: usize) {
    let windows = seen.by_window();
    assert!(seen.others.keys().all(|status| *status == 503), "{form}: {:?}", seen.others);
    assert!(windows.values().all(|admitted| *admitted <= limit), "{form}, {limit}: {windows:?}");
}

/// Instants just before and after the next boundaries, in time to open connections before the first.
fn around_boundaries(window: Duration, boundaries: u32) -> Vec<Duration> {
    const BEFORE_AND_AFTER: [i64; 4] = [-200, -20, 5, 60];
    let soon = now() + SECOND;
    let next = soon + left_of(window, soon);
    let of_boundary = |number| {
        let at = (next + window * number).as_millis() as i64;
        BEFORE_AND_AFTER.map(|by| Duration::from_millis((at + by).unsigned_abs()))
    };
    (0..boundaries).flat_map(of_boundary).collect()
}

/// Bursts of more than a limit, at all gateways at once, just before and after boundaries.
fn send_around_boundaries(fleet: &Fleet, form: &str) {
    for (plan, window, boundaries) in [("second", SECOND, 5), ("ten", TEN, 1)] {
        let limit = PLANS.iter().find(|(name, _, _)| *name == plan).unwrap().1;
        let seen = send_at(&fleet.addresses(), plan, limit, &around_boundaries(window, boundaries));
        assert_never_over(form, &seen, limit);
        // If no window were full, none could be exceeded. On a busy machine, the ledger is too late for some of them.
        assert!(
            seen.by_window().values().any(|admitted| *admitted == limit),
            "{form}: {:?}",
            seen.by_window()
        );
    }
}

/// A counter of one gateway.
fn of(fleet: &Fleet, gateway: usize, name: &str) -> u64 {
    fleet.gateways[gateway].prometheus(name).unwrap()
}

#[test]
fn bursts_across_a_boundary_exceed_no_window() {
    std::thread::scope(|scope| {
        for (gateways, store) in [(2, Store::redis()), (4, Store::cluster())] {
            scope.spawn(move || {
                let shape = Shape { gateways, store, round_trip: FAR, ..Shape::default() };
                send_around_boundaries(&Fleet::start(&policy(), shape), &format!("{gateways} gateways"));
            });
        }
    });
}

#[test]
fn clocks_that_differ_exceed_no_window_and_a_tenth_of_a_second_leaves_each_gateway_its_part() {
    //  by how many milliseconds the clocks are ahead, and whether that is little
    let forms: [(&'static [i64], bool); 4] =
        [(&[0, 100], true), (&[0, -100], true), (&[0, 400], false), (&[0, 5_000], false)];
    std::thread::scope(|scope| {
        for (clocks, is_fair) in forms {
            scope.spawn(move || {
                let shape = Shape { store: Store::redis(), clocks, ..Shape::default() };
                let (fleet, form) = (Fleet::start(&policy(), shape), format!("clocks {clocks:?}"));
                send_around_boundaries(&fleet, &form);
                let steady = |plan: &str, per_second| {
                    let most = Duration::from_secs(10);
                    (plan.to_owned(), Traffic { burst: 1, per_second, most, enough: usize::MAX })
                };
                let seen = send(&fleet.addresses(), &[steady("second", 300.0), steady("eight", 40.0)]);
                for (seen, limit) in seen.iter().zip([100, 8]) {
                    assert_never_over(&form, seen, limit);
                    let of_each = [0, 1].map(|gateway| seen.passed_at(gateway));
                    println!("{form}, {limit} a second: {of_each:?}");
                    // What the clocks are further apart is counted at the gateway that is ahead.
                    let answered = [0, 1]
                        .map(|gateway| of(&fleet, gateway, "weir_fleet_calls_total{result=\"answered\"}"));
                    let clock = [0, 1].map(|gateway| of(&fleet, gateway, "weir_fleet_clock_total"));
                    // Each answer shows such a clock; on a busy machine, late answers may look like it.
                    let is_named = clock[1] * 2 > answered[1];
                    assert_eq!(
                        (is_named, clock[0] * 2 > answered[0]),
                        (!is_fair, false),
                        "{form}: {clock:?} of {answered:?}"
                    );
                    let quarter = seen.passed() / 4;
                    assert!(
                        !is_fair || of_each.iter().all(|passed| *passed >= quarter),
                        "{form}: {of_each:?}"
                    );
                }
            });
        }
    });
}
