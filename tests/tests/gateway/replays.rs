//! `weir replay` of logs that real gateways write: it refuses what Weir in the same gateway counted as refused in shadow mode.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::artifacts;
use tests::client::Client;
use tests::clock::eventually;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::within_one;
use tests::policy::{self, Policy};
use tests::process::Process;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

const LOGS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// A window that a story fits into, and what it needs of it.
const HOUR: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(30));

/// What Envoy Gateway 1.9 logs unless its EnvoyProxy says otherwise.
const ENVOY_GATEWAY: &str = r#"{"start_time":"%START_TIME%","method":"%REQ(:METHOD)%","x-envoy-origin-path":"%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%","protocol":"%PROTOCOL%","response_code":"%RESPONSE_CODE%","response_flags":"%RESPONSE_FLAGS%","response_code_details":"%RESPONSE_CODE_DETAILS%","connection_termination_details":"%CONNECTION_TERMINATION_DETAILS%","upstream_transport_failure_reason":"%UPSTREAM_TRANSPORT_FAILURE_REASON%","bytes_received":"%BYTES_RECEIVED%","bytes_sent":"%BYTES_SENT%","duration":"%DURATION%","x-envoy-upstream-service-time":"%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%","x-forwarded-for":"%REQ(X-FORWARDED-FOR)%","user-agent":"%REQ(USER-AGENT)%","x-request-id":"%REQ(X-REQUEST-ID)%",":authority":"%REQ(:AUTHORITY)%","upstream_host":"%UPSTREAM_HOST%","upstream_cluster":"%UPSTREAM_CLUSTER%","upstream_local_address":"%UPSTREAM_LOCAL_ADDRESS%","downstream_local_address":"%DOWNSTREAM_LOCAL_ADDRESS%","downstream_remote_address":"%DOWNSTREAM_REMOTE_ADDRESS%","requested_server_name":"%REQUESTED_SERVER_NAME%","route_name":"%ROUTE_NAME%"}"#;

/// What Istio logs as text unless its mesh configuration says otherwise.
const ISTIO_TEXT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// Five requests an hour of each address, and of each key three of `analytics`, which is `/analytics`.
fn limits() -> Policy {
    Policy::contract()
        .expect("the contract")
        .with("plans", json!({"free": {"standard": ["4/hour"], "analytics": ["3/hour"]}}))
        .with("missing_key", json!({"action": "limit", "quotas": ["5/hour"]}))
        .with("log_fields", json!("all"))
        .subscriber("acme", "free", "a-key")
        .subscriber("other", "free", "another-key")
        .with("enforcement", json!("shadow"))
}

/// Sends a request from an address of the loopback network.
async fn send(from: u8, to: SocketAddr, path: &str, key: Option<&str>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::new(127, 0, 0, from), 0).into()).expect("an address of one's own");
    let mut stream = socket.connect(to).await.expect("the gateway");
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n{key}\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Requests of three addresses, and of two keys where `has_keys`: how many there are.
fn traffic(to: SocketAddr, has_keys: bool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut sent = 0;
        for (from, count) in [(11, 9), (12, 3), (13, 7)] {
            for index in 0..count {
                send(from, to, &format!("/links?page={index}"), None).await;
                sent += 1;
            }
        }
        let keys = [("a-key", "/analytics", 5), ("a-key", "/links", 6), ("another-key", "/links", 4)];
        for (key, path, count) in keys.into_iter().filter(|_| has_keys) {
            for _ in 0..count {
                send(14, to, path, Some(key)).await;
                sent += 1;
            }
        }
        sent
    })
}

/// How many of these requests Weir has counted as refused, once it has counted all.
fn refused(envoy: &Envoy, sent: u64) -> u64 {
    let admin = Client::to(envoy.admin_address()).expect("the admin address");
    let sum = |stats: &str, labels: &str| -> u64 {
        let lines =
            stats.lines().filter(|line| line.starts_with("weir_requests_total") && line.contains(labels));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let all = || {
        let stats = admin.send(&get("/stats/prometheus")).ok()?;
        let stats = String::from_utf8_lossy(stats.body()).into_owned();
        let counted = sum(&stats, "plan=\"free\"") + sum(&stats, "outcome=\"missing_key\"");
        (counted == sent).then(|| sum(&stats, "outcome=\"shadow_limited\""))
    };
    let refused = eventually("the counters", Duration::from_secs(30), all).expect("all requests");
    assert!(refused > 0, "nothing refused");
    refused
}

/// A gateway in shadow mode that writes a log in each of these formats, `None` being Envoy's default.
fn envoy(
    setup: Setup,
    formats: &[Option<Value>],
    amend: impl FnOnce(&mut Value),
    folder: &Path,
) -> (Envoy, Vec<PathBuf>) {
    let paths: Vec<_> = (0..formats.len()).map(|index| folder.join(format!("envoy-{index}.log"))).collect();
    let logs = formats.iter().zip(&paths).map(|(format, path)| {
        let mut file = json!({"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", "path": path});
        if let Some(format) = format {
            file["log_format"] = format.clone();
        }
        json!({"name": "envoy.access_loggers.file", "typed_config": file})
    });
    let logs: Value = logs.collect();
    let started = Envoy::start_amended(setup, |bootstrap, _| {
        *bootstrap.pointer_mut(LOGS).expect("the access log") = logs;
        amend(bootstrap);
        Ok(())
    });
    (started.expect("Envoy"), paths)
}

/// Waits until a log has this number of lines.
fn written(log: &Path, lines: u64) {
    let has_all = || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        (text.lines().count() as u64 >= lines).then_some(())
    };
    eventually("the access log", Duration::from_secs(30), has_all).expect("all lines");
}

/// What `weir replay` finds in a log.
fn replayed(policy: &Policy, folder: &Path, log: &Path, arguments: &[&str]) -> Value {
    let limits = folder.join("limits.json");
    std::fs::write(&limits, policy.to_string()).expect("the configuration's file");
    let output = Command::new(artifacts::command("weir"))
        .arg("replay")
        .arg(&limits)
        .arg(log)
        .args(["--format", "json", "--wasm"])
        .arg(artifacts::filter_wasm())
        .args(arguments)
        .output()
        .expect("weir runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = std::fs::read_to_string(log).unwrap_or_default();
    assert!(output.status.success(), "{}{}\n{log}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an object")
}

/// The formats of access logs that have the field `weir`, and those that do not.
fn formats() -> [Vec<(&'static str, Option<Value>)>; 2] {
    let of_file = |file: &str| {
        let bootstrap = policy::yaml(file).expect("a bootstrap");
        Some(bootstrap.pointer(&format!("{LOGS}/0/typed_config/log_format")).expect("a format").clone())
    };
    let json_format = |format: Value| Some(json!({"json_format": format}));
    let istio = policy::yaml("envoy/istio/istiod-values.yaml").expect("Istio's values");
    let istio = istio["meshConfig"]["accessLogFormat"].as_str().expect("a format");
    let proxy = tests::chart::rendered("envoy-gateway", "EnvoyProxy").expect("an EnvoyProxy");
    let gateway = proxy["spec"]["telemetry"]["accessLog"]["settings"][0]["format"]["json"].clone();
    let parsed = |text: &str| serde_json::from_str(text).expect("a JSON format");
    let shipped = vec![
        ("envoy.yaml", of_file("envoy/envoy.yaml")),
        ("fleet/envoy.yaml", of_file("envoy/fleet/envoy.yaml")),
        ("istiod-values.yaml", json_format(parsed(istio))),
        ("the chart's EnvoyProxy", json_format(gateway)),
    ];
    let defaults = vec![
        ("Envoy's default", None),
        ("Envoy Gateway's default", json_format(parsed(ENVOY_GATEWAY))),
        ("Istio's default text", Some(json!({"text_format_source": {"inline_string": ISTIO_TEXT}}))),
    ];
    [shipped, defaults]
}

#[test]
fn a_replay_of_each_format_refuses_what_the_gateway_counted_in_shadow_mode() {
    for (has_weir, formats) in [true, false].into_iter().zip(formats()) {
        let folder = tempfile::tempdir().expect("a folder");
        let (names, formats): (Vec<_>, Vec<_>) = formats.into_iter().unzip();
        let setup = Setup::new(limits(), Upstream::DirectResponse);
        let (envoy, logs) = envoy(setup, &formats, |_| {}, folder.path());
        let sent = within_one(&envoy, HOUR.0, HOUR.1, || traffic(envoy.address(), has_weir));
        let refused = refused(&envoy, sent);
        for (what, log) in names.iter().zip(&logs) {
            written(log, sent);
            let report = replayed(&limits(), folder.path(), log, &[]);
            assert_eq!(
                (&report["requests"], &report["refused"]),
                (&json!(sent), &json!(refused)),
                "{what}: {report:#}"
            );
        }
    }
}

/// nginx in front of an address, with a log in one of its formats.
struct Nginx {
    _process: Process,
    address: SocketAddr,
}

impl Nginx {
    fn start(folder: &Path, upstream: SocketAddr, format: &str, log: &Path) -> Self {
        // nginx takes no port 0.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {}/{what};\n", folder.display()))
            .concat();
        let json = r#"'{"msec":"$msec","request_time":"$request_time","request_method":"$request_method","request_uri":"$request_uri","uri":"$uri","remote_addr":"$remote_addr","status":"$status","key":"$http_authorization"}'"#;
        let configuration = format!(
            "daemon off; master_process off; pid {folder}/pid; events {{}}
             http {{ {temporary} log_format json escape=json {json}; access_log {log} {format};
                 server {{ listen {address};
                     location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header X-Forwarded-For $remote_addr; }} }} }}",
            folder = folder.display(),
            log = log.display(),
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, configuration).expect("nginx's configuration");
        // Debian has it where only root's PATH leads.
        let name = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let mut command = Command::new(name);
        let process = Process::start("nginx", command.args(["-e", "stderr", "-c"]).arg(file)).expect("nginx");
        let listens = || std::net::TcpStream::connect(address).ok().map(drop);
        eventually("nginx", Duration::from_secs(30), listens).expect("nginx listens");
        Self { _process: process, address }
    }
}

#[test]
fn a_replay_of_nginx_in_front_of_the_gateway_refuses_what_the_gateway_counted() {
    //  format, whether it has the key
    for (format, has_key) in [("combined", false), ("json", true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("nginx.log");
        let setup = Setup::new(limits(), Upstream::DirectResponse).trusted_hops(1);
        let (envoy, _) = envoy(setup, &[None], |_| {}, folder.path());
        let nginx = Nginx::start(folder.path(), envoy.address(), format, &log);
        let sent = within_one(&envoy, HOUR.0, HOUR.1, || traffic(nginx.address, has_key));
        written(&log, sent);
        let refused = refused(&envoy, sent);
        let header: &[&str] = if has_key { &["--header", "authorization=key"] } else { &[] };
        let report = replayed(&limits(), folder.path(), &log, header);
        assert_eq!(
            (&report["requests"], &report["refused"]),
            (&json!(sent), &json!(refused)),
            "{format}: {report:#}"
        );
        assert_eq!(
            report["client"].as_array().map(Vec::len),
            Some(if has_key { 4 } else { 3 }),
            "{format}: {report:#}"
        );
    }
}

#[test]
fn a_rewritten_path_is_reported_and_the_logs_class_is_taken_where_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let format = json!({"json_format": {"time": "%START_TIME%", "client": "%DOWNSTREAM_REMOTE_ADDRESS%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "weir": "%FILTER_STATE(wasm.weir:PLAIN)%"}});
    let rewriting = |bootstrap: &mut Value| {
        let manager = bootstrap.pointer_mut(MANAGER).expect("the connection manager");
        let route =
            json!({"match": {"prefix": "/"}, "route": {"cluster": "backend", "prefix_rewrite": "/inside/"}});
        manager["route_config"]["virtual_hosts"][0]["routes"] = json!([route]);
        let filters = manager["http_filters"].as_array_mut().expect("filters");
        let router = filters.last_mut().expect("the router");
        router["typed_config"]["suppress_envoy_headers"] = json!(true);
    };
    let upstream =
        tests::server::Server::start(|_| http::Response::new(Default::default())).expect("an upstream");
    let setup = Setup::new(limits(), Upstream::At(upstream.address()));
    let (envoy, logs) = envoy(setup, &[Some(format)], rewriting, folder.path());
    let log = &logs[0];
    let sent = within_one(&envoy, HOUR.0, HOUR.1, || traffic(envoy.address(), true));
    written(log, sent);
    let refused = refused(&envoy, sent);
    let report = replayed(&limits(), folder.path(), log, &[]);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("5 requests have another class than the log says (5 of class analytics in the log"),
        "{notes}"
    );
    assert_ne!(report["refused"], json!(refused), "{report:#}");
    let report = replayed(&limits(), folder.path(), log, &["--class-from-log"]);
    assert_eq!(report["refused"], json!(refused), "{report:#}");
}
