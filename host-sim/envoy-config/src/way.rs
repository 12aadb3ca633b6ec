//! The way of a request through a gateway, as far as its configuration has but one: listener, virtual host, route, cluster.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;

use crate::{
    any,
    fields::{Fields, field, field_of},
    filters,
};

/// What a configuration says for a property `xds.<name>`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum XdsValue {
    /// A number.
    Number(i64),
    /// A name.
    Text(String),
    /// `envoy.config.core.v3.Metadata`.
    Metadata {
        /// Its protocol-buffers form.
        message: Bytes,
        /// Its `filter_metadata`.
        filters: Value,
    },
    /// There are several, or they are configured elsewhere: which it is a request decides.
    Undecided,
}

/// The first message with a field of this name that has a Wasm filter somewhere in it.
pub(crate) fn with_filter<'a>(value: &'a Value, name: &str) -> Option<&'a Fields> {
    match value {
        Value::Object(fields) if field(fields, name).is_some() && filters::has_any(value) => Some(fields),
        Value::Object(fields) => fields.values().find_map(|value| with_filter(value, name)),
        Value::Array(list) => list.iter().find_map(|value| with_filter(value, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The entries of a list; none where it is not given.
fn entries<'a>(message: Option<&'a Value>, name: &str) -> &'a [Value] {
    field_of(message, name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The only one of a list.
fn only(list: &[Value]) -> Option<&Value> {
    list.first().filter(|_| list.len() == 1)
}

fn text(message: &Value, name: &str) -> XdsValue {
    let given = field_of(Some(message), name).and_then(Value::as_str);
    XdsValue::Text(given.unwrap_or_default().to_owned())
}

fn metadata(message: Option<&Value>) -> XdsValue {
    let metadata = field_of(message, "metadata");
    if field_of(metadata, "typed_filter_metadata").is_some() {
        return XdsValue::Undecided;
    }
    let empty = Fields::new();
    let filters = field_of(metadata, "filter_metadata").and_then(Value::as_object).unwrap_or(&empty);
    XdsValue::Metadata { message: any::metadata(filters).into(), filters: Value::Object(filters.clone()) }
}

/// The cluster that all routes lead to.
fn cluster_of(virtual_hosts: &[Value]) -> Option<&str> {
    let routes = virtual_hosts.iter().flat_map(|host| entries(Some(host), "routes"));
    let clusters: BTreeSet<Option<&str>> =
        routes.map(|route| field_of(field_of(Some(route), "route"), "cluster")?.as_str()).collect();
    clusters.first().copied().flatten().filter(|_| clusters.len() == 1)
}

/// What a document says of the way to a Wasm filter in it and on from there, by the names that properties have.
pub(crate) fn of(document: &Value) -> Vec<(&'static str, XdsValue)> {
    let Some(listener) = with_filter(document, "filter_chains") else { return Vec::new() };
    let direction = match field(listener, "traffic_direction").and_then(Value::as_str) {
        Some("INBOUND") => 1,
        Some("OUTBOUND") => 2,
        _ => 0,
    };
    let listener = Value::Object(listener.clone());
    let chains = entries(Some(&listener), "filter_chains");
    let chain = chains.iter().find(|chain| filters::has_any(chain)).unwrap_or(&Value::Null);
    let manager = with_filter(chain, "http_filters");
    let routes = manager.and_then(|manager| field(manager, "route_config"));
    let virtual_hosts = entries(routes, "virtual_hosts");
    let host = only(virtual_hosts);
    let route = only(entries(host, "routes"));
    let cluster = cluster_of(virtual_hosts);
    let clusters = entries(field_of(Some(document), "static_resources"), "clusters");
    let named = |known: &&Value| field_of(Some(known), "name").is_some_and(|name| name.as_str() == cluster);
    let known = clusters.iter().find(|known| cluster.is_some() && named(known));

    let name = |of: Option<&Value>| of.map_or(XdsValue::Undecided, |of| text(of, "name"));
    let described = |of: Option<&Value>| of.map_or(XdsValue::Undecided, |of| metadata(Some(of)));
    let mut found = vec![
        ("listener_direction", XdsValue::Number(direction)),
        ("listener_metadata", metadata(Some(&listener))),
        ("filter_chain_name", text(chain, "name")),
        ("virtual_host_name", name(host)),
        ("virtual_host_metadata", described(host)),
        ("route_name", name(route)),
        ("route_metadata", described(route)),
        ("cluster_name", cluster.map_or(XdsValue::Undecided, |name| XdsValue::Text(name.to_owned()))),
        ("cluster_metadata", described(known)),
    ];
    let localities = entries(field_of(known, "load_assignment"), "endpoints");
    let mut servers = localities.iter().flat_map(|locality| entries(Some(locality), "lb_endpoints"));
    // Which server is taken is not known here, and most have none.
    if known.is_none() || servers.any(|server| field_of(Some(server), "metadata").is_some()) {
        found.push(("upstream_host_metadata", XdsValue::Undecided));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gateway(virtual_hosts: &Value) -> Value {
        let filter = json!({"@type": "x/envoy.extensions.filters.http.wasm.v3.Wasm", "config": {}});
        json!({"static_resources": {
            "listeners": [{
                "traffic_direction": "OUTBOUND",
                "metadata": {"filterMetadata": {"f": {"a": "b"}}},
                "filter_chains": [{"name": "first", "filters": [{"typed_config": {
                    "http_filters": [{"typed_config": filter}],
                    "route_config": {"virtual_hosts": virtual_hosts},
                }}]}],
            }],
            "clusters": [{"name": "c"}],
        }})
    }

    #[test]
    fn one_way_is_known() {
        let found =
            of(&gateway(&json!([{"name": "v", "routes": [{"name": "r", "route": {"cluster": "c"}}]}])));
        let text = |text: &str| XdsValue::Text(text.to_owned());
        let metadata =
            |message: &'static [u8], filters| XdsValue::Metadata { message: message.into(), filters };
        let expected = [
            ("listener_direction", XdsValue::Number(2)),
            (
                "listener_metadata",
                metadata(
                    b"\x0a\x0f\x0a\x01f\x12\x0a\x0a\x08\x0a\x01a\x12\x03\x1a\x01b",
                    json!({"f": {"a": "b"}}),
                ),
            ),
            ("filter_chain_name", text("first")),
            ("virtual_host_name", text("v")),
            ("virtual_host_metadata", metadata(b"", json!({}))),
            ("route_name", text("r")),
            ("route_metadata", metadata(b"", json!({}))),
            ("cluster_name", text("c")),
            ("cluster_metadata", metadata(b"", json!({}))),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn of_several_ways_only_what_they_have_in_common_is_known() {
        let route = |cluster: &str| json!({"name": cluster, "route": {"cluster": cluster}});
        //  the routes, the names of what a request decides
        let rows = [
            (vec![route("c"), route("c")], "route_name route_metadata"),
            (
                vec![route("c"), route("d")],
                "route_name route_metadata cluster_name cluster_metadata upstream_host_metadata",
            ),
            (vec![route("d")], "cluster_metadata upstream_host_metadata"),
            (
                vec![json!({"direct_response": {"status": 200}})],
                "cluster_name cluster_metadata upstream_host_metadata",
            ),
        ];
        for (routes, expected) in rows {
            let found = of(&gateway(&json!([{"name": "v", "routes": routes}])));
            let undecided = found.iter().filter(|(_, value)| *value == XdsValue::Undecided);
            let names: Vec<&str> = undecided.map(|(name, _)| *name).collect();
            assert_eq!(names.join(" "), expected);
        }
    }
}
