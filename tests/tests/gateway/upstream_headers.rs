//! An upstream's rate-limit headers never reach a client beside the filter's.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tests::envoy::{Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::gateway::{self, Gateway, Kind};
use tests::on_both_gateways;
use tests::policy::Policy;
use tests::server::{Response, Server};

const KEY: &str = "key";

/// One response of this many carries the upstream's headers, beginning after the first of them.
const ONE_IN: u32 = 1_000;

/// Requests of a case, the last of which is refused.
const REQUESTS: u32 = 3 * ONE_IN + 1;

/// An upstream that sends rate-limit headers on one response in [`ONE_IN`].
fn upstream() -> Server {
    let responses = AtomicU32::new(0);
    Server::start(move |_| {
        let mut response = http::Response::builder();
        let sent = responses.fetch_add(1, Ordering::SeqCst);
        if sent > ONE_IN && sent % ONE_IN == ONE_IN - 1 {
            let own = [
                "x-ratelimit-limit",
                "X-RateLimit-Remaining",
                "x-ratelimit-reset",
                "ratelimit",
                "RateLimit-Policy",
            ];
            response = own
                .into_iter()
                .fold(response.header("x-own", "1"), |response, name| response.header(name, "1"));
        }
        response.body(bytes::Bytes::new().into()).unwrap_or_else(|_| Response::default())
    })
    .unwrap()
}

/// A gateway in front of `upstream`, with this value of `headers.upstream`.
fn gateway(kind: Kind, upstream: &Server, setting: &str) -> Box<dyn Gateway> {
    let policy = Policy::contract().unwrap().subscriber("acme", "business", KEY);
    let policy = policy
        .with_at("/plans/business/standard", json!([format!("{}/month", REQUESTS - 1)]))
        .with_at("/headers/upstream", json!(setting));
    gateway::start(kind, Setup::new(policy, Upstream::At(upstream.address())).workers(1)).unwrap()
}

/// Each of the headers is there once, which `header` asserts, and is the filter's.
fn is_the_filters(answer: &Answer) -> bool {
    answer.header("x-ratelimit-limit") == Some("3000")
        && answer.header("x-ratelimit-remaining").is_some()
        && answer.header("x-ratelimit-reset").is_some_and(|value| value.len() > 1)
        && answer.header("ratelimit").is_some_and(|value| value.contains(";r="))
        && answer.header("ratelimit-policy").is_some_and(|value| value.contains(";q="))
}

/// Sends requests until the quota is used up: the last is the filter's own answer, which no route's settings may rob of its headers.
fn no_header_is_doubled(kind: Kind, setting: &str) {
    let upstream = upstream();
    let gateway = gateway(kind, &upstream, setting);
    let mut own = 0;
    for request in 1..=REQUESTS {
        let answer = gateway.send(&get("/links").key(KEY));
        own += u32::from(answer.header("x-own").is_some());
        assert_eq!(answer.status(), if request == REQUESTS { 429 } else { 200 }, "{request}: {answer}");
        assert!(is_the_filters(&answer), "{request}: {answer}");
    }
    assert_eq!(own, 2, "responses that carried the upstream's headers");
}

fn the_filter_replaces_the_upstreams_headers(kind: Kind) {
    no_header_is_doubled(kind, "replace");
}

/// `envoy.yaml` has `response_headers_to_remove`, which the simulator does not know.
#[test]
fn the_gateway_removes_the_upstreams_headers() {
    no_header_is_doubled(Kind::Envoy, "absent");
}

on_both_gateways! {
    the_filter_replaces_the_upstreams_headers
}
