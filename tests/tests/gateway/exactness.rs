//! Every quota is used up exactly: never one request more, never one less, with any number of workers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::Policy;
use tests::{clock, flood, ratelimit, soak};

mod simulator;

const CONNECTIONS: usize = 64;
/// Weeks and months end with a day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer than 100,000 requests to an Envoy take.
const ROOM: Duration = Duration::from_secs(60);

/// Windows of a month. The simulator's clock stands still; in front of an Envoy, [`answers`] waits until the month has room.
fn policy(limit: u32, keys: usize) -> Policy {
    let contract =
        Policy::contract().unwrap().with_at("/plans/pro/standard", json!([format!("{limit}/month")]));
    (0..keys)
        .fold(contract, |policy, key| policy.subscriber(&format!("s{key}"), "pro", &format!("key-{key}")))
}

fn envoy(policy: Policy, workers: usize) -> Envoy {
    Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(workers)).unwrap()
}

/// The answers of an Envoy to these requests, by key and status. No window of a week or a month ends within `room` of the first one.
fn answers(
    envoy: &Envoy,
    connections: usize,
    room: Duration,
    requests: impl Iterator<Item = (usize, tests::exchange::Request)> + Send + 'static,
) -> BTreeMap<(usize, u16), usize> {
    clock::wait_for_room(DAY, room);
    flood::send(envoy.address(), connections, requests).unwrap()
}

/// Requests of `keys` keys, taking turns.
fn requests(keys: usize, per_key: usize) -> impl Iterator<Item = (usize, tests::exchange::Request)> {
    (0..keys * per_key).map(move |i| (i % keys, get("/links").key(&format!("key-{}", i % keys))))
}

#[test]
fn one_key_with_600_of_quota_over_64_connections_gets_exactly_600_of_6000() {
    let envoy = envoy(policy(600, 1), 4);
    let counts = answers(&envoy, CONNECTIONS, ROOM, requests(1, 6000));
    assert_eq!(counts, BTreeMap::from([((0, 200), 600), ((0, 429), 5400)]));
    assert_counted(&envoy, 600, 5400);
}

/// A worker that writes alone swaps without reading; of several each comes in between the others.
#[test]
fn fifty_keys_at_once_get_each_exactly_their_limit_of_any_number_of_workers() {
    for workers in [1, 2, 4] {
        let envoy = envoy(policy(100, 50), workers);
        let counts = answers(&envoy, CONNECTIONS, ROOM, requests(50, 200));
        let expected = (0..50).flat_map(|key| [((key, 200), 100), ((key, 429), 100)]).collect();
        assert_eq!(counts, expected, "{workers} workers");
        assert_counted(&envoy, 50 * 100, 50 * 100);
    }
}

/// The monthly and the weekly limit of a key that sends `sent` requests: each of them is the tighter one for half of the keys.
fn two_limits(key: usize, keys: usize, sent: usize) -> (usize, usize) {
    (sent / 2 + key, sent / 2 + keys - 1 - key)
}

/// 200 keys with two quotas each use them up over all workers of a real Envoy, `room` being time enough for it.
fn two_quotas_over_eight_workers(requests_in_all: usize, room: Duration) {
    const WORKERS: usize = 8;
    const KEYS: usize = 200;
    let per_key = requests_in_all / KEYS;
    let policy = (0..KEYS).fold(Policy::contract().unwrap(), |policy, key| {
        let (month, week) = two_limits(key, KEYS, per_key);
        let limits = json!({"standard": [format!("{month}/month"), {"limit": week, "window": "7d"}]});
        policy.agreed(&format!("s{key}"), "pro", &format!("key-{key}"), &limits)
    });
    let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(WORKERS)).unwrap();
    let counts = answers(&envoy, 2 * CONNECTIONS, room, requests(KEYS, per_key));

    let admitted = |key| {
        let (month, week) = two_limits(key, KEYS, per_key);
        month.min(week)
    };
    let expected =
        (0..KEYS).flat_map(|key| [((key, 200), admitted(key)), ((key, 429), per_key - admitted(key))]);
    assert_eq!(counts, expected.collect());
    // A refused request has consumed nothing, of neither quota.
    for key in 0..KEYS {
        let refused = envoy.send(&get("/links").key(&format!("key-{key}"))).unwrap();
        let (month, week) = two_limits(key, KEYS, per_key);
        let left = ["standard-month", "standard-604800s"]
            .map(|quota| ratelimit::left(refused.header("ratelimit").unwrap_or_default(), quota));
        assert_eq!(left, [month, week].map(|limit| Some(limit - admitted(key))), "key {key}: {refused}");
    }
    let allowed: usize = (0..KEYS).map(admitted).sum();
    let limited = requests_in_all - allowed + KEYS;
    assert_counted(&envoy, allowed as u64, limited as u64);
    let connections = envoy.connections_by_worker().unwrap();
    assert!(connections.len() == WORKERS && !connections.contains(&0), "{connections:?}");
    soak::row(
        "two quotas a key, used up exactly in Envoy",
        format_args!("{requests_in_all} requests, {KEYS} keys, {WORKERS} workers"),
        format_args!("{allowed} admitted, {limited} refused, as many as there should be; error 0"),
    );
}

#[test]
fn two_hundred_keys_use_up_two_quotas_each_over_eight_workers() {
    two_quotas_over_eight_workers(100_000, ROOM);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn two_hundred_keys_use_up_two_quotas_each_with_a_million_requests() {
    two_quotas_over_eight_workers(1_000_000, Duration::from_secs(900));
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
