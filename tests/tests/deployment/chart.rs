//! `envoy/chart`: its renderings are of the chart as it is, and Helm itself judges it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tests::artifacts;
use tests::policy;
use tests::server::{Response, Server};

use crate::kubernetes::validate;
use crate::tools::{run, succeed, text};

const CHART: &str = "envoy/chart";
/// Of an image that is nowhere.
const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// The files of a folder by their paths from the root, with their SHA-256: but for links, and for the schema, which changes no rendering.
fn checksums(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(artifacts::root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            checksums(&path, found);
        } else if kind.is_file() && entry.file_name() != "values.schema.json" {
            let digest = Sha256::digest(std::fs::read(entry.path()).unwrap());
            found.insert(path.display().to_string(), hex::encode(digest));
        }
    }
}

#[test]
fn the_renderings_are_of_the_chart_as_it_is_and_its_version_is_that_of_the_images() {
    let mut found = BTreeMap::new();
    checksums(Path::new(CHART), &mut found);
    let listed = text("tests/data/chart/SHA256SUMS");
    let listed = listed.lines().map(|line| {
        let (digest, path) = line.split_once("  ").unwrap();
        (path.to_owned(), digest.to_owned())
    });
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), found, "run `make chart`");
    let chart = policy::yaml("envoy/chart/Chart.yaml").unwrap();
    assert_eq!([&chart["version"], &chart["appVersion"]], [env!("CARGO_PKG_VERSION"); 2]);
}

/// Helm, with the chart and the values that the examples and `settings` make.
fn helm(arguments: &[&str], examples: &[&str], settings: &[&str]) -> Command {
    let built = succeed(&mut Command::new(artifacts::root().join("scripts/helm.sh")));
    let mut helm = Command::new(built.trim());
    helm.args(arguments).args(["weir", CHART, "--namespace", "links"]).current_dir(artifacts::root());
    for example in examples {
        helm.arg("--values").arg(format!("{CHART}/examples/{example}.yaml"));
    }
    for setting in settings {
        helm.args(["--set", setting]);
    }
    helm
}

#[test]
#[ignore = "builds Helm"]
fn helm_finds_nothing_in_the_chart_and_renders_what_is_committed() {
    let script = || Command::new(artifacts::root().join("scripts/chart.sh"));
    succeed(script().arg("lint"));
    let folder = tempfile::tempdir().unwrap();
    succeed(script().arg(folder.path()));
    succeed(
        Command::new("diff").arg("-r").arg(artifacts::root().join("tests/data/chart")).arg(folder.path()),
    );
}

#[test]
#[ignore = "builds Helm"]
fn helm_refuses_values_that_do_not_fit_and_says_which() {
    let digest = format!("filter.digest={DIGEST}");
    //  an example, a value, and a part of the message
    let rows = [
        ("istio-sidecar", "filter.digest=", "filter.digest: set the digest of the image"),
        ("istio-sidecar", "filter.digest=sha256:00", "'/filter/digest': 'sha256:00' does not match"),
        ("istio-sidecar", "filter.sha256=00", "additional properties 'sha256' not allowed"),
        ("istio-sidecar", "gateway=nginx", "'/gateway': value must be one of 'istio', 'envoy-gateway'"),
        (
            "istio-sidecar",
            "configuration.plan.x=1",
            "'/configuration': additional properties 'plan' not allowed",
        ),
        (
            "istio-sidecar",
            "configuration.plans.free.standard={60/fortnight}",
            "'60/fortnight' does not match",
        ),
        ("istio-sidecar", "configuration.directory.timeout=5", "'/configuration/directory/timeout'"),
        ("istio-sidecar", "istio.proxy=waypoint", "istio.selector: waypoints ignore it"),
        ("istio-sidecar", "istio.selector=null", "istio: set either selector"),
        ("istio-waypoint", "istio.selector.app=x", "istio: set either selector"),
        ("envoy-gateway", "envoyGateway.targetRefs=null", "envoyGateway.targetRefs: name the Gateways"),
        (
            "envoy-gateway",
            "envoyGateway.operators.enabled=true",
            "envoyGateway.operators.uri: set the address",
        ),
        ("envoy-gateway", "ledger.enabled=true", "ledger.digest: set the digest of the image"),
        ("envoy-gateway", "ledger.enabled=yes", "'/ledger/enabled': got string, want boolean"),
    ];
    for (example, setting, message) in rows {
        let (rendered, said) = run(&mut helm(&["template"], &["links", example], &[&digest, setting]));
        assert!(!rendered && said.contains(message), "{setting}: {said}");
    }
    let (rendered, said) = run(&mut helm(&["template"], &["istio-sidecar"], &[&digest]));
    assert!(!rendered && said.contains("'/configuration': missing property 'plans'"), "{said}");
}

#[test]
#[ignore = "builds Helm"]
fn the_chart_has_the_rules_and_the_dashboard_of_the_repository() {
    let digest = format!("filter.digest={DIGEST}");
    let settings =
        [&*digest, "monitoring.rules=true", "monitoring.dashboard=true", "monitoring.labels.release=x"];
    let output = helm(&["template"], &["links", "envoy-gateway"], &settings).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rendered.yaml");
    std::fs::write(&file, output.stdout).unwrap();
    let documents = validate(&[file]);
    for document in &documents {
        assert!(document.errors.is_empty(), "{}: {:#?}", document.kind(), document.errors);
    }
    let of_kind = |kind: &str| &documents.iter().find(|document| document.kind() == kind).unwrap().value;
    let rule = of_kind("PrometheusRule");
    assert_eq!(rule["spec"], policy::yaml("envoy/prometheus/rules.yaml").unwrap());
    assert_eq!(rule["metadata"]["labels"]["release"], "x");
    let dashboard = of_kind("ConfigMap");
    assert_eq!(
        dashboard["data"]["weir.json"].as_str().unwrap().trim_end(),
        text("envoy/grafana/weir.json").trim_end()
    );
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
}

/// A cluster in which a policy is in force: as much of its API as Helm asks for.
fn cluster(policy: Value) -> Server {
    const POLICIES: &str = "/apis/gateway.envoyproxy.io/v1alpha1";
    Server::start(move |request| {
        let found = match request.uri().path() {
            "/version" => json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"}),
            "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
            "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{
                "name": "gateway.envoyproxy.io",
                "versions": [{"groupVersion": "gateway.envoyproxy.io/v1alpha1", "version": "v1alpha1"}],
                "preferredVersion": {"groupVersion": "gateway.envoyproxy.io/v1alpha1", "version": "v1alpha1"},
            }]}),
            "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []}),
            POLICIES => json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "gateway.envoyproxy.io/v1alpha1", "resources": [{
                "name": "envoyextensionpolicies", "singularName": "envoyextensionpolicy", "namespaced": true,
                "kind": "EnvoyExtensionPolicy", "verbs": ["get", "list"],
            }]}),
            path if path == format!("{POLICIES}/namespaces/links/envoyextensionpolicies/weir") => policy.clone(),
            _ => Value::Null,
        };
        let status = if found.is_null() { 404 } else { 200 };
        let response = http::Response::builder().status(status).header("content-type", "application/json");
        response.body(bytes::Bytes::from(found.to_string()).into()).unwrap_or_else(|_| Response::default())
    })
    .unwrap()
}

#[test]
#[ignore = "builds Helm"]
fn an_image_and_a_configuration_change_one_after_the_other() {
    let other = DIGEST.replace('0', "1");
    let (image, configuration) = (format!("filter.digest={other}"), "configuration.usage_path=/quota");
    let same = format!("filter.digest={DIGEST}");
    let in_force = policy::documents("tests/data/chart/envoy-gateway.yaml").unwrap();
    let in_force = in_force.into_iter().find(|document| document["kind"] == "EnvoyExtensionPolicy").unwrap();
    let cluster = cluster(in_force);
    let address = format!("http://{}", cluster.address());
    let arguments = ["template", "--dry-run=server", "--kube-apiserver", &address];
    //  what is set beside what is in force, and whether Helm goes on
    let rows: [(&[&str], bool); 4] = [
        (&[&same], true),
        (&[&image], true),
        (&[&same, configuration], true),
        (&[&image, configuration], false),
    ];
    for (settings, goes_on) in rows {
        let mut command = helm(&arguments, &["links", "envoy-gateway"], settings);
        // Of nobody's cluster.
        let (rendered, said) = run(command.env("KUBECONFIG", "/dev/null"));
        assert_eq!(rendered, goes_on, "{settings:?}: {said}");
        assert!(goes_on || said.contains("the image and the configuration change at once"), "{said}");
    }
}
