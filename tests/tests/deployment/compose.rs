//! `envoy/compose.yaml`: what it starts, mounts and names is there. Nothing here runs it.

use serde_json::Value;
use tests::compose::Compose;
use tests::policy::{self, Policy};

use crate::tools::text;

const FILE: &str = "envoy/compose.yaml";

#[test]
fn the_compose_file_mounts_what_is_there_and_pins_what_it_runs() {
    let compose = Compose::read(FILE).unwrap();
    assert_eq!(compose.names(), ["backend", "gateway", "grafana", "prometheus"]);
    assert_eq!(compose.problems(), [""; 0]);
}

#[test]
fn its_services_find_each_other() {
    let compose = policy::yaml(FILE).unwrap();
    let environment = &compose["services"]["backend"]["environment"];
    let bootstrap = policy::bootstrap().unwrap();
    // All share a network, so an address that one listens on is one that another may name.
    for (variable, cluster) in [("WEIR_LISTEN", "backend"), ("WEIR_INTERNAL_LISTEN", "backend-internal")] {
        let clusters = bootstrap.pointer("/static_resources/clusters").and_then(Value::as_array).unwrap();
        let found = clusters.iter().find(|found| found["name"] == cluster).unwrap();
        let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
        let address = found.pointer(address).unwrap();
        let expected = format!("{}:{}", address["address"].as_str().unwrap(), address["port_value"]);
        assert_eq!(environment[variable], expected);
    }
    let policy = Policy::deployed().unwrap();
    let variable = policy.as_value().pointer("/directory/bearer/env").and_then(Value::as_str).unwrap();
    let of_gateway = &compose["services"]["gateway"]["environment"];
    assert_eq!(of_gateway[variable], environment["WEIR_INTERNAL_TOKEN"]);

    let prometheus = policy::yaml("envoy/prometheus/prometheus.yaml").unwrap();
    let targets = prometheus["scrape_configs"].as_array().unwrap().iter();
    let targets: Vec<_> =
        targets.map(|job| job["static_configs"][0]["targets"][0].as_str().unwrap()).collect();
    let admin = bootstrap.pointer("/admin/address/socket_address").unwrap();
    let admin = format!("{}:{}", admin["address"].as_str().unwrap(), admin["port_value"]);
    assert_eq!(targets, [admin.as_str(), environment["WEIR_INTERNAL_LISTEN"].as_str().unwrap()]);

    let source = policy::yaml("envoy/grafana/provisioning/datasources/prometheus.yaml").unwrap();
    assert_eq!(source["datasources"][0]["url"], "http://127.0.0.1:9090");
    let provider = policy::yaml("envoy/grafana/provisioning/dashboards/weir.yaml").unwrap();
    let folder = provider["providers"][0]["options"]["path"].as_str().unwrap();
    assert!(text(FILE).contains(&format!("./grafana/weir.json:{folder}/weir.json:ro")));
}
