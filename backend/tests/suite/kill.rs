//! A process that is killed, and started again on the same database.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::database::{Database, on_both_databases};
use crate::process::{Caller, Process, counted, make_key};
use crate::receiver::Receiver;
use crate::soak::row;

on_both_databases! {
    a_killed_process_loses_no_acknowledged_link_and_no_event,
    a_killed_process_loses_no_click_that_is_in_the_log,
    a_process_that_is_killed_between_two_steps_counts_each_click_once,
    clicks_after_a_damaged_one_are_recorded_and_that_one_is_lost,
    a_killed_process_loses_the_clicks_of_a_tenth_of_a_second_at_most,
}

/// Links that are being made when the process is killed.
const CREATIONS: usize = 1_000;
/// Connections over which they are made.
const WORKERS: usize = 8;
/// Clients that follow a link until the process is killed.
const CLIENTS: usize = 2;
/// The longest that a click may be lost for.
const HELD: Duration = Duration::from_millis(100);
/// A deadline for another process.
const DEADLINE: Duration = Duration::from_secs(60);

/// A database, and the click log of a process.
struct Stage {
    database: Database,
    folder: TempDir,
}

impl Stage {
    fn new(database: Database) -> Self {
        Self { database, folder: TempDir::new().unwrap() }
    }

    fn click_log(&self) -> PathBuf {
        self.folder.path().join("clicks")
    }

    fn start(&self) -> Process {
        Process::start_with(&self.database.url, &["--click-log", self.click_log().to_str().unwrap()])
    }

    /// Starts a process after another one was killed. In PostgreSQL, other processes would wait until the deliveries of that one, which
    /// could still be under way, are due again after 30 s.
    async fn start_again(&self) -> Process {
        let due = "UPDATE webhook_deliveries SET due_at = (SELECT e.created_at FROM webhook_events e WHERE e.seq = event_seq)
            WHERE due_at > 0 AND delivered_at IS NULL";
        self.database.connect().await.execute(due).await.unwrap();
        self.start()
    }
}

async fn a_killed_process_loses_no_acknowledged_link_and_no_event(database: Database) {
    kill_while_creating(database, 400).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_no_acknowledged_link_and_no_event_on_sqlite() {
    ten_kills_while_creating("SQLite", async || Database::sqlite()).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_no_acknowledged_link_and_no_event_on_postgresql() {
    ten_kills_while_creating("PostgreSQL", async || Database::postgres().await).await;
}

async fn ten_kills_while_creating(name: &str, database: impl AsyncFn() -> Database) {
    let (mut acknowledged, mut deliveries) = (0, 0);
    for round in 0..10 {
        let (made, delivered) = kill_while_creating(database().await, 50 + 95 * round).await;
        acknowledged += made;
        deliveries += delivered;
    }
    row(
        "kill -9 while links are made",
        format!("{name}, 10 kills, {CREATIONS} creations each"),
        format!("{acknowledged} links acknowledged, none lost; all events heard, in {deliveries} deliveries"),
    );
}

/// Kills a process once it has acknowledged this number of creations, starts it again and looks for all of them. Returns how
/// many it had acknowledged, and how many deliveries it took until all their events were heard.
async fn kill_while_creating(database: Database, killed_after: usize) -> (usize, usize) {
    let stage = Stage::new(database);
    let caller = Caller::new(make_key(&stage.database.url));
    let mut receiver = Receiver::start().await;

    let process = stage.start();
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created"]});
    caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(Notify::new());
    let mut creating = JoinSet::new();
    for worker in 0..WORKERS {
        let (caller, url) = (caller.clone(), process.url("/links"));
        let (acknowledged, enough) = (Arc::clone(&acknowledged), Arc::clone(&enough));
        creating.spawn(async move {
            let mut ids = Vec::new();
            for n in (worker..CREATIONS).step_by(WORKERS) {
                let body = json!({"url": format!("https://example.com/{n}")});
                let Some(link) = caller.json(Method::POST, url.clone(), &body).await else { break };
                ids.push(link["id"].as_str().unwrap().to_owned());
                if acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == killed_after {
                    enough.notify_one();
                }
            }
            ids
        });
    }
    tokio::time::timeout(Duration::from_secs(60), enough.notified()).await.expect("links are made");
    drop(process);
    let mut ids = BTreeSet::new();
    while let Some(made) = creating.join_next().await {
        ids.extend(made.unwrap());
    }
    assert!((killed_after..CREATIONS).contains(&ids.len()), "{} were acknowledged", ids.len());

    let process = stage.start_again().await;
    for id in &ids {
        let found = caller.json(Method::GET, process.url(&format!("/links/{id}")), &Value::Null).await;
        let found = found.unwrap_or_else(|| panic!("{id} is lost"));
        let redirect = process.url(&format!("/r/{}", found["key"].as_str().unwrap()));
        let (status, _) = caller.call(Method::GET, redirect, &Value::Null).await.unwrap();
        assert_eq!(status, StatusCode::FOUND, "{id}");
    }
    // Each worker may have made one that was not acknowledged. Each link that was made has one event, which may be heard repeatedly.
    let made = caller.json(Method::GET, process.url("/links/count"), &Value::Null).await.unwrap();
    let made = usize::try_from(made.as_u64().unwrap()).unwrap();
    assert!((ids.len()..=ids.len() + WORKERS).contains(&made), "{made} of {} acknowledged", ids.len());
    let (mut deliveries, mut heard) = (0, BTreeMap::new());
    while heard.len() < made {
        let event = tokio::time::timeout(DEADLINE, receiver.next()).await.expect("an event is lost").json();
        let (id, link) = (event["id"].clone().to_string(), event["data"]["id"].as_str().unwrap().to_owned());
        assert_eq!(*heard.entry(link).or_insert_with(|| id.clone()), id, "a link was made once");
        deliveries += 1;
    }
    assert!(ids.iter().all(|id| heard.contains_key(id)));
    (ids.len(), deliveries)
}

async fn a_killed_process_loses_no_click_that_is_in_the_log(database: Database) {
    const LINKS: usize = 10;
    const CLICKS: usize = 200;
    let stage = Stage::new(database);
    let caller = Caller::new(make_key(&stage.database.url));
    let mut receiver = Receiver::start().await;
    let process = stage.start();
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.clicked"]});
    caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
    for n in 0..LINKS {
        let link = json!({"url": "https://example.com", "key": format!("k{n}")});
        caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
        let followed = caller.call(Method::GET, process.url(&format!("/r/k{n}")), &Value::Null).await;
        assert_eq!(followed.unwrap().0, StatusCode::FOUND);
    }
    let recorded = async {
        let clicks =
            async || caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap();
        while clicks().await["clicks"] != LINKS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, recorded).await.expect("clicks are recorded");

    let blocked = stage.database.block_recording().await;
    for n in 0..CLICKS {
        let url = process.url(&format!("/r/k{}", n % LINKS));
        assert_eq!(caller.call(Method::GET, url, &Value::Null).await.unwrap().0, StatusCode::FOUND);
    }
    let logged = async {
        let line = format!("weir_backend_click_log_clicks {CLICKS}\n");
        while !caller.text(process.internal_url("/metrics")).await.unwrap().contains(&line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, logged).await.expect("clicks are in the log");
    drop(process);
    drop(blocked);

    let process = stage.start_again().await;
    counted(&caller, &process, (LINKS + CLICKS) as u64).await;
    let links = caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
    let links: Vec<_> =
        links.as_array().unwrap().iter().map(|link| link["clicks"].as_u64().unwrap()).collect();
    assert_eq!(links, [1 + (CLICKS / LINKS) as u64; LINKS]);
    let events = caller.json(Method::GET, process.url("/events?limit=1000"), &Value::Null).await.unwrap();
    let clicks = events.as_array().unwrap().iter().map(|event| event["click"]["id"].as_str().unwrap());
    let clicks: BTreeSet<String> = clicks.map(str::to_owned).collect();
    assert_eq!(clicks.len(), LINKS + CLICKS);
    let (mut heard, mut ids) = (BTreeSet::new(), BTreeSet::new());
    while heard.len() < clicks.len() {
        let event = tokio::time::timeout(DEADLINE, receiver.next()).await.expect("an event is lost").json();
        heard.insert(event["data"]["click"]["id"].as_str().unwrap().to_owned());
        ids.insert(event["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((heard, ids.len()), (clicks, LINKS + CLICKS), "one event for each click");
}

/// The step after which a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Clicks are in the log, and a further one is there in part.
    Append,
    /// They are in the database, too.
    Commit,
    /// They are not in the log any more.
    Remove,
}

async fn a_process_that_is_killed_between_two_steps_counts_each_click_once(database: Database) {
    const CLICKS: usize = 50;
    let stage = Stage::new(database);
    let caller = Caller::new(make_key(&stage.database.url));
    let mut receiver = Receiver::start().await;
    let mut process = stage.start();
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.clicked"]});
    caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let mut clicks = 0;
    for step in [Step::Append, Step::Commit, Step::Remove, Step::Commit, Step::Append, Step::Remove] {
        let block = match step {
            Step::Append => Some(stage.database.block_recording().await),
            Step::Commit | Step::Remove => None,
        };
        let value = async |name: &str| {
            let metrics = caller.text(process.internal_url("/metrics")).await.unwrap();
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.trim().parse::<usize>().unwrap()
        };
        const RECORDED: &str = r#"weir_backend_clicks_total{outcome="recorded"}"#;
        // Those that the process before had not recorded.
        let before = value(RECORDED).await;
        for _ in 0..CLICKS {
            let followed = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
            assert_eq!(followed.0, StatusCode::FOUND);
        }
        clicks += CLICKS;
        let done = async {
            loop {
                let is_done = match step {
                    Step::Append => value("weir_backend_click_log_clicks").await == CLICKS,
                    Step::Commit => value(RECORDED).await == before + CLICKS,
                    Step::Remove => fs::metadata(stage.click_log()).unwrap().len() == 0,
                };
                if is_done {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, done).await.expect("the step is done");
        let is_in_log = fs::metadata(stage.click_log()).unwrap().len() > 0;
        drop(process);
        drop(block);
        // A slow machine may have removed what is in the database since.
        assert!(step == Step::Commit || is_in_log == (step == Step::Append), "{step:?}");
        if step == Step::Append {
            let mut log = File::options().append(true).open(stage.click_log()).unwrap();
            log.write_all(&[200, 0, 0, 0, 1, 2, 3, 4, 5]).unwrap();
        }
        // As if it had been killed while it wrote the file that replaces the log.
        fs::write(stage.folder.path().join("clicks.new"), "a part").unwrap();
        process = stage.start_again().await;
        // A later click is recorded after those of the log.
        let followed = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
        assert_eq!(followed.0, StatusCode::FOUND);
        clicks += 1;
        counted(&caller, &process, clicks as u64).await;
        let links = caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
        assert_eq!(links[0]["clicks"], clicks, "{step:?}");
        let events = caller.json(Method::GET, process.url("/events?limit=1000"), &Value::Null).await.unwrap();
        let ids = events.as_array().unwrap().iter().map(|event| event["click"]["id"].to_string());
        assert_eq!(ids.collect::<BTreeSet<_>>().len(), clicks, "{step:?}");
    }
    let mut heard = BTreeMap::new();
    while heard.len() < clicks {
        let event = tokio::time::timeout(DEADLINE, receiver.next()).await.expect("an event is lost").json();
        let id = event["id"].to_string();
        assert_eq!(*heard.entry(event["data"]["click"]["id"].to_string()).or_insert(id.clone()), id);
    }
}

async fn clicks_after_a_damaged_one_are_recorded_and_that_one_is_lost(database: Database) {
    const CLICKS: u64 = 9;
    let stage = Stage::new(database);
    let caller = Caller::new(make_key(&stage.database.url));
    let link = json!({"url": "https://example.com/a-destination", "key": "k"});
    let process = stage.start();
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let block = stage.database.block_recording().await;
    let metric = async |process: &Process, line: String| {
        let shown = async {
            while !caller.text(process.internal_url("/metrics")).await.unwrap().contains(&line) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, shown).await.unwrap_or_else(|_| panic!("{line}"));
    };
    for clicks in 1..=CLICKS {
        let followed = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
        assert_eq!(followed.0, StatusCode::FOUND);
        // One after the other, so that they are in order.
        metric(&process, format!("weir_backend_click_log_clicks {clicks}\n")).await;
    }
    drop(process);
    drop(block);
    let mut log = fs::read(stage.click_log()).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 0x40;
    fs::write(stage.click_log(), log).unwrap();

    let process = stage.start();
    counted(&caller, &process, CLICKS - 1).await;
    metric(&process, "weir_backend_clicks_total{outcome=\"lost\"} 1\n".to_owned()).await;
    metric(&process, "weir_backend_click_log_clicks 0\n".to_owned()).await;
}

async fn a_killed_process_loses_the_clicks_of_a_tenth_of_a_second_at_most(database: Database) {
    kill_while_clicking(database, Duration::from_secs(1)).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_the_clicks_of_a_tenth_of_a_second_at_most_on_sqlite() {
    ten_kills_while_clicking("SQLite", async || Database::sqlite()).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_the_clicks_of_a_tenth_of_a_second_at_most_on_postgresql() {
    ten_kills_while_clicking("PostgreSQL", async || Database::postgres().await).await;
}

async fn ten_kills_while_clicking(name: &str, database: impl AsyncFn() -> Database) {
    let (mut followed, mut all_lost, mut least) = (0, 0, usize::MAX);
    for round in 0..10 {
        let time = Duration::from_millis(500 + 137 * round);
        let Clicked { clicks, lost, held } = kill_while_clicking(database().await, time).await;
        followed += clicks;
        all_lost += lost;
        least = least.min(held);
    }
    row(
        "kill -9 while links are followed",
        format!("{name}, 10 kills, {followed} clicks"),
        format!("{all_lost} clicks lost; {HELD:?} held {least} or more each time"),
    );
}

/// What became of the clicks of a process that was killed.
struct Clicked {
    clicks: usize,
    lost: usize,
    /// The most that came in such a time as clicks may be lost for.
    held: usize,
}

/// Kills a process after `time` of clicks, starts it again and counts them.
#[expect(clippy::disallowed_methods, reason = "what was held for how long is a matter of real time")]
async fn kill_while_clicking(database: Database, time: Duration) -> Clicked {
    let stage = Stage::new(database);
    let caller = Caller::new(make_key(&stage.database.url));
    let process = stage.start();
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();

    let mut clicking = JoinSet::new();
    for _ in 0..CLIENTS {
        let (caller, url) = (caller.clone(), process.url("/r/k"));
        clicking.spawn(async move {
            let mut followed = Vec::new();
            while let Some((status, _)) = caller.call(Method::GET, url.clone(), &Value::Null).await {
                assert_eq!(status, StatusCode::FOUND);
                followed.push(Instant::now());
            }
            followed
        });
    }
    tokio::time::sleep(time).await;
    drop(process);
    let mut followed = Vec::new();
    while let Some(instants) = clicking.join_next().await {
        followed.extend(instants.unwrap());
    }
    followed.sort();
    // The most that any such time held: the clicks that are lost came one after the other, if not at the very end.
    let within =
        |first: usize| followed.partition_point(|at| at.duration_since(followed[first]) < HELD) - first;
    let held = (0..followed.len()).map(within).max().unwrap_or_default();

    let process = stage.start();
    // A later click is recorded after those of the log.
    let last = caller.call(Method::GET, process.url("/r/k?utm_source=last"), &Value::Null).await.unwrap();
    assert_eq!(last.0, StatusCode::FOUND);
    let clicks = async |query: &str| {
        let url = process.url(&format!("/analytics{query}"));
        caller.json(Method::GET, url, &Value::Null).await.unwrap()["clicks"].as_u64().unwrap() as usize
    };
    let recorded = async {
        while clicks("?utm_source=last").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, recorded).await.expect("clicks are recorded");
    let counted = clicks("").await - 1;
    // Each client may have followed the link once more without an answer. No click counts twice.
    assert!(counted <= followed.len() + CLIENTS, "{counted} clicks counted of {}", followed.len());
    let lost = followed.len().saturating_sub(counted);
    assert!(lost <= held, "{lost} of {} clicks were lost; at most {held} came in {HELD:?}", followed.len());
    Clicked { clicks: followed.len(), lost, held }
}
