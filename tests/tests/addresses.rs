//! Callers without a known key are counted by their address, in bounded memory, and cannot choose that address.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::flood;
use tests::policy::Policy;

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
        assert_eq!((answer.status(), answer.number("x-ratelimit-remaining")), (200, Some(59 - u64::from(request))));
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
    const ADDRESSES: u32 = 40_000;
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

    println!("resident: {before} bytes before {ADDRESSES} more addresses, {after} after; {first:?} {second:?}");
    assert!(after < before + (4 << 20), "{before} bytes grew to {after}");
    assert_eq!(second, BTreeMap::from([(((), 429), ADDRESSES as usize)]), "the overflow records' quota is used up");
    assert_eq!(acme(), Some(598), "a known key's counter is not touched");
    let error = envoy.counter("none", "standard", "error").unwrap();
    assert_eq!(error, 0);
}
