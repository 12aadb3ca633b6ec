//! A real Prometheus that scrapes real Envoys, a ledger and the backend: every panel and every alert finds its series.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::backend::Service;
use tests::client::Client;
use tests::envoy::{Envoy, Setup, Upstream};
use tests::exchange::{Request, get, post};
use tests::gateway::{Kind, wait_for_directory};
use tests::ledger::Ledger;
use tests::policy::{HTTP_FILTERS, Policy, hash};
use tests::process::Process;
use tests::served::Served;
use tests::{artifacts, clock};

use crate::observability::{Query, alert_selectors, panel_queries};
use crate::tools::{pipe, text};

/// A guest whose VM ends with its first request.
const TRAP: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "malloc") (param i32) (result i32) (i32.const 1024))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) unreachable))"#;
/// The only route on which it runs.
const TRAP_PATH: &str = "/trap";

/// Adds the guest, named as Istio would name a Weir.
fn amend(bootstrap: &mut Value, folder: &Path) -> anyhow::Result<()> {
    let module = folder.join("trap.wasm");
    std::fs::write(&module, wat::parse_str(TRAP)?)?;
    let filters = bootstrap.pointer_mut(HTTP_FILTERS).and_then(Value::as_array_mut).expect("filters");
    let trap = json!({
        "name": "trap",
        "disabled": true,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "links.weir",
                "failure_policy": "FAIL_RELOAD",
                "vm_config": {"vm_id": "trap", "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": module}}},
            },
        },
    });
    filters.insert(filters.len() - 1, trap);
    let routes = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
    let routes = bootstrap.pointer_mut(routes).and_then(Value::as_array_mut).expect("routes");
    let enable =
        json!({"trap": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}});
    routes.insert(
        0,
        json!({"match": {"prefix": TRAP_PATH}, "direct_response": {"status": 200}, "typed_per_filter_config": enable}),
    );
    Ok(())
}

/// A Prometheus with the repository's rules.
struct Prometheus {
    client: Client,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts it with the configuration of a fleet, but for the targets and for how often they are scraped, and waits until it has scraped
    /// them.
    fn start(gateways: &[SocketAddr], ledger: SocketAddr, backend: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listed = gateways.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let configuration = text("envoy/fleet/prometheus.yaml")
            .replace("interval: 15s", "interval: 1s")
            .replace("gateway-1:9901, gateway-2:9901", &listed)
            .replace("ledger-1:8083, ledger-2:8083", &ledger.to_string())
            .replace("backend:8082", &backend.to_string());
        let file = folder.path().join("prometheus.yaml");
        std::fs::write(&file, configuration).unwrap();
        std::fs::write(folder.path().join("rules.yaml"), text("envoy/prometheus/rules.yaml")).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0");
        let process = Process::start("prometheus", &mut command).unwrap();
        let address = process.wait_for(|line| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            address.split(' ').next()?.parse().ok()
        });
        process.wait_for(|line| line.contains("Server is ready").then_some(())).unwrap();
        let client = Client::to(address.unwrap()).unwrap();
        let prometheus = Self { client, _process: process, _folder: folder };
        let targets = gateways.len() + 2;
        let scraped = || (prometheus.value("sum(up)") >= targets as f64).then_some(());
        clock::eventually("the first scrape of all", Duration::from_secs(30), scraped).unwrap();
        prometheus
    }

    /// The series that an expression has now.
    fn series(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.client.send(&get(format!("/api/v1/query?query={encoded}"))).unwrap();
        let answer = answer.json().unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Waits until every query has a series.
    fn has(&self, queries: &[Query]) {
        assert!(queries.len() > 10, "{queries:?}");
        let without =
            || queries.iter().filter(|query| self.series(&query.expression).is_empty()).collect::<Vec<_>>();
        let found =
            clock::eventually("series", Duration::from_secs(45), || without().is_empty().then_some(()));
        assert!(found.is_ok(), "without a series: {:#?}", without());
    }

    /// The first value of an expression.
    fn value(&self, expression: &str) -> f64 {
        let series = self.series(expression);
        let value = series.first().and_then(|series| series["value"][1].as_str()).unwrap_or("NaN");
        value.parse().unwrap()
    }
}

/// A gateway with an organisation whose pool is used up.
fn pooling() -> Envoy {
    let parent = json!({"organisation": "acme", "limits": {"standard": ["1/month"]}});
    let subscribers = json!([{"id": "a", "plan": "pro", "keys": [hash("pooled")], "parent": parent}]);
    let policy = Policy::contract().unwrap().with("subscribers", subscribers);
    let envoy = Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(1)).unwrap();
    assert_eq!(envoy.send(&get("/links").key("pooled")).unwrap().status(), 200);
    envoy
}

/// A gateway of a fleet.
fn sharing(ledger: &Ledger) -> Envoy {
    let policy = Policy::contract().unwrap().subscriber("b", "pro", "shared");
    Envoy::start(Setup::new(policy, Upstream::DirectResponse).workers(1).sharing_through(ledger)).unwrap()
}

/// What the API answers while its database lacks a table.
fn break_database(service: &Service) {
    let statement =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('ALTER TABLE links RENAME TO gone')";
    let database = service.database_file();
    crate::tools::succeed(
        Command::new(artifacts::python_with("scripts/image")).args(["-c", statement]).arg(database),
    );
}

#[test]
fn every_panel_and_every_alert_finds_its_series_after_faults() {
    let mut service = Service::start().unwrap();
    let policy = Policy::deployed()
        .unwrap()
        .with_at("/directory/interval", json!("1s"))
        .with_at("/plans/free/standard", json!(["6/minute"]))
        .with_at("/classes/0/refund", json!({"statuses": ["5xx"]}))
        .with("counters", json!({"known": 64, "strangers": 4}));
    let setup =
        Setup::new(policy, Upstream::At(service.address())).keys_from(service.directory()).trusted_hops(1);
    let envoy = Envoy::start_amended(setup.workers(1), amend).unwrap();
    wait_for_directory(&envoy);
    let pooling = pooling();
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    let sharing = sharing(&ledger);
    let gateways = [&envoy, &pooling, &sharing].map(Envoy::admin_address);
    let prometheus = Prometheus::start(&gateways, ledger.address(), service.directory().address);

    let send = |request: Request| envoy.send(&request).unwrap().status();
    let key = |plan: &str| service.keys.of(plan).to_owned();
    // A receiver that does not answer.
    let webhook = json!({"name": "nobody", "url": "http://127.0.0.1:1/", "triggers": ["link.created"]});
    assert_eq!(send(post("/webhooks").json(&webhook).key(&key("pro"))), 201);
    // Two rounds, so that counters grow while they are watched.
    for round in 0..2 {
        // More than two windows admit, in case one ends in between.
        let statuses = [(); 14].map(|()| send(get("/links").key(&key("free"))));
        assert!(round > 0 || statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
        assert_eq!(send(get("/analytics").key(&key("free"))), 403);
        assert_eq!(send(get("/links").key("unknown")), 401);
        assert_eq!(send(get("/analytics;x").key(&key("pro"))), 400);
        for address in 0..80 {
            send(get("/links").header("x-forwarded-for", format!("192.0.2.{address}")));
        }
        let link = post("/links").json(&json!({"url": "https://example.com", "key": format!("k{round}")}));
        assert_eq!(send(link.key(&key("pro"))), 200);
        assert_eq!(send(get(format!("/r/k{round}"))), 302);
        assert_eq!(pooling.send(&get("/links").key("pooled")).unwrap().status(), 429);
        assert_eq!(sharing.send(&get("/links").key("shared")).unwrap().status(), 200);
        let stranger = Client::to(ledger.address()).unwrap().send(&post("/v1/shares"));
        assert_eq!(stranger.unwrap().status(), 401);
        // With a key, because strangers share what is left of theirs. The VM is loaded again at most a second and a half after it failed.
        assert_eq!(send(get(TRAP_PATH).key(&key("business"))), 503);
        clock::pass(Duration::from_secs(2));
    }
    break_database(&service);
    assert_eq!(send(get("/links").key(&key("business"))), 500);
    prometheus.has(&panel_queries("10s"));
    prometheus.has(&alert_selectors());
    // The rule looks back in steps of 15 s.
    let is_young = || (prometheus.value("weir:directory_age:seconds") < 60.0).then_some(());
    clock::eventually("a directory that was answered", Duration::from_secs(45), is_young).unwrap();
    for expression in [
        r#"sum(weir_requests_total{outcome="overflow"})"#,
        r#"sum({__name__=~"envoy_wasm_(.+_)?weir(_istio_translated_wasmplugin)?_vm_reload_success"})"#,
        "sum(weir_organisation_given_back_total)",
        r#"sum(weir_fleet_decisions_total{by="ledger"})"#,
        r#"sum(weir_fleet_calls_total{result="answered"})"#,
        r#"sum(weir_ledger_statements_total{result="granted"})"#,
        r#"sum(weir_ledger_gateways{epoch="current"})"#,
        r#"sum(weir_backend_requests_total{status=~"5.."})"#,
        r#"sum(weir_backend_clicks_total{outcome="recorded"})"#,
        r#"weir:refused:ratio_1h{plan="free"}"#,
    ] {
        assert!(prometheus.value(expression) > 0.0, "{expression}");
    }

    // The directory's last good answer grows old.
    service.backend.stop();
    clock::eventually("an old directory", Duration::from_secs(30), || {
        (prometheus.value(r#"sum(weir_directory_polls_total{result="failed"})"#) > 0.0).then_some(())
    })
    .unwrap();
}

/// What `promtool check metrics` finds fault with.
fn faults(address: SocketAddr, path: &str) -> Vec<String> {
    let metrics = Client::to(address).unwrap().send(&get(path)).unwrap();
    let (_, said) = pipe(Command::new("promtool").args(["check", "metrics"]), metrics.body());
    said.lines().map(str::to_owned).collect()
}

#[test]
fn promtool_finds_no_fault_with_the_metrics() {
    let service = Service::start().unwrap();
    let setup = || {
        Setup::new(Policy::deployed().unwrap(), Upstream::At(service.address()))
            .keys_from(service.directory())
    };
    let envoy = Envoy::start(setup()).unwrap();
    assert_eq!(envoy.send(&get("/links").key(service.keys.of("pro"))).unwrap().status(), 200);
    let ledger = Ledger::serve(artifacts::command("weir-ledger")).unwrap();
    for address in [service.directory().address, ledger.address()] {
        assert_eq!(faults(address, "/metrics"), [""; 0]);
    }

    // Envoy never writes help texts.
    let of_envoy = faults(envoy.admin_address(), "/stats/prometheus").into_iter();
    let of_filter: Vec<_> = of_envoy.filter(|fault| fault.starts_with("weir_")).collect();
    assert!(of_filter.iter().any(|fault| fault.starts_with("weir_requests_total ")), "{of_filter:?}");
    assert!(of_filter.iter().all(|fault| fault.ends_with(" no help text")), "{of_filter:?}");

    // The simulator's own have Envoy's names, some of which lack a suffix.
    let simulator = Served::start(&Kind::SIMULATOR.served(), setup()).unwrap();
    let faults = faults(simulator.admin_address(), "/stats/prometheus");
    let is_envoys = |fault: &String| {
        fault.starts_with("envoy_") && fault.ends_with(" counter metrics should have \"_total\" suffix")
    };
    assert!(faults.iter().all(is_envoys), "{faults:?}");
}
