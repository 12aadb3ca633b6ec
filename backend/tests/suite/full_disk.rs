//! A disk that takes no more, and takes more again. With PostgreSQL, it is the one with the spool, unless a test says otherwise.

use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

use crate::database::{Database, on_both_databases};
use crate::preload::Library;
use crate::process::{Caller, Process, make_key};

on_both_databases! {
    a_full_disk_refuses_links_delays_clicks_and_loses_nothing,
    redirects_go_on_while_the_disk_is_full_if_clicks_may_be_dropped,
}

/// A redirect that is not answered for so long waits for the disk.
const WAITS: Duration = Duration::from_secs(1);
/// Bytes for which there is room before the disk is full, so that a transaction ends in its middle.
const BUDGET: u32 = 6_000;

/// A disk that can be filled.
struct Disk {
    folder: TempDir,
    library: Library,
}

impl Disk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let definitions = [format!("FULL=\"{}\"", is_full(&folder).display()), format!("BUDGET={BUDGET}")];
        let library = Library::compile("full_disk.c", &definitions.each_ref().map(String::as_str));
        Self { folder, library }
    }

    /// Starts a service whose files are on this disk.
    fn start(&self, database: &Database, options: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        self.library.load(&mut command);
        let spool = self.folder.path().join("spool");
        let spool = if database.is_sqlite() { vec![] } else { vec!["--spool", spool.to_str().unwrap()] };
        Process::run(command, &database.url, &[options, &spool].concat())
    }

    fn fill(&self) {
        std::fs::write(is_full(&self.folder), "").unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(is_full(&self.folder)).unwrap();
    }
}

/// The file that exists while the disk is full.
fn is_full(folder: &TempDir) -> PathBuf {
    folder.path().join("full")
}

async fn is_ready(caller: &Caller, process: &Process) -> bool {
    let (status, _) = caller.call(Method::GET, process.internal_url("/readyz"), &Value::Null).await.unwrap();
    assert!([StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&status), "{status}");
    status.is_success()
}

/// A trigger raises the errors that PostgreSQL's storage raises.
#[tokio::test]
async fn while_postgresql_has_no_space_requests_are_to_be_repeated_and_the_service_is_not_ready() {
    let database = Database::postgres().await;
    let caller = Caller::new(make_key(&database.url));
    let process = Process::start(&database.url);
    let mut connection = database.connect().await;
    let link = json!({"url": "https://example.com"});
    let create = async || {
        let body = link.to_string().into();
        caller.send(Method::POST, process.url("/links"), body).await.unwrap()
    };
    assert_eq!(create().await.status(), StatusCode::OK);
    assert!(is_ready(&caller, &process).await);
    //  disk_full, out_of_memory, configuration_limit_exceeded
    for code in ["53100", "53200", "53400"] {
        let fill = format!(
            "CREATE OR REPLACE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$;
             CREATE OR REPLACE TRIGGER fill BEFORE INSERT ON links EXECUTE FUNCTION fill()"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(fill))).await.unwrap();
        let refused = create().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{code}");
        assert_eq!(refused.headers()["retry-after"], "1", "{code}");
        assert!(!is_ready(&caller, &process).await, "{code}");
        // What only reads is answered.
        caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
    }
    connection.execute("DROP TRIGGER fill ON links").await.unwrap();
    assert_eq!(create().await.status(), StatusCode::OK);
    let ready = async {
        while !is_ready(&caller, &process).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("the service is ready again");
}

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

async fn a_full_disk_refuses_links_delays_clicks_and_loses_nothing(database: Database) {
    let disk = Disk::new();
    let caller = Caller::new(make_key(&database.url));
    let process = disk.start(&database, &[]);
    let mut acknowledged = Vec::new();
    let create = async |key: &str| {
        let link = json!({"url": "https://example.com", "key": key});
        caller.call(Method::POST, process.url("/links"), &link).await.unwrap()
    };
    let read = async |process: &Process, links: &[String]| {
        for id in links {
            caller.json(Method::GET, process.url(&format!("/links/{id}")), &Value::Null).await.unwrap();
        }
    };
    let keys = |prefix: &str| (0..10).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    for key in keys("before") {
        let (status, link) = create(&key).await;
        assert_eq!(status, StatusCode::OK, "{link}");
        acknowledged.push(link["id"].as_str().unwrap().to_owned());
    }
    let follow = || caller.call(Method::GET, process.url("/r/before0"), &Value::Null);
    assert_eq!(follow().await.unwrap().0, StatusCode::FOUND);
    counted(&caller, &process, 1).await;

    disk.fill();
    let mut refused = Vec::new();
    for key in keys("full") {
        let (status, answer) = create(&key).await;
        if status == StatusCode::OK {
            acknowledged.push(answer["id"].as_str().unwrap().to_owned());
        } else {
            assert_eq!((status.as_u16(), &answer["error"]["code"]), (503, &json!("service_unavailable")));
            assert!(answer.to_string().contains("no space left"), "{answer}");
            refused.push(key);
        }
    }
    // PostgreSQL has a disk of its own.
    assert_eq!(refused.is_empty(), !database.is_sqlite());
    assert_eq!(is_ready(&caller, &process).await, refused.is_empty());
    // Clicks are held for a while, and then redirects wait, so that no more are held.
    let mut clicks = 1;
    loop {
        let mut redirect = pin!(follow());
        clicks += 1;
        assert!(clicks < 100_000, "the disk is not full");
        if let Ok(answer) = tokio::time::timeout(WAITS, &mut redirect).await {
            assert_eq!(answer.unwrap().0, StatusCode::FOUND);
            continue;
        }
        // What is only read is answered meanwhile.
        read(&process, &acknowledged).await;
        disk.free();
        assert_eq!(redirect.await.unwrap().0, StatusCode::FOUND);
        break;
    }
    counted(&caller, &process, clicks).await;
    // Of what was refused nothing is there, or the keys would be taken.
    for key in refused.iter().chain(&keys("after")) {
        let (status, link) = create(key).await;
        assert_eq!(status, StatusCode::OK, "{link}");
        acknowledged.push(link["id"].as_str().unwrap().to_owned());
    }
    read(&process, &acknowledged).await;
    drop(process);
    let process = disk.start(&database, &[]);
    read(&process, &acknowledged).await;
    counted(&caller, &process, clicks).await;
}

async fn redirects_go_on_while_the_disk_is_full_if_clicks_may_be_dropped(database: Database) {
    /// More than are held for lack of room.
    const REDIRECTS: usize = 100;
    let disk = Disk::new();
    let caller = Caller::new(make_key(&database.url));
    let process = disk.start(&database, &["--when-full", "drop"]);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let follow = async || {
        let redirect = caller.call(Method::GET, process.url("/r/k"), &Value::Null);
        let (status, _) = tokio::time::timeout(WAITS, redirect).await.expect("no redirect waits").unwrap();
        assert_eq!(status, StatusCode::FOUND);
    };
    disk.fill();
    for _ in 0..REDIRECTS {
        follow().await;
        // Clicks that come at once might all be held.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    disk.free();
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
