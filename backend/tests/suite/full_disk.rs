//! A disk that takes no more, and takes more again.

use std::pin::pin;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Caller, Process, database_in, make_key};

/// A redirect that is not answered for so long waits for the disk.
const WAITS: Duration = Duration::from_secs(1);

/// Returns once so many clicks are counted; never if there are more.
async fn counted(caller: &Caller, process: &Process, clicks: u64) {
    let counted = async || {
        caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap()["clicks"]
            .as_u64()
            .unwrap()
    };
    let all = async {
        while counted().await != clicks {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("all clicks are counted");
}

#[tokio::test]
async fn a_full_disk_delays_clicks_and_loses_none() {
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    let caller = Caller::new(make_key(&database));
    let process = Process::start_limited(&database, &folder.path().join("log"), &[]);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let follow = || caller.call(Method::GET, process.url("/r/k"), &Value::Null);
    assert_eq!(follow().await.unwrap().0, StatusCode::FOUND);
    counted(&caller, &process, 1).await;

    process.limit_files("1");
    let another = json!({"url": "https://example.com"});
    let (status, refused) = caller.call(Method::POST, process.url("/links"), &another).await.unwrap();
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{refused}");
    // Clicks are held for a while, and then redirects wait, so that no more are held.
    let mut clicks = 1;
    loop {
        let mut redirect = pin!(follow());
        clicks += 1;
        if let Ok(answer) = tokio::time::timeout(WAITS, &mut redirect).await {
            assert_eq!(answer.unwrap().0, StatusCode::FOUND);
            continue;
        }
        // What is only read is answered meanwhile.
        caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
        process.limit_files("unlimited");
        assert_eq!(redirect.await.unwrap().0, StatusCode::FOUND);
        break;
    }
    counted(&caller, &process, clicks).await;
    caller.json(Method::POST, process.url("/links"), &another).await.unwrap();
}

#[tokio::test]
async fn redirects_go_on_while_the_disk_is_full_if_clicks_may_be_dropped() {
    /// More than are held for lack of room.
    const REDIRECTS: usize = 100;
    let folder = TempDir::new().unwrap();
    let database = database_in(folder.path());
    let caller = Caller::new(make_key(&database));
    let process = Process::start_limited(&database, &folder.path().join("log"), &["--when-full", "drop"]);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let follow = async || {
        let redirect = caller.call(Method::GET, process.url("/r/k"), &Value::Null);
        let (status, _) = tokio::time::timeout(WAITS, redirect).await.expect("no redirect waits").unwrap();
        assert_eq!(status, StatusCode::FOUND);
    };
    process.limit_files("1");
    for _ in 0..REDIRECTS {
        follow().await;
        // Clicks that come at once might all be held.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    process.limit_files("unlimited");
    let of_outcome = async |outcome: &str| {
        let metrics = caller.text(process.internal_url("/metrics")).await.unwrap();
        let name = format!("weir_backend_clicks_total{{outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
        line.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    let all = async {
        while of_outcome("recorded").await + of_outcome("dropped").await < REDIRECTS {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("each click is recorded or dropped");
    let dropped = of_outcome("dropped").await;
    assert!(dropped > 0);
    follow().await;
    counted(&caller, &process, (REDIRECTS - dropped + 1) as u64).await;
}
