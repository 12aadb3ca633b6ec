//! `envoy/fleet`: the compose file with what it mounts, and what a fleet adds to the files of Istio and Envoy Gateway.

use std::path::PathBuf;

use filter::config::Config;
use serde_json::{Value, json};
use tests::compose::Compose;
use tests::policy::{self, Policy};

use crate::kubernetes::{Document, assert_named, deployed, hosts, validate};

const COMPOSE: &str = "envoy/fleet/compose.yaml";
const ENVOY: &str = "envoy/fleet/envoy.yaml";
const TOKEN: &str = "WEIR_LEDGER_TOKEN";

/// The ledger's cluster of `envoy/fleet/envoy.yaml`.
pub(crate) fn ledger_cluster() -> Value {
    let bootstrap = policy::yaml(ENVOY).unwrap();
    let clusters = bootstrap.pointer("/static_resources/clusters").and_then(Value::as_array).unwrap();
    clusters.iter().find(|cluster| cluster["name"] == "ledger").unwrap().clone()
}

/// The addresses of a cluster's endpoints, as `host:port`.
fn addresses(cluster: &Value) -> Vec<String> {
    let endpoints =
        cluster.pointer("/load_assignment/endpoints/0/lb_endpoints").and_then(Value::as_array).unwrap();
    let sockets =
        endpoints.iter().map(|endpoint| endpoint.pointer("/endpoint/address/socket_address").unwrap());
    sockets
        .map(|socket| format!("{}:{}", socket["address"].as_str().unwrap(), socket["port_value"]))
        .collect()
}

#[test]
fn the_gateways_are_those_of_envoy_yaml_and_know_the_ledger() {
    let fleet = json!({"cluster": "ledger", "bearer": {"env": TOKEN}});
    let given = policy::yaml(ENVOY).unwrap();
    let mut expected = policy::bootstrap().unwrap();
    // Prometheus is elsewhere, and so is what the clusters lead to.
    expected["admin"]["address"]["socket_address"]["address"] = json!("0.0.0.0");
    let clusters = expected.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut).unwrap();
    for cluster in &mut *clusters {
        cluster["type"] = json!("STRICT_DNS");
        let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/address";
        *cluster.pointer_mut(address).unwrap() = json!("backend");
    }
    clusters.push(ledger_cluster());
    let mut given_filter = given.clone();
    let [configuration, expected_configuration] = [&mut given_filter, &mut expected].map(|bootstrap| {
        let filter = policy::weir_filter(bootstrap).unwrap();
        let text = filter.pointer_mut("/typed_config/config/configuration/value").unwrap().take();
        let configuration: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        configuration
    });
    let keys = "/typed_config/config/vm_config/environment_variables/host_env_keys";
    let filter = policy::weir_filter(&mut expected).unwrap();
    filter.pointer_mut(keys).and_then(Value::as_array_mut).unwrap().push(json!(TOKEN));
    assert_eq!(given_filter, expected);
    assert_eq!(
        Policy::from(configuration.clone()),
        Policy::from(expected_configuration).with("fleet", fleet)
    );
    assert_eq!(Config::from_json(configuration.to_string().as_bytes()).err(), None);
}

#[test]
fn the_services_of_compose_are_there_and_find_each_other() {
    let checked = Compose::read(COMPOSE).unwrap();
    assert_eq!(
        checked.names(),
        ["backend", "gateway-1", "gateway-2", "grafana", "ledger-1", "ledger-2", "prometheus", "valkey"]
    );
    assert_eq!(checked.problems(), [""; 0]);

    let compose = policy::yaml(COMPOSE).unwrap();
    let gateway = &compose["x-gateway"]["environment"];
    let ledger = &compose["x-ledger"]["environment"];
    let backend = &compose["services"]["backend"]["environment"];
    assert_eq!(gateway[TOKEN], ledger[TOKEN]);
    assert_eq!(gateway["WEIR_DIRECTORY_TOKEN"], backend["WEIR_INTERNAL_TOKEN"]);
    assert_eq!(ledger["WEIR_LEDGER_STORE"], "redis://valkey:6379");
    let port = |address: &Value| address.as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let ledgers =
        ["ledger-1", "ledger-2"].map(|name| format!("{name}:{}", port(&ledger["WEIR_LEDGER_LISTEN"])));
    assert_eq!(addresses(&ledger_cluster()), ledgers);

    let bootstrap = policy::yaml(ENVOY).unwrap();
    let admin = &bootstrap["admin"]["address"]["socket_address"]["port_value"];
    let prometheus = policy::yaml("envoy/fleet/prometheus.yaml").unwrap();
    let jobs = prometheus["scrape_configs"].as_array().unwrap().iter();
    let targets: Vec<_> = jobs.map(|job| job["static_configs"][0]["targets"].clone()).collect();
    let gateways = ["gateway-1", "gateway-2"].map(|name| format!("{name}:{admin}"));
    let internal = format!("backend:{}", port(&backend["WEIR_INTERNAL_LISTEN"]));
    assert_eq!(targets, [json!(gateways), json!(ledgers), json!([internal])]);
}

/// Applies a JSON patch that adds, which is all that these do.
fn patched(document: &Value, patch: &str) -> Value {
    let mut patched = document.clone();
    for operation in policy::yaml(&format!("envoy/fleet/patches/{patch}.yaml")).unwrap().as_array().unwrap() {
        assert_eq!(operation["op"], "add", "{patch}");
        let (parent, name) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        match (patched.pointer_mut(parent), name) {
            (Some(Value::Array(list)), "-") => list.push(operation["value"].clone()),
            (Some(Value::Object(fields)), name) => {
                let before = fields.insert(name.to_owned(), operation["value"].clone());
                assert_eq!(before, None, "{patch}: {parent}");
            }
            _ => panic!("{patch}: nothing at {parent}"),
        }
    }
    patched
}

/// The patch that is for a document, if there is one. A route's policy of the reader's own has no Weir.
fn patch_for(document: &Document) -> Option<&'static str> {
    match (document.kind(), document.file.ends_with("waypoint.yaml")) {
        ("TrafficExtension", false) => Some("trafficextension"),
        ("TrafficExtension", true) => Some("trafficextension-waypoint"),
        ("WasmPlugin", false) => Some("wasmplugin"),
        ("WasmPlugin", true) => Some("wasmplugin-waypoint"),
        ("EnvoyExtensionPolicy", _) => document.plugin().map(|_| "envoyextensionpolicy"),
        ("EnvoyProxy", _) => Some("envoyproxy"),
        _ => None,
    }
}

/// The documents that a fleet changes, as its patches make them, valid by the schemas.
fn changed(documents: &[Document]) -> Vec<Document> {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for document in documents {
        let Some(patch) = patch_for(document) else { continue };
        files.push(folder.path().join(format!("{}-{patch}.json", files.len())));
        std::fs::write(files.last().unwrap(), patched(&document.value, patch).to_string()).unwrap();
    }
    let changed = validate(&files);
    for document in &changed {
        assert!(document.errors.is_empty(), "{}: {:#?}", document.file, document.errors);
    }
    changed
}

#[test]
fn each_patch_makes_a_valid_gateway_of_a_fleet_whose_cluster_exists() {
    let documents = deployed();
    let hosts = hosts(&documents);
    let changed = changed(&documents);
    assert_eq!(changed.len(), 10);
    let proxy = changed.iter().find(|document| document.kind() == "EnvoyProxy").unwrap();
    let clusters = proxy.value.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array).unwrap();
    let declared: Vec<_> =
        clusters.iter().filter(|patch| patch["path"] == "/static_resources/clusters/-").collect();
    for document in &changed {
        let Some([_, _, configuration]) = document.plugin() else { continue };
        let fleet = &configuration["fleet"];
        assert_eq!(fleet["bearer"], json!({"env": TOKEN}), "{}", document.file);
        let config = Config::from_json(configuration.to_string().as_bytes());
        assert_eq!(config.err(), None, "{}", document.file);
        let is_declared = |name: &str| declared.iter().any(|cluster| cluster["value"]["name"] == name);
        assert_named(&document.file, fleet["cluster"].as_str().unwrap(), &hosts, is_declared);
        let environment = match document.kind() {
            "WasmPlugin" => "/spec/vmConfig/env/1",
            "TrafficExtension" => "/spec/wasm/vmConfig/env/1",
            _ => "/spec/wasm/0/env/hostKeys/1",
        };
        let passed = document.value.pointer(environment).unwrap();
        assert!([json!(TOKEN), json!({"name": TOKEN, "valueFrom": "HOST"})].contains(passed), "{passed}");
    }

    // The cluster of Envoy Gateway is that of compose's gateways, with one name for all replicas.
    let mut cluster = declared.last().unwrap()["value"].clone();
    let address = addresses(&cluster).concat();
    let (host, port) = address.split_once(':').unwrap();
    assert!(hosts.contains(&(host.to_owned(), port.parse().unwrap())), "{address}");
    let headless = documents.iter().filter(|document| document.value["spec"]["clusterIP"] == "None");
    let headless: Vec<_> = headless.map(|document| &document.value["metadata"]["name"]).collect();
    assert_eq!(headless, [&host.split('.').next().unwrap()]);
    cluster["load_assignment"] = ledger_cluster()["load_assignment"].clone();
    assert_eq!(cluster, ledger_cluster());
    let variable = proxy.value.pointer("/spec/provider/kubernetes/envoyDeployment/container/env/1").unwrap();
    assert_eq!(variable["name"], TOKEN);
}

#[test]
fn a_replica_is_reached_by_gateways_alone_and_by_its_probes() {
    let documents = deployed();
    let of_ledger = |kind: &str| {
        let found = documents
            .iter()
            .find(|document| document.kind() == kind && document.value["metadata"]["name"] == "ledger");
        &found.unwrap().value
    };
    let deployment = of_ledger("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (kind, selector) in [
        ("Deployment", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("PeerAuthentication", "/spec/selector/matchLabels"),
    ] {
        assert_eq!(of_ledger(kind).pointer(selector), Some(labels), "{kind}");
    }
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let ports: Vec<_> = container["ports"].as_array().unwrap().iter().collect();
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let asked = &container[probe]["httpGet"];
        assert_eq!(asked["path"], path);
        assert!(ports.iter().any(|port| port["name"] == asked["port"]), "{probe}: {asked}");
    }
    // The token file is in the volume of the secret.
    let variables = container["env"].as_array().unwrap();
    let token_file = variables.iter().find(|variable| variable["name"] == "WEIR_LEDGER_TOKEN_FILE").unwrap();
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    let mounted = format!(
        "{}/{}",
        container["volumeMounts"][0]["mountPath"].as_str().unwrap(),
        volume["secret"]["items"][0]["path"].as_str().unwrap()
    );
    assert_eq!(token_file["value"], mounted);
    assert_eq!(container["volumeMounts"][0]["name"], volume["name"]);
    // As many must stay as one less than there are, or no node could be drained.
    let [replicas, kept] =
        [&deployment["spec"]["replicas"], &of_ledger("PodDisruptionBudget")["spec"]["minAvailable"]];
    assert_eq!(replicas.as_u64().unwrap() - 1, kept.as_u64().unwrap());
}
