//! The contract, statement by statement, on the simulator and on a real Envoy, and a part of it as Istio and Envoy Gateway configure one.

use std::time::Duration;

use serde_json::{Value, json};
use tests::exchange::{Answer, Request, get, post};
use tests::gateway::Kind;
use tests::on_gateways;
use tests::stage::{MINUTE, SECOND, Stage};

/// The plans: requests per minute, analytics requests per second. Enterprise has what its subscriber says.
const PLANS: [(&str, u64, Option<u64>); 5] = [
    ("free", 60, None),
    ("pro", 600, Some(2)),
    ("business", 1200, Some(4)),
    ("advanced", 3000, Some(8)),
    ("enterprise", 5000, Some(20)),
];

/// Limit, Remaining.
fn standing(answer: &Answer) -> (Option<u64>, Option<u64>) {
    (answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining"))
}

fn remaining(answer: &Answer) -> u64 {
    answer.number("x-ratelimit-remaining").unwrap_or_else(|| panic!("no remaining count in {answer}"))
}

/// Sends the same request until it is refused, at most `limit + 1` times, and checks each answer on the way: what is
/// left falls by one each time, and nothing but the last is refused.
fn assert_limit_is(answers: &[Answer], limit: u64, per_hour: u64, plan: &str) {
    let (refused, served) = answers.split_last().unwrap();
    for (sent, answer) in served.iter().enumerate() {
        assert_eq!(answer.status(), 200, "{plan}: {answer}");
        assert_eq!(standing(answer), (Some(per_hour), Some(limit - 1 - sent as u64)), "{plan}: {answer}");
        assert_eq!(answer.header("retry-after"), None, "{plan}: {answer}");
    }
    assert_eq!(refused.status(), 429, "{plan}: {refused}");
    assert_eq!(standing(refused), (Some(per_hour), Some(0)), "{plan}: {refused}");
    assert_eq!(refused.error_code().as_deref(), Some("rate_limit_exceeded"), "{plan}: {refused}");
}

fn send_times(stage: &Stage, plan: &str, times: u64, request: impl Fn() -> Request) -> Vec<Answer> {
    (0..times).map(|_| stage.send_as(plan, request())).collect()
}

// 8.1 Standard limits by plan, per key and minute
fn every_plan_is_served_its_standard_limit_and_refused_the_next(kind: Kind) {
    let stage = Stage::contract(kind);
    // Where the clock is real, two of them are enough: the rest are rows of the same configuration.
    let plans = if kind == Kind::Envoy { &PLANS[..2] } else { &PLANS[..] };
    for (plan, per_minute, _) in plans.iter().copied() {
        let answers =
            stage.within_one(MINUTE, || send_times(&stage, plan, per_minute + 1, || get("/links/count")));
        assert_limit_is(&answers, per_minute, per_minute * 60, plan);
    }
}

// 8.2 Analytics limits, per key and second
fn every_plan_is_served_its_analytics_limit_and_refused_the_next(kind: Kind) {
    let stage = Stage::contract(kind);
    for (plan, _, per_second) in PLANS {
        let Some(per_second) = per_second else { continue };
        for path in ["/analytics", "/events"] {
            // One quota for both: each has a second of its own.
            stage.next_window(SECOND.0);
            let answers = stage.within_one(SECOND, || send_times(&stage, plan, per_second + 1, || get(path)));
            assert_limit_is(&answers, per_second, per_second * 3600, plan);
        }
    }
}

// 8.2 Analytics and events are one class
fn analytics_and_events_share_their_limit(kind: Kind) {
    let stage = Stage::contract(kind);
    let statuses = stage.within_one(SECOND, || {
        ["/analytics", "/events", "/analytics", "/events"]
            .map(|path| stage.send_as("pro", get(path)).status())
    });
    assert_eq!(statuses, [200, 200, 429, 429]);
}

// 8.2 Free: N/A
fn free_is_told_that_analytics_is_not_in_its_plan_and_is_not_charged(kind: Kind) {
    let stage = Stage::contract(kind);
    let answers = stage.within_one(MINUTE, || {
        let mut answers = vec![stage.send_as("free", get("/links"))];
        answers.extend(["/analytics", "/events"].map(|path| stage.send_as("free", get(path))));
        answers.push(stage.send_as("free", get("/links")));
        answers
    });
    for refused in &answers[1..3] {
        assert_eq!(refused.status(), 403, "{refused}");
        assert_eq!(refused.error_code().as_deref(), Some("forbidden"), "{refused}");
        assert_eq!(standing(refused), (None, None), "{refused}");
        assert_eq!(refused.header("retry-after"), None, "{refused}");
    }
    assert_eq!(remaining(&answers[3]), remaining(&answers[0]) - 1, "neither of the 403s was counted");
}

// 8.2 These limits are separate from the standard limits
fn an_analytics_call_never_lowers_what_is_left_of_standard_nor_the_other_way_round(kind: Kind) {
    let stage = Stage::contract(kind);
    let left = stage.within_one(MINUTE, || {
        let before = remaining(&stage.send_as("business", get("/links")));
        let analytics = stage.within_one(SECOND, || {
            let first = remaining(&stage.send_as("business", get("/analytics")));
            let standard = stage.send_as("business", get("/links/count"));
            assert_eq!(standard.status(), 200, "{standard}");
            (first, remaining(&stage.send_as("business", get("/events"))))
        });
        (before, analytics, remaining(&stage.send_as("business", get("/links"))))
    });
    let (before, (first, second), after) = left;
    assert_eq!(first - second, 1, "the standard call between them was not counted");
    // The inner story may have been told more than once, each time with one standard call.
    assert!(before - after >= 2 && before - after < 6, "{before} fell to {after}");
}

// 8.0 The headers of the first answer, and of the refusal
fn free_starts_with_59_left_until_the_next_minute_and_is_told_when_to_come_back(kind: Kind) {
    let stage = Stage::contract(kind);
    let (now, answers) =
        stage.within_one(MINUTE, || (stage.now(), send_times(&stage, "free", 61, || get("/links"))));
    let next_minute = (now / 60 + 1) * 60;
    let (first, refused) = (&answers[0], &answers[60]);

    assert_eq!(standing(first), (Some(3600), Some(59)), "60 a minute are 3600 an hour: {first}");
    assert_eq!(first.number("x-ratelimit-reset"), Some(next_minute), "{first}");

    assert_eq!(refused.status(), 429, "{refused}");
    assert_eq!(refused.number("x-ratelimit-reset"), Some(next_minute), "{refused}");
    let retry_after = refused.number("retry-after").unwrap();
    assert!((1..=next_minute - now).contains(&retry_after), "{retry_after} s from {now} on: {refused}");
    assert_eq!(refused.header("content-type"), Some("application/json"), "{refused}");
    assert_eq!(refused.header("cache-control"), Some("no-store"), "{refused}");
    assert_eq!(refused.header("ratelimit-policy"), Some(r#""standard";q=60;w=60"#), "{refused}");
    let body = refused.json().unwrap();
    assert_eq!(body["status"], 429, "{body}");
    assert_eq!(body["violated-policies"], json!(["standard"]), "{body}");
}

// 7, 8.0 A client that waits as it was told is served
fn a_client_that_waits_as_long_as_it_was_told_is_served_again(kind: Kind) {
    let stage = Stage::contract(kind);
    let refused =
        stage.within_one(SECOND, || send_times(&stage, "pro", 3, || get("/analytics"))).pop().unwrap();
    assert_eq!(refused.number("retry-after"), Some(1), "{refused}");
    stage.wait(Duration::from_secs(1));
    assert_eq!(stage.send_as("pro", get("/analytics")).status(), 200);
}

// 5 Rate limits are counted per key
fn two_keys_of_one_workspace_share_data_and_count_apart(kind: Kind) {
    let service = tests::backend::Service::start().unwrap();
    let other = service.create_key("free").unwrap().key;
    let stage = Stage::in_front_of(kind, service);
    let created = stage.send_as("free", post("/links").json(&json!({"url": "https://example.com/shared"})));
    let id = created.json().unwrap()["id"].as_str().unwrap().to_owned();

    let (used_up, others) = stage.within_one(MINUTE, || {
        let used_up = send_times(&stage, "free", 61, || get("/links")).pop().unwrap();
        (used_up, stage.send(&get(format!("/links/{id}")).key(&other)))
    });
    assert_eq!(used_up.status(), 429, "{used_up}");
    assert_eq!((others.status(), others.number("x-ratelimit-remaining")), (200, Some(59)), "{others}");
}

// 4 Every endpoint other than GET /analytics and GET /events uses the standard limits; tests/paths.rs has the odd paths
fn only_reads_of_analytics_and_events_use_the_analytics_limits(kind: Kind) {
    let stage = Stage::contract(kind);
    let (standard, analytics) = (Some(5000 * 60), Some(20 * 3600));
    let method = |name: &str, path: &str| Request::new(name.parse().unwrap(), path);
    let rows = [
        (method("GET", "/analytics"), analytics),
        (method("GET", "/events"), analytics),
        (method("HEAD", "/analytics"), analytics),
        (method("GET", "/analytics/"), analytics),
        (method("GET", "/%61nalytics"), analytics),
        (method("GET", "/analytics?groupBy=top_links"), analytics),
        (method("GET", "/Analytics"), standard),
        (method("GET", "/analytics/x"), standard),
        (method("GET", "/links?x=/analytics"), standard),
        (method("POST", "/analytics"), standard),
        (method("DELETE", "/events"), standard),
        (method("GET", "/links"), standard),
        (method("GET", "/links/count"), standard),
        (method("GET", "/links/link_none"), standard),
        (method("DELETE", "/links/link_none"), standard),
        (method("POST", "/links"), standard),
        (method("POST", "/links/bulk"), standard),
        (method("GET", "/webhooks"), standard),
        (method("POST", "/webhooks"), standard),
        (method("GET", "/tags"), standard),
        (method("POST", "/folders"), standard),
        (method("GET", "/domains"), standard),
        (method("GET", "/partners/analytics"), standard),
        (method("GET", "/nowhere"), standard),
    ];
    for (request, limit) in rows {
        let shown = format!("{request:?}");
        let answer = stage.send_as("enterprise", request);
        assert_eq!(answer.number("x-ratelimit-limit"), limit, "{shown}: {answer}");
    }
}

// 4.2, 8.3 A bulk call of up to 100 links is one request
fn a_bulk_call_of_100_links_costs_one_and_one_of_101_creates_none(kind: Kind) {
    let stage = Stage::contract(kind);
    let links = |count: usize| {
        let links = (0..count).map(|i| json!({"url": format!("https://example.com/{i}")}));
        post("/links/bulk").json(&Value::Array(links.collect()))
    };
    let count = || stage.send_as("advanced", get("/links/count")).json().unwrap().as_u64().unwrap();
    let before = count();

    let (first, created, after) = stage.within_one(MINUTE, || {
        let first = remaining(&stage.send_as("free", get("/links/count")));
        let created = stage.send_as("free", links(100));
        (first, created, remaining(&stage.send_as("free", get("/links/count"))))
    });
    assert_eq!(created.status(), 200, "{created}");
    let items = created.json().unwrap();
    let urls: Vec<_> = items.as_array().unwrap().iter().map(|link| link["url"].as_str().unwrap()).collect();
    let expected: Vec<_> = (0..100).map(|i| format!("https://example.com/{i}")).collect();
    assert_eq!(urls, expected, "in the order of the request");
    assert_eq!(first - after, 2, "the bulk call and the count after it");

    let with_a_hundred = count();
    assert!(with_a_hundred >= before + 100 && (with_a_hundred - before).is_multiple_of(100));
    let refused = stage.send_as("free", links(101));
    assert_eq!(refused.status(), 422, "{refused}");
    assert_eq!(refused.error_code().as_deref(), Some("unprocessable_entity"), "{refused}");
    assert_eq!(count(), with_a_hundred, "none of the 101 was created");
}

// 5 Requests without a known key
fn callers_without_a_known_key_are_answered_by_the_service_after_their_address_quota(kind: Kind) {
    let stage = Stage::own(kind);
    let answers = stage.within_one(MINUTE, || {
        let callers = [get("/links"), get("/links").key("weir_guess"), get("/analytics")];
        let mut answers: Vec<_> = callers.iter().map(|request| stage.send(request)).collect();
        answers.extend((0..58).map(|i| stage.send(&get("/links").key(&format!("guess-{i}")))));
        answers
    });
    for (sent, answer) in answers[..60].iter().enumerate() {
        assert_eq!((answer.status(), remaining(answer)), (401, 59 - sent as u64), "{answer}");
        assert_eq!(answer.error_code().as_deref(), Some("unauthorized"), "{answer}");
    }
    let refused = &answers[60];
    assert_eq!(refused.status(), 429, "one address, whatever keys it tries: {refused}");
    assert_eq!(refused.error_code().as_deref(), Some("rate_limit_exceeded"), "{refused}");
}

// 8.0 A browser may read the headers
fn a_browser_is_shown_the_rate_limit_headers(kind: Kind) {
    let stage = Stage::contract(kind);
    let answer = stage.send_as("pro", get("/links").header("origin", "https://app.example.test"));
    let exposed = answer.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
    let names: Vec<_> = exposed.split(',').map(str::trim).collect();
    for name in
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "ratelimit"]
    {
        assert!(names.contains(&name), "{name} is not in {exposed:?}");
    }
}

// Hundreds of requests for each plan, whose limits are the same on every host.
on_gateways! { [plans_in_the_simulator: SIMULATOR, plans_in_envoy: Envoy] {
    every_plan_is_served_its_standard_limit_and_refused_the_next
}}

on_gateways! { [simulator: SIMULATOR, ngx: NGX, no_shared_data: NO_SHARED_DATA, envoy: Envoy] {
    every_plan_is_served_its_analytics_limit_and_refused_the_next
    analytics_and_events_share_their_limit
    free_is_told_that_analytics_is_not_in_its_plan_and_is_not_charged
    an_analytics_call_never_lowers_what_is_left_of_standard_nor_the_other_way_round
    free_starts_with_59_left_until_the_next_minute_and_is_told_when_to_come_back
    a_client_that_waits_as_long_as_it_was_told_is_served_again
    two_keys_of_one_workspace_share_data_and_count_apart
    only_reads_of_analytics_and_events_use_the_analytics_limits
    a_bulk_call_of_100_links_costs_one_and_one_of_101_creates_none
    callers_without_a_known_key_are_answered_by_the_service_after_their_address_quota
    a_browser_is_shown_the_rate_limit_headers
}}

// What the two gateways configure differently: whom a request is from, what it passes before and after the filter.
on_gateways! { [istio: Istio, envoy_gateway: EnvoyGateway] {
    free_starts_with_59_left_until_the_next_minute_and_is_told_when_to_come_back
    callers_without_a_known_key_are_answered_by_the_service_after_their_address_quota
    a_browser_is_shown_the_rate_limit_headers
}}
