//! Every quota is used up exactly: never one request more, never one less, with any number of workers.

use std::collections::BTreeMap;
use std::time::Duration;

use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Flavour, Host};
use serde_json::json;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{module, plugin};
use tests::key_list::KeyList;
use tests::policy::Policy;
use tests::{clock, flood, ratelimit, soak};

const CONNECTIONS: usize = 64;
/// VMs of the simulator.
const VMS: usize = 8;

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

fn simulator(flavour: Flavour, policy: &Policy) -> Host {
    let mut host = Host::builder().workers(VMS).flavour(flavour).build();
    host.load(module(), plugin(policy)).unwrap();
    host
}

fn simulated(key: usize) -> host_sim::Request {
    host_sim::Request::get("/links").header("authorization", format!("Bearer key-{key}"))
}

fn admitted(outcomes: &[host_sim::Outcome]) -> usize {
    assert!(outcomes.iter().all(|outcome| matches!(outcome.status(), 200 | 429)), "{outcomes:?}");
    outcomes.iter().filter(|outcome| outcome.status() == 200).count()
}

/// What departs from exactness is counted, and nothing was.
fn assert_no_errors(host: &Host) {
    host.advance(Duration::from_secs(1));
    assert_eq!(host.metrics().counter(&metric::requests("pro", "standard", Outcome::Error)), 0);
}

#[test]
fn eight_vms_on_threads_of_their_own_share_600_exactly() {
    let host = simulator(Flavour::default(), &policy(600, 1));
    let outcomes = host.threads(|worker| {
        let answers =
            (0..6000 / VMS).map(|_| host.worker(worker).send(simulated(0), |_| host_sim::Response::ok()));
        answers.collect::<Vec<_>>()
    });
    assert_eq!(admitted(&outcomes.concat()), 600);
    assert_no_errors(&host);
}

#[test]
fn a_hundred_thousand_keys_that_live_at_once_get_each_exactly_their_limit() {
    const KEYS: usize = 100_000;
    const LIMIT: u32 = 2;
    let (list, policy) = (KeyList::of(KEYS), policy(LIMIT, 0));
    let policy = policy.with("directory", json!({"cluster": "keys", "path": "/keys"}));
    let document = move |_: &host_sim::Request| host_sim::Response::ok().body(list.answer(None).2);
    let mut host = Host::builder().workers(VMS).cluster("keys", document).build();
    host.load(module(), plugin(&policy)).unwrap();
    host.advance(Duration::from_millis(1250));
    for round in 0..=LIMIT {
        // Every key has had its turn before one has another, and then in another VM.
        let outcomes = host.threads(|worker| {
            let of_worker = (0..KEYS).filter(|key| (key + round as usize) % VMS == worker);
            let answers =
                of_worker.map(|key| host.worker(worker).send(simulated(key), |_| host_sim::Response::ok()));
            admitted(&answers.collect::<Vec<_>>())
        });
        let expected = if round < LIMIT { KEYS } else { 0 };
        assert_eq!(outcomes.iter().sum::<usize>(), expected, "request {} of each key", round + 1);
    }
    assert_no_errors(&host);
}

#[test]
fn whatever_the_interleaving_eight_vms_use_up_every_quota_exactly() {
    const KEYS: usize = 3;
    const PER_KEY: usize = 40;
    const LIMIT: u32 = 25;
    for seed in 0..50 {
        let host = simulator(Flavour::default(), &policy(LIMIT, KEYS));
        let jobs = (0..KEYS * PER_KEY).map(|job| (job % VMS, simulated(job % KEYS)));
        let outcomes = host.interleave(seed, jobs, |_| host_sim::Response::ok());
        for key in 0..KEYS {
            let of_key: Vec<_> = outcomes.iter().skip(key).step_by(KEYS).cloned().collect();
            assert_eq!(admitted(&of_key), LIMIT as usize, "key {key}, seed {seed}");
        }
        assert_no_errors(&host);
    }
}

#[test]
fn a_race_of_eight_vms_to_create_a_counter_loses_no_count_on_any_kind_of_host() {
    const LIMIT: u32 = 5;
    for flavour in [Flavour::default(), Flavour::Ngx] {
        for seed in 0..100 {
            let host = simulator(flavour, &policy(LIMIT, 1));
            let jobs = (0..VMS).map(|worker| (worker, simulated(0)));
            let outcomes = host.interleave(seed, jobs, |_| host_sim::Response::ok());
            assert_eq!(admitted(&outcomes), LIMIT as usize, "{flavour:?}, seed {seed}");
            assert_no_errors(&host);
        }
    }
}
