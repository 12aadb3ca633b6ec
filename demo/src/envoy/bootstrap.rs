//! Changes to a bootstrap, and files from which Envoy discovers parts of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{ledger, policy};

/// Adds the ledger's cluster, which `envoy.yaml` lacks.
pub(super) fn add_ledger(bootstrap: &mut Value, address: SocketAddr) -> anyhow::Result<()> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    let endpoint =
        json!({"address": {"socket_address": {"address": address.ip(), "port_value": address.port()}}});
    clusters.context("envoy.yaml has no clusters")?.push(json!({
        "name": ledger::CLUSTER,
        "load_assignment": {"cluster_name": ledger::CLUSTER, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }));
    Ok(())
}

/// Has a cluster of a bootstrap lead to `address`.
///
/// # Errors
/// When it has no such cluster.
pub fn set_cluster(bootstrap: &mut Value, name: &str, address: SocketAddr) -> anyhow::Result<()> {
    let socket = json!({"address": address.ip(), "port_value": address.port()});
    *cluster_address(bootstrap, name)? = json!({"socket_address": socket});
    Ok(())
}

/// Where a cluster of a bootstrap leads.
///
/// # Errors
/// When it has no such cluster.
pub fn cluster_address<'b>(bootstrap: &'b mut Value, name: &str) -> anyhow::Result<&'b mut Value> {
    cluster(bootstrap, name)?
        .pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address")
        .with_context(|| format!("the bootstrap's cluster {name} has no address"))
}

/// A cluster of a bootstrap.
///
/// # Errors
/// When it has no such cluster.
pub fn cluster<'b>(bootstrap: &'b mut Value, name: &str) -> anyhow::Result<&'b mut Value> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    clusters
        .and_then(|clusters| clusters.iter_mut().find(|cluster| cluster["name"] == name))
        .with_context(|| format!("the bootstrap has no cluster {name}"))
}

/// Replaces the value at a pointer that envoy.yaml must have.
pub(super) fn set(bootstrap: &mut Value, pointer: &str, value: Value) -> anyhow::Result<()> {
    *bootstrap.pointer_mut(pointer).with_context(|| format!("envoy.yaml has no {pointer}"))? = value;
    Ok(())
}

fn extension_file(folder: &Path) -> PathBuf {
    folder.join("weir.json")
}

fn listener_file(folder: &Path) -> PathBuf {
    folder.join("listener.json")
}

pub(super) fn write_extension(folder: &Path, filter: &Value) -> anyhow::Result<()> {
    let extension = json!({"name": filter["name"], "typed_config": filter["typed_config"]});
    write_resource(
        &extension_file(folder),
        "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        extension,
    )
}

pub(super) fn write_listener(folder: &Path, bootstrap: &Value) -> anyhow::Result<()> {
    let listener = bootstrap["static_resources"]["listeners"][0].clone();
    write_resource(&listener_file(folder), "type.googleapis.com/envoy.config.listener.v3.Listener", listener)
}

/// Writes a discovery response with one resource, in one step, which is what Envoy watches for.
fn write_resource(file: &Path, type_url: &str, mut resource: Value) -> anyhow::Result<()> {
    resource["@type"] = json!(type_url);
    let next = file.with_extension("next");
    std::fs::write(&next, json!({"resources": [resource]}).to_string())?;
    std::fs::rename(next, file)?;
    Ok(())
}

/// Has the filter's configuration come from a file instead of the bootstrap.
pub(super) fn discover_extension(bootstrap: &mut Value, folder: &Path) -> anyhow::Result<()> {
    let filter = policy::weir_filter(bootstrap)?;
    write_extension(folder, filter)?;
    *filter = json!({
        "name": filter["name"],
        "config_discovery": {
            "config_source": {"path_config_source": {"path": extension_file(folder)}, "resource_api_version": "V3"},
            "type_urls": [filter["typed_config"]["@type"]],
        },
    });
    Ok(())
}

/// Has the first listener come from a file instead of the bootstrap.
pub(super) fn discover_listener(bootstrap: &mut Value, folder: &Path) -> anyhow::Result<()> {
    write_listener(folder, bootstrap)?;
    let listeners = bootstrap.pointer_mut("/static_resources/listeners").and_then(Value::as_array_mut);
    listeners.context("envoy.yaml has no listeners")?.remove(0);
    bootstrap["dynamic_resources"]["lds_config"] = json!({
        "path_config_source": {"path": listener_file(folder)},
        "resource_api_version": "V3",
    });
    Ok(())
}
