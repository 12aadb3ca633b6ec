//! The published API clients, pointed at the gateway.

use std::process::Command;
use std::time::Duration;

use backend::{ClickRules, LocationHeaders};
use http::HeaderName;
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::backend::{Service, SteppedService};
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{get, post};
use tests::gateway::{Kind, wait_for_directory};
use tests::on_both_gateways;
use tests::policy::Policy;
use tests::served::Served;
use tests::{artifacts, clock};

#[test]
fn the_python_client_works_and_gets_its_typed_error_at_the_61st_request_of_a_free_key() {
    let python = artifacts::python_with("tests/clients/python");
    let service = Service::start().unwrap();
    let setup = Setup::new(Policy::deployed().unwrap(), Upstream::At(service.address()));
    let envoy = Envoy::start(setup.keys_from(service.directory())).unwrap();
    wait_for_directory(&envoy);

    clock::wait_for_room(Duration::from_secs(60), Duration::from_secs(20));
    let mut story = Command::new(python);
    story
        .arg(artifacts::root().join("tests/clients/python/story.py"))
        .arg(format!("http://{}", envoy.address()))
        .args([service.keys.of("pro"), service.keys.of("free")]);
    succeed(&mut story);
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

/// Lets a client make every call, on a clock that stands still and with clicks that are known. The client is started by
/// a command that takes the gateway's address, a key and the file that has the clicks.
fn make_every_call(kind: Kind, mut client: Command) {
    let clicks = artifacts::root().join("tests/clients/clicks.json");
    let table: Value = serde_json::from_slice(&std::fs::read(&clicks).unwrap()).unwrap();
    let header = |name| Some(HeaderName::from_static(name));
    let location = LocationHeaders {
        continent: header("x-continent"),
        country: header("x-country"),
        region: header("x-region"),
        city: header("x-city"),
    };
    let rules = ClickRules { location, trusted_hops: 1, ..ClickRules::default() };
    let start: Timestamp = "2026-03-15T09:34:56Z".parse().unwrap();
    let service = SteppedService::start_with(start, rules).unwrap();
    // Counted by the month, so that no call has to wait.
    let policy = Policy::deployed()
        .unwrap()
        .with_at("/plans/pro/standard", json!(["1000/month"]))
        .with_at("/plans/pro/analytics", json!(["1000/month"]));
    let setup = Setup::new(policy, Upstream::At(service.address())).keys_from(service.directory());
    let gateway = Served::start(&kind.served(), setup).unwrap();

    let key = service.keys.of("pro");
    let visitor = Client::to(gateway.address()).unwrap();
    let created = visitor.send(&post("/links").json(&table["link"]).key(key)).unwrap();
    assert_eq!(created.status(), 200, "{created}");
    let mut hours_left = 3;
    for click in table["clicks"].as_array().unwrap() {
        let hours_ago = click["hoursAgo"].as_u64().unwrap();
        service.advance(Duration::from_secs(3600) * u32::try_from(hours_left - hours_ago).unwrap());
        hours_left = hours_ago;
        let path = format!("/r/clicked{}", click["query"].as_str().unwrap());
        let headers = click["headers"].as_object().unwrap();
        let request = headers
            .iter()
            .fold(get(path), |request, (name, value)| request.header(name, value.as_str().unwrap()));
        let answer = visitor.send(&request).unwrap();
        assert_eq!(answer.status(), 302, "{answer}");
        service.flush_clicks();
    }
    service.advance(Duration::from_secs(3600) * u32::try_from(hours_left).unwrap());

    client.arg(format!("http://{}", gateway.address())).arg(key).arg(clicks);
    succeed(&mut client);
}

fn the_python_client_makes_every_call(kind: Kind) {
    let mut python = Command::new(artifacts::python_with("tests/clients/python"));
    python.arg(artifacts::root().join("tests/clients/python/every_call.py"));
    make_every_call(kind, python);
}

fn the_typescript_client_makes_every_call(kind: Kind) {
    let mut node = Command::new("node");
    node.arg(artifacts::root().join("tests/clients/typescript/every_call.mjs"));
    node.arg(artifacts::node_modules("tests/clients/typescript"));
    make_every_call(kind, node);
}

on_both_gateways! {
    the_python_client_makes_every_call
    the_typescript_client_makes_every_call
}
