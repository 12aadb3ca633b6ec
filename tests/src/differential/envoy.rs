//! A case's guest in a real Envoy with one worker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use host_sim::{EnvoyVersion, FailurePolicy, Plugin};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::upstream::Upstream;
use super::{Case, Contender, PATIENCE, RESPONSE_TIMEOUT};
use crate::client::Client;
use crate::exchange::get;
use crate::process::Process;
use crate::{artifacts, clock};

/// What a guest's line in Envoy's log begins with; then come the names of its plugin, root and VM, and a colon.
const PREFIX: &str = "wasm log";
/// What precedes the response-code details in its access log.
const ACCESS: &str = "access log: ";

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const TEXT: &str = "type.googleapis.com/google.protobuf.StringValue";

/// A running Envoy.
pub(super) struct Envoy {
    process: Process,
    folder: TempDir,
    admin: Client,
    upstream: Upstream,
    /// The first filter as it was configured at the start.
    filter: Value,
    address: SocketAddr,
    /// Lines of the access log that were read.
    accesses: std::cell::Cell<usize>,
    clusters: BTreeMap<String, Upstream>,
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}

fn cluster(name: &str, address: SocketAddr, grpc: bool) -> Value {
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

fn connection_manager(mut filters: Vec<Value>) -> Value {
    filters.push(json!({"name": "router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        // Envoy's own headers are no filter's affair.
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
                "route": {"cluster": "upstream", "timeout": format!("{}s", RESPONSE_TIMEOUT.as_secs())},
            }],
        }]},
        "http_filters": filters,
    })
}

/// A plugin's configuration.
fn plugin_config(plugin: &Plugin, code: &Path, version: EnvoyVersion) -> Value {
    let mut config = json!({
        "name": plugin.name,
        "root_id": plugin.root_id,
        "vm_config": {
            "vm_id": plugin.vm_id,
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": code}},
        },
        "configuration": {"@type": TEXT, "value": String::from_utf8_lossy(&plugin.configuration)},
    });
    let allowed = &plugin.allowed_capabilities;
    if !allowed.is_empty() {
        let allowed: serde_json::Map<_, _> = allowed.iter().map(|name| (name.clone(), json!({}))).collect();
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

/// Writes the filter as a discovery response, in one step, which is what Envoy watches for.
fn write_discovery(folder: &Path, filter: &Value) -> anyhow::Result<()> {
    let response = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "case",
        "typed_config": filter,
    }]});
    std::fs::write(folder.join("next.json"), response.to_string())?;
    std::fs::rename(folder.join("next.json"), folder.join("filter.json"))?;
    Ok(())
}

impl Envoy {
    pub(super) fn start(case: &Case, version: EnvoyVersion) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let upstream = Upstream::start(&case.scenario.upstream)?;
        let mut clusters = vec![cluster("upstream", upstream.address(), false)];
        let mut servers = BTreeMap::new();
        for (name, answer) in &case.scenario.clusters {
            let server = Upstream::start(answer)?;
            clusters.push(cluster(name, server.address(), answer.is_grpc()));
            servers.insert(name.clone(), server);
        }
        let code = folder.path().join("guest.wasm");
        std::fs::write(&code, &case.wasm)?;
        let plugins = case.plugins()?;
        let mut configs: Vec<_> =
            plugins.iter().map(|plugin| plugin_config(plugin, &code, version)).collect();
        if let (Some(message), Some(first)) = (&case.message, configs.first_mut()) {
            first["config"]["configuration"] = message.clone();
        }
        let mut filters: Vec<_> = plugins
            .iter()
            .zip(&configs)
            .map(|(plugin, config)| json!({"name": plugin.name, "typed_config": config}))
            .collect();
        let first = configs.into_iter().next().context("a plugin")?;
        if case.scenario.steps.iter().any(|step| step.update.is_some()) {
            write_discovery(folder.path(), &first)?;
            filters[0] = json!({"name": "case", "config_discovery": {
                "config_source": {
                    "path_config_source": {"path": folder.path().join("filter.json")},
                    "resource_api_version": "V3",
                },
                "type_urls": [WASM],
            }});
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let bootstrap = json!({
            "admin": {"address": socket(loopback)},
            "static_resources": {
                "listeners": [{
                    "name": "case",
                    "address": socket(loopback),
                    "per_connection_buffer_limit_bytes": case.scenario.buffer_limit,
                    "filter_chains": [{"filters": [{
                        "name": "connections",
                        "typed_config": connection_manager(filters),
                    }]}],
                }],
                "clusters": clusters,
            },
        });
        let config = folder.path().join("envoy.json");
        std::fs::write(&config, bootstrap.to_string())?;
        let process = Process::start(
            "envoy",
            Command::new(artifacts::envoy_of(release(version))?)
                .arg("--config-path")
                .arg(config)
                .arg("--admin-address-path")
                .arg(folder.path().join("admin"))
                .args(["--disable-hot-restart", "--log-level", "info", "--concurrency", "1"])
                // All that a guest logs.
                .args(["--component-log-level", "wasm:trace"])
                .args(["--service-node", "case", "--service-cluster", "case"])
                .args(["--file-flush-interval-msec", "10", "--drain-time-s", "1"]),
        )?;
        process.wait_for(|line| line.contains("starting main dispatch loop").then_some(()))?;
        let admin: SocketAddr = std::fs::read_to_string(folder.path().join("admin"))?.trim().parse()?;
        let admin = Client::to(admin)?;
        let address = clock::eventually("Envoy's listener", PATIENCE, || listening(&admin))?;
        let accesses = std::cell::Cell::new(0);
        Ok(Self { process, folder, admin, upstream, filter: first, address, accesses, clusters: servers })
    }

    /// The response-code details of the last request.
    pub(super) fn details(&self) -> anyhow::Result<String> {
        clock::eventually("a line of the access log", PATIENCE, || {
            let lines = self.process.output().lines();
            let mut details: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(ACCESS)).collect();
            let last = details.pop()?.to_owned();
            (details.len() + 1 == self.accesses.get()).then_some(last)
        })
    }

    /// All that it has logged.
    pub(super) fn lines(&self) -> Vec<String> {
        self.process.output().lines()
    }

    fn stat(&self, name: &str) -> Option<u64> {
        let stats = self.admin.send(&get("/stats?format=json")).ok()?.json().ok()?;
        let found = stats["stats"].as_array()?.iter().find(|stat| stat["name"] == name);
        Some(found.and_then(|stat| stat["value"].as_u64()).unwrap_or(0))
    }
}

/// A release of a version whose package has V8.
fn release(version: EnvoyVersion) -> &'static str {
    match version {
        EnvoyVersion::V1_36 => "1.36.2",
        EnvoyVersion::V1_37 => "1.37.0",
        EnvoyVersion::V1_38 => "1.38.2",
        EnvoyVersion::V1_39 => "1.39.3",
        EnvoyVersion::V1_40 => "1.40.0",
    }
}

/// Where the listener is bound, once it is.
fn listening(admin: &Client) -> Option<SocketAddr> {
    let listeners = admin.send(&get("/listeners?format=json")).ok()?.json().ok()?;
    let bound = listeners.pointer("/listener_statuses/0/local_address/socket_address")?;
    format!("{}:{}", bound["address"].as_str()?, bound["port_value"]).parse().ok()
}

impl Contender for Envoy {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn count(&self) {
        self.accesses.set(self.accesses.get() + 1);
    }

    fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    fn clusters(&self) -> &BTreeMap<String, Upstream> {
        &self.clusters
    }

    fn log(&self) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        let mut goes_on = false;
        for line in self.process.output().lines() {
            let message = line.split_once(PREFIX).and_then(|(_, rest)| rest.split_once(": "));
            if let Some((_, message)) = message {
                messages.push(message.to_owned());
                goes_on = true;
            } else if line.starts_with('[') || line.starts_with(ACCESS) {
                goes_on = false;
            } else if let Some(message) = messages.last_mut().filter(|_| goes_on) {
                // A message of several lines.
                message.push('\n');
                message.push_str(&line);
            }
        }
        messages
    }

    fn update(&mut self, configuration: String) -> anyhow::Result<bool> {
        const TAKEN: &str = "extension_config_discovery.http_filter.case.config_reload";
        const REFUSED: &str = "extension_config_discovery.http_filter.case.config_fail";
        let before = (self.stat(TAKEN).context("stats")?, self.stat(REFUSED).context("stats")?);
        let mut filter = self.filter.clone();
        filter["config"]["configuration"]["value"] = json!(configuration);
        write_discovery(self.folder.path(), &filter)?;
        let patience = Duration::from_secs(30);
        clock::eventually("Envoy's verdict on an update", patience, || {
            let now = (self.stat(TAKEN)?, self.stat(REFUSED)?);
            (now != before).then_some(now.1 == before.1)
        })
    }
}
