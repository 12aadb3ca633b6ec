//! What the simulator answers and logs is what Envoy does: every case of host-sim, on both.

use std::collections::BTreeSet;

use host_sim::{Headers, Request, Response};
use host_sim_cli::scenario::Answer;
use tests::differential::{self, Case};

/// A test for each case, and a list of them.
macro_rules! cases {
    ($($test:ident: $name:literal,)+) => {
        const CASES: &[&str] = &[$($name),+];

        $(
            #[test]
            fn $test() {
                if let Err(error) = Case::named($name).and_then(|case| case.compare()) {
                    panic!("{error:#}");
                }
            }
        )+
    };
}

cases! {
    bodies: "bodies",
    bodies_beyond_the_buffer_limit: "bodies.limit",
    responses_beyond_the_buffer_limit: "bodies.limit_response",
    buffers: "buffers",
    callouts: "callouts",
    callouts_that_are_not_answered: "callouts.closed",
    callouts_while_the_filter_is_configured: "callouts.configured",
    callouts_that_deny: "callouts.denied",
    callouts_and_requests_that_are_answered_with_what_is_no_http: "callouts.malformed",
    chain: "chain",
    chain_in_vms_of_their_own: "chain.apart",
    chain_over_http2: "chain.http2",
    chain_that_traps: "chain.traps",
    chain_that_traps_in_vms_of_their_own: "chain.traps_apart",
    configuration: "configuration",
    contexts: "contexts",
    foreign_functions: "foreign",
    grpc: "grpc",
    grpc_that_fails: "grpc.failing",
    headers: "headers",
    headers_that_the_gateway_adds: "headers.added",
    headers_from_a_malformed_blob: "headers.malformed",
    lengths: "lengths",
    limiter: "limiter",
    memory: "memory",
    metrics: "metrics",
    pairs: "pairs",
    phases: "phases",
    phases_by_framing: "phases.framing",
    phases_over_http2: "phases.http2",
    phases_of_a_filter_that_may_not_do_everything: "phases.restricted",
    properties: "properties",
    properties_over_http2: "properties.http2",
    queues: "queues",
    replies: "replies",
    resumes: "resumes",
    resumes_where_headers_are_held_alone: "resumes.iteration",
    shared_data: "shared_data",
    sizes: "sizes",
    sizes_over_http2: "sizes.http2",
    surroundings: "surroundings",
    ticks: "ticks",
    traps: "traps",
    traps_after_the_responses_headers: "traps.body",
    traps_where_the_policy_is_open_in_the_old_way: "traps.fail_open",
    traps_where_the_policy_is_open: "traps.open",
    traps_where_the_policy_is_reload: "traps.reload",
    traps_before_the_responses_headers: "traps.response",
    wasi: "wasi",
}

#[test]
fn every_case_is_compared() {
    assert_eq!(differential::names().expect("the cases' folder"), CASES);
}

#[test]
fn an_answer_to_a_call_is_broken_off_beyond_32_mebibytes() {
    const MOST: usize = 32 << 20;
    for size in [MOST, MOST + 1] {
        let mut case = Case::named("callouts").expect("the case");
        case.scenario.steps.truncate(1);
        case.scenario.steps[0].expect = Default::default();
        let answer = Answer { body: "x".repeat(size), ..Answer::default() };
        case.scenario.clusters.insert("auth".to_owned(), answer.into());
        if let Err(error) = case.compare() {
            panic!("{size} bytes: {error:#}");
        }
    }
}

#[test]
fn a_configuration_is_the_bytes_that_envoy_hands_over() {
    let message = |kind: &str, value: serde_json::Value| serde_json::json!({"@type": format!("type.googleapis.com/google.protobuf.{kind}"), "value": value});
    let messages = [
        message("Struct", serde_json::json!({"plans": [1, true, null, {"a": "b"}]})),
        message("BytesValue", "/+8=".into()),
        message("Value", "text".into()),
        message("Int32Value", (-5).into()),
        message("DoubleValue", 0.5.into()),
    ];
    for message in messages {
        if let Err(error) = Case::configured("message", message).and_then(|case| case.compare()) {
            panic!("{error:#}");
        }
    }
}

#[test]
fn repeated_headers_are_joined_where_envoy_says_that_it_joins_them() {
    let [of_requests, of_responses] = differential::inline_headers().expect("Envoy's lists");
    let others = ["cookie", "set-cookie", "x-api-key", "link", "forwarded", "warning", "x-real-ip"];
    let names: BTreeSet<&str> =
        of_requests.iter().chain(&of_responses).map(String::as_str).chain(others).collect();
    let joins = |headers: &Headers, name: &str| headers.get_all(name).count() == 1;
    for name in names.into_iter().filter(|name| !name.starts_with(':')).map(str::to_owned) {
        let request = Request::get("/").header(name.clone(), "a").header(name.clone(), "b");
        assert_eq!(joins(request.headers(), &name), of_requests.contains(&name), "{name} of a request");
        let response = Response::ok().header(name.clone(), "a").header(name.clone(), "b");
        assert_eq!(joins(response.headers(), &name), of_responses.contains(&name), "{name} of a response");
    }
}
