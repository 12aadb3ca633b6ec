//! What is away, and comes back: replicas of the ledger, connections, the store, its data.

use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::envoy::Envoy;
use tests::exchange::get;
use tests::policy::Policy;

use crate::clients::{Seen, Traffic, send};
use crate::fleet::{Fleet, PATIENCE, Shape, Store};
use crate::outages::{FAR, KEYS, LIMIT, key, passed, passed_in_all, policy, policy_with};

/// Whole again, if the store has kept its data.
const BACK: Duration = Duration::from_secs(1);
/// How long a request waits for the ledger where none may be refused: the longest that the filter takes.
const UNHURRIED: Duration = Duration::from_millis(500);
/// If a new epoch has begun.
const BACK_AFTER_AN_EPOCH: Duration = Duration::from_secs(3);

/// Refuses what the ledger does not answer, but waits for as long as the filter takes, so that a busy machine has time to answer.
fn unhurried_policy() -> Policy {
    let timeout = format!("{}ms", UNHURRIED.as_millis());
    policy_with(json!({"cluster": "ledger", "on_unavailable": "deny", "timeout": timeout, "term": "2s"}))
}

/// Each probe is another key, which nothing is held for.
struct Probes(std::ops::Range<usize>);

impl Probes {
    /// How long it takes until a request of a new key passes at each gateway.
    fn until_granted(&mut self, gateways: &[Envoy]) -> Duration {
        let began = clock::now();
        for gateway in gateways {
            clock::eventually("a request is granted", PATIENCE, || {
                let key = key(self.0.next().expect("a key is left"));
                clock::pass(Duration::from_millis(20));
                (gateway.send(&get("/links").key(&key)).unwrap().status() == 200).then_some(())
            })
            .unwrap();
        }
        clock::now() - began
    }
}

/// That each key was served, and no request waited until a call counted as lost.
fn assert_unnoticed(seen: &[Seen], least: usize) {
    for seen in seen {
        assert!(seen.others.is_empty() && seen.before_a_429.is_none(), "{:?}", seen.others);
        assert!(seen.passed() > least, "{}", seen.passed());
        let longest = seen.times.iter().max().unwrap();
        assert!(*longest < UNHURRIED / 2, "{longest:?}");
    }
}

#[test]
fn connections_that_break_are_noticed_by_no_request() {
    let shape = Shape { ledgers: 2, store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let fleet = Fleet::start(&unhurried_policy(), shape);
    let traffic = |number| {
        (
            key(number),
            Traffic { burst: 5, per_second: 50.0, most: Duration::from_secs(5), enough: usize::MAX },
        )
    };
    let seen = std::thread::scope(|scope| {
        let seen = scope.spawn(|| send(&fleet.addresses(), &(0..8).map(traffic).collect::<Vec<_>>()));
        for number in 0..8 {
            clock::pass(Duration::from_millis(500));
            fleet.ways[number % 2].reset();
        }
        seen.join().unwrap()
    });
    assert_unnoticed(&seen, 100);
}

#[test]
fn a_store_that_hangs_is_back_within_a_second_and_what_passed_meanwhile_is_charged() {
    let shape = Shape { store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let mut fleet = Fleet::start(&policy(&json!({"local": 10})), shape);
    // A third one refuses what the others admit by themselves.
    fleet.add_gateway(&policy(&json!("deny")), 0);
    let mut probes = Probes(1..KEYS);
    assert_eq!(passed(&fleet, 0, "key-0", 100), 100);
    for away in [Duration::from_secs(1), Duration::from_secs(5)] {
        fleet.store.alone().pause();
        let began = clock::now();
        let local: usize = (0..2).map(|gateway| passed(&fleet, gateway, "key-0", 80)).sum();
        // What was held is used first; the part of the limit is for the whole window.
        assert!(local <= 2 * (LIMIT / 10 + LIMIT / 20), "{local}");
        clock::pass(away.saturating_sub(clock::now() - began));
        fleet.store.alone().resume();
        let back = probes.until_granted(&fleet.gateways[2..]);
        println!("away for {away:?}: back after {back:?}");
        assert!(back < BACK, "{back:?}");
    }
    let rest = passed_in_all(&fleet, "key-0");
    let standing = fleet.gateways[0].send(&get("/links").key("key-0")).unwrap();
    assert_eq!((standing.status(), standing.number("x-ratelimit-remaining")), (429, Some(0)), "{rest}");
}

/// The store dies while a key has used a part, and returns with its data or without. In all, the limit is used and no more.
fn check_restart(store: Store, keeps: bool) {
    let shape = Shape { store, round_trip: FAR, ..Shape::default() };
    let mut fleet = Fleet::start(&policy(&json!("deny")), shape);
    let mut probes = Probes(1..KEYS);
    let before: usize = (0..2).map(|gateway| passed(&fleet, gateway, "key-0", 150)).sum();
    assert_eq!(before, 300);
    fleet.store.alone().kill();
    clock::pass(Duration::from_secs(1));
    let away = passed(&fleet, 1, "key-1", 10);
    assert_eq!(away, 0, "without the ledger, nothing passes that is not held");
    fleet.store.run();
    let back = probes.until_granted(&fleet.gateways);
    println!("{}: granted after {back:?}", if keeps { "with its data" } else { "without" });
    assert!(back < BACK_AFTER_AN_EPOCH, "{back:?}");
    assert_eq!(before + passed_in_all(&fleet, "key-0"), LIMIT);
}

#[test]
fn a_store_that_is_restarted_grants_again_within_three_seconds_and_no_unit_twice() {
    check_restart(Store::durable_redis(), true);
    check_restart(Store::redis(), false);
}

#[test]
fn a_replica_that_dies_and_returns_is_noticed_by_no_request() {
    let shape = Shape { ledgers: 2, store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let mut fleet = Fleet::start(&unhurried_policy(), shape);
    let traffic = |number| {
        (
            key(number),
            // So few that chance does not use up the limit: 5 standard deviations below what may be used before others' units are missed.
            Traffic { burst: 5, per_second: 40.0, most: Duration::from_secs(9), enough: usize::MAX },
        )
    };
    let addresses = fleet.addresses();
    let seen = std::thread::scope(|scope| {
        let seen = scope.spawn(|| send(&addresses, &(0..8).map(traffic).collect::<Vec<_>>()));
        clock::pass(Duration::from_secs(2));
        let address = fleet.kill_ledger(0);
        fleet.ways[0].reset();
        clock::pass(Duration::from_secs(3));
        fleet.return_ledger(0, address);
        seen.join().unwrap()
    });
    assert_unnoticed(&seen, 200);
}
