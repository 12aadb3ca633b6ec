//! An upstream's rate-limit headers never reach a client beside the filter's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tests::envoy::{Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::gateway::{self, Gateway, Kind};
use tests::on_both_gateways;
use tests::policy::Policy;
use tests::server::{Response, Server};

const KEY: &str = "key";

/// An upstream that sends rate-limit headers of its own once it is told to, and a gateway before it.
fn gateway(kind: Kind, sends_own: &Arc<AtomicBool>) -> (Server, Box<dyn Gateway>) {
    let sends_own = Arc::clone(sends_own);
    let upstream = Server::start(move |_| {
        let mut response = http::Response::builder();
        if sends_own.load(Ordering::SeqCst) {
            let own = [
                "x-ratelimit-limit",
                "X-RateLimit-Remaining",
                "x-ratelimit-reset",
                "ratelimit",
                "RateLimit-Policy",
            ];
            response = own.into_iter().fold(response, |response, name| response.header(name, "1"));
        }
        response.body(bytes::Bytes::new().into()).unwrap_or_else(|_| Response::default())
    })
    .unwrap();
    let policy = Policy::contract().unwrap().subscriber("acme", "business", KEY);
    let policy = policy.with_at("/plans/business/standard", serde_json::json!(["1000000/month"]));
    let gateway =
        gateway::start(kind, Setup::new(policy, Upstream::At(upstream.address())).workers(1)).unwrap();
    (upstream, gateway)
}

fn send(gateway: &dyn Gateway) -> Answer {
    gateway.send(&get("/links").key(KEY))
}

/// Each is there once, which `header` asserts, and is the filter's.
fn is_the_filters(answer: &Answer) -> bool {
    answer.header("x-ratelimit-limit") == Some("1000000")
        && answer.header("x-ratelimit-remaining") != Some("1")
        && answer.header("x-ratelimit-reset") != Some("1")
        && answer.header("ratelimit").is_some_and(|value| value.contains(";r="))
        && answer.header("ratelimit-policy").is_some_and(|value| value.contains(";q="))
}

fn an_upstreams_own_headers_are_replaced_from_the_first_response_on(kind: Kind) {
    let (_upstream, gateway) = gateway(kind, &Arc::new(AtomicBool::new(true)));
    for _ in 0..3 {
        let answer = send(&*gateway);
        assert!(is_the_filters(&answer), "{answer}");
    }
}

fn an_upstream_that_sends_none_at_first_is_found_out(kind: Kind) {
    let sends_own = Arc::new(AtomicBool::new(false));
    let (_upstream, gateway) = gateway(kind, &sends_own);
    for _ in 0..20 {
        assert!(is_the_filters(&send(&*gateway)));
    }
    sends_own.store(true, Ordering::SeqCst);
    assert!(is_the_filters(&send(&*gateway)));
}

on_both_gateways! {
    an_upstreams_own_headers_are_replaced_from_the_first_response_on
    an_upstream_that_sends_none_at_first_is_found_out
}
