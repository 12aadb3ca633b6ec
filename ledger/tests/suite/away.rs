//! A store that is away, and that comes back with and without its data.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::process::{Answer, Process};
use crate::statement::{ask, now, shares, with};
use crate::store::{ENGINES, Redis, until};

/// The longest that most requests take while it is known that the store is away: far less than the store's time limit.
const AT_ONCE: Duration = Duration::from_millis(50);
/// For how long a new epoch grants nothing.
const SETTLING: Duration = Duration::from_secs(2);
/// Within how long the service answers after the store is back.
const BACK: Duration = Duration::from_millis(700);

async fn timed(ledger: &Process, items: &[Value]) -> (Duration, Answer) {
    let began = Instant::now();
    let answer = ledger.post("/v1/shares", &shares(1, items)).await;
    (began.elapsed(), answer)
}

/// Ten requests are refused at once, with or without items, and by the other endpoints too.
async fn is_away(ledger: &Process) {
    let mut times = Vec::new();
    for number in 0..10 {
        let items = if number % 2 == 0 { vec![ask(1, 1, 0, 1, 1, 10)] } else { vec![] };
        let (took, answer) = timed(ledger, &items).await;
        assert_eq!((answer.status.as_u16(), answer.headers["retry-after"].to_str().unwrap()), (503, "1"));
        assert_eq!(answer.json()["error"]["code"], "store_away");
        times.push(took);
    }
    times.sort_unstable();
    assert!(times[5] < AT_ONCE, "{times:?}");
    assert_eq!(ledger.get("/readyz").await.status, 503);
    assert_eq!(ledger.get("/healthz").await.status, 200);
}

async fn answers(ledger: &Process) -> Duration {
    until("the ledger answers again", async || ledger.epoch().await.is_some()).await
}

#[tokio::test]
async fn requests_are_refused_at_once_while_the_store_hangs_and_answered_when_it_does() {
    let redis = Redis::start().await;
    let ledger = Process::start(&["--store", &redis.url()]).await;
    let epoch = ledger.epoch().await;
    assert_eq!(ledger.state(1, &[ask(1, 1, 0, 4, 4, 10)]).await[0]["share"], 4);
    for _ in 0..3 {
        redis.pause();
        let (took, answer) = timed(&ledger, &[ask(1, 2, 4, 1, 1, 10)]).await;
        assert_eq!(answer.status, 503);
        assert!(
            took < Duration::from_millis(400),
            "the first waits for the store's time limit alone: {took:?}"
        );
        is_away(&ledger).await;
        sleep(Duration::from_millis(700)).await;
        is_away(&ledger).await;
        redis.resume();
        let back = answers(&ledger).await;
        assert!(back < BACK, "{back:?}");
        println!("answers {back:?} after the store does");
    }
    assert_eq!(ledger.epoch().await, epoch, "the store has lost nothing");
    // The statement that was not answered may have arrived.
    let again = ledger.state(1, &[ask(1, 3, 4, 1, 1, 10)]).await;
    assert_eq!(again, [json!({ "share": 5, "others": 0, "reset": 0 })]);
}

#[tokio::test]
async fn requests_are_refused_at_once_while_the_store_is_dead_and_a_restart_begins_an_epoch() {
    let mut redis = Redis::start().await;
    let ledger = Process::start(&["--store", &redis.url()]).await;
    let before = ledger.epoch().await;
    assert_eq!(ledger.state(1, &[ask(1, 1, 0, 4, 4, 10)]).await[0]["share"], 4);
    redis.kill();
    until("the broken connection is noticed", async || timed(&ledger, &[]).await.1.status == 503).await;
    is_away(&ledger).await;
    sleep(Duration::from_secs(1)).await;
    is_away(&ledger).await;
    redis.run().await;
    let back = answers(&ledger).await;
    assert!(back < BACK, "{back:?}");
    println!("answers {back:?} after a restart");
    let began = Instant::now();
    let epoch = ledger.epoch().await;
    assert!(epoch.is_some() && epoch != before);
    settles(&ledger, began).await;
    assert_eq!(ledger.epoch().await, epoch);
}

/// For two seconds uses are noted, and nothing is granted, whenever a window began.
async fn settles(ledger: &Process, began: Instant) {
    let ends = now() / 1_000 + 3_600;
    let settling = ledger
        .state(1, &[ask(1, 2, 4, 1, 1, 10), with(ask(2, 1, 0, 1, 1, 10), &json!({ "begins": ends - 3_598 }))])
        .await;
    assert_eq!(settling[0], json!({ "share": 4, "others": 0, "reset": 0, "settling": true }));
    let later = json!({ "share": 0, "others": 0, "reset": 0, "settling": true });
    assert_eq!(settling[1], later, "a window that began later");
    let settling = ledger.state(2, &[ask(1, 2, 5, 1, 1, 10)]).await;
    assert_eq!(settling, [json!({ "share": 5, "others": 4, "reset": 0, "settling": true })]);
    let mut seq = 2;
    until("it has settled", async || {
        seq += 1;
        let answer = ledger.state(1, &[ask(1, seq, 4, 1, 1, 10)]).await.remove(0);
        answer.get("settling").is_none() && answer["share"] == 5
    })
    .await;
    let took = began.elapsed();
    assert!((Duration::from_millis(1_500)..Duration::from_millis(2_500)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_store_that_is_emptied_begins_an_epoch() {
    for engine in ENGINES {
        let redis = engine.start().await;
        let ledger = Process::start(&["--store", &redis.url()]).await;
        let mut before = ledger.epoch().await;
        for command in ["flushall", "flushdb"] {
            redis.cli(command);
            until("an epoch begins", async || ledger.epoch().await != before).await;
            let began = Instant::now();
            before = ledger.epoch().await;
            assert!(before.is_some());
            settles(&ledger, began).await;
        }
    }
}

#[tokio::test]
async fn what_happens_to_connections_and_scripts_begins_no_epoch() {
    for engine in ENGINES {
        let redis = engine.start().await;
        let ledger = Process::start(&["--store", &redis.url()]).await;
        let epoch = ledger.epoch().await;
        let mut seq = 0;
        for command in ["client kill type normal", "script flush", "config resetstat"] {
            redis.cli(command);
            let back = until("the ledger grants", async || {
                seq += 1;
                let answer = ledger.post("/v1/shares", &shares(1, &[ask(1, seq, 0, 1, 1, 10)])).await;
                answer.status == 200 && answer.json()["items"][0]["share"] == 1
            })
            .await;
            assert!(back < BACK, "{command}: {back:?}");
            println!("grants {back:?} after {command}");
            assert_eq!(ledger.epoch().await, epoch, "{command}");
        }
    }
}

#[tokio::test]
async fn a_ledger_that_starts_before_its_store_waits_for_it() {
    let mut redis = Redis::start().await;
    redis.kill();
    let ledger = Process::start_unready(&["--store", &redis.url()]);
    is_away(&ledger).await;
    redis.run().await;
    let back = answers(&ledger).await;
    assert!(back < BACK, "{back:?}");
    assert_eq!(ledger.get("/readyz").await.body, "settling\n");
    let ready = until("it is ready", async || ledger.get("/readyz").await.status == 200).await;
    assert!(ready > Duration::from_millis(1_500), "{ready:?}");
}

#[tokio::test]
async fn a_store_that_is_restarted_with_its_data_begins_an_epoch_and_loses_no_share() {
    for engine in ENGINES {
        let mut redis = engine.start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        let ledger = Process::start(&["--store", &redis.url()]).await;
        let before = ledger.epoch().await;
        assert_eq!(ledger.state(1, &[ask(1, 1, 0, 4, 4, 10)]).await[0]["share"], 4);
        redis.kill();
        let killed = Instant::now();
        redis.run().await;
        until("an epoch begins", async || ledger.epoch().await.is_some_and(|epoch| Some(epoch) != before))
            .await;
        let settling = ledger.state(2, &[ask(1, 1, 0, 9, 9, 10)]).await;
        // A busy machine may take longer to get here than the ledger to settle.
        if killed.elapsed() < SETTLING {
            assert_eq!(settling, [json!({ "share": 0, "others": 4, "reset": 0, "settling": true })]);
        }
        let mut seq = 1;
        until("it has settled", async || {
            seq += 1;
            ledger.state(2, &[ask(1, seq, 0, 9, 9, 10)]).await[0]
                == json!({ "share": 6, "others": 4, "reset": 0 })
        })
        .await;
    }
}

#[tokio::test]
async fn a_store_that_is_emptied_between_two_looks_grants_nothing() {
    for engine in ENGINES {
        let redis = engine.start().await;
        let url = redis.url();
        let ledgers = [Process::start(&["--store", &url]).await, Process::start(&["--store", &url]).await];
        for (number, command) in (1..).zip(["flushall", "flushdb", "swapdb 0 1"]) {
            for (gateway, ledger) in (1..).zip(&ledgers) {
                ledger.state(gateway, &[ask(number, 1, 0, 5, 5, 10)]).await;
            }
            redis.cli(command);
            // Each has looked before. The second one finds that the first has begun an epoch.
            for (gateway, ledger) in (1..).zip(&ledgers) {
                let answer = ledger.state(gateway, &[ask(number, 2, 5, 3, 3, 10)]).await.remove(0);
                assert_eq!(answer["share"], 5, "{engine:?} {command} {gateway}: {answer}");
                assert_eq!(answer["settling"], true, "{engine:?} {command} {gateway}: {answer}");
            }
            for (gateway, ledger) in (1..).zip(&ledgers) {
                let mut seq = 2;
                let answer = until_settled(ledger, gateway, async || {
                    seq += 1;
                    ask(number, seq, 5, 3, 3, 10)
                })
                .await;
                assert_eq!(answer, json!({ "share": 5, "others": 5, "reset": 0 }), "{engine:?} {command}");
            }
        }
    }
}

/// The first answer that does not settle.
async fn until_settled(ledger: &Process, gateway: u32, mut item: impl AsyncFnMut() -> Value) -> Value {
    let mut answer = Value::Null;
    until("it has settled", async || {
        answer = ledger.state(gateway, &[item().await]).await.remove(0);
        answer.get("settling").is_none()
    })
    .await;
    answer
}

#[tokio::test]
async fn a_store_that_is_emptied_under_traffic_never_grants_more_than_the_limit() {
    const LIMIT: u32 = 1_000;
    for engine in ENGINES {
        let redis = engine.start().await;
        let url = redis.url();
        let ledgers = &[Process::start(&["--store", &url]).await, Process::start(&["--store", &url]).await];
        let is_over = &Cell::new(false);
        // A gateway uses what it is granted, and asks alternately at both, until nothing is left and the store is emptied no more.
        let gateway = async |gateway: u32| {
            let (mut used, mut seq) = (0, 0);
            loop {
                seq += 1;
                let ledger = &ledgers[(gateway + seq) as usize % 2];
                let answer = ledger.state(gateway, &[ask(1, seq, used, 1, 3, LIMIT)]).await.remove(0);
                let share = u32::try_from(answer["share"].as_u64().unwrap()).unwrap();
                if share <= used && answer.get("settling").is_none() && is_over.get() {
                    return used;
                }
                used = used.max(share);
                sleep(Duration::from_millis(5)).await;
            }
        };
        let emptied = async {
            for pause in [200, 2_300, 2_400] {
                sleep(Duration::from_millis(pause)).await;
                redis.cli("flushall");
            }
            // All have stated again what they have used.
            sleep(Duration::from_millis(2_500)).await;
            is_over.set(true);
        };
        let gateways = futures_util::future::join_all((1..=4).map(gateway));
        let (used, ()) = tokio::join!(gateways, emptied);
        assert_eq!(used.iter().sum::<u32>(), LIMIT, "{engine:?}: {used:?}");
    }
}
