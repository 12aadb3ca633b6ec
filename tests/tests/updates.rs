//! A new configuration keeps what was used, in a real Envoy that gets it by ECDS from a file.

use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let address = envoy.address();
    let done = AtomicBool::new(false);
    let (counts, updates) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let requests = (0..REQUESTS).map(|_| ((), get("/links").key("key")));
            let counts = flood::send(address, 32, requests);
            done.store(true, Ordering::SeqCst);
            counts
        });
        let mut updates = 0;
        while !done.load(Ordering::SeqCst) || updates < 2 {
            updates += 1;
            assert!(envoy.update(policy("pro", 100_000 + updates)).unwrap());
        }
        (flood.join().unwrap().unwrap(), updates)
    });
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(((), 200), REQUESTS)], "{updates} updates");
    let (answer, admitted) = until_limit(&envoy, 100_000 + updates);
    let used = REQUESTS as u64 + admitted;
    assert_eq!(answer.number("x-ratelimit-remaining"), Some(u64::from(100_000 + updates) - used), "{answer}");
}
