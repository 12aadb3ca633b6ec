//! Every quota is used up exactly: never one request more, never one less, with any number of workers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::flood;
use tests::policy::Policy;

const WORKERS: usize = 4;
const CONNECTIONS: usize = 64;

/// Windows of a month, so that none ends in the middle. (One may: then the test fails once a month, at midnight UTC.)
fn policy(limit: u32, keys: usize) -> Policy {
    let contract = Policy::contract().unwrap().with_at("/plans/pro/standard", json!([format!("{limit}/month")]));
    (0..keys).fold(contract, |policy, key| policy.subscriber(&format!("s{key}"), "pro", &format!("key-{key}")))
}

fn envoy(policy: Policy) -> Envoy {
    Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(WORKERS)).unwrap()
}

/// Requests of `keys` keys, taking turns.
fn requests(keys: usize, per_key: usize) -> impl Iterator<Item = (usize, tests::exchange::Request)> {
    (0..keys * per_key).map(move |i| (i % keys, get("/links").key(&format!("key-{}", i % keys))))
}

#[test]
fn one_key_with_600_of_quota_over_64_connections_gets_exactly_600_of_6000() {
    let envoy = envoy(policy(600, 1));
    let counts = flood::send(envoy.address(), CONNECTIONS, requests(1, 6000)).unwrap();
    assert_eq!(counts, BTreeMap::from([((0, 200), 600), ((0, 429), 5400)]));
    assert_counted(&envoy, 600, 5400);
}

#[test]
fn fifty_keys_at_once_get_each_exactly_their_limit() {
    let envoy = envoy(policy(100, 50));
    let counts = flood::send(envoy.address(), CONNECTIONS, requests(50, 200)).unwrap();
    let expected = (0..50).flat_map(|key| [((key, 200), 100), ((key, 429), 100)]).collect();
    assert_eq!(counts, expected);
    assert_counted(&envoy, 50 * 100, 50 * 100);
}

/// The filter's own counts agree, and nothing departed from exactness.
fn assert_counted(envoy: &Envoy, allowed: u64, limited: u64) {
    let counter = |outcome| envoy.counter("pro", "standard", outcome).ok();
    clock::eventually("the filter's counts", Duration::from_secs(10), || {
        let counts = (counter("allowed")?, counter("limited")?);
        (counts == (allowed, limited)).then_some(())
    })
    .unwrap();
    assert_eq!(counter("error"), Some(0));
}
