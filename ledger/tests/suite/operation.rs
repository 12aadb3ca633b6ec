//! What operators see.

use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::sleep;

use crate::process::Process;
use crate::statement::{ask, give_back, hex, now, shares, with};
use crate::store::{Cluster, ENGINES, Redis, free_port, until};

#[tokio::test]
async fn a_ledger_that_is_stopped_finishes_what_it_has_begun() {
    let redis = Redis::start().await;
    for counter in 0..10 {
        let mut ledger = Process::start(&["--store", &redis.url()]).await;
        redis.pause();
        let body = shares(1, &[ask(counter, 1, 0, 1, 1, 10)]);
        let request = ledger.post("/v1/shares", &body);
        let stopping = async {
            sleep(Duration::from_millis(60)).await;
            ledger.terminate();
            sleep(Duration::from_millis(60)).await;
            redis.resume();
        };
        let (answer, ()) = tokio::join!(request, stopping);
        assert!(ledger.ended().await.success());
        // On a busy machine, the store is away for longer than a request waits for it.
        if answer.status != 503 {
            assert_eq!((answer.status.as_u16(), &answer.json()["items"][0]["share"]), (200, &json!(1)));
            return;
        }
    }
    panic!("the store is away for too long each time");
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
    for engine in ENGINES {
        let redis = engine.start_with(&["--requirepass", "secret"]).await;
        let address = format!("127.0.0.1:{}", redis.port);
        is_unusable(&["--store", &redis.url()], "NOAUTH").await;
        is_unusable(&["--store", &format!("redis://:wrong@{address}")], "cannot connect").await;
        let url = format!("redis://:secret@{address}");
        is_unusable(&["--store", &url, "--cluster"], "it belongs to no cluster; --cluster is wrong").await;
        is_unusable(&["--store", "redis://127.0.0.1:1"], "cannot connect").await;
        is_unusable(&["--store", &format!("rediss://:secret@{address}")], "cannot connect").await;

        let redis = engine.start().await;
        redis.cli("acl setuser weir on >secret ~other:* +info +script|load +evalsha +hmget");
        let url = format!("redis://weir:secret@127.0.0.1:{}", redis.port);
        is_unusable(&["--store", &url], "NOPERM").await;
        redis.cli("acl setuser weir ~weir:*");
        is_unusable(&["--store", &url], "NOPERM").await;
        redis.cli("acl setuser weir -script");
        is_unusable(&["--store", &url], "NOPERM").await;

        let replica = engine.start_with(&["--replicaof", "127.0.0.1", &redis.port.to_string()]).await;
        is_unusable(&["--store", &replica.url()], "it is a replica").await;
    }
}

#[tokio::test]
async fn a_cluster_needs_its_option_and_a_sentinel_is_not_supported() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        is_unusable(&["--store", &cluster.nodes[0].url()], "it belongs to a cluster; --cluster is missing")
            .await;
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, "").unwrap();
        let sentinel = engine.start_sentinel(&file).await;
        is_unusable(&["--store", &sentinel.url()], "it is a Sentinel, which is not supported").await;
    }
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

/// A store that refuses what the ledger writes: the server's first word, the commands that make it so, and those that end it.
const REFUSALS: [(&str, &[&str], &[&str]); 4] = [
    ("OOM", &["config set maxmemory 1"], &["config set maxmemory 0"]),
    ("NOREPLICAS", &["config set min-replicas-to-write 1"], &["config set min-replicas-to-write 0"]),
    ("NOPERM", &["acl setuser default -evalsha"], &["acl setuser default +@all"]),
    // Its folder is removed beforehand.
    ("MISCONF", &["bgsave"], &["config set stop-writes-on-bgsave-error no"]),
];

#[tokio::test]
async fn a_store_that_refuses_to_write_is_said_to_do_so_in_its_own_words() {
    for engine in ENGINES {
        for (word, begin, end) in REFUSALS {
            let redis = engine.start_with(&["--save", "3600 1"]).await;
            let ledger = Process::start(&["--store", &redis.url()]).await;
            let epoch = ledger.epoch().await;
            ledger.state(1, &[ask(1, 1, 0, 1, 1, 10)]).await;
            redis.remove_folder();
            begin.iter().for_each(|command| drop(redis.cli(command)));
            // Of the counters alone until the ledger knows of all, which it does by the next statement.
            let refused = async |seq: u32| {
                let answer = ledger.post("/v1/shares", &shares(1, &[ask(1, seq, 1, 1, 1, 10)])).await;
                let error = match answer.status.as_u16() {
                    200 => answer.json()["items"][0]["error"].clone(),
                    _ => answer.json()["error"].clone(),
                };
                let is_named = error["message"].as_str().unwrap_or_default().contains(word);
                (answer.status.as_u16(), error["code"].as_str().unwrap_or_default().to_owned(), is_named)
            };
            let mut seq = 1;
            until("all of it is refused", async || {
                seq += 1;
                refused(seq).await == (503, "store_refuses".to_owned(), true)
            })
            .await;
            let ready = ledger.get("/readyz").await;
            assert!(ready.status == 503 && ready.body.contains(word), "{engine:?}: {ready:?}");
            assert_eq!(ledger.get("/healthz").await.status, 200);
            let metrics = ledger.get_metrics().await.body;
            assert!(metrics.contains("weir_ledger_store_masters{state=\"refuses\"} 1"), "{metrics}");
            for _ in 0..20 {
                seq += 1;
                assert_eq!(refused(seq).await, (503, "store_refuses".to_owned(), true));
                sleep(Duration::from_millis(50)).await;
            }
            let log = ledger.log();
            assert_eq!(log.matches(&format!("cannot be used: {word}")).count(), 1, "{engine:?}: {log}");

            // A ledger that starts waits for the store.
            let starts = Process::start_unready(&["--store", &redis.url()]);
            until(word, async || starts.log().contains(word)).await;
            let ready = starts.get("/readyz").await;
            assert!(ready.status == 503 && ready.body.contains(word), "{engine:?}: {ready:?}");

            end.iter().for_each(|command| drop(redis.cli(command)));
            until("it writes again", async || {
                seq += 1;
                ledger.post("/v1/shares", &shares(1, &[ask(1, seq, 1, 1, 1, 10)])).await.status == 200
            })
            .await;
            let answer = ledger.state(1, &[ask(1, seq + 1, 1, 1, 1, 10)]).await.remove(0);
            assert_eq!(answer, json!({ "share": 2, "others": 0, "reset": 0 }), "{engine:?} {word}");
            assert_eq!(ledger.epoch().await, epoch, "{engine:?} {word}: nothing was lost");
            until("the other is ready", async || starts.get("/readyz").await.status == 200).await;
        }
    }
}

#[tokio::test]
async fn a_master_that_refuses_to_write_is_an_error_of_its_counters() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        let ledger = Process::start(&["--store", &cluster.url(), "--cluster"]).await;
        let master = cluster.nodes.iter().find(|node| node.cli("role").starts_with("master")).unwrap();
        master.cli("config set maxmemory 1");
        until("it is known", async || {
            ledger.get_metrics().await.body.contains("weir_ledger_store_masters{state=\"refuses\"} 1")
        })
        .await;
        let items: Vec<_> = (0..60).map(|number| ask(number, 1, 0, 1, 1, 10)).collect();
        let answers = ledger.state(1, &items).await;
        let refused = answers.iter().filter(|answer| answer["error"]["code"] == "store").count();
        let granted = answers.iter().filter(|answer| answer["share"] == 1).count();
        assert!(refused > 5 && granted > 5 && refused + granted == 60, "{answers:?}");
        assert!(
            answers.iter().all(|answer| answer.get("error").is_none() || answer.to_string().contains("OOM"))
        );
        assert_eq!(ledger.get("/readyz").await.status, 200, "most of the store can be written");
        assert_eq!(ledger.log().matches("cannot be used: OOM").count(), 1, "{}", ledger.log());
    }
}

#[tokio::test]
async fn a_statement_that_is_refused_is_named_in_the_log_once_for_each_gateway_and_field() {
    let ledger = Process::start(&[]).await;
    let past = json!({ "begins": now() / 1_000 - 200, "ends": now() / 1_000 - 100 });
    let bad = |fields| with(ask(1, 1, 0, 1, 1, 10), &fields);
    for gateway in [1, 2] {
        for _ in 0..3 {
            let items = [bad(json!({ "limit": -1 })), bad(json!({ "seq": 0 })), bad(past.clone())];
            ledger.state(gateway, &items).await;
        }
    }
    let log = ledger.log();
    for gateway in [1, 2] {
        let named = |part: &str| {
            let of_gateway = log.lines().filter(|line| line.contains(&format!("gateway={}", hex(gateway))));
            of_gateway.filter(|line| line.contains(part)).count()
        };
        for part in ["code=invalid field=\"limit\"", "code=invalid field=\"seq\"", "code=clock"] {
            assert_eq!(named(part), 1, "{part}: {log}");
        }
        assert_eq!((named("milliseconds_ahead"), named("")), (3, 3), "{log}");
    }
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

/// On a busy machine the store would also answer too late, which is another cause with a line of its own.
mod alone {
    use super::*;

    #[tokio::test]
    async fn a_cluster_that_announces_what_nobody_reaches_is_said_to_do_so_in_one_line() {
        for engine in ENGINES {
            let bus = free_port().to_string();
            let options =
                ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-announce-ip", "127.0.0.9"];
            let node = engine.start_with(&options).await;
            node.cli("cluster addslotsrange 0 16383");
            until("it is whole", async || node.cli("cluster info").contains("cluster_state:ok")).await;
            let ledger = Process::start_unready(&["--store", &node.url(), "--cluster"]);
            let announced =
                format!("announces masters that the ledger cannot reach: 127.0.0.9:{}", node.port);
            until("it is said", async || ledger.get("/readyz").await.body.contains(&announced)).await;
            sleep(Duration::from_secs(3)).await;
            let log = ledger.log();
            assert_eq!(log.matches(&announced).count(), 1, "{engine:?}: {log}");
            assert_eq!(log.matches("WARN").count(), 1, "{engine:?}: {log}");
            assert!(log.lines().count() <= 4, "{engine:?}: {log}");
            assert!(log.contains("cluster-announce-ip"), "{log}");
        }
    }
}
