//! A disk that takes no more, and takes more again. With PostgreSQL, it is the one with the click log, unless a test says otherwise.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

use crate::database::{Database, on_both_databases};
use crate::preload::Library;
use crate::process::{Caller, Process, counted, make_key};

on_both_databases! {
    a_full_disk_refuses_links_delays_clicks_and_loses_nothing,
    a_service_starts_while_nothing_can_be_written,
}

/// A redirect that is not answered for so long waits for the disk.
const WAITS: Duration = Duration::from_secs(10);
/// Redirects while the disk is full.
const REDIRECTS: u64 = 300;
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
    fn start(&self, database: &Database) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        self.library.load(&mut command);
        let click_log = self.folder.path().join("clicks");
        Process::run(command, &database.url, &["--click-log", click_log.to_str().unwrap()])
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

/// A trigger raises the errors that PostgreSQL's storage raises.
#[tokio::test]
async fn while_postgresql_has_no_space_requests_are_to_be_repeated() {
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
        // What only reads is answered.
        caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
    }
    connection.execute("DROP TRIGGER fill ON links").await.unwrap();
    assert_eq!(create().await.status(), StatusCode::OK);
}

async fn a_full_disk_refuses_links_delays_clicks_and_loses_nothing(database: Database) {
    let disk = Disk::new();
    let caller = Caller::new(make_key(&database.url));
    let process = disk.start(&database);
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
    // Clicks are kept in memory, and no redirect waits. What is only read is answered as well.
    for _ in 0..REDIRECTS {
        let redirect = tokio::time::timeout(WAITS, follow()).await.expect("no redirect waits");
        assert_eq!(redirect.unwrap().0, StatusCode::FOUND);
        // The writer tries to write them, in several groups.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    read(&process, &acknowledged).await;
    disk.free();
    let clicks = 1 + REDIRECTS;
    counted(&caller, &process, clicks).await;
    // Of what was refused nothing is there, or the keys would be taken.
    for key in refused.iter().chain(&keys("after")) {
        let (status, link) = create(key).await;
        assert_eq!(status, StatusCode::OK, "{link}");
        acknowledged.push(link["id"].as_str().unwrap().to_owned());
    }
    read(&process, &acknowledged).await;
    drop(process);
    let process = disk.start(&database);
    read(&process, &acknowledged).await;
    counted(&caller, &process, clicks).await;
}

/// The disk of SQLite is full, and PostgreSQL is read-only.
async fn a_service_starts_while_nothing_can_be_written(database: Database) {
    const CLICKS: u64 = 20;
    let disk = Disk::new();
    let caller = Caller::new(make_key(&database.url));
    let link = json!({"url": "https://example.com", "key": "k"});
    let process = disk.start(&database);
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let follow = async |process: &Process| {
        let (status, _) = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
        assert_eq!(status, StatusCode::FOUND);
    };
    let block = database.block_recording().await;
    for _ in 0..CLICKS {
        follow(&process).await;
    }
    let line = format!("weir_backend_click_log_clicks {CLICKS}\n");
    let logged = async {
        while !caller.text(process.internal_url("/metrics")).await.unwrap().contains(&line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), logged).await.expect("clicks wait in the log");
    drop(process);
    drop(block);

    let mut administrator = database.connect().await;
    let name = database.url.rsplit_once('/').unwrap().1.to_owned();
    if database.is_sqlite() {
        disk.fill();
    } else {
        let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
        administrator.execute(AssertSqlSafe(read_only)).await.unwrap();
    }
    let process = disk.start(&database);
    follow(&process).await;
    let links = caller.json(Method::GET, process.url("/links"), &Value::Null).await.unwrap();
    assert_eq!((&links[0]["key"], &links[0]["clicks"]), (&json!("k"), &json!(0)));
    let another = json!({"url": "https://example.com/another"}).to_string();
    let create =
        async || caller.send(Method::POST, process.url("/links"), another.clone().into()).await.unwrap();
    let refused = create().await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");

    if database.is_sqlite() {
        disk.free();
    } else {
        let writable = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
        administrator.execute(AssertSqlSafe(writable)).await.unwrap();
        // Those that are open keep the setting.
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        administrator.execute(others).await.unwrap();
    }
    let created = async {
        while create().await.status() != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), created).await.expect("links are made again");
    counted(&caller, &process, CLICKS + 1).await;
}
