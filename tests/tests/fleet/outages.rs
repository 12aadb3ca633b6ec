//! What is away: a master of the store, or every ledger. How soon all is well again is judged in `alone`.

use std::time::Duration;

use serde_json::{Value, json};
use tests::clock;
use tests::exchange::get;
use tests::policy::Policy;

use crate::clients::{Traffic, send};
use crate::fleet::{Fleet, PATIENCE, Shape, Store};

pub(crate) const LIMIT: usize = 600;
pub(crate) const KEYS: usize = 300;
pub(crate) const FAR: Duration = Duration::from_millis(10);

/// Keys with 600 an hour.
pub(crate) fn policy(on_unavailable: &Value) -> Policy {
    policy_with(json!({"cluster": "ledger", "on_unavailable": on_unavailable}))
}

pub(crate) fn policy_with(fleet: Value) -> Policy {
    let plans =
        json!({"hour": {"standard": [format!("{LIMIT}/hour")]}, "second": {"standard": ["2/second"]}});
    let policy = Policy::contract().unwrap().with("plans", plans).subscriber("second", "second", "second");
    let policy = policy.with("fleet", fleet);
    (0..KEYS).map(key).fold(policy, |policy, key| policy.subscriber(&key, "hour", &key))
}

pub(crate) fn key(number: usize) -> String {
    format!("key-{number}")
}

/// How many requests of a key pass at a gateway.
pub(crate) fn passed(fleet: &Fleet, gateway: usize, key: &str, requests: usize) -> usize {
    let answers = (0..requests).map(|_| fleet.gateways[gateway].send(&get("/links").key(key)).unwrap());
    answers.filter(|answer| answer.status() == 200).count()
}

/// Passes at both gateways until a limit is reached that is not to be exceeded.
pub(crate) fn passed_in_all(fleet: &Fleet, key: &str) -> usize {
    let traffic = Traffic { burst: 5, per_second: 200.0, most: Duration::from_secs(8), enough: usize::MAX };
    send(&fleet.addresses(), &[(key.to_owned(), traffic)])[0].passed()
}

#[test]
fn a_cluster_that_fails_over_grants_again_and_no_unit_twice() {
    let shape = Shape { store: Store::cluster(), round_trip: FAR, ..Shape::default() };
    let mut fleet = Fleet::start(&policy(&json!("deny")), shape);
    let keys: Vec<_> = (0..12).map(key).collect();
    for key in &keys {
        assert_eq!((0..2).map(|gateway| passed(&fleet, gateway, key, 100)).sum::<usize>(), 200);
    }
    // Until then, replicas have what was granted.
    clock::pass(Duration::from_secs(1));
    let began = clock::now();
    fleet.store.lose_a_master();
    clock::eventually("all are granted again", PATIENCE, || {
        let is_granted = |key: &String| {
            let answer = fleet.gateways[0].send(&get("/links").key(key)).unwrap();
            answer.status() == 200
        };
        keys.iter().all(is_granted).then_some(())
    })
    .unwrap();
    println!("failed over: granted after {:?}", clock::now() - began);
    let traffic = Traffic { burst: 5, per_second: 150.0, most: Duration::from_secs(10), enough: LIMIT };
    let traffic: Vec<_> = keys.iter().map(|key| (key.clone(), traffic)).collect();
    send(&fleet.addresses(), &traffic);
    for key in &keys {
        let answer = fleet.gateways[1].send(&get("/links").key(key)).unwrap();
        assert_eq!((answer.status(), answer.number("x-ratelimit-remaining")), (429, Some(0)), "{key}");
    }
}

#[test]
fn without_a_ledger_a_small_limit_admits_one_request_in_each_window_at_each_gateway() {
    let mut fleet = Fleet::start(&policy(&json!({"local": 10})), Shape::default());
    fleet.kill_ledger(0);
    let traffic = Traffic { burst: 1, per_second: 20.0, most: Duration::from_secs(8), enough: usize::MAX };
    let seen = send(&fleet.addresses(), &[("second".to_owned(), traffic)]).remove(0);
    assert!(seen.others.is_empty(), "{:?}", seen.others);
    let windows: Vec<_> = seen.by_window().into_values().collect();
    let whole = &windows[1..windows.len() - 1];
    assert!(whole.len() >= 5 && whole.iter().all(|admitted| *admitted == 2), "{windows:?}");
}
