//! What operators see.

use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::sleep;

use crate::process::Process;
use crate::statement::{ask, give_back, hex, now, shares, with};
use crate::store::{Cluster, Redis, until};

#[tokio::test]
async fn a_ledger_that_is_stopped_finishes_what_it_has_begun() {
    let redis = Redis::start().await;
    let mut ledger = Process::start(&["--store", &redis.url()]).await;
    redis.pause();
    let body = shares(1, &[ask(1, 1, 0, 1, 1, 10)]);
    let request = ledger.post("/v1/shares", &body);
    let stopping = async {
        sleep(Duration::from_millis(60)).await;
        ledger.terminate();
        sleep(Duration::from_millis(60)).await;
        redis.resume();
    };
    let (answer, ()) = tokio::join!(request, stopping);
    assert_eq!((answer.status.as_u16(), &answer.json()["items"][0]["share"]), (200, &json!(1)));
    assert!(ledger.ended().await.success());
}

#[tokio::test]
async fn the_service_speaks_http_2_too() {
    let ledger = Process::start(&[]).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = hyper::Request::post(format!("http://{}/v1/shares", ledger.address()))
        .body(http_body_util::Full::new(bytes::Bytes::from(shares(1, &[]).to_string())));
    let answer = client.request(request.unwrap()).await.unwrap();
    assert_eq!((answer.status(), answer.version()), (hyper::StatusCode::OK, hyper::Version::HTTP_2));
}

#[tokio::test]
async fn metrics_say_what_became_of_statements() {
    let ledger = Process::start(&["--metrics-listen", "127.0.0.1:0"]).await;
    assert_eq!(ledger.get("/metrics").await.status, 404, "they have a listener of their own");
    let past = json!({ "begins": now() / 1_000 - 200, "ends": now() / 1_000 - 100 });
    let items = [
        ask(1, 1, 0, 1, 1, 1),
        ask(1, 2, 1, 1, 1, 1),
        ask(1, 3, 1, 1, 1, 1),
        give_back(1, 4, 1, 0),
        with(ask(2, 1, 0, 1, 1, 1), &json!({ "reset": 3 })),
        ask(2, 2, 0, 1, 1, 1),
        with(ask(3, 1, 0, 1, 1, 1), &past),
        json!({}),
    ];
    ledger.state(1, &items).await;
    ledger.state(2, &[with(ask(3, 1, 0, 1, 1, 1), &past)]).await;
    let answer = ledger.get_metrics().await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "# TYPE weir_ledger_statements_total counter",
        "weir_ledger_statements_total{result=\"granted\"} 2",
        "weir_ledger_statements_total{result=\"exhausted\"} 2",
        "weir_ledger_statements_total{result=\"returned\"} 1",
        "weir_ledger_statements_total{result=\"reset\"} 1",
        "weir_ledger_statements_total{result=\"clock\"} 2",
        "weir_ledger_statements_total{result=\"invalid\"} 1",
        "weir_ledger_statements_total{result=\"settling\"} 0",
        "weir_ledger_statements_total{result=\"store\"} 0",
        "weir_ledger_requests_total{status=\"404\"} 1",
        "weir_ledger_store_duration_seconds_count 1",
        "weir_ledger_gateways{epoch=\"current\"} 2",
        "weir_ledger_gateways{epoch=\"earlier\"} 0",
        "weir_ledger_store_masters{state=\"up\"} 1",
        "weir_ledger_settling 0",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line} is not in\n{}", answer.body);
    }
    let epoch = ledger.epoch().await.unwrap();
    assert!(
        answer.body.contains(&format!("weir_ledger_epoch_info{{epoch=\"{epoch}\"}} 1")),
        "{}",
        answer.body
    );
    let named = |gateway: u32| ledger.log().matches(&format!("gateway={}", hex(gateway))).count();
    assert_eq!((named(1), named(2)), (1, 1), "{}", ledger.log());
}

/// Waits for a message in the log of a ledger that is not ready.
async fn is_unusable(options: &[&str], message: &str) {
    let ledger = Process::start_unready(options);
    until(message, async || ledger.log().contains(message)).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(ledger.log().matches(message).count(), 1, "once: {}", ledger.log());
    assert_eq!(ledger.get("/readyz").await.status, 503);
    assert_eq!(ledger.epoch().await, None);
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_said_to_be_so() {
    let redis = Redis::start_with(&["--requirepass", "secret"]).await;
    let address = format!("127.0.0.1:{}", redis.port);
    is_unusable(&["--store", &redis.url()], "NOAUTH").await;
    is_unusable(&["--store", &format!("redis://:wrong@{address}")], "cannot connect").await;
    let url = format!("redis://:secret@{address}");
    is_unusable(&["--store", &url, "--cluster"], "it belongs to no cluster; --cluster is wrong").await;
    is_unusable(&["--store", "redis://127.0.0.1:1"], "cannot connect").await;
    is_unusable(&["--store", &format!("rediss://:secret@{address}")], "cannot connect").await;

    let redis = Redis::start().await;
    redis.cli("acl setuser weir on >secret ~other:* +info +script|load +evalsha +hmget");
    let url = format!("redis://weir:secret@127.0.0.1:{}", redis.port);
    is_unusable(&["--store", &url], "scripts may not run").await;
    redis.cli("acl setuser weir ~weir:*");
    is_unusable(&["--store", &url], "scripts may not run").await;
    redis.cli("acl setuser weir -script");
    is_unusable(&["--store", &url], "scripts may not run").await;

    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &redis.port.to_string()]).await;
    is_unusable(&["--store", &replica.url()], "it is a replica").await;
}

#[tokio::test]
async fn a_cluster_needs_its_option_and_a_sentinel_is_not_supported() {
    let cluster = Cluster::start().await;
    is_unusable(&["--store", &cluster.nodes[0].url()], "it belongs to a cluster; --cluster is missing").await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, "").unwrap();
    let sentinel = Redis::start_sentinel(&file).await;
    is_unusable(&["--store", &sentinel.url()], "it is a Sentinel, which is not supported").await;
}

#[tokio::test]
async fn a_store_that_evicts_keys_is_warned_of() {
    for (policy, is_warned_of) in [("allkeys-lru", true), ("volatile-ttl", true), ("noeviction", false)] {
        let redis = Redis::start_with(&["--maxmemory", "50mb", "--maxmemory-policy", policy]).await;
        let ledger = Process::start(&["--store", &redis.url()]).await;
        let log = ledger.log();
        assert_eq!(log.contains("maxmemory-policy is not noeviction"), is_warned_of, "{policy}: {log}");
        assert_eq!(log.contains("lifts its limit"), is_warned_of, "{policy}: {log}");
    }
}

#[tokio::test]
async fn a_store_that_is_full_refuses_new_counters_and_nothing_else() {
    let redis = Redis::start().await;
    let ledger = Process::start(&["--store", &redis.url()]).await;
    ledger.state(1, &[ask(1, 1, 0, 1, 1, 10)]).await;
    redis.cli("config set maxmemory 1");
    let answer = ledger.state(1, &[ask(1, 2, 1, 1, 1, 10)]).await.remove(0);
    assert_eq!(answer["error"]["code"], "store", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("OOM"), "{answer}");
    redis.cli("config set maxmemory 0");
    assert_eq!(ledger.state(1, &[ask(1, 3, 1, 1, 1, 10)]).await[0]["share"], 2);
}

#[test]
fn the_help_has_examples() {
    let run = |arguments: &[&str]| {
        let help =
            std::process::Command::new(env!("CARGO_BIN_EXE_weir-ledger")).args(arguments).output().unwrap();
        String::from_utf8(help.stdout).unwrap()
    };
    for (arguments, parts) in [
        (&["--help"][..], &["Examples:", "weir-ledger serve"][..]),
        (
            &["serve", "--help"],
            &["Examples:", "[env: WEIR_LEDGER_STORE", "Sentinel is not supported", "--cluster"],
        ),
    ] {
        let help = run(arguments);
        assert!(parts.iter().all(|part| help.contains(part)), "{help}");
    }
}
