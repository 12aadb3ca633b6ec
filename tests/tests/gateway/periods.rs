//! Windows of the calendar and of a subscriber's bills: when they end, and that a quota is then there again.

use std::time::Duration;

use host_sim::{Clock, Host, LogLevel, Outcome, Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::gateway::{module, plugin};
use tests::policy::{Policy, hash};
use tests::ratelimit;

const LIMIT: usize = 2;
/// How long before the end of a period its quota is used up.
const BEFORE: Duration = Duration::from_secs(3);

/// A key with a quota in windows of this kind, and with the beginning of its bills, if it has one.
fn policy(window: &str, anchor: Option<&str>) -> Policy {
    let mut subscriber = json!({"id": "acme", "plan": "pro", "keys": [hash("key")]});
    if let Some(anchor) = anchor {
        subscriber["billing_anchor"] = json!(anchor);
    }
    let policy = Policy::contract().unwrap().with("subscribers", Value::Array(vec![subscriber]));
    policy.with_at("/plans/pro/standard", json!([{"limit": LIMIT, "window": window}]))
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn seconds(text: &str) -> u64 {
    instant(text).as_second().unsigned_abs()
}

fn send(host: &Host) -> Outcome {
    host.send(Request::get("/links").header("authorization", "Bearer key"), |_| Response::ok())
}

fn header(outcome: &Outcome, name: &str) -> Option<u64> {
    outcome.header(name)?.parse().ok()
}

/// Uses the quota up, and checks what the answers say of the period, which is this long and ends `left` after now.
fn use_up(host: &Host, [start, end]: [&str; 2], left: Duration, case: &str) {
    let seconds_left = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let policy = format!("\"standard\";q={LIMIT};w={}", seconds(end) - seconds(start));
    for used in 1..=LIMIT + 1 {
        let answer = send(host);
        let is_refused = used > LIMIT;
        assert_eq!(answer.status(), if is_refused { 429 } else { 200 }, "{case}, request {used}: {answer:?}");
        assert_eq!(header(&answer, "x-ratelimit-reset"), Some(seconds(end)), "{case}, request {used}");
        assert_eq!(answer.header("ratelimit-policy"), Some(&*policy), "{case}, request {used}");
        let ratelimit = answer.header("ratelimit").unwrap_or_default();
        let expected = Some(LIMIT.saturating_sub(used));
        assert_eq!(ratelimit::left(ratelimit, "standard"), expected, "{case}, request {used}");
        assert!(ratelimit.ends_with(&format!(";t={seconds_left}")), "{case}, request {used}: {ratelimit}");
        let retry_after = is_refused.then_some(seconds_left);
        assert_eq!(header(&answer, "retry-after"), retry_after, "{case}, request {used}");
    }
}

#[test]
fn a_quota_is_there_again_at_the_end_of_its_period_and_not_before() {
    //  window, the subscriber's anchor, and three edges in a row
    let rows = [
        ("week", None, ["2026-11-23", "2026-11-30", "2026-12-07"]),
        ("week", None, ["2026-12-28", "2027-01-04", "2027-01-11"]),
        ("month", None, ["2028-02-01", "2028-03-01", "2028-04-01"]),
        ("year", None, ["2027-01-01", "2028-01-01", "2029-01-01"]),
        ("billing_month", None, ["2026-02-01", "2026-03-01", "2026-04-01"]),
        ("billing_month", Some("2026-11-15"), ["2026-10-15", "2026-11-15", "2026-12-15"]),
        (
            "billing_month",
            Some("2026-01-31T09:30:00Z"),
            ["2026-01-31T09:30:00Z", "2026-02-28T09:30:00Z", "2026-03-31T09:30:00Z"],
        ),
        (
            "billing_month",
            Some("2024-03-30T23:59:59Z"),
            ["2028-01-30T23:59:59Z", "2028-02-29T23:59:59Z", "2028-03-30T23:59:59Z"],
        ),
        ("billing_year", None, ["2026-01-01", "2027-01-01", "2028-01-01"]),
        (
            "billing_year",
            Some("2024-02-29T06:00:00Z"),
            ["2027-02-28T06:00:00Z", "2028-02-29T06:00:00Z", "2029-02-28T06:00:00Z"],
        ),
    ];
    for (window, anchor, edges) in rows {
        let edges =
            edges.map(|edge| if edge.contains('T') { edge.to_owned() } else { format!("{edge}T00:00:00Z") });
        let [before, edge, after] = edges.each_ref().map(String::as_str);
        let case = format!("{window} from {anchor:?} at {edge}");
        let clock = Clock::at_unix(Duration::from_secs(seconds(edge)) - BEFORE);
        let mut host = Host::builder().workers(2).log_level(LogLevel::Info).clock(clock).build();
        host.load(module(), plugin(&policy(window, anchor))).unwrap();
        use_up(&host, [before, edge], BEFORE, &case);
        host.advance(BEFORE - Duration::from_millis(1));
        assert_eq!(send(&host).status(), 429, "{case}: a millisecond before");
        host.advance(Duration::from_millis(1));
        use_up(&host, [edge, after], Duration::from_secs(seconds(after) - seconds(edge)), &case);
        // A clock that steps back across the edge gives nothing back, neither then nor when it has caught up.
        for _ in 0..2 {
            host.clock().step_wall_back(Duration::from_millis(500));
            assert_eq!(send(&host).status(), 429, "{case}: stepped back");
        }
        host.advance(BEFORE);
        assert_eq!(send(&host).status(), 429, "{case}: caught up");
    }
}

#[test]
fn another_anchor_begins_another_count_and_the_same_one_goes_on() {
    let clock = Clock::at(instant("2026-11-21T12:00:00Z"));
    let mut host = Host::builder().workers(2).log_level(LogLevel::Info).clock(clock).build();
    let first = "2026-01-31T09:30:00Z";
    //  the anchor, and how many of three requests pass
    let rows = [
        (Some(first), LIMIT),
        // The same place in the month.
        (Some("2025-03-31T09:30:00Z"), 0),
        (Some("2026-01-30T09:30:00Z"), LIMIT),
        (None, LIMIT),
        // Back again: its count was kept.
        (Some(first), 0),
    ];
    for (anchor, passed) in rows {
        host.load(module(), plugin(&policy("billing_month", anchor))).unwrap();
        let answers = (0..=LIMIT).filter(|_| send(&host).status() == 200).count();
        assert_eq!(answers, passed, "{anchor:?}");
    }
}
