//! Manifests of Kubernetes that configure filters: Istio's and Envoy Gateway's. Their controllers hand the
//! configuration to the filter as JSON, in a `google.protobuf.StringValue`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    error::ConfigurationError,
    fields::{field_of, flag, names, text},
    plugin::{FailurePolicy, Plugin},
};

/// A manifest's kind, if a document is one.
pub(crate) fn kind(document: &Value) -> Option<&str> {
    document.get("apiVersion")?.as_str()?;
    document.get("kind")?.as_str()
}

/// The plugins of a manifest; `None` where it is of no kind that configures any.
pub(crate) fn plugins(document: &Value) -> Option<Result<Vec<Plugin>, ConfigurationError>> {
    let spec = field_of(Some(document), "spec");
    match kind(document)? {
        "WasmPlugin" => Some(of_istio(document, spec)),
        "TrafficExtension" => Some(of_istio(document, field_of(spec, "wasm"))),
        "EnvoyExtensionPolicy" => Some(of_envoy_gateway(field_of(spec, "wasm"))),
        _ => None,
    }
}

/// A configuration as JSON; none is no bytes.
fn json(configuration: Option<&Value>) -> Bytes {
    configuration.map(|value| value.to_string().into()).unwrap_or_default()
}

fn of_istio(document: &Value, plugin: Option<&Value>) -> Result<Vec<Plugin>, ConfigurationError> {
    let Some(plugin) = plugin else { return Ok(Vec::new()) };
    let metadata = field_of(Some(document), "metadata");
    let name = text(field_of(metadata, "name"), "metadata.name")?;
    let namespace = text(field_of(metadata, "namespace"), "metadata.namespace")?;
    let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
    let of = |name| field_of(Some(plugin), name);
    let failure_policy = match text(of("fail_strategy"), "failStrategy")?.as_str() {
        "" | "FAIL_CLOSE" => FailurePolicy::FailClosed,
        "FAIL_OPEN" => FailurePolicy::FailOpen,
        "FAIL_RELOAD" => FailurePolicy::FailReload,
        _ => {
            let expected = "FAIL_CLOSE, FAIL_OPEN or FAIL_RELOAD";
            return Err(ConfigurationError::Field { field: "failStrategy", expected });
        }
    };
    let (environment, host_environment) = environment(field_of(of("vm_config"), "env"))?;
    Ok(vec![Plugin {
        name: format!("{namespace}.{name}"),
        root_id: text(of("plugin_name"), "pluginName")?,
        configuration: json(of("plugin_config")),
        failure_policy,
        environment,
        host_environment,
        ..Plugin::default()
    }])
}

/// Variables with their values, and the names of those that a gateway takes from its own environment.
type Environment = (BTreeMap<String, String>, BTreeSet<String>);

fn environment(variables: Option<&Value>) -> Result<Environment, ConfigurationError> {
    let expected = ConfigurationError::Field { field: "vmConfig.env", expected: "a list of name and value" };
    let (mut environment, mut of_host) = Environment::default();
    let Some(variables) = variables else { return Ok((environment, of_host)) };
    let Some(variables) = variables.as_array() else { return Err(expected) };
    for variable in variables {
        let of = |name| field_of(Some(variable), name);
        let name = text(of("name"), "vmConfig.env.name")?;
        if of("value_from").and_then(Value::as_str) == Some("HOST") {
            of_host.insert(name);
        } else {
            environment.insert(name, text(of("value"), "vmConfig.env.value")?);
        }
    }
    Ok((environment, of_host))
}

fn of_envoy_gateway(filters: Option<&Value>) -> Result<Vec<Plugin>, ConfigurationError> {
    let Some(filters) = filters else { return Ok(Vec::new()) };
    let expected = ConfigurationError::Field { field: "spec.wasm", expected: "a list" };
    let Some(filters) = filters.as_array() else { return Err(expected) };
    filters.iter().filter(|filter| filter.is_object()).map(of_policy).collect()
}

fn of_policy(filter: &Value) -> Result<Plugin, ConfigurationError> {
    let of = |name| field_of(Some(filter), name);
    let opens = flag(of("fail_open"), "failOpen")?;
    Ok(Plugin {
        name: text(of("name"), "name")?,
        root_id: text(of("rootID"), "rootID")?,
        configuration: json(of("config")),
        failure_policy: if opens { FailurePolicy::DeprecatedFailOpen } else { FailurePolicy::FailClosed },
        host_environment: names(field_of(of("env"), "host_keys"), "env.hostKeys")?,
        ..Plugin::default()
    })
}
