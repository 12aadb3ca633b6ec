//! Customers who send far more than they may, and customers beside them.

use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::exchange::get;
use tests::policy::Policy;

use crate::clients::{Seen, Traffic, send, send_and_leave, send_at};
use crate::fleet::{Fleet, PATIENCE, Shape, Store};

const LIMIT: usize = 600;
const FAR: Duration = Duration::from_millis(40);
const TERM: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(500);

fn policy(limit: usize, keys: impl IntoIterator<Item = String>) -> Policy {
    let plans = json!({"hour": {"standard": [format!("{limit}/hour")]}});
    let policy = Policy::contract().unwrap().with("plans", plans);
    keys.into_iter().fold(policy, |policy, key| policy.subscriber(&key, "hour", &key))
}

/// The policy of a fleet that waits for the ledger longer than by default. A flood takes the whole machine, on which an answer may take that long.
fn patient(policy: Policy) -> Policy {
    let term = format!("{}s", TERM.as_secs());
    policy.with(
        "fleet",
        json!({"cluster": "ledger", "on_unavailable": "deny", "timeout": "500ms", "term": term}),
    )
}

fn keys(number: usize) -> impl Iterator<Item = String> {
    (0..number).map(|number| format!("key-{number}"))
}

#[test]
fn a_key_with_nothing_left_costs_one_statement_of_each_gateway_in_a_term() {
    const GATEWAYS: usize = 8;
    let fleet = Fleet::start(
        &patient(policy(LIMIT, keys(1))),
        Shape { gateways: GATEWAYS, store: Store::redis(), ..Shape::default() },
    );
    let flood = |most: Duration| {
        let traffic = Traffic { burst: 16, per_second: f64::INFINITY, most, enough: usize::MAX };
        let seen = send(&fleet.addresses(), &vec![("key-0".to_owned(), traffic); GATEWAYS]);
        let answers: usize = seen.iter().map(|seen| seen.times.len()).sum();
        (answers, seen.iter().map(Seen::passed).sum::<usize>())
    };
    // Meanwhile the pauses grow. They would begin anew only after two terms without a request.
    let (_, passed) = flood(3 * TERM);
    assert_eq!(passed, LIMIT);
    let before = fleet.statements();
    let (answers, passed) = flood(2 * TERM);
    let statements = fleet.statements() - before;
    println!("{answers} requests and {statements} statements in two terms");
    // The time begins and ends with one statement.
    let most = 3 * GATEWAYS;
    assert!(answers > 100 * most && passed == 0, "{answers}, {passed} admitted");
    assert!(statements <= most as f64, "{statements} statements in two terms");
}

/// Each of `customers` customers sends one request, one customer after the other.
fn check_slow_keys(customers: usize) {
    let shape = Shape { store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let fleet = Fleet::start(&patient(policy(LIMIT, keys(customers))), shape);
    let (before, mut times) = (fleet.statements(), Vec::new());
    for (number, key) in keys(customers).enumerate() {
        let gateway = &fleet.gateways[number % fleet.gateways.len()];
        let began = clock::now();
        let answer = gateway.send(&get("/links").key(&key)).unwrap();
        times.push(clock::now() - began);
        assert_eq!(answer.status(), 200, "{answer}");
    }
    times.sort_unstable();
    let (median, statements) = (times[customers / 2], (fleet.statements() - before) / customers as f64);
    println!("{customers} customers: {statements} statements for a request, which takes {median:?}");
    assert!(statements <= 1.01, "{statements}");
    assert!((FAR..2 * FAR).contains(&median), "{median:?}");
}

#[test]
fn a_slow_key_costs_one_statement_and_waits_one_round_trip() {
    check_slow_keys(250);
}

#[test]
fn what_clients_do_not_wait_for_is_left_to_the_other_gateway() {
    const AT_ONCE: usize = 200;
    const LEAVE: usize = 135;
    let shape = Shape { store: Store::redis(), round_trip: FAR, ..Shape::default() };
    let fleet = Fleet::start(&patient(policy(AT_ONCE, keys(1))), shape);
    let addresses = fleet.addresses();
    let passed = send_and_leave(addresses[0], "key-0", AT_ONCE, LEAVE, Duration::from_millis(10));
    assert_eq!(passed, AT_ONCE - LEAVE);
    let mut rest = 0;
    clock::eventually("what the others left", 2 * PATIENCE, || {
        let seen = send_at(&addresses[1..], "key-0", AT_ONCE, &[clock::now() + MOMENT]);
        rest += seen.passed();
        (rest >= LEAVE).then_some(())
    })
    .unwrap_or_else(|error| panic!("{rest} of {LEAVE}: {error}"));
    assert_eq!(rest, LEAVE);
}

/// One customer sends `at_once` requests at the same time. The filter refuses no other customer.
fn check_crowd(at_once: usize) {
    const OTHERS: usize = 20;
    let shape = Shape { gateways: 1, store: Store::redis(), round_trip: FAR, ..Shape::default() };
    // A worker that takes in this number of requests may read the ledger's answer too late. By default, nobody else is refused then either.
    let policy = policy(LIMIT, keys(OTHERS + 1)).with("fleet", json!({"cluster": "ledger"}));
    let fleet = Fleet::start(&policy, shape);
    let (addresses, at) = (fleet.addresses(), clock::now() + Duration::from_secs(5));
    let (crowd, others) = std::thread::scope(|scope| {
        let crowd = scope.spawn(|| send_at(&addresses, "key-0", at_once, &[at]));
        let others = keys(OTHERS + 1).skip(1).map(|key| {
            let addresses = &addresses;
            scope.spawn(move || send_at(addresses, &key, 1, &[at + Duration::from_millis(20)]))
        });
        let others: Vec<_> = others.collect();
        let others: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        (crowd.join().unwrap(), others)
    });
    println!("{at_once} at once: {} admitted, {:?}", crowd.passed(), crowd.others);
    assert!(crowd.passed() <= LIMIT + LIMIT / 10 && crowd.others.keys().all(|status| *status == 503));
    for seen in others {
        assert_eq!(seen.passed(), 1, "{:?}", seen.others);
    }
}

#[test]
fn a_crowd_of_one_customer_refuses_no_other() {
    check_crowd(2_000);
}

#[test]
#[ignore = "long: 10,000 connections"]
fn a_crowd_of_ten_thousand_refuses_no_other() {
    check_crowd(10_000);
}

#[test]
#[ignore = "long: 9,000 customers in turn"]
fn slow_keys_cost_one_statement_each_and_wait_one_round_trip() {
    check_slow_keys(9_000);
}
