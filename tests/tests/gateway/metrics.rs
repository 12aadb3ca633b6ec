//! Every outcome, read back from a real Envoy's `/stats/prometheus` with plan, class and outcome as labels.

use std::time::Duration;

use serde_json::json;
use tests::backend::Service;
use tests::clock;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::gateway::wait_for_directory;
use tests::policy::Policy;

/// Waits until the counters are these; the filter hands over what it has counted several times a second.
fn assert_counted(envoy: &Envoy, expected: &[(&str, &str, &str, u64)]) {
    let counted = || {
        let counters = expected.iter().map(|(plan, class, outcome, _)| {
            (*plan, *class, *outcome, envoy.counter(plan, class, outcome).unwrap_or_default())
        });
        counters.collect::<Vec<_>>()
    };
    let agreed =
        clock::eventually("the counters", Duration::from_secs(10), || (counted() == expected).then_some(()));
    if agreed.is_err() {
        assert_eq!(counted(), expected);
    }
}

/// A request that an Envoy believes to come from this address.
fn from_address(address: u32, request: Request) -> Request {
    request.header("x-forwarded-for", std::net::Ipv4Addr::from(address).to_string())
}

#[test]
fn every_outcome_but_an_error_is_counted_under_its_plan_and_class() {
    /// Live addresses that an entry has room for, the overflow record apart.
    const ROOM: u32 = filter::count::entry::MAX_RECORDS as u32;
    let one = json!({"action": "limit", "quotas": ["1/month"]});
    let policy = Policy::contract()
        .unwrap()
        .with_at(
            "/plans/pro/standard",
            json!(["2/month", {"limit": 1, "window": "month", "mode": "shadow", "name": "trial"}]),
        )
        .with("unknown_key", one.clone())
        .with("missing_key", one)
        .with("counters", json!({"known": 64, "strangers": 4}))
        .subscriber("acme", "pro", "pro-key")
        .subscriber("small", "free", "free-key");
    let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).trusted_hops(1)).unwrap();
    let send = |request: Request| envoy.send(&request).unwrap().status();

    // Two are allowed, the second of which the shadow quota would have refused; the third is refused by both.
    let pro = || from_address(1, get("/links").key("pro-key"));
    assert_eq!([(); 3].map(|()| send(pro())), [200, 200, 429]);
    assert_eq!(send(from_address(1, get("/analytics").key("free-key"))), 403);
    assert_eq!(send(from_address(1, Request::new("OPTIONS".parse().unwrap(), "/links"))), 200);
    assert_eq!(send(from_address(1, get("/analytics;x").key("pro-key"))), 400);
    assert_eq!(send(from_address(1, get("/analytics").key("guess"))), 200);
    assert_eq!(send(from_address(1, get("/links"))), 429, "an address has one quota, with a key and without");
    for address in 2..=ROOM {
        assert_eq!(send(from_address(address, get("/links"))), 200);
    }
    // From here on strangers share one record.
    let overflowing = (ROOM + 1..=ROOM + 3).map(|address| send(from_address(address, get("/links"))));
    assert_eq!(overflowing.collect::<Vec<_>>(), [200, 429, 429]);

    assert_counted(
        &envoy,
        &[
            ("pro", "standard", "allowed", 2),
            ("pro", "standard", "shadow_limited", 1),
            ("pro", "standard", "limited", 1),
            ("free", "analytics", "not_in_plan", 1),
            ("none", "standard", "exempt", 1),
            ("none", "standard", "ambiguous_path", 1),
            ("none", "analytics", "unknown_key", 1),
            ("none", "standard", "missing_key", u64::from(ROOM - 1) + 4),
            ("none", "standard", "limited", 3),
            ("none", "standard", "overflow", 3),
            ("pro", "standard", "error", 0),
            ("none", "standard", "error", 0),
        ],
    );
}

#[test]
fn what_could_not_be_counted_is_counted_as_an_error() {
    /// Keys of a table with one entry: its size is the first configuration's until Envoy starts again.
    const KEYS: usize = filter::count::entry::MAX_RECORDS + 2;
    let policy = Policy::contract().unwrap().with_at("/plans/pro/standard", json!(["5/month"]));
    let policy = policy.with_at("/plans/pro", json!({"standard": ["5/month"]}));
    let small =
        policy.clone().with("counters", json!({"known": 1, "strangers": 4})).subscriber("s0", "pro", "key-0");
    let large = (0..KEYS)
        .fold(policy, |policy, key| policy.subscriber(&format!("s{key}"), "pro", &format!("key-{key}")));
    let setup = Setup::new(small, Upstream::DirectResponse).workers(1).live_updates();
    let mut envoy = Envoy::start(setup).unwrap();
    let send = |envoy: &Envoy, key: usize| envoy.send(&get("/links").key(&format!("key-{key}"))).unwrap();
    assert_eq!(send(&envoy, 0).number("x-ratelimit-remaining"), Some(4));
    assert!(envoy.update(large).unwrap());
    // The worker takes the update when it comes to it.
    let last = KEYS - 1;
    let known = || send(&envoy, 1).header("x-ratelimit-remaining").is_some();
    clock::eventually("the update", Duration::from_secs(10), || known().then_some(())).unwrap();
    for key in 2..last - 1 {
        assert!(send(&envoy, key).header("x-ratelimit-remaining").is_some(), "key {key} has room");
    }
    for key in [last - 1, last] {
        let answer = send(&envoy, key);
        assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (200, None), "{answer}");
    }
    assert_counted(&envoy, &[("pro", "standard", "error", 2), ("pro", "standard", "limited", 0)]);
}

#[test]
fn polls_of_the_directory_are_counted() {
    let service = Service::start().unwrap();
    let policy = Policy::deployed().unwrap().with_at("/directory/interval", json!("1s"));
    let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(service.directory());
    let envoy = Envoy::start(setup).unwrap();
    wait_for_directory(&envoy);
    let polls = |result: &str| format!("weir_directory_polls_total{{result=\"{result}\"}}");
    let results = ["changed", "unchanged", "failed", "malformed", "broken_off"].map(polls);
    let others = ["skipped_total", "apart_total", "leaders_total", "rows", "refused_rows", "version"];
    let others = others.map(|name| format!("weir_directory_{name}"));
    for metric in results.iter().chain(&others) {
        assert!(envoy.prometheus(metric).is_ok(), "there is no {metric}");
    }
    let value = |name: &str| envoy.prometheus(&format!("weir_directory_{name}")).unwrap();
    assert_eq!(value("rows"), service.keys.iter().count() as u64);
    clock::eventually("a poll that changed the list, and one without news", Duration::from_secs(10), || {
        let [changed, unchanged] = ["changed", "unchanged"].map(|result| envoy.prometheus(&polls(result)));
        (changed.ok()? == 1 && unchanged.ok()? > 0 && value("bytes_total") > 0).then_some(())
    })
    .unwrap();
    let now = clock::now().as_secs();
    for since in ["answered_timestamp_seconds", "leader_since_timestamp_seconds"] {
        assert!((now - 60..=now).contains(&value(since)), "{since}: {}", value(since));
    }
}
