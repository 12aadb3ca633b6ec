//! A new configuration keeps what was used, in a real Envoy that gets it by ECDS from a file.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::flood;
use tests::policy::Policy;

/// One subscriber on `plan`, where pro has `limit` a month.
fn policy(plan: &str, limit: u32) -> Policy {
    let contract = Policy::contract().unwrap();
    let contract = contract.with_at("/plans/pro/standard", json!([format!("{limit}/month")]));
    contract.with_at("/plans/business/standard", json!(["500/month"])).subscriber("acme", plan, "key")
}

fn envoy(policy: Policy, workers: usize) -> Envoy {
    Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(workers).live_updates()).unwrap()
}

/// Sends requests until one is answered by the limit `limit`: workers take an update one after the other. Returns that answer, and
/// how many were admitted on the way, itself among them.
fn until_limit(envoy: &Envoy, limit: u32) -> (Answer, u64) {
    let in_force = format!(r#""standard";q={limit};w="#);
    let mut admitted = 0;
    for _ in 0..1000 {
        let answer = envoy.send(&get("/links").key("key")).unwrap();
        admitted += u64::from(answer.status() == 200);
        if answer.header("ratelimit-policy").is_some_and(|policy| policy.starts_with(&in_force)) {
            return (answer, admitted);
        }
    }
    panic!("the limit {limit} never came into force");
}

#[test]
fn what_was_used_stays_used_whatever_the_new_limit_or_plan() {
    let mut envoy = envoy(policy("pro", 100), 1);
    let mut used = 0;
    for _ in 0..60 {
        used += u64::from(envoy.send(&get("/links").key("key")).unwrap().status() == 200);
    }
    assert_eq!(used, 60);
    let rows = [
        ("raised", "pro", 150, 200),
        ("lowered below what is used", "pro", 50, 429),
        ("another plan", "business", 500, 200),
        ("and back", "pro", 120, 200),
    ];
    for (what, plan, limit, status) in rows {
        // Only the plan's own row of the policy differs, and business has 500.
        assert!(envoy.update(policy(plan, limit)).unwrap(), "{what}");
        let (answer, admitted) = until_limit(&envoy, limit);
        used += admitted;
        assert_eq!(answer.status(), status, "{what}: {answer}");
        let left = u64::from(limit).saturating_sub(used);
        assert_eq!(answer.number("x-ratelimit-remaining"), Some(left), "{what}: {answer}");
    }
}

#[test]
fn updates_under_load_fail_no_request_and_lose_no_count() {
    const REQUESTS: usize = 20_000;
    let mut envoy = envoy(policy("pro", 100_000), 4);
    let (counts, updates) = flood::under_updates(envoy.address(), "key", REQUESTS, |update| {
        assert!(envoy.update(policy("pro", 100_000 + update)).unwrap());
    })
    .unwrap();
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(200, REQUESTS)], "{updates} updates");
    let (answer, admitted) = until_limit(&envoy, 100_000 + updates);
    let used = REQUESTS as u64 + admitted;
    assert_eq!(answer.number("x-ratelimit-remaining"), Some(u64::from(100_000 + updates) - used), "{answer}");
}

/// A server that takes connections, which the kernel makes, and reads nothing from them.
fn silent() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// Configurations live as long as their streams. Each of these differs in one limit from the one before; the rest they share.
#[test]
fn twenty_configurations_with_9000_subscribers_and_open_streams_are_served_counted_and_share_what_is_equal() {
    const UPDATES: u32 = 20;
    /// What an update may add to Envoy's memory: it keeps each configuration's JSON, of 1.2 MB, more than once. `memory.rs` has the filter's part.
    const MOST_BYTES: u64 = 4 << 20;
    const SUBSCRIBERS: usize = 9_000;
    let subscribers = (0..SUBSCRIBERS).map(|number| {
        json!({"id": format!("subscriber-{number}"), "plan": "pro", "keys": [tests::policy::hash(&format!("key-{number}"))]})
    });
    let of = |limit: u32| policy("business", limit);
    let with_all = |policy: Policy, all: &serde_json::Value| {
        let mut list = policy.as_value()["subscribers"].as_array().unwrap().clone();
        list.extend(all.as_array().unwrap().iter().cloned());
        policy.with("subscribers", json!(list))
    };
    let all = json!(subscribers.collect::<Vec<_>>());
    let silent = silent();
    let setup = Setup::new(with_all(of(1000), &all), Upstream::At(silent.local_addr().unwrap()));
    let mut envoy = Envoy::start(setup.workers(2).live_updates()).unwrap();
    let mut open = Vec::new();
    let mut used = 0;
    let mut memory = Vec::new();
    for update in 1..=UPDATES {
        // A stream on each worker keeps the configuration that it began with.
        for _ in 0..4 {
            let mut stream = TcpStream::connect(envoy.address()).unwrap();
            stream
                .write_all(b"GET /links HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-7\r\n\r\n")
                .unwrap();
            open.push(stream);
            used += 1;
        }
        let allowed = || envoy.counter("pro", "standard", "allowed").ok();
        clock::eventually("the open streams", Duration::from_secs(10), || {
            (allowed() == Some(used)).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:?} of {used}", allowed()));
        assert!(envoy.update(with_all(of(1000 + update), &all)).unwrap(), "update {update}");
        memory.push(envoy.resident_memory().unwrap());
    }
    let growth = memory[memory.len() - 1].saturating_sub(memory[0]) / u64::from(UPDATES - 1);
    assert!(growth < MOST_BYTES, "{growth} bytes an update: {memory:?}");
}
