//! What `envoy/chart` renders, `envoy/istio` and `envoy/envoy-gateway`: valid by the published schemas, and configured as `envoy/envoy.yaml` is.

use std::path::{Path, PathBuf};

use filter::config::Config;
use serde_json::{Value, json};
use tests::artifacts;
use tests::policy::{self, Policy};

use crate::tools::{json_of, run, schema_script};

/// The image of the renderings, which is nowhere.
const IMAGE: &str = concat!("registry.example.com/weir/filter:", env!("CARGO_PKG_VERSION"));
const DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A document, with what is wrong with it.
pub(crate) struct Document {
    pub(crate) file: String,
    pub(crate) value: Value,
    pub(crate) errors: Vec<String>,
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap()
    }

    /// Where its kind names the module and the configuration: pointers to the image, the digest and the configuration.
    pub(crate) fn plugin(&self) -> Option<[&Value; 3]> {
        let pointers = match self.kind() {
            "WasmPlugin" => ["/spec/url", "/spec/sha256", "/spec/pluginConfig"],
            "TrafficExtension" => ["/spec/wasm/url", "/spec/wasm/sha256", "/spec/wasm/pluginConfig"],
            "EnvoyExtensionPolicy" if self.value.pointer("/spec/wasm").is_some() => {
                ["/spec/wasm/0/code/image/url", "/spec/wasm/0/code/image/sha256", "/spec/wasm/0/config"]
            }
            _ => return None,
        };
        Some(pointers.map(|pointer| self.value.pointer(pointer).unwrap_or(&Value::Null)))
    }
}

/// Every YAML file in a folder and those in it, but for Helm's values.
fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml")
            && !path.file_name().unwrap().to_string_lossy().ends_with("values.yaml")
        {
            files.push(path);
        }
    }
    files.sort();
    files
}

pub(crate) fn validate(files: &[PathBuf]) -> Vec<Document> {
    let verdicts = json_of(run(schema_script("validate.mjs").args(files)));
    let verdicts = verdicts.as_array().unwrap().iter().map(|verdict| Document {
        file: verdict["file"].as_str().unwrap().to_owned(),
        value: verdict["document"].clone(),
        errors: serde_json::from_value(verdict["errors"].clone()).unwrap(),
    });
    verdicts.collect()
}

pub(crate) fn deployed() -> Vec<Document> {
    let folders = ["tests/data/chart", "envoy/istio", "envoy/envoy-gateway"];
    let folders = folders.map(|folder| artifacts::root().join(folder));
    validate(&folders.iter().flat_map(|folder| yaml_files(folder)).collect::<Vec<_>>())
}

#[test]
fn every_kubernetes_file_is_valid() {
    let documents = deployed();
    for document in &documents {
        assert!(document.errors.is_empty(), "{}: {:#?}", document.file, document.errors);
    }
    let kinds = |kind: &str| documents.iter().filter(|document| document.kind() == kind).count();
    let counts = [
        ("WasmPlugin", 1),
        ("TrafficExtension", 6),
        ("ConfigMap", 4),
        ("Namespace", 1),
        ("GatewayClass", 1),
        ("Service", 10),
        ("Deployment", 3),
        ("PodDisruptionBudget", 3),
        ("NetworkPolicy", 3),
        ("PodMonitor", 6),
        ("PeerAuthentication", 2),
        ("ServiceEntry", 1),
        ("DestinationRule", 3),
        ("Gateway", 1),
        ("HTTPRoute", 1),
        ("ClientTrafficPolicy", 1),
        ("EnvoyProxy", 2),
        ("EnvoyPatchPolicy", 1),
        ("EnvoyExtensionPolicy", 3),
    ];
    assert_eq!(counts.map(|(kind, _)| (kind, kinds(kind))), counts);
}

#[test]
fn the_documents_that_a_page_shows_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let files = tests::page::texts("own-answers.md").unwrap().into_iter().skip(1).enumerate().map(
        |(number, text)| {
            let file = folder.path().join(format!("{number}.yaml"));
            std::fs::write(&file, text).unwrap();
            file
        },
    );
    let documents = validate(&files.collect::<Vec<_>>());
    assert_eq!(documents.iter().map(Document::kind).collect::<Vec<_>>(), ["EnvoyFilter", "EnvoyPatchPolicy"]);
    for document in documents {
        assert!(document.errors.is_empty(), "{}: {:#?}", document.file, document.errors);
    }
}

/// What makes a document of a kind invalid: a value at a pointer, or none there, and a part of the message.
type Broken = (&'static str, &'static str, Option<Value>, &'static str);

fn broken() -> Vec<Broken> {
    let gateway = json!([{"kind": "Gateway", "name": "waypoint"}]);
    let rows: [(&str, &str, Option<Value>, &str); 54] = [
        ("WasmPlugin", "/spec/failStrategy", Some(json!("FAIL_SOMETIMES")), "allowed values"),
        ("WasmPlugin", "/spec/sha256", Some(json!("sha256:00")), "must match pattern"),
        ("WasmPlugin", "/spec/url", None, "required property url"),
        ("WasmPlugin", "/spec/url", Some(json!("ftp://x/y")), "url must have schema one of"),
        ("WasmPlugin", "/spec/phase", Some(json!("AFTER")), "allowed values"),
        ("WasmPlugin", "/spec/failOpen", Some(json!(true)), "'\"failOpen\"' does not exist"),
        ("WasmPlugin", "/spec/match/0/mode", Some(json!("INBOUND")), "allowed values"),
        ("WasmPlugin", "/spec/match/0/port", Some(json!(80)), "'\"port\"' does not exist"),
        ("WasmPlugin", "/metadata/label", Some(json!("x")), "'\"label\"' does not exist"),
        ("WasmPlugin", "/spec/pluginConfig", Some(json!("{}")), "must be object"),
        ("WasmPlugin", "/spec/targetRefs", Some(gateway.clone()), "only one of targetRefs or selector"),
        (
            "WasmPlugin",
            "/spec/vmConfig",
            Some(json!({"env": [{"name": "A", "value": "b", "valueFrom": "HOST"}]})),
            "only be set when valueFrom is INLINE",
        ),
        ("TrafficExtension", "/spec/wasm/phase", Some(json!("AUTHZ")), "'\"phase\"' does not exist"),
        ("TrafficExtension", "/spec/url", Some(json!("oci://x")), "'\"url\"' does not exist"),
        ("TrafficExtension", "/spec/wasm/failStrategy", Some(json!("OPEN")), "allowed values"),
        ("TrafficExtension", "/spec/wasm/url", None, "required property url"),
        ("TrafficExtension", "/spec/wasm/url", Some(json!("s3://x/y")), "url must have schema one of"),
        ("TrafficExtension", "/spec/wasm", None, "exactly one of wasm or lua"),
        ("TrafficExtension", "/spec/lua", Some(json!({"inlineCode": "x"})), "exactly one of wasm or lua"),
        ("TrafficExtension", "/spec/targetRefs", Some(gateway), "only one of targetRefs or selector"),
        ("Service", "/spec/ports/0/nme", Some(json!("http")), "'\"nme\"' does not exist"),
        ("Service", "/spec/ports/0/port", Some(json!("http")), "must be integer"),
        ("ServiceEntry", "/spec/resolution", Some(json!("DNSSEC")), "allowed values"),
        ("ServiceEntry", "/spec/ports/0/protcol", Some(json!("HTTP")), "'\"protcol\"' does not exist"),
        ("EnvoyExtensionPolicy", "/spec/wasm/0/code/type", Some(json!("Oci")), "allowed values"),
        ("EnvoyExtensionPolicy", "/spec/wasm/0/code", None, "required property code"),
        ("EnvoyExtensionPolicy", "/spec/wasm/0/code/image", None, "image field needs to be set"),
        (
            "EnvoyExtensionPolicy",
            "/spec/wasm/0/code/http",
            Some(json!({"url": "http://a/b"})),
            "http field needs to be set",
        ),
        ("EnvoyExtensionPolicy", "/spec/wasm/0/rootId", Some(json!("weir")), "'\"rootId\"' does not exist"),
        (
            "EnvoyExtensionPolicy",
            "/spec/wasm/0/failStrategy",
            Some(json!("FAIL_RELOAD")),
            "'\"failStrategy\"' does not exist",
        ),
        ("EnvoyExtensionPolicy", "/spec/wasm/0/failOpen", Some(json!("no")), "must be boolean"),
        (
            "EnvoyExtensionPolicy",
            "/spec/wasm/0/code/image/pullSecretRef",
            Some(json!({"name": "a", "kind": "ConfigMap"})),
            "only support Secret kind",
        ),
        ("EnvoyExtensionPolicy", "/spec/targetRefs", None, "either targetRef or targetRefs"),
        ("EnvoyExtensionPolicy", "/spec/targetRefs/0/kind", Some(json!("Service")), "targetRefs[*].kind"),
        ("EnvoyExtensionPolicy", "/spec/targetRefs/0/group", Some(json!("apps")), "targetRefs[*].group"),
        (
            "EnvoyExtensionPolicy",
            "/spec/mergeType",
            Some(json!("StrategicMerge")),
            "mergeType can only be used with xRoute targets",
        ),
        ("EnvoyExtensionPolicy", "/spec/mergeType", Some(json!("Replace")), "allowed values"),
        ("EnvoyProxy", "/spec/mergeType", Some(json!("Merge")), "allowed values"),
        ("EnvoyProxy", "/spec/bootstrap/jsonPatches", Some(json!([])), "doesn't match"),
        ("EnvoyProxy", "/spec/bootstrap/jsonPatches/0/op", Some(json!("insert")), "allowed values"),
        ("EnvoyPatchPolicy", "/spec/jsonPatches/0/type", Some(json!("cluster")), "allowed values"),
        ("ClientTrafficPolicy", "/spec/path/escapedSlashesAction", Some(json!("Keep")), "allowed values"),
        ("HTTPRoute", "/spec/rules/0/backendRefs/0/prt", Some(json!(80)), "'\"prt\"' does not exist"),
        ("Gateway", "/spec/listeners/0/protocol", None, "required property protocol"),
        ("Deployment", "/spec/template/spec/containers/0/image", Some(json!(1)), "must be string"),
        (
            "Deployment",
            "/spec/template/spec/containers/0/readinessProbes",
            Some(json!({})),
            "'\"readinessProbes\"' does not exist",
        ),
        ("Deployment", "/spec/selector", None, "required property selector"),
        ("PodDisruptionBudget", "/spec/minAvailible", Some(json!(1)), "'\"minAvailible\"' does not exist"),
        (
            "NetworkPolicy",
            "/spec/ingress/0/from/0/namespaces",
            Some(json!([])),
            "'\"namespaces\"' does not exist",
        ),
        ("PodMonitor", "/spec/selector", None, "required property selector"),
        ("PodMonitor", "/spec/podMetricsEndpoints/0/prt", Some(json!("x")), "'\"prt\"' does not exist"),
        ("ConfigMap", "/dat", Some(json!({})), "'\"dat\"' does not exist"),
        ("PeerAuthentication", "/spec/mtls/mode", Some(json!("ALWAYS")), "allowed values"),
        ("DestinationRule", "/spec/trafficPolicy/outliers", Some(json!({})), "'\"outliers\"' does not exist"),
    ];
    rows.into()
}

/// Sets or removes what is at a pointer whose parent exists.
fn change(value: &mut Value, pointer: &str, new: Option<&Value>) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).and_then(Value::as_object_mut).expect(pointer);
    match new {
        Some(new) => parent.insert(name.to_owned(), new.clone()),
        None => parent.remove(name),
    };
}

#[test]
fn each_of_these_is_refused_with_its_reason() {
    let valid = deployed();
    let rows = broken();
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for (row, (kind, pointer, new, _)) in rows.iter().enumerate() {
        // Of several, one with a selector; optional files have less in them.
        let of_kind = valid.iter().filter(|document| document.kind() == *kind);
        let is_special = |document: &&Document| {
            ["/optional/", "-gateway-api", "-waypoint", "-fleet"]
                .iter()
                .any(|part| document.file.contains(part))
        };
        let mut document = of_kind.min_by_key(is_special).unwrap().value.clone();
        change(&mut document, pointer, new.as_ref());
        files.push(folder.path().join(format!("{row}.json")));
        std::fs::write(files.last().unwrap(), document.to_string()).unwrap();
    }
    for ((kind, pointer, new, reason), document) in rows.iter().zip(validate(&files)) {
        let refused = document.errors.iter().any(|error| error.contains(reason));
        assert!(refused, "{kind} with {new:?} at {pointer}: {:#?}", document.errors);
    }
}

#[test]
fn every_rendering_has_the_plans_of_envoy_yaml_and_the_filter_takes_its_configuration() {
    let mut expected = Policy::deployed().unwrap().as_value().clone();
    // Routes that remove an upstream's headers are the gateway's own, so the filter replaces these headers.
    expected.as_object_mut().unwrap().remove("headers");
    let mut checked = 0;
    for document in deployed() {
        let Some([image, digest, configuration]) = document.plugin() else { continue };
        checked += 1;
        let file = &document.file;
        // Envoy Gateway serves a module by its address alone, so that has the digest, too.
        let address = match document.kind() {
            "EnvoyExtensionPolicy" => format!("{IMAGE}@sha256:{DIGEST}"),
            _ => format!("oci://{IMAGE}"),
        };
        assert_eq!(image, &address, "{file}");
        assert_eq!(digest, DIGEST, "{file}");
        let config = Config::from_json(configuration.to_string().as_bytes());
        assert_eq!(config.err(), None, "{file}");
        let mut given = configuration.clone();
        let fields = given.as_object_mut().unwrap();
        assert_eq!(fields.remove("fleet").is_some(), file.contains("-fleet"), "{file}");
        fields.remove("namespace");
        assert_eq!(given["usage"]["cluster"], given["directory"]["cluster"], "{file}");
        for service in ["directory", "usage"] {
            given[service].as_object_mut().unwrap().remove("authority");
            given[service]["cluster"] = expected[service]["cluster"].clone();
        }
        assert_eq!(given, expected, "{file}");
    }
    assert_eq!(checked, 9);
}

/// The variables that a configuration reads, each once: reports have the directory's.
fn variables(configuration: &Value) -> Vec<&Value> {
    let places = ["/directory/bearer/env", "/usage/bearer/env", "/fleet/bearer/env"];
    let mut names: Vec<_> = places.iter().filter_map(|at| configuration.pointer(at)).collect();
    names.dedup();
    names
}

#[test]
fn every_rendering_passes_the_variables_of_its_tokens_on() {
    let bootstrap = policy::bootstrap().unwrap();
    let filters = bootstrap.pointer(policy::HTTP_FILTERS).and_then(Value::as_array).unwrap();
    let weir = filters.iter().find(|filter| filter["name"] == "weir").unwrap();
    let passed = &weir["typed_config"]["config"]["vm_config"]["environment_variables"];
    let policy = Policy::deployed().unwrap();
    assert_eq!(passed, &json!({"host_env_keys": variables(policy.as_value())}));

    let documents = deployed();
    let mut checked = 0;
    for document in &documents {
        let Some([.., configuration]) = document.plugin() else { continue };
        let names = variables(configuration);
        assert_eq!(names.len(), 1 + usize::from(document.file.contains("-fleet")), "{}", document.file);
        let from_host: Vec<_> = names.iter().map(|name| json!({"name": name, "valueFrom": "HOST"})).collect();
        let (pointer, expected) = match document.kind() {
            "WasmPlugin" => ("/spec/vmConfig/env", json!(from_host)),
            "TrafficExtension" => ("/spec/wasm/vmConfig/env", json!(from_host)),
            _ => ("/spec/wasm/0/env/hostKeys", json!(names)),
        };
        assert_eq!(document.value.pointer(pointer), Some(&expected), "{}", document.file);

        // What gives the proxies the variables, where the gateway's own resources do.
        let secret = |name: &&Value| {
            let secret =
                if **name == "WEIR_DIRECTORY_TOKEN" { "weir-directory" } else { "weir-ledger-token" };
            json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}})
        };
        let given: Vec<_> = names.iter().map(secret).collect();
        let beside = |kind: &str| {
            documents
                .iter()
                .find(|other| other.file == document.file && other.kind() == kind)
                .map(|it| &it.value)
        };
        if let Some(proxy) = beside("EnvoyProxy") {
            let environment = proxy.pointer("/spec/provider/kubernetes/envoyDeployment/container/env");
            assert_eq!(environment, Some(&json!(given)), "{}", document.file);
            checked += 1;
        }
        if let Some(proxy) = beside("ConfigMap") {
            let patch: Value = serde_saphyr::from_str(proxy["data"]["deployment"].as_str().unwrap()).unwrap();
            let container = &patch["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container, &json!({"name": "istio-proxy", "env": given}), "{}", document.file);
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
}

/// The formats of the access logs, which are JSON.
#[test]
fn every_access_log_says_who_was_limited() {
    let format = |log: &Value, pointer: &str| log.pointer(pointer).unwrap()["weir"].clone();
    let connection_manager = policy::bootstrap().unwrap();
    let log = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log/0/typed_config/log_format/json_format";
    let istio = policy::yaml("envoy/istio/istiod-values.yaml").unwrap();
    let istio = istio.pointer("/meshConfig/accessLogFormat").and_then(Value::as_str).unwrap();
    let documents = deployed();
    let proxy = documents.iter().find(|document| document.kind() == "EnvoyProxy").unwrap();
    let found = [
        format(&connection_manager, log),
        format(&serde_json::from_str(istio).unwrap(), ""),
        format(&proxy.value, "/spec/telemetry/accessLog/settings/0/format/json"),
    ];
    assert_eq!(found, ["%FILTER_STATE(wasm.weir:PLAIN)%"; 3]);
}

/// The services of a list of documents: host and port.
fn hosts(documents: &[Document]) -> Vec<(String, u64)> {
    let of_service = |document: &Document| {
        let [name, namespace] = ["/metadata/name", "/metadata/namespace"]
            .map(|pointer| document.value.pointer(pointer).and_then(Value::as_str).unwrap().to_owned());
        let port = document.value.pointer("/spec/ports/0/port").and_then(Value::as_u64).unwrap();
        (format!("{name}.{namespace}.svc.cluster.local"), port)
    };
    documents.iter().filter(|document| document.kind() == "Service").map(of_service).collect()
}

#[test]
fn every_cluster_that_a_configuration_names_is_one_that_the_gateway_has() {
    let documents = deployed();
    let hosts = hosts(&documents);
    for document in &documents {
        let Some([_, _, configuration]) = document.plugin() else { continue };
        let proxy = documents.iter().find(|it| it.file == document.file && it.kind() == "EnvoyProxy");
        let declared = proxy.map(|proxy| declared_clusters(&proxy.value)).unwrap_or_default();
        for cluster in &declared {
            let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
            let address = cluster.pointer(address).unwrap();
            let host =
                (address["address"].as_str().unwrap().to_owned(), address["port_value"].as_u64().unwrap());
            assert!(hosts.contains(&host), "{host:?}");
            assert_eq!(cluster["name"], cluster["load_assignment"]["cluster_name"]);
        }
        let places = ["/directory/cluster", "/usage/cluster", "/fleet/cluster"];
        let named = places.iter().filter_map(|at| configuration.pointer(at));
        let mut count = 0;
        for cluster in named {
            let is_declared = |name: &str| declared.iter().any(|cluster| cluster["name"] == name);
            assert_named(&document.file, cluster.as_str().unwrap(), &hosts, is_declared);
            count += 1;
        }
        assert_eq!(count, 2 + usize::from(document.file.contains("-fleet")), "{}", document.file);
    }
}

/// The clusters that an `EnvoyProxy` adds.
pub(crate) fn declared_clusters(proxy: &Value) -> Vec<&Value> {
    let patches = proxy.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array).unwrap();
    let clusters = patches.iter().filter(|patch| patch["path"] == "/static_resources/clusters/-");
    clusters.map(|patch| &patch["value"]).collect()
}

#[test]
fn the_operators_listener_has_the_configuration_the_vm_and_the_variables_of_the_policy() {
    let documents = policy::documents("tests/data/chart/envoy-gateway-fleet.yaml").unwrap();
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap();
    let policy = &of_kind("EnvoyExtensionPolicy")["spec"]["wasm"][0];
    let listener = &of_kind("EnvoyPatchPolicy")["spec"]["jsonPatches"][0]["operation"]["value"];
    let filter = listener
        .pointer("/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config/config")
        .unwrap();
    let mut configuration: Value =
        serde_json::from_str(filter["configuration"]["value"].as_str().unwrap()).unwrap();
    assert_eq!(Config::from_json(configuration.to_string().as_bytes()).err(), None);
    assert!(configuration.as_object_mut().unwrap().remove("operators").is_some());
    assert_eq!(configuration, policy["config"]);
    let vm = &filter["vm_config"];
    assert_eq!(vm["environment_variables"]["host_env_keys"], policy["env"]["hostKeys"]);
    // As Envoy Gateway 1.9 names the VM of a policy's first module.
    assert_eq!(vm["vm_id"], "/links/weir/wasm/0");
    assert_eq!(listener["address"]["socket_address"]["address"], "127.0.0.1");
}

/// A cluster is one that Istio makes of a service, or one that is declared.
fn assert_named(file: &str, cluster: &str, hosts: &[(String, u64)], is_declared: impl Fn(&str) -> bool) {
    let is_service = |host: &str, port: &str| hosts.contains(&(host.to_owned(), port.parse().unwrap()));
    let exists = match cluster.split('|').collect::<Vec<_>>()[..] {
        // As Istio names the clusters of services, and those of services that use a waypoint.
        ["outbound", port, "", host] if !file.contains("waypoint") => is_service(host, port),
        ["inbound-vip", port, "http", host] if file.contains("waypoint") => is_service(host, port),
        [name] => is_declared(name),
        _ => false,
    };
    assert!(exists, "{file}: {cluster}");
}

#[test]
fn every_gateway_makes_the_labels_that_envoy_yaml_makes() {
    let bootstrap = policy::bootstrap().unwrap();
    let tags = bootstrap.pointer("/stats_config/stats_tags").and_then(Value::as_array).unwrap();
    let names: Vec<_> = tags.iter().map(|tag| tag["tag_name"].as_str().unwrap()).collect();

    let istio = policy::yaml("envoy/istio/istiod-values.yaml").unwrap();
    assert_eq!(istio["meshConfig"]["defaultConfig"], json!({"extraStatTags": names}));
    // Istio's bootstrap makes this expression of a tag.
    for tag in tags {
        let name = tag["tag_name"].as_str().unwrap();
        assert_eq!(tag["regex"], format!(r"({name}=\.=(.*?);\.;)"));
    }

    let documents = deployed();
    let proxy = documents.iter().find(|document| document.kind() == "EnvoyProxy").unwrap();
    let patches = proxy.value.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array).unwrap();
    let is_tag = |patch: &&Value| patch["path"] == "/stats_config/stats_tags/-";
    assert_eq!(patches.iter().filter(is_tag).count(), tags.len());
    for (patch, tag) in patches.iter().filter(is_tag).zip(tags) {
        assert_eq!(patch, &json!({"op": "add", "path": "/stats_config/stats_tags/-", "value": tag}));
    }
}
