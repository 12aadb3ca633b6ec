//! `envoy/fleet`: every file that a fleet is started from is loaded by what reads it.

use std::path::PathBuf;
use std::process::Command;

use fleet::envoyproxy::Configuration;
use fleet::limitador::limits_from_yaml;
use serde_json::{Value, json};
use tests::compose::Compose;
use tests::{artifacts, policy};

const FOLDER: &str = "envoy/fleet";

fn file(name: &str) -> PathBuf {
    artifacts::root().join(FOLDER).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

/// What a real Envoy says of a bootstrap.
fn validate(bootstrap: &Value) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("envoy.json");
    std::fs::write(&config, bootstrap.to_string()).unwrap();
    let said = Command::new(artifacts::envoy())
        .args(["--mode", "validate", "--config-path"])
        .arg(config)
        .output()
        .unwrap();
    (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn envoy_takes_both_bootstraps() {
    let mut gateway = policy::yaml("envoy/fleet/envoy.yaml").unwrap();
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
    let filters = gateway.pointer_mut(filters).and_then(Value::as_array_mut).unwrap();
    let weir = filters.iter_mut().find(|filter| filter["name"] == "weir").unwrap();
    *weir.pointer_mut("/typed_config/config/vm_config/code/local/filename").unwrap() =
        json!(artifacts::filter_wasm());
    for bootstrap in [gateway, policy::yaml("envoy/fleet/backend.yaml").unwrap()] {
        let (taken, said) = validate(&bootstrap);
        assert!(taken, "{said}");
        assert!(!said.contains("[warning]"), "{said}");
    }
    let (taken, said) = validate(&json!({"static_resources": {"listeners": [{"name": "no address"}]}}));
    assert!(!taken, "{said}");
}

#[test]
fn the_compose_file_mounts_what_is_there_and_pins_what_it_runs() {
    let compose = Compose::read("envoy/fleet/compose.yaml").unwrap();
    assert_eq!(compose.names(), ["backend", "gateway-1", "gateway-2", "limitador", "ratelimit", "redis"]);
    assert_eq!(compose.problems(), [""; 0]);
}

#[test]
fn the_gateways_find_what_the_compose_file_starts() {
    let compose = policy::yaml("envoy/fleet/compose.yaml").unwrap();
    let bootstrap = policy::yaml("envoy/fleet/envoy.yaml").unwrap();
    let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    for cluster in bootstrap.pointer("/static_resources/clusters").and_then(Value::as_array).unwrap() {
        let address = cluster.pointer(address).unwrap();
        assert!(compose["services"].get(address["address"].as_str().unwrap()).is_some(), "{address}");
    }
    let port = compose.pointer("/services/ratelimit/environment/GRPC_PORT").unwrap();
    assert_eq!(port, "8081");
}

#[test]
fn the_services_take_their_configurations() {
    let configuration = Configuration::from_yaml(&text("ratelimit/weir.yaml")).unwrap();
    assert_eq!(configuration, Configuration::from_yaml("domain: weir").unwrap());
    // Three plans of the class standard by the minute, and analytics by the second.
    assert_eq!(limits_from_yaml(&text("limitador/limits.yaml")).unwrap().len(), 7);
    let for_limitador: Value = serde_json::from_str(&text("limitador/weir.json")).unwrap();
    let deployed = policy::yaml("envoy/fleet/envoy.yaml").unwrap();
    let deployed = configuration_of(&deployed);
    let differing = |field: &str| for_limitador[field] != deployed[field];
    let fields = deployed.as_object().unwrap().keys().filter(|field| differing(field));
    assert_eq!(fields.collect::<Vec<_>>(), ["fleet"], "limitador/weir.json has the same plans");
}

fn configuration_of(bootstrap: &Value) -> Value {
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
    let filters = bootstrap.pointer(filters).and_then(Value::as_array).unwrap();
    let weir = filters.iter().find(|filter| filter["name"] == "weir").unwrap();
    let text = weir.pointer("/typed_config/config/configuration/value").and_then(Value::as_str).unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_fleets_bootstrap_differs_from_one_gateways_where_it_must() {
    let of = |path: &str| policy::yaml(path).unwrap();
    let (mut fleet, mut single) = (of("envoy/fleet/envoy.yaml"), of("envoy/envoy.yaml"));
    for bootstrap in [&mut fleet, &mut single] {
        for pointer in ["/static_resources/clusters", "/admin"] {
            bootstrap.pointer_mut(pointer).unwrap().take();
        }
        let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
        let filters = bootstrap.pointer_mut(filters).and_then(Value::as_array_mut).unwrap();
        let weir = filters.iter_mut().find(|filter| filter["name"] == "weir").unwrap();
        weir.pointer_mut("/typed_config/config/configuration").unwrap().take();
    }
    assert_eq!(fleet, single);
}
