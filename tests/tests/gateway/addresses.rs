//! Callers without a known key are counted by their address, in bounded memory, and cannot choose that address.

use std::collections::BTreeMap;
use std::time::Duration;

use filter::config::NO_PLAN;
use filter::count::{entry, table};
use filter::decide::metric;
use filter::decide::outcome::Outcome;
use host_sim::{Host, Response};
use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::flood;
use tests::gateway::{module, plugin};
use tests::policy::Policy;
use tests::soak;

const CONNECTIONS: usize = 16;

fn forwarded_for(address: u32) -> Request {
    get("/links").header("x-forwarded-for", std::net::Ipv4Addr::from(address).to_string())
}

#[test]
fn a_forged_forwarded_address_changes_nothing() {
    let envoy = Envoy::start(Setup::new(Policy::contract().unwrap(), Upstream::DirectResponse)).unwrap();
    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(10));
    for request in 0..60 {
        let answer = envoy.send(&forwarded_for(0x0a00_0000 + request)).unwrap();
        assert_eq!(
            (answer.status(), answer.number("x-ratelimit-remaining")),
            (200, Some(59 - u64::from(request)))
        );
    }
    let refused = envoy.send(&forwarded_for(0x0b00_0000)).unwrap();
    assert_eq!(refused.status(), 429, "{refused}");
}

#[test]
fn addresses_behind_a_trusted_hop_count_apart() {
    let setup = Setup::new(Policy::contract().unwrap(), Upstream::DirectResponse).trusted_hops(1);
    let envoy = Envoy::start(setup).unwrap();
    for address in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"] {
        let answer = envoy.send(&get("/links").header("x-forwarded-for", address)).unwrap();
        assert_eq!(answer.number("x-ratelimit-remaining"), Some(59), "{address}");
    }
    // One household: the same /64.
    let answer = envoy.send(&get("/links").header("x-forwarded-for", "2001:db8::2")).unwrap();
    assert_eq!(answer.number("x-ratelimit-remaining"), Some(58));
}

#[test]
fn a_flood_of_addresses_leaves_memory_flat_and_known_keys_alone() {
    const ADDRESSES: u32 = 20_000;
    let quotas = json!({"action": "limit", "quotas": ["3/month"]});
    let policy = Policy::contract()
        .unwrap()
        .with_at("/plans/pro/standard", json!(["600/month"]))
        .with("missing_key", quotas)
        .with("counters", json!({"known": 1024, "strangers": 1024}))
        .subscriber("acme", "pro", "acme-key");
    let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).trusted_hops(1)).unwrap();
    let acme = || envoy.send(&get("/links").key("acme-key")).unwrap().number("x-ratelimit-remaining");
    let flood = |from: u32| {
        let requests = (from..from + ADDRESSES).map(|address| ((), forwarded_for(address)));
        flood::send(envoy.address(), CONNECTIONS, requests).unwrap()
    };

    assert_eq!(acme(), Some(599));
    // More live addresses than there are records: from here on the table is full.
    let first = flood(0x1000_0000);
    assert!(first[&((), 200)] >= 1024, "{first:?}");
    let before = envoy.resident_memory().unwrap();
    let second = flood(0x2000_0000);
    let after = envoy.resident_memory().unwrap();

    println!(
        "resident: {before} bytes before {ADDRESSES} more addresses, {after} after; {first:?} {second:?}"
    );
    assert!(after < before + (4 << 20), "{before} bytes grew to {after}");
    assert_eq!(
        second,
        BTreeMap::from([(((), 429), ADDRESSES as usize)]),
        "the overflow records' quota is used up"
    );
    assert_eq!(acme(), Some(598), "a known key's counter is not touched");
    let error = envoy.counter("none", "standard", "error").unwrap();
    assert_eq!(error, 0);
}

/// What a flood of strangers may do to the simulator, and what it may not.
fn flood_the_simulator(strangers: u32) {
    const WORKERS: u32 = 2;
    const KNOWN_KEYS: u32 = 1000;
    const QUOTA: u32 = 2;
    /// The tables' sizes and the salt, with their name.
    const HEADER: usize = 25 + table::NAME_BYTES;
    let policy = (0..KNOWN_KEYS).fold(
        Policy::contract()
            .unwrap()
            .with_at("/plans/pro/standard", json!(["600/month"]))
            .with("unknown_key", json!({"action": "limit", "quotas": [format!("{QUOTA}/month")]})),
        |policy, key| policy.subscriber(&format!("s{key}"), "pro", &format!("key-{key}")),
    );
    let capacity = table::Capacity { known: 262_144, strangers: 8192 };
    let policy = policy.with("counters", json!({"known": capacity.known, "strangers": capacity.strangers}));
    let mut host = Host::builder().workers(WORKERS as usize).build();
    host.load(module(), plugin(&policy)).unwrap();

    let send = |worker: u32, key: &str, address: u32| {
        let request = host_sim::Request::get("/links")
            .header("authorization", format!("Bearer {key}"))
            .source(format!("{}:40000", std::net::Ipv4Addr::from(address)));
        host.worker(worker as usize).send(request, |_| Response::ok())
    };
    let remaining_of_known_keys = || {
        let remaining = (0..KNOWN_KEYS).map(|key| {
            let outcome = send(key % WORKERS, &format!("key-{key}"), 0x0a00_0001);
            outcome.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap()
        });
        remaining.collect::<Vec<_>>()
    };

    assert_eq!(remaining_of_known_keys(), vec![599; KNOWN_KEYS as usize]);
    let admitted = host.threads(|worker| {
        let worker = u32::try_from(worker).unwrap();
        let mut admitted = 0;
        for stranger in (worker..strangers).step_by(WORKERS as usize) {
            // Each has an address and a key of its own, and now and then one tries to get more than its quota.
            let tries = if stranger % 1000 < WORKERS { 2 * QUOTA } else { 1 };
            let answers =
                (0..tries).map(|_| send(worker, &format!("guess-{stranger}"), 0x2000_0000 + stranger));
            let passed = answers.filter(|outcome| outcome.status() == 200).count();
            assert!(passed <= QUOTA as usize, "stranger {stranger} got {passed}");
            admitted += passed;
        }
        admitted
    });
    let admitted: usize = admitted.iter().sum();
    assert_eq!(remaining_of_known_keys(), vec![598; KNOWN_KEYS as usize]);

    let entries = (table::entries_for(capacity.known) + table::entries_for(capacity.strangers)) as usize;
    let bound = HEADER + entries * (table::NAME_BYTES + entry::MAX_BYTES);
    let (keys, bytes) = (host.shared_data().entries(), host.shared_data().bytes());
    soak::row(
        "strangers in bounded memory",
        format_args!("{strangers} addresses, simulator"),
        format_args!(
            "{keys} entries, {bytes} bytes of at most {bound}; {admitted} admitted, no known key touched"
        ),
    );
    assert!(bytes <= bound && keys <= entries + 1, "{keys} entries of {bytes} bytes");
    // Every entry of the strangers' table is full: its records and its overflow record, each with its quota used up.
    let records = table::entries_for(capacity.strangers) as usize * (entry::MAX_RECORDS + 1);
    assert!(admitted <= records * QUOTA as usize, "{admitted} admitted by {records} records");
    host.advance(Duration::from_secs(1));
    let counter = |outcome| host.metrics().counter(&metric::requests(NO_PLAN, "standard", outcome));
    assert!(counter(Outcome::Overflow) > 0);
    assert_eq!(counter(Outcome::Error), 0);
}

#[test]
fn two_hundred_thousand_strangers_stay_within_the_bound() {
    flood_the_simulator(200_000);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn ten_million_strangers_stay_within_the_bound() {
    flood_the_simulator(10_000_000);
}
