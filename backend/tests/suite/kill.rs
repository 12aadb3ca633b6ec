//! A process that is killed, and started again on the same database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::process::{Caller, Process, database_in, make_key};
use crate::receiver::Receiver;
use crate::soak::row;

/// Links that are being made when the process is killed.
const CREATIONS: usize = 1_000;
/// Connections over which they are made.
const WORKERS: usize = 8;
/// The longest that a click may be lost for.
const HELD: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_killed_process_loses_no_acknowledged_link_and_no_event() {
    kill_while_creating(400).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_no_acknowledged_link_and_no_event() {
    let (mut acknowledged, mut deliveries) = (0, 0);
    for round in 0..10 {
        let (made, delivered) = kill_while_creating(50 + 95 * round).await;
        acknowledged += made;
        deliveries += delivered;
    }
    row(
        "kill -9 while links are made",
        format!("10 kills, {CREATIONS} creations each"),
        format!("{acknowledged} links acknowledged, none lost; all events heard, in {deliveries} deliveries"),
    );
}

/// Kills a process once it has acknowledged so many of its creations, starts it again and looks for all of them. Returns how
/// many it had acknowledged, and how many deliveries it took until all their events were heard.
async fn kill_while_creating(killed_after: usize) -> (usize, usize) {
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    let caller = Caller::new(make_key(&database));
    let mut receiver = Receiver::start().await;

    let process = Process::start(&database);
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

    let process = Process::start(&database);
    for id in &ids {
        let found = caller.json(Method::GET, process.url(&format!("/links/{id}")), &Value::Null).await;
        let found = found.unwrap_or_else(|| panic!("{id} is lost"));
        let redirect = process.url(&format!("/r/{}", found["key"].as_str().unwrap()));
        let (status, _) = caller.call(Method::GET, redirect, &Value::Null).await.unwrap();
        assert_eq!(status, StatusCode::FOUND, "{id}");
    }
    let acknowledged = ids.len();
    let mut deliveries = 0;
    let mut unheard = ids;
    while !unheard.is_empty() {
        unheard.remove(receiver.next().await.json()["data"]["id"].as_str().unwrap());
        deliveries += 1;
    }
    (acknowledged, deliveries)
}

#[tokio::test]
async fn a_killed_process_loses_the_clicks_of_a_tenth_of_a_second_at_most() {
    kill_while_clicking(Duration::from_secs(1)).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_kills_lose_the_clicks_of_a_tenth_of_a_second_at_most() {
    let (mut followed, mut all_lost, mut least) = (0, 0, usize::MAX);
    for round in 0..10 {
        let Clicked { clicks, lost, held } =
            kill_while_clicking(Duration::from_millis(500 + 137 * round)).await;
        followed += clicks;
        all_lost += lost;
        least = least.min(held);
    }
    row(
        "kill -9 while links are followed",
        format!("10 kills, {followed} clicks"),
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
async fn kill_while_clicking(time: Duration) -> Clicked {
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    let caller = Caller::new(make_key(&database));
    let process = Process::start(&database);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();

    let mut clicking = JoinSet::new();
    for _ in 0..2 {
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

    let process = Process::start(&database);
    let counted = caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap();
    let counted = usize::try_from(counted["clicks"].as_u64().unwrap()).unwrap();
    let lost = followed.len().saturating_sub(counted);
    assert!(lost <= held, "{lost} of {} clicks were lost; at most {held} came in {HELD:?}", followed.len());
    Clicked { clicks: followed.len(), lost, held }
}
