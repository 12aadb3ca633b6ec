//! Billing months that gateways share: one quota in each period, which begins on the last day of a month that lacks the anchor's.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tests::exchange::{Answer, get};
use tests::policy::{Policy, hash};
use tests::{artifacts, clock};

use crate::clients::until_used_up;
use crate::fleet::{Fleet, Shape};

const LIMIT: usize = 600;
/// When the clocks are set to, but for the seconds that are left to the first edge.
const EDGE: &str = "2027-02-28T09:30:00Z";
/// The days of the periods before and after it.
const DAYS: [u64; 2] = [28, 31];
/// From the start of the fleet to the edge of each key: a busy machine may have started it only after some of them.
const EDGES: [u64; 4] = [12, 20, 35, 55];
/// How much of a period is left at least.
const ROOM: Duration = Duration::from_secs(5);

fn seconds(instant: &str) -> u64 {
    instant.parse::<Timestamp>().unwrap().as_second().unsigned_abs()
}

/// A key for each of the edges, which come this many seconds after the first instant.
fn policy() -> Policy {
    let subscriber = |edge: &u64| {
        let name = format!("edge-{edge}");
        // The day of the first edge is the last of its month.
        let anchor = format!("2026-10-31T09:30:{edge:02}Z");
        json!({"id": name, "plan": "pro", "keys": [hash(&name)], "billing_anchor": anchor})
    };
    let subscribers = EDGES.iter().map(subscriber).collect();
    let policy = Policy::contract().unwrap().with("subscribers", Value::Array(subscribers));
    policy.with_at("/plans/pro/standard", json!([format!("{LIMIT}/billing_month")]))
}

/// Checks what a gateway says to a key whose quota is used up, of the period that ends at `end`, `left` after now.
fn assert_used_up(answer: &Answer, days: u64, end: u64, left: Duration) {
    assert_eq!(answer.status(), 429, "{answer}");
    assert_eq!(answer.number("x-ratelimit-reset"), Some(end), "{answer}");
    let policy = format!("\"standard\";q={LIMIT};w={}", days * 86_400);
    assert_eq!(answer.header("ratelimit-policy"), Some(&*policy), "{answer}");
    // It was answered a little earlier.
    let retry_after = answer.number("retry-after").unwrap_or_default();
    assert!((left.as_secs()..left.as_secs() + 3).contains(&retry_after), "{left:?}: {answer}");
}

#[test]
fn a_billing_month_is_one_quota_for_all_gateways_and_is_there_again_at_its_edge() {
    // Builds them first, which may take longer than all periods.
    let _ = (artifacts::filter_wasm(), artifacts::command("weir-ledger"));
    let base = Duration::from_secs(seconds(EDGE));
    let real = clock::now();
    let ahead = i64::try_from(base.as_millis()).unwrap() - i64::try_from(real.as_millis()).unwrap();
    let fleet = Fleet::start(&policy(), Shape { ahead, ..Shape::default() });
    let since_start = || clock::now() - real;
    let edge = EDGES.into_iter().find(|edge| since_start() + ROOM < Duration::from_secs(*edge));
    let edge = edge.expect("a fleet starts before the last edge");
    let key = format!("edge-{edge}");
    let ask = |gateway: usize| fleet.gateways[gateway].send(&get("/links").key(&key)).unwrap();

    assert_eq!(until_used_up(&fleet.addresses(), &key), LIMIT);
    let left = || Duration::from_secs(edge).saturating_sub(since_start());
    for gateway in 0..2 {
        let answer = ask(gateway);
        assert!(!left().is_zero(), "the machine is too busy: the period has ended");
        assert_used_up(&answer, DAYS[0], base.as_secs() + edge, left());
    }

    clock::pass(left());
    assert_eq!(until_used_up(&fleet.addresses(), &key), LIMIT, "in the next period");
    for gateway in 0..2 {
        let end = seconds("2027-03-31T09:30:00Z") + edge;
        let left = Duration::from_secs(DAYS[1] * 86_400 + edge).saturating_sub(since_start());
        assert_used_up(&ask(gateway), DAYS[1], end, left);
    }
}
