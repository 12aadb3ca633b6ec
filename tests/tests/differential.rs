//! What the simulator answers and logs is what Envoy does: every case of host-sim, on both.

use std::collections::BTreeSet;

use host_sim::{Headers, Request, Response};
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
    callouts: "callouts",
    callouts_that_deny: "callouts.denied",
    chain: "chain",
    chain_in_vms_of_their_own: "chain.apart",
    chain_over_http2: "chain.http2",
    chain_that_traps: "chain.traps",
    chain_that_traps_in_vms_of_their_own: "chain.traps_apart",
    configuration: "configuration",
    contexts: "contexts",
    expressions: "expressions",
    foreign_functions: "foreign",
    grpc: "grpc",
    grpc_that_fails: "grpc.failing",
    headers: "headers",
    headers_from_a_malformed_blob: "headers.malformed",
    keys: "keys",
    limiter: "limiter",
    memory: "memory",
    metrics: "metrics",
    pairs: "pairs",
    phases: "phases",
    phases_over_http2: "phases.http2",
    phases_of_a_filter_that_may_not_do_everything: "phases.restricted",
    properties: "properties",
    properties_over_http2: "properties.http2",
    queues: "queues",
    replies: "replies",
    shared_data: "shared_data",
    signatures: "signatures",
    ticks: "ticks",
    traps: "traps",
    traps_where_the_policy_is_open_in_the_old_way: "traps.fail_open",
    traps_where_the_policy_is_open: "traps.open",
    traps_where_the_policy_is_reload: "traps.reload",
    wasi: "wasi",
}

#[test]
fn every_case_is_compared() {
    assert_eq!(differential::names().expect("the cases' folder"), CASES);
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
