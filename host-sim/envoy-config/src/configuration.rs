//! A plugin's configuration, found in whatever holds it: JSON, YAML, or the configuration of an Envoy.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::plugin::{FailurePolicy, Plugin};

/// What Envoy names the configuration of its Wasm filter.
const WASM_FILTER: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// The field that restricts what a filter may call.
const RESTRICTION: &str = "capability_restriction_config";

/// A text that holds no plugin's configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is neither JSON nor YAML from this line and column on. The parser's message is left out, because it quotes the text, and the
    /// text may hold keys and tokens.
    #[error("neither JSON nor YAML: line {line}, column {column}")]
    Syntax {
        /// The line, from 1; 0 if the text as a whole cannot be read.
        line: u64,
        /// The column, from 1; 0 if the text as a whole cannot be read.
        column: u64,
    },
    /// It configures an Envoy that has no Wasm filter.
    #[error("an Envoy configuration without a {WASM_FILTER} filter")]
    NoFilter,
    /// It configures several Wasm filters.
    #[error("several Wasm filters ({}): name one with --plugin", names.join(", "))]
    SeveralFilters {
        /// Their names.
        names: Vec<String>,
    },
    /// It has no Wasm filter of this name.
    #[error("no Wasm filter is named {name:?}: there is {}", names.join(", "))]
    UnknownFilter {
        /// The name as asked for.
        name: String,
        /// Those that there are.
        names: Vec<String>,
    },
    /// The filter's configuration is a message that has no text.
    #[error("{field}: {type_url} is neither google.protobuf.StringValue nor google.protobuf.Struct")]
    MessageType {
        /// The field.
        field: &'static str,
        /// The message's type.
        type_url: String,
    },
    /// A field has a value of the wrong kind.
    #[error("{field}: expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

impl From<serde_saphyr::Error> for ConfigurationError {
    fn from(error: serde_saphyr::Error) -> Self {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        Self::Syntax { line, column }
    }
}

/// Reads the plugin out of a file; see [`parse`].
///
/// # Errors
/// When the file cannot be read, or as [`parse`].
pub fn read(path: impl Into<PathBuf>, plugin: Option<&str>) -> Result<Plugin, ConfigurationError> {
    let path = path.into();
    let bytes = fs::read(&path).map_err(|source| ConfigurationError::Read { path, source })?;
    parse(&bytes, plugin)
}

/// Finds the plugin's configuration in `bytes`, by what they hold and not by a name:
///
/// - an Envoy bootstrap, a file of resources, or any piece of them that holds a Wasm filter: all of the filter's
///   fields are taken, its configuration from a `google.protobuf.StringValue` as it is and from a `Struct` as JSON;
/// - else JSON: it is the configuration, byte for byte;
/// - else YAML: it is the configuration, turned into JSON; a lone text is the configuration as it is.
///
/// Where several Wasm filters are configured, `plugin` names the one that is meant.
///
/// # Errors
/// When `bytes` are none of these, or hold no filter, several, or none of that name.
pub fn parse(bytes: &[u8], plugin: Option<&str>) -> Result<Plugin, ConfigurationError> {
    let json: Option<Value> = serde_json::from_slice(bytes).ok();
    let is_json = json.is_some();
    let document = match json {
        Some(document) => document,
        None => serde_saphyr::from_slice(bytes)?,
    };
    let mut filters = Vec::new();
    collect_filters(&document, &mut filters);
    if let Some(name) = plugin {
        let names = names_of(&filters);
        filters.retain(|filter| name_of(filter) == name);
        if filters.is_empty() {
            return Err(ConfigurationError::UnknownFilter { name: name.to_owned(), names });
        }
    }
    match filters.as_slice() {
        [filter] => plugin_of(filter),
        [] if document.get("static_resources").is_some() || document.get("resources").is_some() => {
            Err(ConfigurationError::NoFilter)
        }
        [] => {
            let configuration = match document {
                Value::String(_) => Bytes::copy_from_slice(bytes),
                _ if is_json => Bytes::copy_from_slice(bytes),
                Value::Null => Bytes::new(),
                document => document.to_string().into(),
            };
            Ok(Plugin { configuration, ..Plugin::default() })
        }
        several => Err(ConfigurationError::SeveralFilters { names: names_of(several) }),
    }
}

type Fields = Map<String, Value>;

/// Every `PluginConfig` under a Wasm filter, in order.
fn collect_filters<'a>(value: &'a Value, found: &mut Vec<&'a Fields>) {
    match value {
        Value::Object(fields) => {
            let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let config = if text("@type").ends_with(WASM_FILTER) {
                fields.get("config")
            } else if text("type_url").ends_with(WASM_FILTER) {
                // A TypedStruct, as Istio sends it.
                fields.get("value").and_then(|value| value.get("config"))
            } else {
                None
            };
            match config.and_then(Value::as_object) {
                Some(config) => found.push(config),
                None if fields.contains_key("vm_config") => found.push(fields),
                None => fields.values().for_each(|value| collect_filters(value, found)),
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_filters(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn name_of(filter: &Fields) -> &str {
    filter.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn names_of(filters: &[&Fields]) -> Vec<String> {
    filters.iter().map(|filter| format!("{:?}", name_of(filter))).collect()
}

fn plugin_of(filter: &Fields) -> Result<Plugin, ConfigurationError> {
    let vm = filter.get("vm_config");
    let of_vm = |name: &str| vm.and_then(|vm| vm.get(name));
    let flag = |field: &'static str| match filter.get(field) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or(ConfigurationError::Field { field, expected: "true or false" }),
    };
    let failure_policy = match filter.get("failure_policy").map(Value::as_str) {
        Some(Some("FAIL_OPEN")) => FailurePolicy::FailOpen,
        Some(Some("FAIL_RELOAD")) => FailurePolicy::FailReload,
        Some(Some("FAIL_CLOSED" | "UNSPECIFIED")) => FailurePolicy::FailClosed,
        Some(_) => {
            let expected = "FAIL_CLOSED, FAIL_OPEN or FAIL_RELOAD";
            return Err(ConfigurationError::Field { field: "failure_policy", expected });
        }
        None if flag("fail_open")? => FailurePolicy::DeprecatedFailOpen,
        None => FailurePolicy::FailClosed,
    };
    let variables = of_vm("environment_variables").and_then(|variables| variables.get("key_values"));
    let environment: BTreeMap<String, String> = match variables.map(Value::as_object) {
        None => BTreeMap::new(),
        Some(Some(variables)) => variables
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect(),
        Some(None) => {
            let field = "vm_config.environment_variables.key_values";
            return Err(ConfigurationError::Field { field, expected: "a map of texts" });
        }
    };
    let text = |value: Option<&Value>, field| match value {
        None => Ok(String::new()),
        Some(value) => {
            value.as_str().map(str::to_owned).ok_or(ConfigurationError::Field { field, expected: "a text" })
        }
    };
    Ok(Plugin {
        name: text(filter.get("name"), "name")?,
        root_id: text(filter.get("root_id"), "root_id")?,
        vm_id: text(of_vm("vm_id"), "vm_config.vm_id")?,
        vm_configuration: message(of_vm("configuration"), "vm_config.configuration")?,
        configuration: message(filter.get("configuration"), "configuration")?,
        failure_policy,
        allow_on_headers_stop_iteration: flag("allow_on_headers_stop_iteration")?,
        allowed_capabilities: allowed_capabilities(filter, vm)?,
        environment,
    })
}

/// The names in a restriction of capabilities, of the VM or, as before Envoy 1.40, of the plugin.
fn allowed_capabilities(filter: &Fields, vm: Option<&Value>) -> Result<BTreeSet<String>, ConfigurationError> {
    let restriction = vm.and_then(|vm| vm.get(RESTRICTION)).or_else(|| filter.get(RESTRICTION));
    match restriction.and_then(|restriction| restriction.get("allowed_capabilities")) {
        None => Ok(BTreeSet::new()),
        Some(Value::Object(names)) => Ok(names.keys().cloned().collect()),
        Some(_) => Err(ConfigurationError::Field { field: RESTRICTION, expected: "a map of capabilities" }),
    }
}

/// The bytes that Envoy hands to the filter for an `Any`.
fn message(any: Option<&Value>, field: &'static str) -> Result<Bytes, ConfigurationError> {
    let Some(any) = any else { return Ok(Bytes::new()) };
    let type_url = any.get("@type").and_then(Value::as_str);
    let value = any.get("value");
    match (type_url, value) {
        (Some(url), Some(Value::String(text))) if url.ends_with("google.protobuf.StringValue") => {
            Ok(Bytes::copy_from_slice(text.as_bytes()))
        }
        (Some(url), None) if url.ends_with("google.protobuf.StringValue") => Ok(Bytes::new()),
        (Some(url), _) if url.ends_with("google.protobuf.StringValue") => {
            Err(ConfigurationError::Field { field, expected: "a text under value" })
        }
        (Some(url), value) if url.ends_with("google.protobuf.Struct") => {
            Ok(value.map_or_else(|| "{}".to_owned(), Value::to_string).into())
        }
        (Some(url), _) => Err(ConfigurationError::MessageType { field, type_url: url.to_owned() }),
        (None, _) => Err(ConfigurationError::Field { field, expected: "a message with its \"@type\"" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(text: &str) -> String {
        let plugin = parse(text.as_bytes(), None).unwrap();
        String::from_utf8(plugin.configuration.to_vec()).unwrap()
    }

    const BOOTSTRAP: &str = r#"
static_resources:
  listeners:
  - filter_chains:
    - filters:
      - typed_config:
          http_filters:
          - name: envoy.filters.http.wasm
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                name: limits
                root_id: r
                failure_policy: FAIL_RELOAD
                vm_config:
                  vm_id: v
                  runtime: envoy.wasm.runtime.v8
                  environment_variables: {key_values: {A: b}}
                  capability_restriction_config: {allowed_capabilities: {proxy_log: {}, proxy_on_log: {}}}
                configuration:
                  "@type": type.googleapis.com/google.protobuf.StringValue
                  value: |
                    {"plans": {}}
"#;

    #[test]
    fn a_configuration_is_found_by_what_the_text_holds() {
        let structure = r#"{"@type": "x/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {"configuration": {"@type": "x/google.protobuf.Struct", "value": {"b": 1, "a": [true]}}}}"#;
        let plugin = r#"{"name": "p", "vm_config": {}, "configuration":
            {"@type": "x/google.protobuf.StringValue", "value": "text"}}"#;
        //  what, text, configuration
        let rows = [
            ("json stays as it is", r#"{ "b":1,"a":2 }"#, r#"{ "b":1,"a":2 }"#),
            ("yaml becomes json", "a: 1\nb: [x, 2.5]\n", r#"{"a":1,"b":["x",2.5]}"#),
            ("a text stays as it is", "just words", "just words"),
            ("nothing is nothing", "", ""),
            ("a bootstrap's string", BOOTSTRAP, "{\"plans\": {}}\n"),
            ("a filter's struct", structure, r#"{"a":[true],"b":1}"#),
            ("a plugin alone", plugin, "text"),
        ];
        for (what, text, expected) in rows {
            assert_eq!(configuration(text), expected, "{what}");
        }
    }

    #[test]
    fn a_filters_other_fields_are_taken_too() {
        let plugin = parse(BOOTSTRAP.as_bytes(), None).unwrap();
        assert_eq!(
            (plugin.name.as_str(), plugin.root_id.as_str(), plugin.vm_id.as_str()),
            ("limits", "r", "v")
        );
        assert_eq!(plugin.failure_policy, FailurePolicy::FailReload);
        assert_eq!(plugin.environment.get("A").map(String::as_str), Some("b"));
        assert!(plugin.allows("proxy_on_log") && !plugin.allows("proxy_on_tick"));
    }

    #[test]
    fn one_of_several_filters_is_chosen_by_its_name() {
        let filter = |name: &str| {
            format!(
                r#"{{"name": "{name}", "vm_config": {{}}, "configuration":
                    {{"@type": "x/google.protobuf.StringValue", "value": "{name}'s"}}}}"#
            )
        };
        let both = format!("[{}, {}]", filter("a"), filter("b"));
        assert_eq!(parse(both.as_bytes(), Some("b")).unwrap().configuration, "b's");
        assert_eq!(
            parse(both.as_bytes(), None).unwrap_err().to_string(),
            "several Wasm filters (\"a\", \"b\"): name one with --plugin"
        );
        assert_eq!(
            parse(both.as_bytes(), Some("c")).unwrap_err().to_string(),
            "no Wasm filter is named \"c\": there is \"a\", \"b\""
        );
    }

    #[test]
    fn what_holds_no_configuration_is_told() {
        let message = r#"{"vm_config": {}, "configuration": {"@type": "x/google.protobuf.Any"}}"#;
        let rows = [
            ("a: [", "neither JSON nor YAML: line 1, column 4"),
            ("a: 1\na: 2\n", "neither JSON nor YAML: line 2, column 1"),
            ("static_resources: {}", "an Envoy configuration without a envoy.extensions"),
            (message, "configuration: x/google.protobuf.Any is neither"),
            (r#"{"vm_config": {}, "failure_policy": "X"}"#, "failure_policy: expected FAIL_CLOSED"),
        ];
        for (text, expected) in rows {
            let error = parse(text.as_bytes(), None).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
