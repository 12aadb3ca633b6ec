//! A real Envoy as the control planes of Istio and Envoy Gateway configure it: with the connection managers, routes and settings of the
//! VM that they made of the repository's files, which `tests/data` has, and updated as they update it.
//!
//! The rest of the process is `envoy/envoy.yaml`: its ports, access log and clusters.

use std::sync::LazyLock;

use anyhow::Context as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::artifacts;
use crate::chart::rendered;
use crate::envoy::{self, Envoy, Setup, Updates};
use crate::policy::{self, HTTP_FILTERS, Policy};
use crate::server::{Response, Server};

const CONNECTION_MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
/// The directory's cluster of `envoy/envoy.yaml`, and the one that the chart makes.
const DIRECTORY: &str = "backend-internal";
const CHARTS_DIRECTORY: &str = "weir-directory";

/// A proxy that a control plane has configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Istio's ingress gateway.
    IngressGateway,
    /// Istio's sidecar of the API's pods, at the API's port.
    Sidecar,
    /// The same sidecar at the port of the backend's internal listener, which has no filter.
    SidecarInternal,
    /// Istio's waypoint of the service `backend`.
    Waypoint,
    /// Envoy Gateway's proxy.
    EnvoyGateway,
}

impl Proxy {
    /// What was generated, and the configuration of the rendering from which it was.
    fn generated(self) -> anyhow::Result<(Value, Value)> {
        let (data, part, rendering) = match self {
            Self::IngressGateway => ("istio.json", "ingress-gateway", "istio-ingress-gateway"),
            Self::Sidecar => ("istio.json", "sidecar", "istio-sidecar"),
            Self::SidecarInternal => ("istio.json", "sidecar-internal", "istio-sidecar"),
            Self::Waypoint => ("istio.json", "waypoint", "istio-waypoint"),
            Self::EnvoyGateway => ("envoy-gateway.json", "gateway", "envoy-gateway"),
        };
        let (kind, configuration) = match self {
            Self::EnvoyGateway => ("EnvoyExtensionPolicy", "/spec/wasm/0/config"),
            _ => ("TrafficExtension", "/spec/wasm/pluginConfig"),
        };
        let generated = policy::yaml(&format!("tests/data/{data}"))?[part].take();
        let document = rendered(rendering, kind)?;
        let configuration = document.pointer(configuration).context("no configuration")?;
        Ok((generated, configuration.clone()))
    }
}

/// Starts a proxy. A setup with the deployed policy has the configuration of the proxy's manifest; any other policy stays.
///
/// # Errors
/// When Envoy does not take what was generated.
pub fn start(proxy: Proxy, setup: Setup) -> anyhow::Result<Envoy> {
    start_amended(proxy, setup, |_| Ok(()))
}

/// Starts a proxy with a bootstrap that `amend` has changed.
///
/// # Errors
/// As [`start`], or when `amend` fails.
pub fn start_amended(
    proxy: Proxy,
    setup: Setup,
    amend: impl FnOnce(&mut Value) -> anyhow::Result<()>,
) -> anyhow::Result<Envoy> {
    let (generated, configuration) = proxy.generated()?;
    let policy =
        if setup.policy == Policy::deployed()? { Policy::from(configuration) } else { setup.policy.clone() };
    let updates = match proxy {
        Proxy::IngressGateway | Proxy::Sidecar | Proxy::Waypoint => Updates::Extension,
        Proxy::EnvoyGateway => Updates::Listener,
        Proxy::SidecarInternal => Updates::None,
    };
    let setup = Setup { policy, ..setup }.updates(updates);
    Envoy::start_amended(setup, |bootstrap, _| {
        put_in(bootstrap, &generated)?;
        match proxy {
            Proxy::EnvoyGateway => complete_envoy_gateway(bootstrap)?,
            _ => bootstrap["stats_config"] = istio_tags()?,
        }
        amend(bootstrap)
    })
}

/// Puts what was generated in the place of the repository's connection manager. Requests go on to where they went.
fn put_in(bootstrap: &mut Value, generated: &Value) -> anyhow::Result<()> {
    let configured = policy::weir_filter(bootstrap)?["typed_config"]["config"].take();
    let ours = bootstrap.pointer_mut(CONNECTION_MANAGER).context("no connection manager")?;
    let mut manager = generated["connection_manager"].clone();
    manager["access_log"] = ours["access_log"].take();
    let action = ours.pointer("/route_config/virtual_hosts/0/routes/0").context("no route")?;
    let mut routes = generated["route_config"].clone();
    let hosts = routes["virtual_hosts"].as_array_mut().context("no virtual hosts")?;
    for route in hosts.iter_mut().filter_map(|host| host["routes"].as_array_mut()).flatten() {
        match action.get("direct_response") {
            Some(response) => {
                route.as_object_mut().context("no route")?.remove("route");
                route["direct_response"] = response.clone();
            }
            None => route["route"]["cluster"] = action["route"]["cluster"].clone(),
        }
    }
    manager["route_config"] = routes;
    *ours = manager;
    let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).context("no filters")?;
    for filter in
        filters.iter_mut().filter(|filter| filter["name"].as_str().is_some_and(|name| name.contains("weir")))
    {
        let mut wasm = generated["extension"].clone();
        wasm["config"]["configuration"] = configured["configuration"].clone();
        let code = &mut wasm["config"]["vm_config"]["code"];
        if code.is_null() {
            // The agent has fetched the module.
            *code = configured["vm_config"]["code"].clone();
        }
        let fields = filter.as_object_mut().context("no filter")?;
        // Extensions come from a file, as `Updates::Extension` has it.
        fields.remove("config_discovery");
        fields.insert("typed_config".to_owned(), wasm);
    }
    Ok(())
}

/// The expressions that Istio's bootstrap makes of `extraStatTags`.
fn istio_tags() -> anyhow::Result<Value> {
    let values = policy::yaml("envoy/istio/istiod-values.yaml")?;
    let tags = values.pointer("/meshConfig/defaultConfig/extraStatTags").and_then(Value::as_array);
    let tags = tags.context("no tags")?.iter().filter_map(Value::as_str);
    let tag = |tag| json!({"tag_name": tag, "regex": format!(r"({tag}=\.=(.*?);\.;)")});
    Ok(json!({"use_all_default_tags": false, "stats_tags": tags.map(tag).collect::<Vec<_>>()}))
}

/// Applies the patches of the bootstrap, with the directory at its address here, and adds the cluster that serves the module.
fn complete_envoy_gateway(bootstrap: &mut Value) -> anyhow::Result<()> {
    static MODULES: LazyLock<anyhow::Result<(Server, String)>> = LazyLock::new(|| {
        let module = bytes::Bytes::from(std::fs::read(artifacts::filter_wasm())?);
        let digest = hex::encode(Sha256::digest(&module));
        Ok((Server::start(move |_| Response::new(module.clone().into()))?, digest))
    });
    let (modules, digest) = MODULES.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let remote =
        &mut policy::weir_filter(bootstrap)?["typed_config"]["config"]["vm_config"]["code"]["remote"];
    remote["http_uri"]["uri"] = json!("http://modules/filter.wasm");
    remote["sha256"] = json!(digest);

    let proxy = rendered("envoy-gateway", "EnvoyProxy")?;
    let patches =
        proxy.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array).context("no patches")?;
    let added = |path: &str| {
        let patches = patches.iter().filter(|patch| patch["path"] == path);
        patches.map(|patch| patch["value"].clone()).collect::<Vec<_>>()
    };
    bootstrap["stats_config"] =
        json!({"use_all_default_tags": true, "stats_tags": added("/stats_config/stats_tags/-")});
    // Its name is that of the chart, or of the case's own configuration.
    let name = [CHARTS_DIRECTORY, DIRECTORY].into_iter().find(|name| envoy::cluster(bootstrap, name).is_ok());
    let name = name.context("no cluster of a directory")?;
    let directory = envoy::cluster_address(bootstrap, name)?.clone();
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    let clusters = clusters.context("no clusters")?;
    clusters.retain(|cluster| cluster["name"] != name);
    for mut cluster in added("/static_resources/clusters/-") {
        cluster["name"] = json!(name);
        cluster["load_assignment"]["cluster_name"] = json!(name);
        clusters.push(cluster);
    }
    let modules = modules.address();
    clusters.push(json!({
        "name": "wasm_cluster",
        "load_assignment": {"cluster_name": "wasm_cluster", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
            "socket_address": {"address": modules.ip(), "port_value": modules.port()},
        }}}]}]},
    }));
    *envoy::cluster_address(bootstrap, name)? = directory;
    Ok(())
}

/// A copy of the first listener, under this name and at a free port.
///
/// # Errors
/// When the bootstrap has no listener.
pub fn add_listener(bootstrap: &mut Value, name: &str) -> anyhow::Result<()> {
    let listeners = bootstrap.pointer_mut("/static_resources/listeners").and_then(Value::as_array_mut);
    let listeners = listeners.context("no listeners")?;
    let mut listener = listeners.first().context("no listener")?.clone();
    listener["name"] = json!(name);
    listeners.push(listener);
    Ok(())
}
