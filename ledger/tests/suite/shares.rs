//! The same cases in front of each store.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Process;
use crate::statement::{WINDOW, ask, give_back, hex, now, shares, with};
use crate::store::{Cluster, ENGINES, Redis, until};

/// Drives the cases that every store must pass. `first` is the number of the first counter.
pub(crate) async fn pass_the_cases(ledger: &Process, first: u32) {
    let (a, b, c) = (first, first + 1, first + 2);
    let share = |share: u32, others: u32| json!({ "share": share, "others": others, "reset": 0 });
    //  gateway, statement, answer
    let cases = [
        (1, ask(a, 1, 0, 3, 3, 10), share(3, 0)),
        (2, ask(a, 1, 0, 5, 5, 10), share(5, 3)),
        (1, ask(a, 2, 3, 4, 4, 10), share(5, 5)),
        (2, ask(a, 2, 5, 1, 1, 10), share(5, 5)),
        // Repeated and overtaken: the present state.
        (1, ask(a, 2, 3, 4, 4, 10), share(5, 5)),
        (1, give_back(a, 1, 0, 0), share(5, 5)),
        // A return lowers the share to the use.
        (1, give_back(a, 3, 3, 0), share(3, 5)),
        (2, ask(a, 3, 5, 1, 1, 10), share(6, 3)),
        // A use beyond the share raises it; nothing is free for the others.
        (1, give_back(a, 4, 9, 0), share(9, 6)),
        (2, ask(a, 4, 6, 1, 1, 10), share(6, 9)),
        // A raised limit helps at once.
        (2, ask(a, 5, 6, 1, 1, 100), share(7, 9)),
        // Another generation is another holder.
        (2, with(ask(a, 1, 0, 1, 1, 100), &json!({ "generation": 2 })), share(1, 16)),
        // Three gateways were not heard, so two share what is free beyond the need.
        (1, ask(b, 1, 0, 1, 50, 41), share(11, 0)),
        (2, ask(b, 1, 0, 0, 50, 41), share(7, 11)),
        // A reset begins all counts anew; lower numbers are answered with the number alone.
        (1, ask(c, 1, 10, 1, 1, 10), share(10, 0)),
        (
            2,
            with(ask(c, 1, 0, 4, 4, 10), &json!({ "reset": 5 })),
            json!({ "share": 4, "others": 0, "reset": 5 }),
        ),
        (1, ask(c, 2, 10, 1, 1, 10), json!({ "reset": 5 })),
        (
            1,
            with(ask(c, 1, 0, 7, 7, 10), &json!({ "reset": 5, "generation": 2 })),
            json!({ "share": 6, "others": 4, "reset": 5 }),
        ),
    ];
    for (number, (gateway, statement, expected)) in cases.iter().enumerate() {
        let answer = ledger.state(*gateway, std::slice::from_ref(statement)).await;
        assert_eq!(answer[0], *expected, "case {number}: {gateway} {statement}");
    }
    pass_a_batch(ledger, first + 100).await;
}

/// A batch is answered in its order, whatever parts of the store have its counters. A counter may be in it twice.
async fn pass_a_batch(ledger: &Process, first: u32) {
    let items: Vec<Value> = (0..400)
        .map(|number| ask(first + number % 399, 1 + number / 399, 0, 1 + number % 7, 0, 600))
        .collect();
    let answers = ledger.state(1, &items).await;
    assert_eq!(answers.len(), items.len());
    for (number, answer) in (0..399).zip(&answers) {
        assert_eq!(*answer, json!({ "share": 1 + number % 7, "others": 0, "reset": 0 }), "{number}");
    }
    assert_eq!(answers[399]["share"], 1, "399 is 0 again, in a later statement");
    let empty = ledger.post("/v1/shares", &shares(1, &[])).await.json();
    assert!(empty["epoch"].is_string() && empty["items"] == json!([]), "{empty}");
    assert!(empty["now"].as_u64().unwrap().abs_diff(now()) < 10_000, "{empty}");
}

#[tokio::test]
async fn memory_passes_the_cases() {
    pass_the_cases(&Process::start(&[]).await, 1).await;
}

#[tokio::test]
async fn a_server_passes_the_cases_with_a_prefix_of_its_keys_that_expire() {
    for engine in ENGINES {
        let redis = engine.start().await;
        let ledger =
            Process::start(&["--store", &format!("{}/3", redis.url()), "--key-prefix", "fleet.a:"]).await;
        pass_the_cases(&ledger, 1).await;
        let keys = redis.cli("-n 3 keys *");
        let keys: Vec<&str> = keys.lines().filter(|key| !key.contains('{')).collect();
        assert!(
            keys.len() > 400 && keys.iter().all(|key| key.starts_with("fleet.a:000")),
            "{} keys",
            keys.len()
        );
        assert_eq!(redis.cli("dbsize"), "0");
        //  An hour and 180 s after the end, whatever later statements say of it.
        let key = format!("fleet.a:{}:{WINDOW}", hex(1));
        let expires: u64 = redis.cli(&format!("-n 3 ttl {key}")).parse().unwrap();
        assert!((3_700..=3_780).contains(&expires), "{expires}");
        let longer = with(ask(1, 9, 9, 1, 1, 100), &json!({ "ends": now() / 1_000 + 7_200 }));
        ledger.state(1, &[longer]).await;
        assert!(redis.cli(&format!("-n 3 ttl {key}")).parse::<u64>().unwrap() <= expires);
        assert_eq!(redis.cli(&format!("-n 3 object encoding {key}")), "listpack", "the compact form");
    }
}

#[tokio::test]
async fn redis_passes_the_cases_over_tls_with_an_authority_of_its_own_and_knows_the_ledger_by_its_certificate()
 {
    for with_clients in [false, true] {
        let folder = TempDir::new().unwrap();
        let redis = Redis::start_with_tls(folder.path(), with_clients).await;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (url, authority) = (format!("rediss://localhost:{}", redis.port), path("ca.pem"));
        let (certificate, key) = (path("client.pem"), path("client.key"));
        let mut options = vec!["--store", &url, "--store-ca", &authority];
        if with_clients {
            let ledger = Process::start_unready(&options);
            until("it is refused", async || ledger.log().contains("the store cannot be used")).await;
            options.extend(["--store-cert", &certificate, "--store-key", &key]);
        }
        pass_the_cases(&Process::start(&options).await, 1).await;
    }
}

#[tokio::test]
async fn a_cluster_passes_the_cases() {
    for engine in ENGINES {
        let cluster = Cluster::start(engine).await;
        let ledger = Process::start(&["--store", &cluster.nodes[5].url(), "--cluster"]).await;
        pass_the_cases(&ledger, 1).await;
        let held: Vec<u32> = cluster.nodes.iter().map(|node| node.cli("dbsize").parse().unwrap()).collect();
        assert!(held.iter().all(|keys| *keys > 80), "each master and its replica have some: {held:?}");
    }
}

#[tokio::test]
async fn gateways_that_ask_two_ledgers_at_once_are_never_granted_more_than_the_limit() {
    let redis = Redis::start().await;
    let ledgers =
        [Process::start(&["--store", &redis.url()]).await, Process::start(&["--store", &redis.url()]).await];
    let ledgers = &ledgers;
    //  A gateway asks for one unit after another, alternately from both, until nothing is left.
    let gateway = async |gateway: u32| {
        let mut share = 0;
        for seq in 1.. {
            let ledger = &ledgers[(gateway + seq) as usize % 2];
            let answer = ledger.state(gateway, &[ask(1, seq, share, 1, 3, 500)]).await.remove(0);
            let granted = u32::try_from(answer["share"].as_u64().unwrap()).unwrap();
            if granted == share {
                return share;
            }
            share = granted;
        }
        share
    };
    let shares = futures_util::future::join_all((1..=8).map(gateway)).await;
    assert_eq!(shares.iter().sum::<u32>(), 500, "{shares:?}");
}
