//! What gateways call and log, against a ledger that answers what a test says.

use std::time::Duration;

use serde_json::json;
use tests::client::Client;
use tests::clock;
use tests::exchange::get;
use tests::policy::Policy;

use crate::clients::send_at;
use crate::fleet::PATIENCE;
use crate::stub::{Stub, granted};

/// The default.
const TIMEOUT: Duration = Duration::from_millis(250);

/// Keys, plans of the same names, and their limits of an hour. What the ledger does not decide is refused.
fn policy(limits: &[(&str, usize)], timeout: Duration) -> Policy {
    let plans =
        limits.iter().map(|(key, limit)| ((*key).to_owned(), json!({"standard": [format!("{limit}/hour")]})));
    let policy = Policy::contract().unwrap().with("plans", plans.collect());
    let [timeout, term] = [timeout, 4 * timeout].map(|time| format!("{}ms", time.as_millis()));
    let policy = policy.with(
        "fleet",
        json!({"cluster": "ledger", "on_unavailable": "deny", "timeout": timeout, "term": term}),
    );
    limits.iter().fold(policy, |policy, (key, _)| policy.subscriber(key, key, key))
}

#[test]
fn a_statement_that_the_ledger_refuses_is_in_the_log_once_a_minute_for_each_cause() {
    const INVALID: usize = 600;
    let stub = Stub::start(|statement| {
        // As a ledger's, the text tells the time: it is another each time.
        let message = format!("not at {}", clock::now().as_nanos());
        match statement["limit"] == INVALID {
            true => json!({"error": {"code": "invalid", "field": "ends", "message": message}}),
            false => json!({"error": {"code": "clock", "message": message}}),
        }
    });
    let gateway = stub.gateway(&policy(&[("invalid", INVALID), ("clock", 700)], TIMEOUT), 1);
    for _ in 0..40 {
        for key in ["invalid", "clock"] {
            assert_eq!(gateway.send(&get("/links").key(key)).unwrap().status(), 503, "{key}");
        }
        clock::pass(Duration::from_millis(100));
    }
    let log = gateway.log().lines();
    // Lines of the access log are JSON.
    let is_of_ledger =
        |line: &&String| !line.starts_with('{') && line.contains("weir: ") && line.contains("ledger");
    let said: Vec<_> = log.iter().filter(is_of_ledger).collect();
    //  what a line has
    let rows: [&[&str]; 2] = [&["invalid", "ends"], &["clock"]];
    for parts in rows {
        let lines = said.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count();
        // A worker and the main thread have a VM each.
        assert!([1, 2].contains(&lines), "{parts:?} in {lines} lines: {said:?}");
    }
    for line in said {
        assert!(["[warning]", "[error]"].iter().any(|level| line.contains(level)), "{line}");
    }
}

#[test]
fn an_idle_worker_makes_one_call_in_a_term() {
    const WORKERS: usize = 4;
    const TERMS: usize = 6;
    let stub = Stub::start(granted);
    let gateway = stub.gateway(&policy(&[("key", 600)], TIMEOUT), WORKERS);
    // Connections are dealt out in turn.
    let clients: Vec<_> = (0..WORKERS).map(|_| Client::to(gateway.address()).unwrap()).collect();
    for client in &clients {
        assert_eq!(client.send(&get("/links").key("key")).unwrap().status(), 200);
    }
    // Until then, all that was used is stated and answered.
    clock::pass(Duration::from_secs(3));
    let before = stub.calls();
    clock::pass(Duration::from_secs(TERMS as u64));
    let calls = stub.calls() - before;
    println!("{calls} calls of {WORKERS} workers in {TERMS} terms");
    // The main thread's VM may call as well. A term that begins before may end within.
    let most = (WORKERS + 1) * (TERMS + 1);
    assert!((WORKERS * TERMS / 2..=most).contains(&calls), "{calls} calls, at most {most}");
}

#[test]
fn no_request_waits_longer_than_the_timeout_for_a_ledger_that_is_slow_or_dies() {
    const TAKEN: usize = 600;
    const AT_ONCE: usize = 40;
    /// The longest, so that a busy machine adds little to it.
    const TIMEOUT: Duration = Duration::from_millis(500);
    const SLACK: Duration = Duration::from_millis(150);
    let stub = Stub::start(|statement| match statement["limit"] == TAKEN {
        // Others have taken what was free a moment ago.
        true => json!({"share": statement["used"], "others": 0, "reset": 0}),
        false => granted(statement),
    });
    let gateway = stub.gateway(&policy(&[("taken", TAKEN), ("granted", 700)], TIMEOUT), 1);
    let longest = |begins: Duration| {
        let seen = send_at(&[gateway.address()], "taken", AT_ONCE, &[begins]);
        assert_eq!(seen.others.get(&503), Some(&AT_ONCE), "{:?}", seen.others);
        seen.times.into_iter().max().unwrap()
    };
    let mut all = Vec::new();
    for round_trip in [160, 230].map(Duration::from_millis) {
        stub.way.take(round_trip);
        all.push((format!("{round_trip:?} away"), longest(clock::now())));
    }
    for dies_after in [220, 236].map(Duration::from_millis) {
        stub.way.take(Duration::ZERO);
        let is_granted =
            || (gateway.send(&get("/links").key("granted")).unwrap().status() == 200).then_some(());
        clock::eventually("the ledger answers", PATIENCE, is_granted).unwrap();
        // From now on nothing arrives, and at one moment all connections break.
        stub.way.take(Duration::from_secs(3600));
        let begins = clock::now() + Duration::from_millis(300);
        let longest = std::thread::scope(|scope| {
            let longest = scope.spawn(|| longest(begins));
            clock::pass((begins + dies_after).saturating_sub(clock::now()));
            stub.way.reset();
            longest.join().unwrap()
        });
        all.push((format!("dies after {dies_after:?}"), longest));
    }
    println!("{all:?}");
    assert!(all.iter().all(|(_, longest)| *longest <= TIMEOUT + SLACK), "{all:?}");
}

#[test]
fn a_store_that_begins_anew_is_told_of_ten_thousand_counters_in_a_table_for_a_million_while_it_settles() {
    const KEYS: usize = 10_000;
    const CLIENTS: usize = 8;
    /// As long as the ledger of a new store grants nothing.
    const SETTLING: Duration = Duration::from_secs(2);
    let key = |number: usize| format!("key-{number}");
    let plan = json!({"many": {"standard": ["600/hour"]}});
    let policy = Policy::contract().unwrap().with("plans", plan).with("fleet", json!({"cluster": "ledger"}));
    let policy = policy.with("counters", json!({"known": 1_000_000, "strangers": 8192}));
    let policy =
        (0..KEYS).fold(policy, |policy, number| policy.subscriber(&key(number), "many", &key(number)));
    let stub = Stub::start(granted);
    let gateway = stub.gateway(&policy, 2);
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            let (gateway, key) = (&gateway, &key);
            scope.spawn(move || {
                let client = Client::to(gateway.address()).unwrap();
                for number in (first..KEYS).step_by(CLIENTS) {
                    assert_eq!(client.send(&get("/links").key(&key(number))).unwrap().status(), 200);
                }
            });
        }
    });
    // Until then, all that was used is stated and answered.
    clock::pass(Duration::from_secs(3));
    stub.begin_epoch();
    let began = clock::now();
    // A gateway without requests hears of it within a term.
    assert_eq!(gateway.send(&get("/links").key(&key(0))).unwrap().status(), 200);
    clock::eventually("all counters are stated", PATIENCE, || (stub.told() == KEYS).then_some(())).unwrap();
    let took = clock::now() - began;
    println!("{KEYS} counters in {took:?}");
    assert!(took < SETTLING, "{took:?}");
}
