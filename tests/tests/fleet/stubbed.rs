//! What gateways call and log, against a ledger that answers what a test says.

use std::time::Duration;

use serde_json::json;
use tests::client::Client;
use tests::clock;
use tests::exchange::get;
use tests::policy::Policy;

use crate::stub::{Stub, granted};

/// The default.
const TIMEOUT: Duration = Duration::from_millis(250);

/// Keys, plans of the same names, and their limits of an hour. What the ledger does not decide is refused.
pub(crate) fn policy(limits: &[(&str, usize)], timeout: Duration) -> Policy {
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
