//! A real Envoy with what the control planes of Istio and Envoy Gateway make of the repository's files.
//!
//! Both are followed in what concerns a filter: names, root ids, VM ids, the failure policy, how the configuration and the module come, the
//! clusters that the filter calls, and the stats tags. Everything else is `envoy/envoy.yaml`.

use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::artifacts;
use crate::envoy::{Envoy, Setup};
use crate::policy::{self, HTTP_FILTERS, Policy};
use crate::server::{Response, Server};

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const STRING: &str = "type.googleapis.com/google.protobuf.StringValue";
const V8: &str = "envoy.wasm.runtime.v8";

/// The proxy of an ingress gateway, with `envoy/istio/wasmplugin/ingress-gateway.yaml`.
///
/// # Errors
/// When the setup asks for another configuration than the file's, or Envoy does not take what is made of the file.
pub fn istio(setup: Setup) -> anyhow::Result<Envoy> {
    let plugin = policy::yaml("envoy/istio/wasmplugin/ingress-gateway.yaml")?;
    let spec = &plugin["spec"];
    let configuration = configuration(&setup, &spec["pluginConfig"])?;
    let name = format!("{}.{}", text(&plugin, "/metadata/namespace")?, text(&plugin, "/metadata/name")?);
    let cluster = text(spec, "/pluginConfig/directory/cluster")?.to_owned();
    let wasm = json!({
        "@type": WASM,
        "config": {
            "name": name,
            "root_id": spec["pluginName"],
            "failure_policy": spec["failStrategy"],
            "configuration": {"@type": STRING, "value": configuration},
            // No vm_id. The agent has fetched the module, and removed the environment variables that told it how.
            "vm_config": {"runtime": V8, "code": {"local": {"filename": artifacts::filter_wasm()}}},
        },
    });
    Envoy::start_amended(setup, |bootstrap, folder| {
        let resource = format!("extensions.istio.io/wasmplugin/{name}");
        let file = folder.join("extension.json");
        discover(bootstrap, &resource, &file, &wasm)?;
        rename_cluster(bootstrap, &cluster)?;
        let values = policy::yaml("envoy/istio/istiod-values.yaml")?;
        let tags = values.pointer("/meshConfig/defaultConfig/extraStatTags").and_then(Value::as_array);
        let tags = tags.context("no tags")?.iter().filter_map(Value::as_str);
        let tag = |tag| json!({"tag_name": tag, "regex": format!(r"({tag}=\.=(.*?);\.;)")});
        bootstrap["stats_config"] =
            json!({"use_all_default_tags": false, "stats_tags": tags.map(tag).collect::<Vec<_>>()});
        Ok(())
    })
}

/// A proxy of Envoy Gateway, with the files of `envoy/envoy-gateway`.
///
/// # Errors
/// When the setup asks for another configuration than the file's, or Envoy does not take what is made of the files.
pub fn envoy_gateway(setup: Setup) -> anyhow::Result<Envoy> {
    let extension = policy::yaml("envoy/envoy-gateway/policy.yaml")?;
    let spec = extension.pointer("/spec/wasm/0").context("no filter")?;
    let configuration = configuration(&setup, &spec["config"])?;
    let [namespace, name] = [text(&extension, "/metadata/namespace")?, text(&extension, "/metadata/name")?];
    let id = format!("envoyextensionpolicy/{namespace}/{name}/wasm/0");
    let module = std::fs::read(artifacts::filter_wasm())?;
    let wasm = json!({
        "@type": WASM,
        "config": {
            "name": spec["name"],
            "root_id": spec["rootID"],
            "fail_open": spec["failOpen"],
            "configuration": {"@type": STRING, "value": configuration},
            "vm_config": {
                "vm_id": id,
                "runtime": V8,
                // The control plane has taken the module out of the image, and serves it.
                "code": {"remote": {
                    "http_uri": {"uri": "http://modules/filter.wasm", "cluster": "wasm_cluster", "timeout": "10s"},
                    "sha256": hex::encode(Sha256::digest(&module)),
                    "retry_policy": {"num_retries": 10, "retry_back_off": {"base_interval": "1s", "max_interval": "30s"}},
                }},
            },
        },
    });
    Envoy::start_amended(setup, |bootstrap, _| {
        let filter = format!("envoy.filters.http.wasm/{id}");
        *weir(bootstrap)? = json!({"name": filter, "disabled": true, "typed_config": wasm});
        let routes = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
        for route in bootstrap.pointer_mut(routes).and_then(Value::as_array_mut).context("no routes")? {
            let enabled =
                json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}});
            route["typed_per_filter_config"][&filter] = enabled;
        }
        add_clusters(bootstrap)?;
        let proxy = policy::yaml("envoy/envoy-gateway/envoy-proxy.yaml")?;
        let patches = proxy.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array);
        let patches = patches.context("no patches")?.iter();
        let tags = patches
            .filter(|patch| patch["path"] == "/stats_config/stats_tags/-")
            .map(|patch| patch["value"].clone());
        bootstrap["stats_config"] =
            json!({"use_all_default_tags": true, "stats_tags": tags.collect::<Vec<_>>()});
        Ok(())
    })
}

/// The file's configuration with the directory's token in it.
fn configuration(setup: &Setup, file: &Value) -> anyhow::Result<String> {
    ensure!(setup.policy == Policy::deployed()?, "a mesh has the configuration of its file");
    let directory = setup.directory.as_ref().context("a mesh has a directory")?;
    Ok(Policy::from(file.clone()).with_at("/directory/bearer", json!(directory.token)).to_string())
}

fn text<'v>(value: &'v Value, pointer: &str) -> anyhow::Result<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
}

fn weir(bootstrap: &mut Value) -> anyhow::Result<&mut Value> {
    let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut);
    filters
        .and_then(|all| all.iter_mut().find(|filter| filter["name"] == "weir"))
        .context("no filter named weir")
}

/// Has the filter come by extension discovery.
fn discover(bootstrap: &mut Value, resource: &str, file: &Path, wasm: &Value) -> anyhow::Result<()> {
    let extension = json!({
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": resource,
        "typed_config": wasm,
    });
    std::fs::write(file, json!({"resources": [extension]}).to_string())?;
    *weir(bootstrap)? = json!({
        "name": resource,
        "config_discovery": {
            "config_source": {
                "path_config_source": {"path": file},
                "resource_api_version": "V3",
                "initial_fetch_timeout": "0s",
            },
            // What Istio puts in the place of a module that it cannot fetch.
            "type_urls": [WASM, "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"],
        },
    });
    Ok(())
}

/// Gives the directory's cluster the name by which the control plane knows it.
fn rename_cluster(bootstrap: &mut Value, name: &str) -> anyhow::Result<()> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    let clusters = clusters.context("no clusters")?.iter_mut();
    let cluster = clusters.into_iter().find(|cluster| cluster["name"] == "backend-internal");
    let cluster = cluster.context("no cluster of the directory")?;
    cluster["name"] = json!(name);
    cluster["load_assignment"]["cluster_name"] = json!(name);
    Ok(())
}

/// Replaces the directory's cluster by those of the bootstrap's patches, the directory's address being kept, and adds the one that serves the
/// module.
fn add_clusters(bootstrap: &mut Value) -> anyhow::Result<()> {
    static MODULES: LazyLock<anyhow::Result<Server>> = LazyLock::new(|| {
        let module = bytes::Bytes::from(std::fs::read(artifacts::filter_wasm())?);
        Server::start(move |_| Response::new(module.clone().into()))
    });
    let modules = MODULES.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?.address();
    let proxy = policy::yaml("envoy/envoy-gateway/envoy-proxy.yaml")?;
    let patches = proxy.pointer("/spec/bootstrap/jsonPatches").and_then(Value::as_array);
    let patches = patches.context("no patches")?.iter();
    let declared = patches.filter(|patch| patch["path"] == "/static_resources/clusters/-");
    let directory = crate::envoy::cluster_address(bootstrap, "backend-internal")?.clone();
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    let clusters = clusters.context("no clusters")?;
    clusters.retain(|cluster| cluster["name"] != "backend-internal");
    clusters.extend(declared.map(|patch| patch["value"].clone()));
    clusters.push(json!({
        "name": "wasm_cluster",
        "load_assignment": {"cluster_name": "wasm_cluster", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
            "socket_address": {"address": modules.ip(), "port_value": modules.port()},
        }}}]}]},
    }));
    *crate::envoy::cluster_address(bootstrap, "backend-internal")? = directory;
    Ok(())
}
