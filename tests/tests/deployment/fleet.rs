//! `envoy/fleet`: the compose file with what it mounts; and the ledger of the chart.

use filter::config::Config;
use serde_json::{Value, json};
use tests::chart::rendered;
use tests::compose::Compose;
use tests::policy::{self, Policy};

use crate::kubernetes::declared_clusters;

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

#[test]
fn a_ledger_makes_a_fleet_of_a_gateway_and_changes_nothing_else_in_it() {
    let configuration = |rendering: &str| {
        let [kind, pointer] = match rendering.starts_with("envoy-gateway") {
            true => ["EnvoyExtensionPolicy", "/spec/wasm/0/config"],
            false => ["TrafficExtension", "/spec/wasm/pluginConfig"],
        };
        rendered(rendering, kind).unwrap().pointer(pointer).unwrap().clone()
    };
    //  a rendering, and how its gateway names the cluster and the host of the ledger
    let rows = [
        ("istio-gateway-api", "outbound|8083||weir-ledger.links.svc.cluster.local", None),
        ("istio-waypoint", "inbound-vip|8083|http|weir-ledger.links.svc.cluster.local", None),
        ("envoy-gateway", "weir-ledger", Some("weir-ledger-replicas.links.svc.cluster.local")),
    ];
    for (rendering, cluster, authority) in rows {
        let mut expected = configuration(rendering);
        expected["fleet"] = json!({"cluster": cluster, "bearer": {"env": TOKEN}});
        if let Some(authority) = authority {
            expected["fleet"]["authority"] = json!(authority);
        }
        assert_eq!(configuration(&format!("{rendering}-fleet")), expected);
    }

    // The cluster of Envoy Gateway is that of compose's gateways, with one name for all replicas.
    let proxy = rendered("envoy-gateway-fleet", "EnvoyProxy").unwrap();
    let mut cluster = declared_clusters(&proxy).pop().unwrap().clone();
    assert_eq!(addresses(&cluster), ["weir-ledger-replicas.links.svc.cluster.local:8083"]);
    cluster["load_assignment"] = ledger_cluster()["load_assignment"].clone();
    cluster["name"] = json!("ledger");
    assert_eq!(cluster, ledger_cluster());
    let documents = policy::documents("tests/data/chart/envoy-gateway-fleet.yaml").unwrap();
    let headless = documents.iter().filter(|document| document["spec"]["clusterIP"] == "None");
    let headless: Vec<_> = headless.map(|document| &document["metadata"]["name"]).collect();
    assert_eq!(headless, ["weir-ledger-replicas"]);
}

#[test]
fn a_replica_is_reached_by_gateways_alone_and_by_its_probes() {
    let documents = policy::documents("tests/data/chart/istio-gateway-api-fleet.yaml").unwrap();
    let of_ledger = |kind: &str| {
        let found = documents
            .iter()
            .find(|document| document["kind"] == kind && document["metadata"]["name"] == "weir-ledger");
        found.unwrap()
    };
    let deployment = of_ledger("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (kind, selector) in [
        ("Deployment", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("PeerAuthentication", "/spec/selector/matchLabels"),
        ("PodMonitor", "/spec/selector/matchLabels"),
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
    // One may go, or no node could be drained.
    assert_eq!(of_ledger("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    let scraped = &of_ledger("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"];
    assert!(ports.iter().any(|port| port["name"] == *scraped), "{scraped}");
}
