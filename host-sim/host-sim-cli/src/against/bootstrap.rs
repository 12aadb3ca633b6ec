//! The bootstrap of an Envoy that runs a scenario's filters.

use std::{net::SocketAddr, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use host_sim::{EnvoyVersion, FailurePolicy, Plugin};
use serde_json::{Map, Value, json};

/// What precedes the response-code details in the access log.
pub(super) const ACCESS: &str = "access log: ";

/// The type of the filter.
pub(super) const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

/// The port that the system chooses.
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The whole bootstrap.
pub(super) fn bootstrap(
    filters: Vec<Value>,
    clusters: &[Value],
    buffer_limit: Option<usize>,
    timeout: Duration,
) -> Value {
    json!({
        "admin": {"address": socket(LOOPBACK)},
        "static_resources": {
            "listeners": [{
                "name": "case",
                "address": socket(LOOPBACK),
                "per_connection_buffer_limit_bytes": buffer_limit,
                "filter_chains": [{"filters": [{
                    "name": "connections",
                    "typed_config": connection_manager(filters, timeout),
                }]}],
            }],
            "clusters": clusters,
        },
    })
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}

/// A cluster with one endpoint.
pub(super) fn cluster(name: &str, address: SocketAddr, grpc: bool) -> Value {
    let mut cluster = json!({
        "name": name,
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(address)}}]}],
        },
    });
    if grpc {
        cluster["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        });
    }
    cluster
}

fn connection_manager(mut filters: Vec<Value>, timeout: Duration) -> Value {
    filters.push(json!({"name": "router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        // No filter adds Envoy's own headers.
        "suppress_envoy_headers": true,
    }}));
    json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "case",
        "use_remote_address": true,
        "access_log": [{"name": "stderr", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
            "log_format": {"text_format_source": {"inline_string": format!("{ACCESS}%RESPONSE_CODE_DETAILS%\n")}},
        }}],
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{
                "match": {"prefix": "/"},
                "route": {"cluster": "upstream", "timeout": format!("{}s", timeout.as_secs())},
            }],
        }]},
        "http_filters": filters,
    })
}

/// A filter's configuration. `any` takes the place of the plugin's.
pub(super) fn filter(plugin: &Plugin, any: Option<&Value>, code: &Path, version: EnvoyVersion) -> Value {
    let mut config = json!({
        "name": plugin.name,
        "root_id": plugin.root_id,
        "vm_config": {
            "vm_id": plugin.vm_id,
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": code}},
        },
        "configuration": any.cloned().unwrap_or_else(|| message(&plugin.configuration)),
    });
    if !plugin.vm_configuration.is_empty() {
        config["vm_config"]["configuration"] = message(&plugin.vm_configuration);
    }
    if !plugin.environment.is_empty() {
        config["vm_config"]["environment_variables"] = json!({"key_values": plugin.environment});
    }
    let allowed = &plugin.allowed_capabilities;
    if !allowed.is_empty() {
        let allowed: Map<_, _> = allowed.iter().map(|name| (name.clone(), json!({}))).collect();
        let place = if version >= EnvoyVersion::V1_40 { &mut config["vm_config"] } else { &mut config };
        place["capability_restriction_config"] = json!({"allowed_capabilities": allowed});
    }
    if plugin.allow_on_headers_stop_iteration {
        config["allow_on_headers_stop_iteration"] = json!(true);
    }
    match plugin.failure_policy {
        FailurePolicy::FailClosed => config["failure_policy"] = json!("FAIL_CLOSED"),
        FailurePolicy::FailOpen => config["failure_policy"] = json!("FAIL_OPEN"),
        FailurePolicy::FailReload => config["failure_policy"] = json!("FAIL_RELOAD"),
        FailurePolicy::DeprecatedFailOpen => config["fail_open"] = json!(true),
    }
    json!({"@type": WASM, "config": config})
}

/// The message that Envoy hands to the filter as these bytes.
pub(super) fn message(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": text}),
        Err(_) => {
            json!({"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": STANDARD.encode(bytes)})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_not_text_is_handed_over_as_bytes() {
        let rows: [(&[u8], &str, &str); 5] = [
            (b"", "StringValue", ""),
            (b"{}", "StringValue", "{}"),
            (b"\xff", "BytesValue", "/w=="),
            (b"\xff\xef", "BytesValue", "/+8="),
            (b"\xffab", "BytesValue", "/2Fi"),
        ];
        for (bytes, kind, value) in rows {
            let kind = format!("type.googleapis.com/google.protobuf.{kind}");
            assert_eq!(message(bytes), json!({"@type": kind, "value": value}));
        }
    }
}
