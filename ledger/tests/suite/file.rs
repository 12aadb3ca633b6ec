//! The store in a file, whose ledger is killed, and whose disk or file fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::process::Process;
use crate::soak;
use crate::statement::{ask, give_back, shares, with};
use crate::store::until;

/// A window of ten hours, of which some have passed: a test that is long has it, too.
fn long(item: Value, ends: u64) -> Value {
    with(item, &json!({ "begins": ends - 36_000, "ends": ends }))
}

fn end_of_window() -> u64 {
    crate::statement::now() / 1_000 + 7_200
}

fn store(folder: &TempDir) -> String {
    format!("file:{}", folder.path().join("ledger.db").display())
}

/// What all gateways hold of a counter, as a gateway is told that uses nothing of it.
async fn held(ledger: &Process, counter: u32, ends: u64) -> u64 {
    let items = ledger.state(999, &[long(ask(counter, 1, 0, 0, 0, 0), ends)]).await;
    items[0]["others"].as_u64().unwrap_or_else(|| panic!("{items:?}"))
}

const COUNTERS: u32 = 4;
/// Each gateway asks for as much as it gets, and dies with the ledger.
const GATEWAYS_OF_A_RUN: u32 = 6;

/// Asks as a gateway until the ledger has gone, and returns what it was granted of each counter.
async fn ask_on(ledger: &Process, gateway: u32, limit: u32, ends: u64) -> BTreeMap<u32, u64> {
    let mut granted: BTreeMap<u32, u64> = BTreeMap::new();
    for seq in 1.. {
        let items: Vec<Value> = (1..=COUNTERS)
            .filter(|counter| !(seq + counter + gateway).is_multiple_of(3))
            .map(|counter| {
                let used = u32::try_from(granted.get(&counter).copied().unwrap_or_default()).unwrap();
                long(ask(counter, seq, used, 1 + seq % 3, 1 + seq % 3, limit), ends)
            })
            .collect();
        let Some(answer) = ledger.try_post("/v1/shares", &shares(gateway, &items)).await else { break };
        assert_eq!(answer.status, 200, "{answer:?}");
        for (item, answer) in items.iter().zip(answer.json()["items"].as_array().unwrap()) {
            let counter = u32::from_str_radix(item["counter"].as_str().unwrap(), 16).unwrap();
            let share = answer["share"].as_u64().unwrap_or_else(|| panic!("{answer}"));
            // It uses all of it at once, before the next statement says so.
            granted.insert(counter, share);
        }
    }
    granted
}

/// Kills the ledger, with the gateways that it has, again and again.
async fn is_killed(kills: u32) {
    let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
    let store = store(&folder);
    // So much that most runs grant something, and that the last of them reach the limit.
    let limit = 500 * kills;
    let mut acknowledged: BTreeMap<u32, u64> = BTreeMap::new();
    let mut grew = 0;
    for kill in 0..=kills {
        let ledger = Process::start_with(&["--store", &store], |_| {});
        for (counter, units) in &acknowledged {
            let held = held(&ledger, *counter, ends).await;
            assert!(
                held >= *units,
                "kill {kill}, counter {counter}: {units} were acknowledged, {held} are counted"
            );
            assert!(held <= limit.into(), "kill {kill}, counter {counter}: {held} of {limit}");
        }
        if kill == kills {
            break;
        }
        let before: u64 = acknowledged.values().sum();
        let gateways = (0..GATEWAYS_OF_A_RUN)
            .map(|number| ask_on(&ledger, 1_000 + kill * GATEWAYS_OF_A_RUN + number, limit, ends));
        let killing = async {
            // One in ten is killed while it settles.
            if rand::random_range(0..10) > 0 {
                until("it is ready", async || {
                    ledger.try_post("/v1/shares", &shares(998, &[])).await.is_some()
                        && ledger.get("/readyz").await.status == 200
                })
                .await;
            }
            sleep(Duration::from_millis(rand::random_range(0..300))).await;
            ledger.kill();
        };
        let (granted, ()) = tokio::join!(futures_util::future::join_all(gateways), killing);
        for (counter, units) in granted.into_iter().flatten() {
            *acknowledged.entry(counter).or_default() += units;
        }
        grew += u32::from(acknowledged.values().sum::<u64>() > before);
        for (counter, units) in &acknowledged {
            assert!(
                *units <= limit.into(),
                "kill {kill}, counter {counter}: {units} of {limit} were granted"
            );
        }
    }
    assert!(grew > 1, "only {grew} of {kills} runs granted anything");
    let granted: u64 = acknowledged.values().sum();
    soak::row(
        "Ledger on a file, killed under load",
        format!("{kills} kills, {COUNTERS} counters of {limit}"),
        format!("{granted} units were acknowledged in {grew} runs, and all of them counted"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_killed_ledger_had_granted_counts_and_no_limit_is_exceeded() {
    is_killed(10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "one of the long forms: make soak"]
async fn whatever_a_ledger_that_is_killed_200_times_had_granted_counts_and_no_limit_is_exceeded() {
    is_killed(200).await;
}

#[tokio::test]
async fn a_return_is_kept_and_each_start_is_another_epoch() {
    let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
    let store = store(&folder);
    let ledger = Process::start(&["--store", &store]).await;
    let epoch = ledger.epoch().await;
    let items = [long(ask(1, 1, 0, 9, 9, 10), ends), long(ask(2, 1, 0, 9, 9, 10), ends)];
    ledger.state(1, &items).await;
    ledger.state(1, &[long(give_back(2, 2, 4, 1), ends)]).await;
    drop(ledger);
    let ledger = Process::start(&["--store", &store]).await;
    assert_ne!(ledger.epoch().await, epoch);
    for (counter, units) in [(1, 9), (2, 5), (3, 0)] {
        assert_eq!(held(&ledger, counter, ends).await, units, "counter {counter}");
    }
}

/// Bytes for which a full disk has room, so that a transaction ends in its middle.
#[cfg(target_os = "linux")]
const BUDGET: u32 = 6_000;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn while_the_disk_is_full_nothing_changes_and_nothing_is_lost() {
    use crate::preload::Library;

    let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
    let (store, is_full) = (store(&folder), folder.path().join("full"));
    let definitions = [format!("FULL=\"{}\"", is_full.display()), format!("BUDGET={BUDGET}")];
    let source = "../../../backend/tests/suite/full_disk.c";
    let library = Library::compile(source, &definitions.each_ref().map(String::as_str));
    let start = async || {
        let ledger = Process::start_with(&["--store", &store], |command| library.load(command));
        until("the ledger is ready", async || ledger.get("/readyz").await.status == 200).await;
        ledger
    };
    let ledger = start().await;
    let mut granted = 0;
    let mut ask_next = async |seq: u32| {
        let items: Vec<Value> =
            (2..50).map(|counter| long(ask(counter, seq, 0, seq, seq, 600), ends)).collect();
        let answer = ledger.post("/v1/shares", &shares(1, &items)).await;
        if answer.status == 200 {
            granted = answer.json()["items"][0]["share"].as_u64().unwrap();
        }
        (answer, granted)
    };
    ask_next(1).await;
    std::fs::write(&is_full, "").unwrap();
    let mut seq = 1;
    let refused = loop {
        seq += 1;
        let (answer, _) = ask_next(seq).await;
        if answer.status != 200 {
            break answer;
        }
        assert!(seq < 100, "the disk takes more than it has");
    };
    assert_eq!((refused.status.as_u16(), refused.headers["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(refused.json()["error"]["code"], "store_refuses");
    assert!(refused.body.contains("full"), "{}", refused.body);
    let readyz = ledger.get("/readyz").await;
    assert_eq!((readyz.status.as_u16(), readyz.body.contains("full")), (503, true), "{}", readyz.body);
    let metrics = ledger.get_metrics().await.body;
    assert!(metrics.contains("weir_ledger_store_masters{state=\"refuses\"} 1"), "{metrics}");
    assert!(ledger.log().contains("full"), "{}", ledger.log());
    std::fs::remove_file(&is_full).unwrap();
    let (_, before) = ask_next(seq).await;
    until("the ledger is ready again", async || ledger.get("/readyz").await.status == 200).await;
    assert!(ledger.log().contains("the store can be used again"), "{}", ledger.log());
    // What was refused has changed neither the map nor the file.
    assert_eq!(held(&ledger, 2, ends).await, before);
    drop(ledger);
    let ledger = start().await;
    assert_eq!(held(&ledger, 2, ends).await, before);
}

async fn sql(path: &Path, statements: &'static str) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    connection.execute(sqlx::raw_sql(statements)).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_and_stays_as_it_is() {
    /// What becomes of the file before the ledger starts.
    type Spoil = fn(&Path);
    let rows: [(&str, Spoil, &str); 5] = [
        (
            "text",
            |path| std::fs::write(path, "not a database ".repeat(100)).unwrap(),
            "the file is damaged: file is not a database",
        ),
        ("a page of something else", |path| spoil(path, 4_096..8_192), "the file is damaged: "),
        ("the end cut off", |path| cut(path, 3 * 4_096), "the file is damaged: "),
        (
            "a folder",
            |path| {
                std::fs::remove_file(path).unwrap();
                std::fs::create_dir(path).unwrap();
            },
            "unable to open database file",
        ),
        (
            "a file that cannot be written",
            |path| {
                std::fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/proc/version", path).unwrap();
            },
            "unable to open database file",
        ),
    ];
    for (what, spoil, message) in rows {
        let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
        let (store, path) = (store(&folder), folder.path().join("ledger.db"));
        let ledger = Process::start(&["--store", &store]).await;
        let items: Vec<Value> = (0..500).map(|counter| long(ask(counter, 1, 0, 1, 1, 10), ends)).collect();
        ledger.state(1, &items).await;
        let is_whole = async || std::fs::metadata(&path).unwrap().len() > 5 * 4_096;
        until("a checkpoint was made", is_whole).await;
        drop(ledger);
        // What was written since is in it, too.
        sql(&path, "PRAGMA journal_mode = DELETE").await;
        spoil(&path);
        let before = std::fs::read(&path).ok();
        let (status, log) = Process::fail(&["--store", &store]).await;
        assert!(!status.success(), "{what}");
        assert!(log.contains(&format!("--store {store}: ")) && log.contains(message), "{what}: {log}");
        assert!(std::fs::read(&path).ok() == before, "{what}: the file has changed");
    }
}

fn spoil(path: &Path, bytes: std::ops::Range<usize>) {
    let mut file = std::fs::read(path).unwrap();
    file[bytes].fill(0x5a);
    std::fs::write(path, file).unwrap();
}

fn cut(path: &Path, length: usize) {
    let file = std::fs::read(path).unwrap();
    std::fs::write(path, &file[..length]).unwrap();
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ledger.db");
    sql(&path, "CREATE TABLE links (id INTEGER); INSERT INTO links VALUES (1)").await;
    let before = std::fs::read(&path).unwrap();
    let (status, log) = Process::fail(&["--store", &store(&folder)]).await;
    assert!(!status.success() && log.contains("the file is a database of another program"), "{log}");
    assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
}

#[tokio::test]
async fn a_second_process_on_the_file_is_refused_and_the_first_goes_on() {
    let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
    let store = store(&folder);
    let ledger = Process::start(&["--store", &store]).await;
    for seq in 1..3 {
        let items = ledger.state(1, &[long(ask(1, seq, 0, seq, seq, 10), ends)]).await;
        assert_eq!(items[0]["share"], seq);
        let (status, log) = Process::fail(&["--store", &store]).await;
        assert!(!status.success(), "{log}");
        assert!(log.contains(&format!("--store {store}: the file is in use by another process")), "{log}");
    }
}

#[tokio::test]
async fn an_embedded_store_is_no_cluster_and_has_a_path() {
    let folder = TempDir::new().unwrap();
    let (file, missing) =
        (store(&folder), format!("file:{}", folder.path().join("none/ledger.db").display()));
    for (options, message) in [
        (["--store", &file, "--cluster"].as_slice(), "cannot be a cluster; leave out --cluster"),
        (&["--store", &missing], "unable to open database file"),
        (&["--store", "file:"], "a path is missing"),
    ] {
        let (status, log) = Process::fail(options).await;
        assert!(!status.success() && log.contains(message), "{options:?}: {log}");
    }
}

/// Time is measured, so these run alone.
mod alone {
    use super::*;

    /// Calls of which the median is taken. Those of both stores alternate.
    const CALLS: u32 = 300;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_takes_little_longer_with_a_file_than_with_memory() {
        let (folder, ends) = (TempDir::new().unwrap(), end_of_window());
        let stores = ["memory".to_owned(), store(&folder)];
        let ledgers =
            [Process::start(&["--store", &stores[0]]).await, Process::start(&["--store", &stores[1]]).await];
        // Statements of a call, and how much longer its median may be.
        for (size, calls, most) in
            [(1, CALLS, Duration::from_millis(1)), (1_000, CALLS / 3, Duration::from_millis(20))]
        {
            let mut took = [Vec::new(), Vec::new()];
            for call in 1..=calls {
                let items =
                    (0..size).map(|counter| long(ask(size + counter, call, call - 1, 1, 1, 1_000_000), ends));
                let body = shares(1, &items.collect::<Vec<Value>>()).to_string();
                for (ledger, took) in ledgers.iter().zip(&mut took) {
                    let began = Instant::now();
                    let answer = ledger.send("POST", "/v1/shares", &[], &body).await;
                    took.push(began.elapsed());
                    assert!(answer.status == 200 && !answer.body.contains("error"), "{}", answer.body);
                }
            }
            let [memory, file] = took.map(|mut took| {
                took.sort_unstable();
                took[took.len() / 2]
            });
            soak::row(
                "Median time of a call, ledger on memory and on a file",
                format!("{size} in each call"),
                format!("{memory:.2?} and {file:.2?}"),
            );
            assert!(file <= memory + most, "{size}: {file:?} with a file, {memory:?} with memory");
        }
    }
}
