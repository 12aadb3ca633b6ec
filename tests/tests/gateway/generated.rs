//! What the control planes of Istio and Envoy Gateway made of the repository's files, in a real Envoy. `tests/data` says with which versions,
//! and how to make the data anew.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tests::backend::Directory;
use tests::client::Client;
use tests::clock::eventually;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get};
use tests::flood;
use tests::gateway::wait_for_directory;
use tests::mesh::{self, Proxy};
use tests::policy::{Policy, hash};
use tests::server::{Response, Server};

const GATEWAYS: [Proxy; 2] = [Proxy::IngressGateway, Proxy::EnvoyGateway];
const ROUTES: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts";

/// 60 a month for the key `free-key` and for callers without one.
fn policy() -> Policy {
    let policy = Policy::contract().unwrap().subscriber("acme", "free", "free-key");
    let sixty = json!(["60/month"]);
    policy
        .with_at("/plans/free/standard", sixty.clone())
        .with("missing_key", json!({"action": "limit", "quotas": sixty}))
}

fn proxy(proxy: Proxy) -> Envoy {
    mesh::start(proxy, Setup::new(policy(), Upstream::DirectResponse)).unwrap()
}

/// The number of requests that pass of 200, which the request of each number is.
fn passed(envoy: &Envoy, request: impl Fn(usize) -> Request) -> usize {
    let status = |number| envoy.send(&request(number)).unwrap().status();
    (0..200).map(status).filter(|status| *status == 200).count()
}

fn spoofing(number: usize) -> Request {
    get("/links").header("x-forwarded-for", format!("198.51.100.{}", number % 250))
}

#[test]
fn a_client_of_a_gateway_does_not_choose_its_address() {
    for kind in GATEWAYS {
        let envoy = proxy(kind);
        assert_eq!(passed(&envoy, spoofing), 60, "{kind:?}");
        assert_eq!(passed(&envoy, |_| get("/links")), 0, "{kind:?}: the same client without the header");
        assert_eq!(passed(&envoy, |_| get("/links").key("free-key")), 60, "{kind:?}");
    }
}

/// The page says so, and what to do about it.
#[test]
fn behind_a_gateway_the_address_is_the_one_that_the_gateway_wrote() {
    for kind in [Proxy::Sidecar, Proxy::Waypoint] {
        let envoy = proxy(kind);
        assert_eq!(passed(&envoy, spoofing), 200, "{kind:?}");
        let caller = |_| get("/links").header("x-forwarded-for", "203.0.113.7");
        assert_eq!(passed(&envoy, caller), 60, "{kind:?}");
        assert_eq!(passed(&envoy, |_| get("/links").key("free-key")), 60, "{kind:?}");
    }
}

#[test]
fn the_listeners_of_a_proxy_have_one_count() {
    for kind in GATEWAYS {
        let setup = Setup::new(policy(), Upstream::DirectResponse);
        let envoy = mesh::start_amended(kind, setup, |bootstrap| mesh::add_listener(bootstrap, "second"));
        let envoy = envoy.unwrap();
        let passed = ["api", "second"].map(|listener| {
            let client = Client::to(envoy.listener(listener).unwrap()).unwrap();
            let status = |_| client.send(&get("/links").key("free-key")).unwrap().status();
            (0..40).map(status).filter(|status| *status == 200).count()
        });
        assert_eq!(passed, [40, 20], "{kind:?}");
    }
}

/// The alert `WeirSomeNotCounted` compares these two figures.
#[test]
fn requests_of_a_route_that_no_policy_reaches_are_served_and_not_counted() {
    let setup = Setup::new(policy(), Upstream::DirectResponse);
    let envoy = mesh::start_amended(Proxy::EnvoyGateway, setup, |bootstrap| {
        let hosts = bootstrap.pointer_mut(ROUTES).and_then(Value::as_array_mut).unwrap();
        let mut other = hosts[0].clone();
        other["name"] = json!("other");
        other["domains"] = json!(["other.example.com"]);
        other["routes"][0].as_object_mut().unwrap().remove("typed_per_filter_config").unwrap();
        hosts.push(other);
        Ok(())
    });
    let envoy = envoy.unwrap();
    assert_eq!(passed(&envoy, |_| get("/links").key("free-key").header("host", "other.example.com")), 200);
    assert_eq!(passed(&envoy, |_| get("/links").key("free-key")), 60);
    let allowed = || envoy.counter("free", "standard", "allowed").ok().filter(|allowed| *allowed >= 60);
    let allowed = eventually("the count of requests", Duration::from_secs(5), allowed);
    assert_eq!(allowed.unwrap(), 60);
}

/// Answers as Go's server does, to those who have the token.
fn directory(token: &'static str) -> Server {
    let row =
        json!({"sha256": hash("key").trim_start_matches("sha256:"), "subscriber": "acme", "plan": "free"});
    let document = json!({"keys": [row]}).to_string();
    let server = Server::start(move |request| {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let of_a_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let status = match header("host") {
            Some(host) if !host.bytes().all(of_a_host) => 400,
            _ if header("authorization") != Some(&format!("Bearer {token}")) => 401,
            _ => 200,
        };
        let mut response = Response::new(bytes::Bytes::from(document.clone()).into());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
        response
    });
    server.unwrap()
}

#[test]
fn a_gateway_polls_the_directory_through_its_sidecar_which_limits_no_poll() {
    const TOKEN: &str = "token";
    let server = directory(TOKEN);
    let sidecar = mesh::start(Proxy::SidecarInternal, Setup::new(policy(), Upstream::At(server.address())));
    let sidecar = sidecar.unwrap();
    for kind in GATEWAYS {
        let keys = Directory { address: sidecar.address(), token: TOKEN.to_owned() };
        let policy = Policy::deployed().unwrap();
        let envoy = mesh::start(kind, Setup::new(policy, Upstream::DirectResponse).keys_from(keys)).unwrap();
        wait_for_directory(&envoy);
        let answer = envoy.send(&get("/links").key("key")).unwrap();
        assert_eq!(answer.number("x-ratelimit-limit"), Some(3600), "{kind:?}: {answer}");
    }
    let poll = |_| get("/internal/keys").header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(passed(&sidecar, poll), 200);
}

/// As each control plane makes them: a new extension in Istio, a new listener in Envoy Gateway.
#[test]
fn updates_under_load_fail_no_request_and_lose_no_count() {
    const LIMIT: usize = 8_000;
    const REQUESTS: usize = 12_000;
    for kind in GATEWAYS {
        let limit = json!([format!("{LIMIT}/month")]);
        let policy = policy().with_at("/plans/free/standard", limit);
        let setup = Setup::new(policy.clone(), Upstream::DirectResponse).drain(Duration::from_secs(60));
        let mut envoy = mesh::start(kind, setup).unwrap();
        let (counts, updates) = flood::under_updates(envoy.address(), "free-key", REQUESTS, |update| {
            let other = json!([format!("{}/minute", 600 + update)]);
            assert!(envoy.update(policy.clone().with_at("/plans/pro/standard", other)).unwrap(), "{kind:?}");
        })
        .unwrap();
        let expected = BTreeMap::from([(200, LIMIT), (429, REQUESTS - LIMIT)]);
        assert_eq!(counts, expected, "{kind:?}, {updates} updates");
    }
}
