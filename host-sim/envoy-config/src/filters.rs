//! Wasm filters in a configuration of Envoy's.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    any,
    error::{ConfigurationError, WASM_FILTER},
    fields::{Fields, field, field_of, flag, names, text, texts},
    plugin::{FailurePolicy, Plugin},
};

/// The field that restricts what a filter may call.
const RESTRICTION: &str = "capability_restriction_config";

/// Fields that Envoy's configurations begin with, and hardly a filter's own.
const OF_ENVOY: [&str; 8] = [
    "@type",
    "static_resources",
    "dynamic_resources",
    "resources",
    "typed_config",
    "filter_chains",
    "http_filters",
    "version_info",
];

/// Whether a document looks like a configuration of Envoy's, or a piece of one.
pub(crate) fn is_of_envoy(document: &Value) -> bool {
    document.as_object().is_some_and(|fields| OF_ENVOY.iter().any(|name| field(fields, name).is_some()))
}

/// Whether there is a Wasm filter in a document.
pub(crate) fn has_any(document: &Value) -> bool {
    let mut found = Vec::new();
    collect(document, &mut found);
    !found.is_empty()
}

/// The plugins of all Wasm filters of a document, in order.
pub(crate) fn plugins(document: &Value) -> Result<Vec<Plugin>, ConfigurationError> {
    let mut found = Vec::new();
    collect(document, &mut found);
    found.into_iter().map(plugin).collect()
}

/// Every `PluginConfig` under a Wasm filter, in order.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Fields>) {
    match value {
        Value::Object(fields) => {
            let names_it = |name| {
                let url = field(fields, name).and_then(Value::as_str);
                url.is_some_and(|url| url.ends_with(WASM_FILTER))
            };
            let config = if names_it("@type") {
                field(fields, "config")
            } else if names_it("type_url") {
                // A TypedStruct, as Istio sends it.
                field_of(field(fields, "value"), "config")
            } else {
                None
            };
            match config.and_then(Value::as_object) {
                Some(config) => found.push(config),
                None if field(fields, "vm_config").is_some() => found.push(fields),
                None => fields.values().for_each(|value| collect(value, found)),
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn plugin(filter: &Fields) -> Result<Plugin, ConfigurationError> {
    let of = |name| field(filter, name);
    let vm = of("vm_config");
    let failure_policy = match of("failure_policy").map(Value::as_str) {
        Some(Some("FAIL_OPEN")) => FailurePolicy::FailOpen,
        Some(Some("FAIL_RELOAD")) => FailurePolicy::FailReload,
        Some(Some("FAIL_CLOSED" | "UNSPECIFIED")) => FailurePolicy::FailClosed,
        Some(_) => {
            let expected = "FAIL_CLOSED, FAIL_OPEN or FAIL_RELOAD";
            return Err(ConfigurationError::Field { field: "failure_policy", expected });
        }
        None if flag(of("fail_open"), "fail_open")? => FailurePolicy::DeprecatedFailOpen,
        None => FailurePolicy::FailClosed,
    };
    let variables = field_of(vm, "environment_variables");
    let host_keys = "vm_config.environment_variables.host_env_keys";
    let headers_alone = "allow_on_headers_stop_iteration";
    Ok(Plugin {
        name: text(of("name"), "name")?,
        root_id: text(of("root_id"), "root_id")?,
        vm_id: text(field_of(vm, "vm_id"), "vm_config.vm_id")?,
        vm_configuration: any::bytes(field_of(vm, "configuration"), "vm_config.configuration")?,
        configuration: any::bytes(of("configuration"), "configuration")?,
        failure_policy,
        allow_on_headers_stop_iteration: flag(of(headers_alone), headers_alone)?,
        allowed_capabilities: allowed_capabilities(filter, vm)?,
        environment: texts(field_of(variables, "key_values"), "vm_config.environment_variables.key_values")?,
        host_environment: names(field_of(variables, "host_env_keys"), host_keys)?,
    })
}

/// The names in a restriction of capabilities, of the VM or, as before Envoy 1.40, of the plugin.
fn allowed_capabilities(filter: &Fields, vm: Option<&Value>) -> Result<BTreeSet<String>, ConfigurationError> {
    let restriction = field_of(vm, RESTRICTION).or_else(|| field(filter, RESTRICTION));
    match field_of(restriction, "allowed_capabilities") {
        None => Ok(BTreeSet::new()),
        Some(Value::Object(names)) => Ok(names.keys().cloned().collect()),
        Some(_) => Err(ConfigurationError::Field { field: RESTRICTION, expected: "a map of capabilities" }),
    }
}
