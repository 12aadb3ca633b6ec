//! How a real Envoy calls the directory, and what the filter does while there is no good answer.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use filter::event::Event;
use serde_json::{Value, json};
use tests::backend::Directory;
use tests::client::Client;
use tests::envoy::{self, Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::gateway::{Gateway, wait_for_directory};
use tests::policy::{Policy, hash};
use tests::server::{Response, Server};
use tests::way::Way;
use tests::{clock, flood, plain};

const KEY: &str = "key";
const TOKEN: &str = "a-token-that-is-in-no-dump";
/// The name that Istio gives to a cluster.
const CLUSTER: &str = "outbound|8082||keys.links.svc.cluster.local";
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than 4,500 requests to Envoys take.
const ROOM: Duration = Duration::from_secs(15);

fn policy() -> Policy {
    Policy::deployed().unwrap().without("usage").with_at("/directory/interval", json!("1s"))
}

/// A directory that is there, but lets none wait for a token.
fn at(address: SocketAddr) -> Directory {
    Directory { address, token: TOKEN.to_owned() }
}

fn answered(status: u16, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into().into());
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response
}

/// A directory with one key. It keeps what each poll has in a header.
fn directory(header: &'static str) -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let row = json!({"sha256": hash(KEY).trim_start_matches("sha256:"), "subscriber": "acme", "plan": "pro", "limits": {}});
    let document = json!({"keys": [row]}).to_string();
    let server = Server::start(move |request| {
        let value =
            request.headers().get(header).map(|value| String::from_utf8_lossy(value.as_bytes()).into());
        sink.lock().unwrap().push(value.unwrap_or_default());
        answered(200, document.clone())
    });
    (server.unwrap(), seen)
}

/// How many lines of an Envoy's log are about the directory and contain `text`.
fn said(envoy: &Envoy, text: &str) -> u64 {
    let lines = envoy.log().lines();
    lines.iter().filter(|line| line.contains("weir: directory: ") && line.contains(text)).count() as u64
}

/// Answers to 1,500 requests, each with an invented key: how many passed, were limited, and were unavailable.
fn invented_keys(envoy: &Envoy) -> [usize; 3] {
    const REQUESTS: usize = 1500;
    let requests = (0..REQUESTS).map(|key| ((), get("/links").key(&format!("invented-{key}"))));
    let counts = flood::send(envoy.address(), 16, requests).unwrap();
    let found = [200, 429, 503].map(|status| counts.get(&((), status)).copied().unwrap_or(0));
    assert_eq!(found.iter().sum::<usize>(), REQUESTS, "{counts:?}");
    found
}

fn assert_not_ready(envoy: &Envoy, expected: u64) {
    let counted = || envoy.counter("none", "standard", "not_ready").ok();
    let agreed = clock::eventually("the outcome not_ready", Duration::from_secs(10), || {
        (counted() == Some(expected)).then_some(())
    });
    assert!(agreed.is_ok(), "{:?} of {expected}", counted());
}

#[test]
fn while_the_directory_is_not_ready_invented_keys_have_one_quota_for_their_address() {
    // Connections are made by the kernel, and nothing is ever read from them.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let large = Bytes::from(vec![b' '; 33 << 20]);
    let large = Server::start(move |_| answered(200, large.clone())).unwrap();
    let failing = Server::start(|_| answered(503, "")).unwrap();
    //  the directory, and what the log says of it
    let rows = [
        ("never answers", silent.local_addr().unwrap(), "answered status 504"),
        ("is over 32 MiB", large.address(), "(over 32 MiB in Envoy: http.async_response_buffer_limit)"),
        ("fails", failing.address(), "answered status 503"),
    ];
    let envoys = rows.map(|(what, address, line)| {
        let setup = Setup::new(policy(), Upstream::DirectResponse).keys_from(at(address));
        (what, line, Envoy::start(setup).unwrap())
    });
    clock::wait_for_room(MINUTE, ROOM);
    for (what, _, envoy) in &envoys {
        assert_eq!(invented_keys(envoy), [600, 900, 0], "a directory that {what}");
    }
    for (what, line, envoy) in &envoys {
        assert_not_ready(envoy, 1500);
        assert_eq!(envoy.counter("none", "standard", "unknown_key").unwrap(), 0, "a directory that {what}");
        clock::eventually(line, Duration::from_secs(20), || (said(envoy, line) > 0).then_some(()))
            .unwrap_or_else(|error| panic!("a directory that {what}: {error:#}"));
    }
}

#[test]
fn a_directory_that_compresses_or_needs_longer_is_told_as_such_and_timeout_waits_for_it() {
    let (server, encodings) = directory("accept-encoding");
    let far = Way::to(server.address(), Duration::from_secs(6)).unwrap();
    let gzip = Server::start(|_| answered(200, &b"\x1f\x8b\x08\0\0\0\0\0"[..])).unwrap();
    //  the directory, its timeout, and what the log says of it; without that, its keys are known
    let rows = [
        (gzip.address(), None, Some("answered with gzip, although the poll says accept-encoding: identity")),
        (far.address(), None, Some("answered status 504")),
        (far.address(), Some("20s"), None),
    ];
    let envoys = rows.map(|(address, timeout, line)| {
        let policy = match timeout {
            Some(timeout) => policy().with_at("/directory/timeout", json!(timeout)),
            None => policy(),
        };
        let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(at(address));
        (line, Envoy::start(setup).unwrap())
    });
    for (line, envoy) in &envoys {
        let Some(line) = line else {
            wait_for_directory(envoy);
            let answer = envoy.send(&get("/links").key(KEY)).unwrap();
            assert_eq!(answer.number("x-ratelimit-limit"), Some(36_000), "{answer}");
            continue;
        };
        clock::eventually(line, Duration::from_secs(20), || (said(envoy, line) > 0).then_some(())).unwrap();
    }
    let seen = encodings.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|encoding| encoding == "identity"), "{seen:?}");
}

#[test]
fn the_configuration_says_what_becomes_of_keys_while_the_directory_is_not_ready() {
    const WARNING: &str =
        "directory.not_ready: until the directory answers, requests with unknown keys are not limited";
    let failing = Server::start(|_| answered(503, "")).unwrap();
    let two = json!({"action": "limit", "quotas": ["2/month"]});
    //  not_ready, passed, limited and unavailable, and whether the log warns
    let rows = [
        (json!("pass"), [1500, 0, 0], true),
        (json!("unavailable"), [0, 0, 1500], false),
        (two, [2, 1498, 0], false),
    ];
    for (not_ready, expected, warns) in rows {
        let policy = policy().with_at("/directory/not_ready", not_ready.clone());
        let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(at(failing.address()));
        let envoy = Envoy::start(setup).unwrap();
        assert_eq!(invented_keys(&envoy), expected, "{not_ready}");
        assert_not_ready(&envoy, 1500);
        assert_eq!(envoy.logged(WARNING) > 0, warns, "{not_ready}");
    }
}

/// Has calls to a cluster use HTTP/2.
fn use_http2(bootstrap: &mut Value, cluster: &str) -> anyhow::Result<()> {
    envoy::cluster(bootstrap, cluster)?["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        },
    });
    Ok(())
}

#[test]
fn an_envoy_in_front_of_the_directory_takes_its_calls_whatever_the_name_of_the_cluster() {
    let (server, hosts) = directory("host");
    let sidecar = plain::envoy(server.address(), &json!({})).unwrap();
    // What it answers to the name of a cluster.
    let named = get("/internal/keys").header("host", CLUSTER);
    assert_eq!(sidecar.send(&named).unwrap().status(), 400);
    //  the cluster, the configured authority, HTTP/2, the authority that the directory sees
    let rows = [
        (CLUSTER, None, false, "keys.links.svc.cluster.local"),
        (CLUSTER, None, true, "keys.links.svc.cluster.local"),
        ("links/keys", None, false, "weir.internal"),
        ("links/keys", Some("keys.links:8082"), true, "keys.links:8082"),
    ];
    for (cluster, authority, http2, expected) in rows {
        hosts.lock().unwrap().clear();
        let policy = policy().with_at("/directory/cluster", json!(cluster));
        let policy = match authority {
            Some(authority) => policy.with_at("/directory/authority", json!(authority)),
            None => policy,
        };
        let setup = Setup::new(policy, Upstream::DirectResponse).keys_from(at(sidecar.address()));
        let envoy = Envoy::start_amended(setup, |bootstrap, _| match http2 {
            true => use_http2(bootstrap, cluster),
            false => Ok(()),
        });
        let envoy = envoy.unwrap();
        wait_for_directory(&envoy);
        let answer = envoy.send(&get("/links").key(KEY)).unwrap();
        assert_eq!(answer.number("x-ratelimit-limit"), Some(36_000), "{cluster}, HTTP/2 {http2}: {answer}");
        let seen = hosts.lock().unwrap().clone();
        assert!(
            !seen.is_empty() && seen.iter().all(|host| host == expected),
            "{cluster}, HTTP/2 {http2}: {seen:?}"
        );
    }
}

/// Writes the clusters that Envoy discovers.
fn discover(folder: &Path, clusters: &[Value]) {
    let file = folder.join("clusters.json");
    let next = folder.join("clusters.next");
    std::fs::write(&next, json!({"resources": clusters}).to_string()).unwrap();
    std::fs::rename(next, file).unwrap();
}

#[test]
fn a_cluster_that_the_gateway_lacks_is_named_once_and_the_next_failure_as_well() {
    let failing = Server::start(|_| answered(503, "")).unwrap();
    let (server, _) = directory("host");
    let folder = tempfile::tempdir().unwrap();
    discover(folder.path(), &[]);
    let policy =
        policy().with_at("/directory/cluster", json!(CLUSTER)).with_at("/directory/bearer", json!(TOKEN));
    let envoy = Envoy::start_amended(Setup::new(policy, Upstream::DirectResponse), |bootstrap, _| {
        let file = json!({"path_config_source": {"path": folder.path().join("clusters.json")}, "resource_api_version": "V3"});
        bootstrap["dynamic_resources"]["cds_config"] = file;
        Ok(())
    });
    let envoy = envoy.unwrap();
    let cluster = |address: SocketAddr| {
        json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": CLUSTER,
            "load_assignment": {"cluster_name": CLUSTER, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
                "socket_address": {"address": address.ip(), "port_value": address.port()},
            }}}]}]},
        })
    };
    let failed = || Gateway::counter(&envoy, Event::DirectoryFailed.metric());
    let fails_thrice = || {
        let before = failed();
        clock::eventually("three failures", Duration::from_secs(20), || {
            (failed() >= before + 3).then_some(())
        })
        .unwrap();
    };
    let lacks = format!(
        "this gateway has no cluster {CLUSTER:?}; add it, or correct directory.cluster; no list is complete yet"
    );
    let lines = || {
        let lines = [lacks.as_str(), "answered status 503; no list is complete yet", "answers again"]
            .map(|line| said(&envoy, line));
        // Each leader says it once. On a machine that is held up, another VM may come to lead.
        let leaders = Gateway::counter(&envoy, Event::DirectoryLed.metric());
        assert!(lines.iter().all(|said| *said <= leaders), "{lines:?}, {leaders} leaders");
        lines.map(|said| said.min(1))
    };

    fails_thrice();
    assert_eq!(lines(), [1, 0, 0], "{} failures", failed());
    discover(folder.path(), &[cluster(failing.address())]);
    clock::eventually("another failure", Duration::from_secs(20), || (lines()[1] == 1).then_some(()))
        .unwrap();
    fails_thrice();
    assert_eq!(lines(), [1, 1, 0]);
    discover(folder.path(), &[cluster(server.address())]);
    wait_for_directory(&envoy);
    clock::eventually("the end of the failures", Duration::from_secs(10), || (lines()[2] == 1).then_some(()))
        .unwrap();
    assert_eq!(lines(), [1, 1, 1]);
}

#[test]
fn a_token_in_the_environment_reaches_the_directory_and_no_dump() {
    const VARIABLE: &str = "WEIR_DIRECTORY_TOKEN";
    let (server, tokens) = directory("authorization");
    let policy = policy().with_at("/directory/bearer", json!({"env": VARIABLE}));
    let setup = Setup::new(policy, Upstream::DirectResponse);
    let envoy = Envoy::start(setup.clone().keys_from(at(server.address()))).unwrap();
    wait_for_directory(&envoy);
    let answer = envoy.send(&get("/links").key(KEY)).unwrap();
    assert_eq!(answer.number("x-ratelimit-limit"), Some(36_000), "{answer}");
    let seen = tokens.lock().unwrap().clone();
    assert!(!seen.is_empty() && seen.iter().all(|token| *token == format!("Bearer {TOKEN}")), "{seen:?}");

    let admin = Client::to(envoy.admin_address()).unwrap();
    for page in ["/config_dump?include_eds", "/stats", "/server_info", "/listeners?format=json"] {
        let dump = admin.send(&get(page)).unwrap();
        let text = String::from_utf8_lossy(dump.body());
        assert_eq!((dump.status(), text.contains(TOKEN)), (200, false), "{page}");
        assert!(!page.starts_with("/config_dump") || text.contains(VARIABLE), "{page} has no configuration");
    }
    assert!(!envoy.log().contains(TOKEN));

    // Without a directory of its own, the process has no such variable.
    let log = Envoy::refuse(&setup).unwrap();
    let refusal = log.lines().find(|line| line.contains("configuration refused"));
    let refusal = refusal.unwrap_or_else(|| panic!("no reason in\n{log}"));
    assert!(
        refusal.contains("directory.bearer") && refusal.contains("not set, or this host passes none"),
        "{refusal}"
    );
}
