//! A plugin's configuration, found in whatever holds it: JSON, YAML, or the configuration of an Envoy.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde_json::Value;

use crate::{error::ConfigurationError, filters, manifest, plugin::Plugin, syntax};

/// The bytes of a file, or of the standard input where it is `-`.
///
/// # Errors
/// When they cannot be read.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return fs::read(path);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the plugin out of a file, or of the standard input where it is `-`; see [`parse`].
///
/// # Errors
/// When the file cannot be read, or as [`parse`].
pub fn read(path: impl Into<PathBuf>, plugin: Option<&str>) -> Result<Plugin, ConfigurationError> {
    let path = path.into();
    let bytes = bytes(&path).map_err(|source| ConfigurationError::Read { path, source })?;
    parse(&bytes, plugin)
}

/// Finds the plugin's configuration in `bytes`, by what they hold and not by a name:
///
/// - an Envoy bootstrap, a file of resources, or any piece of them that holds a Wasm filter: all of the filter's
///   fields are taken, in either casing, and its configuration is the bytes that Envoy hands over for it: a
///   `google.protobuf.StringValue` as it is, a `Struct` in its protocol-buffers form;
/// - a `WasmPlugin` or `TrafficExtension` of Istio, or an `EnvoyExtensionPolicy` of Envoy Gateway: their configuration as
///   JSON, as their controllers hand it over;
/// - several of these in documents of YAML, or in the items of a `List` of Kubernetes, beside others that hold none;
/// - else JSON: it is the configuration, byte for byte;
/// - else YAML: it is the configuration, turned into JSON; a lone text is the configuration as it is.
///
/// Where several Wasm filters are configured, `plugin` names the one that is meant, or gives its number in the text, counted
/// from 1.
///
/// # Errors
/// When `bytes` are none of these, or hold no filter, several, or none of that name; and when they look like a
/// configuration of Envoy's or a manifest of Kubernetes, and have no filter.
pub fn parse(bytes: &[u8], plugin: Option<&str>) -> Result<Plugin, ConfigurationError> {
    let (documents, is_json) = documents(bytes)?;
    let mut plugins = Vec::new();
    for document in &documents {
        plugins.extend(match manifest::plugins(document) {
            Some(plugins) => plugins?,
            None => filters::plugins(document)?,
        });
    }
    if let Some(name) = plugin {
        let index = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        if plugins.iter().any(|plugin| plugin.name == name) {
            plugins.retain(|plugin| plugin.name == name);
        } else if let Some(index) = index.filter(|index| *index < plugins.len()) {
            plugins = vec![plugins.swap_remove(index)];
        } else {
            let names = names_of(&plugins);
            return Err(ConfigurationError::UnknownFilter { name: name.to_owned(), names });
        }
    }
    if plugins.len() > 1 {
        return Err(ConfigurationError::SeveralFilters { names: names_of(&plugins) });
    }
    if let Some(plugin) = plugins.pop() {
        return Ok(plugin);
    }
    if let Some(kind) = documents.iter().find_map(manifest::kind) {
        return Err(ConfigurationError::Manifest { kind: kind.to_owned() });
    }
    if documents.len() > 1 || documents.iter().any(filters::is_of_envoy) {
        return Err(ConfigurationError::NoFilter);
    }
    let configuration = match documents.into_iter().next() {
        Some(Value::String(_)) => Bytes::copy_from_slice(bytes),
        Some(_) if is_json => Bytes::copy_from_slice(bytes),
        Some(document) => document.to_string().into(),
        None => Bytes::new(),
    };
    Ok(Plugin::new(configuration))
}

/// The documents of a text: that of JSON, those of YAML that are not empty, and in the place of a list of Kubernetes its items; and whether the text
/// is JSON.
fn documents(bytes: &[u8]) -> Result<(Vec<Value>, bool), ConfigurationError> {
    if let Some(problem) = syntax::encoding(bytes) {
        return Err(ConfigurationError::Encoding(problem));
    }
    let json: Option<Value> = serde_json::from_slice(bytes).ok();
    let is_json = json.is_some();
    let documents = match json {
        Some(document) => vec![document],
        None => serde_saphyr::from_slice_multiple(bytes)
            .map_err(|error| ConfigurationError::syntax(bytes, &error))?,
    };
    let items = |mut document: Value| match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if manifest::kind(&document).is_some_and(|kind| kind.ends_with("List")) => {
            items
        }
        Some(items) => {
            document["items"] = items;
            vec![document]
        }
        None => vec![document],
    };
    Ok((documents.into_iter().flat_map(items).collect(), is_json))
}

fn names_of(plugins: &[Plugin]) -> Vec<String> {
    let numbered = plugins.iter().enumerate();
    numbered
        .map(|(index, plugin)| match plugin.name.as_str() {
            "" => format!("{}: unnamed", index + 1),
            name => format!("{}: {name:?}", index + 1),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::FailurePolicy;

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
                  environment_variables: {key_values: {A: b}, host_env_keys: [HOME]}
                  capability_restriction_config: {allowed_capabilities: {proxy_log: {}, proxy_on_log: {}}}
                configuration:
                  "@type": type.googleapis.com/google.protobuf.StringValue
                  value: |
                    {"rules": {}}
"#;

    const ISTIO: &str = r"
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: limits, namespace: gateways}
spec:
  url: oci://registry.example/limits
  pluginName: root
  pluginConfig: {rules: {}}
  failStrategy: FAIL_RELOAD
  vmConfig: {env: [{name: A, value: b}, {name: HOME, valueFrom: HOST}]}
";

    const GATEWAY: &str = r#"
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
spec:
  wasm:
  - {name: a, rootID: r, config: {rules: [1]}, failOpen: true, env: {hostKeys: [HOME]}}
  - {name: b, config: "text"}
"#;

    #[test]
    fn a_configuration_is_found_by_what_the_text_holds() {
        let structure = r#"{"@type": "x/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {"configuration": {"@type": "x/google.protobuf.Struct", "value": {"a": ""}}}}"#;
        let plugin = r#"{"name": "p", "vm_config": {}, "configuration":
            {"@type": "x/google.protobuf.StringValue", "value": "text"}}"#;
        //  what, text, configuration
        let rows = [
            ("json stays as it is", r#"{ "b":1,"a":2 }"#, r#"{ "b":1,"a":2 }"#),
            ("yaml becomes json", "a: 1\nb: [x, 2.5]\n", r#"{"a":1,"b":["x",2.5]}"#),
            ("a text stays as it is", "just words", "just words"),
            ("nothing is nothing", "", ""),
            ("a bootstrap's string", BOOTSTRAP, "{\"rules\": {}}\n"),
            ("a filter's struct", structure, "\n\u{7}\n\u{1}a\u{12}\u{2}\u{1a}\0"),
            ("a manifest of Istio's", ISTIO, r#"{"rules":{}}"#),
            (
                "a manifest without a configuration",
                r#"{"apiVersion": "extensions.istio.io/v1alpha1", "kind": "WasmPlugin", "spec": {}}"#,
                "",
            ),
            ("fields that are null", r#"{"vmConfig": {}, "name": null, "configuration": null}"#, ""),
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
        assert_eq!(plugin.host_environment, ["HOME".to_owned()].into());
        assert!(plugin.allows("proxy_on_log") && !plugin.allows("proxy_on_tick"));
    }

    #[test]
    fn fields_have_their_names_in_either_casing() {
        let camel = r#"{"name": "p", "rootId": "r", "vmConfig": {"vmId": "v", "configuration":
            {"@type": "x/google.protobuf.StringValue", "value": "of the VM"}, "environmentVariables": {"keyValues": {"A": "b"}}},
            "failurePolicy": "FAIL_RELOAD", "allowOnHeadersStopIteration": true}"#;
        let plugin = parse(camel.as_bytes(), None).unwrap();
        let names = (plugin.root_id.as_str(), plugin.vm_id.as_str(), plugin.vm_configuration.as_ref());
        assert_eq!(names, ("r", "v", &b"of the VM"[..]));
        assert_eq!(plugin.failure_policy, FailurePolicy::FailReload);
        assert!(plugin.allow_on_headers_stop_iteration && plugin.environment.contains_key("A"));
    }

    #[test]
    fn manifests_are_read_for_what_they_are() {
        let plugin = parse(ISTIO.as_bytes(), None).unwrap();
        assert_eq!((plugin.name.as_str(), plugin.root_id.as_str()), ("gateways.limits", "root"));
        assert_eq!(plugin.failure_policy, FailurePolicy::FailReload);
        assert_eq!(plugin.environment.into_iter().collect::<Vec<_>>(), [("A".to_owned(), "b".to_owned())]);
        assert_eq!(plugin.host_environment, ["HOME".to_owned()].into());
        let extension = ISTIO.replace("WasmPlugin", "TrafficExtension").replace("spec:\n", "spec:\n wasm:\n");
        assert_eq!(configuration(&extension), r#"{"rules":{}}"#);
        let plugin = parse(GATEWAY.as_bytes(), Some("a")).unwrap();
        assert_eq!((plugin.root_id.as_str(), plugin.configuration.as_ref()), ("r", &br#"{"rules":[1]}"#[..]));
        assert_eq!(plugin.failure_policy, FailurePolicy::DeprecatedFailOpen);
        assert_eq!(plugin.host_environment, ["HOME".to_owned()].into());
        assert_eq!(parse(GATEWAY.as_bytes(), Some("b")).unwrap().configuration, "\"text\"");
    }

    #[test]
    fn a_filter_is_found_among_other_documents() {
        let other = "apiVersion: v1\nkind: ConfigMap\n";
        let indented = ISTIO.trim().replace('\n', "\n  ");
        //  what, text
        let rows = [
            ("documents", format!("{other}---{ISTIO}")),
            ("documents, one of them empty", format!("{ISTIO}---\n---\n{other}")),
            (
                "a list",
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n- {}\n- {indented}\n",
                    other.trim().replace('\n', "\n  ")
                ),
            ),
        ];
        for (what, text) in rows {
            let found =
                parse(text.as_bytes(), None).map(|plugin| plugin.name).map_err(|error| error.to_string());
            assert_eq!(found.as_deref(), Ok("gateways.limits"), "{what}: {text}");
        }
        let both = parse(format!("{ISTIO}---{ISTIO}").as_bytes(), None).unwrap_err();
        assert!(both.to_string().starts_with("several Wasm filters (1: \"gateways.limits\", 2: "), "{both}");
        let none = parse(format!("{other}---\n{other}").as_bytes(), None).unwrap_err().to_string();
        assert!(
            none.starts_with("a manifest of kind \"ConfigMap\", which configures no Wasm filter"),
            "{none}"
        );
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
            "several Wasm filters (1: \"a\", 2: \"b\"): choose one with --plugin, by its name or number"
        );
        assert_eq!(
            parse(both.as_bytes(), Some("c")).unwrap_err().to_string(),
            "no Wasm filter is named \"c\": there is 1: \"a\", 2: \"b\""
        );
        // Filters need no names, and a name may be a number.
        let others = format!("[{}, {}, {}]", filter("2"), filter(""), filter("c"));
        for (chosen, expected) in [("1", "2's"), ("2", "2's"), ("3", "c's"), ("c", "c's")] {
            assert_eq!(parse(others.as_bytes(), Some(chosen)).unwrap().configuration, expected, "{chosen}");
        }
        for unknown in ["0", "4", "-1"] {
            let error = parse(others.as_bytes(), Some(unknown)).unwrap_err().to_string();
            assert!(error.ends_with("there is 1: \"2\", 2: unnamed, 3: \"c\""), "{error}");
        }
    }

    #[test]
    fn documents_and_lists_are_read_for_the_filters_in_them() {
        let service = "apiVersion: v1\nkind: Service\n";
        let indented: String =
            ISTIO.lines().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n")).collect();
        let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}", indented.trim_start());
        for text in [
            format!("{ISTIO}---\n"),
            format!("{service}---\n{ISTIO}"),
            format!("---\n{ISTIO}---\n{service}---\n# nothing\n"),
            list,
        ] {
            assert_eq!(configuration(&text), r#"{"rules":{}}"#, "{text}");
        }
        let several = format!("{ISTIO}---\n{GATEWAY}");
        let error = parse(several.as_bytes(), None).unwrap_err().to_string();
        assert!(error.contains("1: \"gateways.limits\", 2: \"a\", 3: \"b\""), "{error}");
        assert_eq!(configuration("a: 1\n---\n"), r#"{"a":1}"#);
    }

    #[test]
    fn what_holds_no_configuration_is_told() {
        let message = r#"{"vm_config": {}, "configuration": {"@type": "x/google.protobuf.Any"}}"#;
        let rows = [
            ("a: [", "neither JSON nor YAML: line 1, column 4"),
            ("a: 1\na: 2\n", "neither JSON nor YAML: line 2, column 1"),
            ("a: 1\n---\nb: 2\n", "an Envoy configuration without a envoy.extensions"),
            ("a:\n\tb: 1\n", "neither JSON nor YAML: line 2, column"),
            ("\u{feff}{}", "a byte order mark"),
            ("static_resources: {}", "an Envoy configuration without a envoy.extensions"),
            (
                "apiVersion: v1\nkind: ConfigMap\n",
                "a manifest of kind \"ConfigMap\", which configures no Wasm filter",
            ),
            (r#"{"http_filters": []}"#, "an Envoy configuration without a envoy.extensions"),
            (r#"{"@type": "x/envoy.config.listener.v3.Listener"}"#, "an Envoy configuration without a envoy"),
            (message, "configuration: host-sim has no protocol-buffers form of x/google.protobuf.Any"),
            (r#"{"vm_config": {}, "failure_policy": "X"}"#, "failure_policy: expected FAIL_CLOSED"),
        ];
        for (text, expected) in rows {
            let error = parse(text.as_bytes(), None).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
