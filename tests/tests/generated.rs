//! What a control plane made of the repository's files, in a real Envoy: the connection manager and the routes as they were generated, and
//! the filter in its place among them. `tests/data` says with which version, and how to make the data anew.

use std::time::Duration;

use serde_json::{Value, json};
use tests::clock::eventually;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::{self, Policy};

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// A proxy of Envoy Gateway. The second virtual host has a route that no policy reaches.
fn envoy_gateway(policy: Policy) -> Envoy {
    let setup = Setup::new(policy, Upstream::DirectResponse);
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        let generated = policy::yaml("tests/data/envoy-gateway.json")?;
        let manager = bootstrap.pointer_mut(MANAGER).unwrap();
        let weir = manager["http_filters"].as_array().unwrap().iter().find(|filter| filter["name"] == "weir");
        let weir = weir.unwrap()["typed_config"].clone();
        let answer = manager.pointer("/route_config/virtual_hosts/0/routes/0/direct_response").cloned();
        let access_log = manager["access_log"].clone();
        *manager = generated["connection_manager"].clone();
        manager["access_log"] = access_log;
        for filter in manager["http_filters"].as_array_mut().unwrap() {
            if filter["name"].as_str().unwrap().starts_with("envoy.filters.http.wasm/") {
                filter["typed_config"] = weir.clone();
            }
        }
        let mut routes = generated["route_config"].clone();
        let host = routes.pointer_mut("/virtual_hosts/0").unwrap();
        let route = host.pointer_mut("/routes/0").and_then(Value::as_object_mut).unwrap();
        route.remove("route");
        route.insert("direct_response".to_owned(), answer.unwrap());
        let mut other = host.clone();
        other["name"] = json!("other");
        other["domains"] = json!(["other.example.com"]);
        other
            .pointer_mut("/routes/0")
            .and_then(Value::as_object_mut)
            .unwrap()
            .remove("typed_per_filter_config");
        routes["virtual_hosts"].as_array_mut().unwrap().push(other);
        manager["route_config"] = routes;
        Ok(())
    });
    envoy.unwrap()
}

fn policy() -> Policy {
    let policy = Policy::contract().unwrap().subscriber("acme", "free", "free-key");
    let sixty = json!(["60/month"]);
    policy
        .with_at("/plans/free/standard", sixty.clone())
        .with("missing_key", json!({"action": "limit", "quotas": sixty}))
}

/// The number of requests that pass of 200, which the request of each number is.
fn passed(envoy: &Envoy, request: impl Fn(usize) -> tests::exchange::Request) -> usize {
    let status = |number| envoy.send(&request(number)).unwrap().status();
    (0..200).map(status).filter(|status| *status == 200).count()
}

#[test]
fn a_client_of_envoy_gateway_does_not_choose_its_address() {
    let envoy = envoy_gateway(policy());
    let spoofing =
        |number: usize| get("/links").header("x-forwarded-for", format!("198.51.100.{}", number % 250));
    assert_eq!(passed(&envoy, spoofing), 60);
    assert_eq!(passed(&envoy, |_| get("/links")), 0, "the same client without the header");
    assert_eq!(passed(&envoy, |_| get("/links").key("free-key")), 60);
}

/// The alert `WeirSomeNotCounted` compares these two figures.
#[test]
fn requests_of_a_route_without_the_filter_are_served_and_not_counted() {
    let envoy = envoy_gateway(policy());
    assert_eq!(passed(&envoy, |_| get("/links").key("free-key").header("host", "other.example.com")), 200);
    assert_eq!(passed(&envoy, |_| get("/links").key("free-key")), 60);
    let allowed = || envoy.counter("free", "standard", "allowed").ok().filter(|allowed| *allowed >= 60);
    let allowed = eventually("the count of requests", Duration::from_secs(5), allowed);
    assert_eq!(allowed.unwrap(), 60);
}
