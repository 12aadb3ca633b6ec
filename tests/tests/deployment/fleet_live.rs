//! The ledger's cluster of `envoy/fleet` in real Envoys, with two ledgers on a real Redis.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::get;
use tests::policy::Policy;
use tests::process::Process;
use tests::{artifacts, clock, flood};

use crate::fleet::ledger_cluster;

const TOKEN: &str = "token";
const KEY: &str = "key";
const LIMIT: usize = 1_000_000;
/// Calls of a gateway that fail when a ledger dies: those under way, and those made until Envoy's workers know.
const MOST_FAILED: u64 = 3 * AT_ONCE as u64;
/// Requests at once to a gateway.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).unwrap()
}

/// A Redis that keeps nothing over its end.
pub(crate) struct Redis {
    pub(crate) url: String,
    _process: Process,
    _folder: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(folder.path());
        let process = Process::start("redis-server", &mut command).unwrap();
        process.wait_for(|line| line.contains("Ready to accept connections").then_some(())).unwrap();
        Self { url: format!("redis://{address}"), _process: process, _folder: folder }
    }
}

/// Starts a ledger, and waits until it is ready.
pub(crate) fn ledger(address: SocketAddr, store: &str) -> Process {
    let mut command = Command::new(artifacts::command("weir-ledger"));
    command
        .args(["serve", "--listen", &address.to_string(), "--store", store])
        .env("WEIR_LEDGER_TOKEN", TOKEN);
    let process = Process::start("weir-ledger", &mut command).unwrap();
    let client = Client::to(address).unwrap();
    clock::eventually("the ledger", PATIENCE, || {
        (client.send(&get("/readyz")).ok()?.status() == 200).then_some(())
    })
    .unwrap();
    process
}

/// A gateway whose cluster of the ledger is that of `envoy/fleet/envoy.yaml`, but for the addresses.
fn gateway(ledgers: &[SocketAddr; 2]) -> Envoy {
    let fleet = json!({"cluster": "ledger", "bearer": TOKEN});
    let policy = Policy::contract().unwrap().subscriber("acme", "pro", KEY).with("fleet", fleet);
    let policy = policy.with_at("/plans/pro/standard", json!([format!("{LIMIT}/month")]));
    let policy = policy.with("usage_path", json!("/quota"));
    let setup = Setup::new(policy, Upstream::DirectResponse);
    Envoy::start_amended(setup, |bootstrap, _| {
        let mut cluster = ledger_cluster();
        let endpoints = cluster.pointer_mut("/load_assignment/endpoints/0/lb_endpoints");
        for (endpoint, address) in endpoints.and_then(Value::as_array_mut).unwrap().iter_mut().zip(ledgers) {
            endpoint["endpoint"]["address"]["socket_address"] =
                json!({"address": address.ip(), "port_value": address.port()});
        }
        bootstrap
            .pointer_mut("/static_resources/clusters")
            .and_then(Value::as_array_mut)
            .unwrap()
            .push(cluster);
        Ok(())
    })
    .unwrap()
}

/// Floods a gateway until `is_over`, and returns how many requests were answered with each status.
fn flood_until(gateway: SocketAddr, is_over: Arc<AtomicBool>) -> JoinHandle<BTreeMap<u16, usize>> {
    std::thread::spawn(move || {
        let requests = std::iter::from_fn(move || {
            (!is_over.load(Ordering::SeqCst)).then(|| ((), get("/links").key(KEY)))
        });
        let counts = flood::send(gateway, AT_ONCE, requests).unwrap();
        counts.into_iter().map(|((_, status), count)| (status, count)).collect()
    })
}

#[test]
fn a_ledger_that_dies_and_returns_is_noticed_by_no_request() {
    let redis = Redis::start();
    let addresses = [(); 2].map(|()| free_address());
    let [first, _second] = addresses.map(|address| ledger(address, &redis.url));
    let gateways = [(); 2].map(|()| gateway(&addresses));
    let is_over = Arc::new(AtomicBool::new(false));
    let floods = gateways.each_ref().map(|gateway| flood_until(gateway.address(), Arc::clone(&is_over)));
    let moment = Duration::from_millis(700);
    clock::pass(moment);
    drop(first);
    // Envoy looks at each ledger twice a second, and leaves this one out at its first look, whether or not a call has failed.
    clock::pass(Duration::from_secs(1));
    let _first = ledger(addresses[0], &redis.url);
    clock::pass(moment);
    is_over.store(true, Ordering::SeqCst);
    let mut passed = 0;
    for flood in floods {
        let counts = flood.join().unwrap();
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [200], "{counts:?}");
        passed += counts[&200];
    }
    assert!(passed > 1_000, "{passed}");
    // Envoy left it out after the calls that were under way, if there were any, and until it was ready again.
    let failed = gateways.each_ref().map(|gateway| gateway.stat("cluster.ledger.upstream_rq_5xx").unwrap());
    assert!(failed.iter().all(|failed| *failed <= MOST_FAILED), "{failed:?}");
    let metrics = Client::to(addresses[0]).unwrap().send(&get("/metrics")).unwrap();
    let metrics = String::from_utf8_lossy(metrics.body()).into_owned();
    assert!(metrics.contains("weir_ledger_statements_total{result=\"settling\"} 0\n"), "{metrics}");
    // What both have used is known to both, once they have given back what they held in advance.
    for gateway in &gateways {
        clock::eventually("what was used", PATIENCE, || {
            let usage = gateway.send(&get("/quota").key(KEY)).unwrap().json().unwrap();
            let classes = usage["classes"].as_array().unwrap();
            let class = classes.iter().find(|class| class["name"] == "standard").unwrap();
            (class["quotas"][0]["remaining"] == json!(LIMIT - passed) && usage["scope"] == "fleet")
                .then_some(())
        })
        .unwrap();
    }
}

#[test]
fn a_ledger_listens_where_the_files_say_on_ipv4_and_on_ipv6() {
    //  a file, and at how many addresses its ledger listens
    for (file, addresses) in [
        ("envoy/chart/templates/ledger.yaml", 2),
        ("envoy/fleet/compose.yaml", 1),
        ("scripts/image/image.py", 1),
    ] {
        let text = crate::tools::text(file);
        let of_port =
            |host: &str| ["8083", "9083"].map(|port| text.matches(&format!("{host}:{port}")).count());
        assert_eq!(of_port("[::]").iter().sum::<usize>(), addresses, "{file}");
        assert_eq!(of_port("0.0.0.0"), [0, 0], "{file}");
    }
    let mut command = Command::new(artifacts::command("weir-ledger"));
    command.args(["serve", "--listen", "[::]:0"]);
    let process = Process::start("weir-ledger", &mut command).unwrap();
    let port =
        process.wait_for(|line| line.strip_prefix("listening on http://[::]:")?.parse::<u16>().ok()).unwrap();
    for address in
        [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))]
    {
        let answer = Client::to(address).unwrap().send(&get("/healthz")).unwrap();
        assert_eq!(answer.status(), 200, "{address}");
    }
}
