//! Headers of answers: for browsers, for proxies before the gateway, and none for a limit that is not enforced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Answer, get};
use tests::gateway::{self, Gateway as _, Kind, module};
use tests::policy::{HTTP_FILTERS, Policy};
use tests::server::{Response, Server};
use tests::{clock, on_both_gateways, plain};

const KEY: &str = "key";
const ORIGIN: &str = "https://app.example.test";
const RATE_LIMIT_HEADERS: [&str; 5] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy"];

/// One request a month.
fn policy() -> Policy {
    Policy::contract()
        .unwrap()
        .with_at("/plans/pro/standard", json!(["1/month"]))
        .subscriber("acme", "pro", KEY)
}

fn a_filter_in_shadow_adds_headers_only_where_it_is_told_to(kind: Kind) {
    //  enforcement, headers.in_shadow, the status of a second request, and whether the headers are there
    let rows = [
        ("enforced", None, 429, true),
        ("shadow", None, 200, false),
        ("shadow", Some(false), 200, false),
        ("shadow", Some(true), 200, true),
    ];
    for (enforcement, in_shadow, status, expected) in rows {
        let policy = policy().with("enforcement", json!(enforcement));
        let policy = match in_shadow {
            Some(in_shadow) => policy.with_at("/headers/in_shadow", json!(in_shadow)),
            None => policy,
        };
        let gateway = gateway::start(kind, Setup::new(policy, Upstream::DirectResponse)).unwrap();
        for status in [200, status] {
            let answer = gateway.send(&get("/links").key(KEY).header("origin", ORIGIN));
            let what = format!("{enforcement}, in_shadow {in_shadow:?}: {answer}");
            assert_eq!(answer.status(), status, "{what}");
            assert_eq!(RATE_LIMIT_HEADERS.map(|name| answer.header(name).is_some()), [expected; 5], "{what}");
        }
    }
}

on_both_gateways! {
    a_filter_in_shadow_adds_headers_only_where_it_is_told_to
}

/// What an answer says to browsers: allowed origins, and what it varies by.
fn allowed(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.header("access-control-allow-origin"), answer.header("vary"))
}

/// An Envoy whose cors filter comes after this one, as in Istio, or is not there.
fn envoy(policy: Policy, upstream: SocketAddr, has_cors: bool) -> Envoy {
    let amended = Envoy::start_amended(Setup::new(policy, Upstream::At(upstream)), |bootstrap, _| {
        let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).unwrap();
        let cors = filters.iter().position(|filter| filter["name"] == "envoy.filters.http.cors").unwrap();
        let cors = filters.remove(cors);
        if has_cors {
            let weir = filters.iter().position(|filter| filter["name"] == "weir").unwrap();
            filters.insert(weir + 1, cors);
        }
        Ok(())
    });
    amended.unwrap()
}

#[test]
fn a_browser_can_read_a_429_where_the_configuration_allows_its_origin() {
    const OTHER: &str = "https://nobody.example.test";
    //  headers.allow_origin, and for requests of these origins what a 429 says
    type Row =
        (Option<Value>, &'static [(Option<&'static str>, (Option<&'static str>, Option<&'static str>))]);
    let rows: [Row; 3] = [
        (None, &[(Some(ORIGIN), (None, None)), (None, (None, None))]),
        (Some(json!("*")), &[(Some(ORIGIN), (Some("*"), None)), (None, (None, None))]),
        (
            Some(json!(["https://other.example.test", ORIGIN])),
            &[
                (Some(ORIGIN), (Some(ORIGIN), Some("Origin"))),
                (Some(OTHER), (None, None)),
                (None, (None, None)),
            ],
        ),
    ];
    let upstream = Server::start(|_| Response::default()).unwrap();
    for (allow_origin, cases) in rows {
        let policy = (0..cases.len()).fold(policy(), |policy, key| {
            policy.subscriber(&format!("s{key}"), "pro", &format!("key-{key}"))
        });
        let policy = match &allow_origin {
            Some(origins) => policy.with_at("/headers/allow_origin", origins.clone()),
            None => policy,
        };
        for has_cors in [true, false] {
            let envoy = envoy(policy.clone(), upstream.address(), has_cors);
            for (key, (origin, expected)) in cases.iter().enumerate() {
                let request = get("/links").key(&format!("key-{key}"));
                let request = origin.iter().fold(request, |request, origin| request.header("origin", origin));
                let what = format!("{allow_origin:?}, origin {origin:?}, cors filter {has_cors}");
                let forwarded = envoy.send(&request).unwrap();
                // The header, if any, is the cors filter's.
                let of_cors = origin.filter(|_| has_cors);
                let found = (forwarded.status(), allowed(&forwarded));
                assert_eq!(found, (200, (of_cors, None)), "{what}: {forwarded}");
                let refused = envoy.send(&request).unwrap();
                assert_eq!((refused.status(), allowed(&refused)), (429, *expected), "{what}: {refused}");
            }
        }
    }
}

/// An Envoy in front that sends a request up to three times while the answer is 429.
fn retrying(upstream: SocketAddr) -> Envoy {
    let retries = json!({"retry_policy": {
        "retry_on": "retriable-status-codes,retriable-4xx,5xx",
        "retriable_status_codes": [429],
        "num_retries": 2,
        "retry_back_off": {"base_interval": "0.001s"},
    }});
    plain::envoy(upstream, &retries).unwrap()
}

#[test]
fn a_proxy_in_front_does_not_retry_a_429_of_the_filter() {
    const REQUESTS: u64 = 4;
    let send = |proxy: &Envoy| {
        let answers = (0..REQUESTS).map(|_| proxy.send(&get("/links").key(KEY)).unwrap());
        answers
            .map(|answer| (answer.status(), answer.header("x-envoy-ratelimited").map(str::to_owned)))
            .collect::<Vec<_>>()
    };
    // Another server's 429, to see that it is retried.
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    let other = Server::start(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::default();
        *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        response
    })
    .unwrap();
    assert_eq!(send(&retrying(other.address())), vec![(429, None); 4]);
    assert_eq!(received.load(Ordering::SeqCst), 3 * REQUESTS);

    let gateway = Envoy::start(Setup::new(policy(), Upstream::DirectResponse)).unwrap();
    assert_eq!(gateway.send(&get("/links").key(KEY)).unwrap().status(), 200);
    let answers = send(&retrying(gateway.address()));
    assert_eq!(answers, vec![(429, Some("true".to_owned())); 4]);
    let limited = || gateway.counter("pro", "standard", "limited").ok();
    let counted = clock::eventually("the refusals", Duration::from_secs(10), || {
        (limited() >= Some(REQUESTS)).then_some(())
    });
    assert!(counted.is_ok(), "{:?}", limited());
    // A retry would have been counted as well by now: answers come after what they are counted by.
    assert_eq!(limited(), Some(REQUESTS));
}

/// An Envoy that may not call `proxy_on_configure` has a filter without a configuration.
#[test]
fn without_a_configuration_every_request_is_answered_503_and_logged() {
    let imports = module().imports();
    let imports = imports.iter().filter_map(|import| import.rsplit_once('.')).map(|(_, name)| name);
    let callbacks =
        ["context_create", "vm_start", "request_headers", "response_headers", "done", "log", "delete"];
    let callbacks: Vec<_> = callbacks.iter().map(|callback| format!("proxy_on_{callback}")).collect();
    let allowed: serde_json::Map<_, _> = imports
        .chain(callbacks.iter().map(String::as_str))
        .map(|name| (name.to_owned(), json!({})))
        .collect();
    let envoy = Envoy::start_amended(Setup::new(policy(), Upstream::DirectResponse), |bootstrap, _| {
        let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).unwrap();
        let weir = filters.iter_mut().find(|filter| filter["name"] == "weir").unwrap();
        weir["typed_config"]["config"]["capability_restriction_config"] =
            json!({"allowed_capabilities": allowed});
        Ok(())
    });
    let envoy = envoy.unwrap();
    for _ in 0..3 {
        let answer = envoy.send(&get("/links").key(KEY)).unwrap();
        assert_eq!((answer.status(), answer.number("retry-after")), (503, Some(1)), "{answer}");
    }
    assert_eq!(envoy.logged("a request was refused, because the filter has no configuration"), 3);
    envoy.log().wait_for(|line| line.contains("weir_no_configuration").then_some(())).unwrap();
}
