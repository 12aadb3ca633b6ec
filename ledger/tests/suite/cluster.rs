//! A cluster that loses masters.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process::Process;
use crate::statement::{WINDOW, ask, hex, shares};
use crate::store::{Cluster, ENGINES, Engine, free_port, until};

/// Some counters, which are spread over all masters.
const COUNTERS: u32 = 60;

fn key(number: u32) -> String {
    format!("weir:{}:{WINDOW}", hex(number))
}

/// The answers to a statement about each counter, and how long they took.
async fn state_all(ledger: &Process, seq: u32) -> (Vec<Value>, Duration) {
    let items: Vec<Value> = (0..COUNTERS).map(|number| ask(number, seq, 2, 1, 1, 100)).collect();
    let began = Instant::now();
    let answer = ledger.post("/v1/shares", &shares(1, &items)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.json()["items"].as_array().unwrap().clone(), began.elapsed())
}

/// Which of the counters are refused because the store is away.
fn refused(answers: &[Value]) -> Vec<u32> {
    let is_refused = |answer: &Value| answer["error"]["code"] == "store";
    (0..).zip(answers).filter(|(_, answer)| is_refused(answer)).map(|(number, _)| number).collect()
}

#[tokio::test]
async fn a_master_that_is_away_is_an_error_of_its_counters_until_its_replica_takes_over() {
    for engine in ENGINES {
        let mut cluster = Cluster::start(engine).await;
        let ledger = Process::start(&["--store", &cluster.url(), "--cluster"]).await;
        let other = Process::start(&["--store", &cluster.nodes[1].url(), "--cluster"]).await;
        let epoch = ledger.epoch().await;
        assert_eq!(other.epoch().await, epoch, "the same for each replica of the ledger");
        let (answers, _) = state_all(&ledger, 1).await;
        assert!(
            answers.iter().all(|answer| *answer == json!({ "share": 3, "others": 0, "reset": 0 })),
            "{answers:?}"
        );

        let master = cluster.master_of(&key(0));
        let own: Vec<u32> =
            (0..COUNTERS).filter(|number| cluster.master_of(&key(*number)) == master).collect();
        assert!((10..40).contains(&own.len()), "{own:?}");
        cluster.nodes[master].pause();
        let mut seq = 1;
        let mut state = async || {
            seq += 1;
            state_all(&ledger, seq).await
        };
        let (answers, took) = state().await;
        assert_eq!(refused(&answers), own);
        assert!(took < Duration::from_millis(400), "{took:?}");
        let mut times = Vec::new();
        for _ in 0..5 {
            let (answers, took) = state().await;
            assert_eq!(refused(&answers), own);
            times.push(took);
        }
        times.sort_unstable();
        assert!(times[2] < Duration::from_millis(100), "far less than the store's time limit: {times:?}");
        assert_eq!(ledger.get("/readyz").await.status, 200, "most of the store answers");
        assert_eq!(ledger.epoch().await, epoch, "until the replica takes over");
        let metrics = ledger.get_metrics().await.body;
        assert!(metrics.contains("weir_ledger_store_masters{state=\"away\"} 1"), "{metrics}");

        cluster.nodes[master].resume();
        until("it answers again", async || refused(&state().await.0).is_empty()).await;
        // It may have been paused for long enough that its replica took over.
        let epoch = ledger.epoch().await;
        let master = cluster.master_of(&key(0));
        cluster.nodes[master].kill();
        until("its counters are refused", async || !refused(&state().await.0).is_empty()).await;
        let took = until("its replica takes over", async || refused(&state().await.0).is_empty()).await;
        println!("the replica answers {took:?} after its master died");
        let after = ledger.epoch().await;
        assert!(after.is_some() && after != epoch, "a failover begins an epoch");
        until("the other ledger sees it", async || other.epoch().await == after).await;
        let (answers, _) = state().await;
        assert!(
            answers.iter().all(|answer| answer["settling"] == true && answer["share"] == 3),
            "{answers:?}"
        );
        until("it has settled", async || {
            state().await.0.iter().all(|answer| answer.get("settling").is_none())
        })
        .await;

        // The dead one comes back as a replica, which changes nothing.
        cluster.nodes[master].run().await;
        until("it is a replica", async || cluster.nodes[master].cli("role").starts_with("slave")).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(ledger.epoch().await, after);
        assert!(refused(&state().await.0).is_empty());
    }
}

#[tokio::test]
async fn a_cluster_that_was_away_as_a_whole_is_found_again() {
    let cluster = Cluster::start(Engine::Redis).await;
    // Replicas first, so that the order is not that of the masters.
    let seeds: Vec<String> = cluster.nodes.iter().rev().map(crate::store::Redis::url).collect();
    let ledger = Process::start(&["--store", &seeds.join(","), "--cluster"]).await;
    state_all(&ledger, 1).await;
    let epoch = ledger.epoch().await;
    cluster.nodes.iter().for_each(crate::store::Redis::pause);
    until("every request is refused", async || {
        ledger.epoch().await.is_none() || {
            ledger
                .post(
                    "/v1/shares",
                    &shares(1, &(0..COUNTERS).map(|number| ask(number, 2, 2, 1, 1, 100)).collect::<Vec<_>>()),
                )
                .await
                .status
                == 503
        }
    })
    .await;
    // Rounds pass, in which no master answers; shorter than what the nodes call a failure.
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.nodes.iter().for_each(crate::store::Redis::resume);
    until("some of it answers", async || ledger.epoch().await.is_some()).await;
    let mut seq = 2;
    let took = until("all of it answers", async || {
        seq += 1;
        refused(&state_all(&ledger, seq).await.0).is_empty()
    })
    .await;
    assert!(took < Duration::from_millis(700), "{took:?}");
    assert_eq!(ledger.epoch().await, epoch);
}

#[tokio::test]
async fn slots_that_move_are_found() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        let ledger = Process::start(&["--store", &cluster.url(), "--cluster"]).await;
        state_all(&ledger, 1).await;
        let epoch = ledger.epoch().await;
        let id = |node: usize| cluster.nodes[node].cli("cluster myid");
        let from = cluster.master_of(&key(0));
        let to = (0..6)
            .find(|node| *node != from && cluster.nodes[*node].cli("role").starts_with("master"))
            .unwrap();
        let moved = cluster.nodes[from].cli(&format!(
            "--cluster reshard 127.0.0.1:{} --cluster-from {} --cluster-to {} --cluster-slots 6000 --cluster-yes",
            cluster.nodes[from].port,
            id(from),
            id(to)
        ));
        assert!(moved.contains("Moving slot"), "{moved}");
        // The nodes tell each other a moment later.
        until("the slots are moved", async || cluster.master_of(&key(0)) == to).await;
        let mut seq = 1;
        let took = until("every counter is found", async || {
            seq += 1;
            let (answers, _) = state_all(&ledger, seq).await;
            refused(&answers).is_empty() && answers.iter().all(|answer| answer["share"] == 3)
        })
        .await;
        println!("every counter is found {took:?} after the slots moved");
        let masters = cluster.nodes.iter().filter(|node| node.cli("role").starts_with("master"));
        let with_slots = masters.filter(|node| node.cli("dbsize") != "0").count();
        assert_eq!(
            (with_slots, ledger.epoch().await == epoch),
            (2, false),
            "a master that has no keys any more is none"
        );
    }
}

/// A slot that holds none of the counters yet is being moved: its new counters are made where it goes, and the others stay where it was
/// until they are moved, too.
#[tokio::test]
async fn a_slot_that_is_being_moved_is_followed() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        // One that has no slot, and is no part of what the ledger knows.
        let empty = engine
            .start_with(&["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()])
            .await;
        let known = &cluster.nodes[0];
        empty.cli(&format!("cluster meet 127.0.0.1 {} {}", known.port, known.cluster_port()));
        until("the nodes know each other", async || {
            cluster.nodes.iter().all(|node| node.cli("cluster nodes").lines().count() == 7)
        })
        .await;
        let ledger = Process::start(&["--store", &cluster.url(), "--cluster"]).await;
        let item = |number, seq, used| ask(number, seq, used, 1, 1, 10);
        assert_eq!(ledger.state(1, &[item(0, 1, 0)]).await[0]["share"], 1);
        let from = cluster.master_of(&key(0));
        let other =
            (0..6).find(|node| *node != from && cluster.nodes[*node].cli("role").starts_with("master"));
        for (number, to) in [(0, &cluster.nodes[other.unwrap()]), (1, &empty)] {
            let key = key(number);
            let from = &cluster.nodes[cluster.master_of(&key)];
            let slot = from.cli(&format!("cluster keyslot {key}"));
            assert_eq!(
                to.cli(&format!("cluster setslot {slot} importing {}", from.cli("cluster myid"))),
                "OK"
            );
            assert_eq!(
                from.cli(&format!("cluster setslot {slot} migrating {}", to.cli("cluster myid"))),
                "OK"
            );
            if number == 0 {
                // One that is there is answered there, until it is moved, too.
                let before = ledger.state(1, &[item(number, 2, 1)]).await;
                assert_eq!(before, [json!({ "share": 2, "others": 0, "reset": 0 })], "{engine:?}");
                from.cli(&format!("migrate 127.0.0.1 {} {key} 0 1000", to.port));
            }
            let mut seq = 2;
            let took = until("it is answered", async || {
                seq += 1;
                ledger.state(1, &[item(number, seq, 0), item(9, 1, 0)]).await[0].get("error").is_none()
            })
            .await;
            assert!(took < Duration::from_millis(500), "{engine:?} {number}: {took:?}");
            let answers = ledger.state(2, &[item(number, 1, 0), item(9, 1, 0)]).await;
            assert_eq!(answers[0]["others"].as_u64().unwrap(), 2 - u64::from(number), "{answers:?}");
            assert_eq!(answers[0]["share"], 1, "{answers:?}");
        }
    }
}
