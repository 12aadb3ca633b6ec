//! Clicks that the database refuses, and batches that are too large for one transaction.

use std::process::Command;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::{SetAside, Settings, StoreError};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sqlx::{Executor, Row};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::database::{Database, on_both_databases};
use crate::process::{Caller, Process, make_key};
use crate::receiver::Silent;
use crate::service::{Service, settings};

on_both_databases! {
    a_click_that_the_database_refuses_is_set_aside_and_replayed_once_the_cause_is_mended,
    the_events_of_a_large_link_are_written_in_bounded_transactions,
    clicks_that_were_set_aside_expire_like_others,
}

const REFUSED: &str = "curl/refused";

/// Makes the database refuse clicks of an agent.
async fn refuse(database: &Database) {
    let refuse = if database.is_sqlite() {
        "CREATE TRIGGER refuse BEFORE INSERT ON clicks WHEN NEW.user_agent = 'curl/refused'
         BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    } else {
        "ALTER TABLE clicks ADD CONSTRAINT refuse CHECK (user_agent <> 'curl/refused') NOT VALID"
    };
    database.connect().await.execute(refuse).await.unwrap();
}

async fn mend(database: &Database) {
    let mend = if database.is_sqlite() {
        "DROP TRIGGER refuse"
    } else {
        "ALTER TABLE clicks DROP CONSTRAINT refuse"
    };
    database.connect().await.execute(mend).await.unwrap();
}

async fn listed(service: &Service) -> Vec<SetAside> {
    let mut entries = Vec::new();
    let listed = service.backend.store().each_set_aside(|entry| {
        entries.push(entry);
        Ok::<_, StoreError>(())
    });
    listed.await.unwrap();
    entries
}

async fn a_click_that_the_database_refuses_is_set_aside_and_replayed_once_the_cause_is_mended(
    database: Database,
) {
    let folder = TempDir::new().unwrap();
    let service = Service::spooling(database, Some(folder.path().join("spool")), settings()).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let count = async |service: &Service| service.get("/analytics").await.body["clicks"].clone();
    refuse(service.database()).await;
    for agent in ["curl/1", "curl/2", REFUSED, "curl/3", "curl/4"] {
        assert_eq!(service.follow(Method::GET, "/r/k", agent).await.status, StatusCode::FOUND);
    }
    service.backend.flush_clicks().await;
    assert_eq!(count(&service).await, 4);
    let entries = listed(&service).await;
    let [entry] = entries.as_slice() else { panic!("{entries:?}") };
    let clicks = entry.clicks.as_ref().unwrap();
    assert_eq!((clicks.len(), &*clicks[0].details.user_agent), (1, REFUSED));
    assert_eq!(clicks[0].id, entry.id);
    let shown = entry.to_json();
    assert_eq!(shown["clicks"][0]["click"]["ua"], REFUSED, "{shown}");
    let metrics = service.metrics().await;
    for line in
        [r#"weir_backend_clicks_total{outcome="set_aside"} 1"#, "weir_backend_set_aside_entries{} 1\n"]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    // Neither is it recorded by the next process, nor are the others again.
    let service = service.restart().await;
    assert_eq!(count(&service).await, 4);
    let replay = async |service: &Service| {
        service.backend.store().replay_set_aside(service.backend.public_url()).await.unwrap()
    };
    let replayed = replay(&service).await;
    assert_eq!((replayed.recorded, replayed.refused.len()), (0, 1), "{replayed:?}");
    assert_eq!(replayed.refused[0].0, entry.id);
    mend(service.database()).await;
    for recorded in [1, 0] {
        let replayed = replay(&service).await;
        assert_eq!((replayed.recorded, replayed.refused.len()), (recorded, 0), "{replayed:?}");
        assert_eq!(count(&service).await, 5);
    }
    assert_eq!(listed(&service).await, []);
    assert!(service.metrics().await.contains("weir_backend_set_aside_entries{} 0\n"));
    assert_eq!(service.get("/events?limit=1000").await.body.as_array().unwrap().len(), 5);
}

async fn clicks_that_were_set_aside_expire_like_others(database: Database) {
    const DAY: Duration = Duration::from_secs(86_400);
    let settings = Settings { retention: Some(30 * DAY), ..settings() };
    let service = Service::with_settings(database, settings).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    refuse(service.database()).await;
    for _ in 0..2 {
        service.follow(Method::GET, "/r/k", REFUSED).await;
        service.backend.flush_clicks().await;
        service.clock.advance(20 * DAY);
    }
    let [old, recent] = [40, 20].map(|days| service.now() - SignedDuration::from_hours(24 * days));
    let expired = async {
        loop {
            let entries = listed(&service).await;
            let at: Vec<_> = entries.iter().map(|entry| entry.clicks.as_ref().unwrap()[0].at).collect();
            if at != [old, recent] {
                break at;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let left = tokio::time::timeout(Duration::from_secs(60), expired).await.expect("the first one expires");
    assert_eq!(left, [recent]);
}

async fn the_events_of_a_large_link_are_written_in_bounded_transactions(database: Database) {
    /// Their events have more than the 2 MiB that one transaction may write.
    const CLICKS: usize = 1_200;
    const WEBHOOKS: usize = 2;
    let folder = TempDir::new().unwrap();
    let service = Service::spooling(database, Some(folder.path().join("spool")), settings()).await;
    let large = "x".repeat(31_000);
    let link = json!({"url": "https://example.com", "key": "k", "title": large, "description": large});
    service.link(&link).await;
    let silent = Silent::start().await;
    for n in 0..WEBHOOKS {
        let url = format!("{}{n}", silent.url());
        let body = json!({"name": "rx", "url": url, "triggers": ["link.clicked"]});
        assert_eq!(service.post("/webhooks", &body).await.status, StatusCode::CREATED);
    }
    // All at once, after those that came first.
    let mut block = service.database().block_recording().await;
    for _ in 0..CLICKS {
        assert_eq!(service.follow(Method::GET, "/r/k", "curl/8").await.status, StatusCode::FOUND);
    }
    block.execute("ROLLBACK").await.unwrap();
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/analytics").await.body["clicks"], CLICKS);
    let clicks_told = if service.database().is_sqlite() {
        "SELECT COUNT(DISTINCT (e.payload || 'null}}')->'data'->'click'->>'id') FROM webhook_events e"
    } else {
        "SELECT COUNT(DISTINCT CAST(e.payload || 'null}}' AS JSON)->'data'->'click'->>'id') FROM webhook_events e"
    };
    //  statement, and the number that it finds
    let table = [
        ("SELECT COUNT(*) FROM webhook_events", CLICKS),
        ("SELECT COUNT(*) FROM webhook_deliveries", WEBHOOKS * CLICKS),
        (
            "SELECT COUNT(*) FROM (SELECT DISTINCT event_seq, webhook_seq FROM webhook_deliveries) d",
            WEBHOOKS * CLICKS,
        ),
        (clicks_told, CLICKS),
    ];
    for (statement, expected) in table {
        let found: i64 = block.fetch_one(statement).await.unwrap().get(0);
        assert_eq!(found, expected as i64, "{statement}");
    }
    if !service.database().is_sqlite() {
        // A row names the transaction that wrote it.
        let largest = "SELECT MAX(t.bytes) FROM
            (SELECT CAST(SUM(LENGTH(e.payload)) AS BIGINT) AS bytes FROM webhook_events e GROUP BY CAST(e.xmin AS TEXT)) t";
        let largest: i64 = block.fetch_one(largest).await.unwrap().get(0);
        assert!(largest < 2 << 20, "{largest} bytes in one transaction");
        let transactions = "SELECT COUNT(DISTINCT CAST(e.xmin AS TEXT)) FROM webhook_events e";
        let transactions: i64 = block.fetch_one(transactions).await.unwrap().get(0);
        assert!(transactions > 1, "all in one transaction");
    }
}

/// Follows a link as an agent.
async fn follow_as(process: &Process, agent: &str) {
    let mut stream = TcpStream::connect(process.address()).await.unwrap();
    let request =
        format!("GET /r/k HTTP/1.1\r\nhost: s.test\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_records_a_batch_in_parts_records_no_click_twice() {
    let folder = TempDir::new().unwrap();
    let spool = folder.path().join("spool");
    let options = ["--spool", spool.to_str().unwrap()];
    let database = Database::postgres().await;
    let caller = Caller::new(make_key(&database.url));
    let process = Process::start_with(&database.url, &options);
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    // One kind of click is refused, and another waits for a lock that is held here.
    let mut connection = database.connect().await;
    let trigger = "CREATE FUNCTION judge() RETURNS TRIGGER LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.user_agent = 'curl/refused' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END IF;
            IF NEW.user_agent = 'curl/slow' THEN PERFORM pg_advisory_xact_lock(42); END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER judge BEFORE INSERT ON clicks FOR EACH ROW EXECUTE FUNCTION judge();
        SELECT COUNT(*) FROM pg_advisory_lock(42)";
    connection.execute(sqlx::raw_sql(trigger)).await.unwrap();
    let mut block = database.block_recording().await;
    let mut waiting = async |of: &'static str| {
        while connection.fetch_one(of).await.unwrap().get::<i64, _>(0) == 0 {
            tokio::task::yield_now().await;
        }
    };
    // What is spooled while the first click is recorded is one batch.
    follow_as(&process, "curl/first").await;
    let blocked = "SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND NOT l.granted";
    waiting(blocked).await;
    for agent in ["curl/1", "curl/2", "curl/3", "curl/4", REFUSED, "curl/slow", "curl/5", "curl/6"] {
        follow_as(&process, agent).await;
    }
    block.execute("ROLLBACK").await.unwrap();
    let at_the_slow_one = "SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted";
    waiting(at_the_slow_one).await;
    let recorded = async |block: &mut sqlx::AnyConnection| {
        let count = block.fetch_one("SELECT COUNT(*) FROM clicks").await.unwrap();
        count.get::<i64, _>(0)
    };
    assert_eq!(recorded(&mut block).await, 1 + 4, "the first half is recorded and the second is not");
    drop(process);
    connection.execute("SELECT pg_advisory_unlock(42)").await.unwrap();

    let process = Process::start_with(&database.url, &options);
    let counted = caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap();
    assert_eq!((&counted["clicks"], recorded(&mut block).await), (&json!(1 + 4 + 3), 1 + 4 + 3));
    let kept = block.fetch_one("SELECT COUNT(*) FROM set_aside_clicks").await.unwrap();
    assert_eq!(kept.get::<i64, _>(0), 1);
}

#[tokio::test]
async fn clicks_that_were_set_aside_are_listed_replayed_and_deleted_by_the_command() {
    let service = Service::start(Database::sqlite()).await;
    let database = service.database().url.clone();
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    refuse(service.database()).await;
    for _ in 0..2 {
        service.follow(Method::GET, "/r/k", REFUSED).await;
    }
    service.backend.flush_clicks().await;
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        command.arg("set-aside").args(arguments).env("WEIR_DATABASE", &database);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, listed) = run(&["list"]).await;
    let entries: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, entries.len()), (Some(0), 2), "{listed}");
    assert!(entries[0]["reason"].as_str().unwrap().contains("not this one"), "{listed}");
    let id = entries[0]["id"].as_str().unwrap();
    assert_eq!(run(&["delete", id]).await.0, Some(0));
    assert_eq!(run(&["delete", id]).await.0, Some(1));
    let replay = ["replay", "--public-url", "https://s.test"];
    let (code, said) = run(&replay).await;
    assert!(
        code == Some(3) && said.ends_with("0 clicks recorded, 0 on deleted links, 1 still refused\n"),
        "{said}"
    );
    mend(service.database()).await;
    let recorded = "1 click recorded, 0 on deleted links, 0 still refused\n".to_owned();
    assert_eq!(run(&replay).await, (Some(0), recorded));
    assert_eq!(run(&["list"]).await, (Some(0), String::new()));
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(service.get("/analytics").await.body["clicks"], 1);
}
