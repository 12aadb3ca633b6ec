//! Several processes on one database.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use backend::{Click, Settings, Terms};
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::process::{Caller, Process, database_in, make_key};
use crate::receiver::Receiver;
use crate::service::{Service, settings};

#[tokio::test]
async fn one_process_serves_a_sqlite_file_and_commands_work_beside_it() {
    let folder = TempDir::new().unwrap();
    let (database, backup) = (database_in(folder.path()), folder.path().join("backup.db"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("60").arg(env!("CARGO_BIN_EXE_backend")).args(arguments).args(["--database", &database]);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"];
    let key = make_key(&database);
    // The second time, the first process was killed.
    for time in ["first", "second"] {
        let process = Process::start(&database);
        let (succeeded, message) = run(&serve);
        let file = database.strip_prefix("sqlite:").unwrap();
        let expected = format!("{file}: another `backend serve` uses this file");
        assert!(!succeeded && message.contains(&expected), "{time}: {message}");
        assert_eq!(message.trim().lines().count(), 1, "{message}");
        for beside in [
            &["migrate"][..],
            &["keys", "create", "--plan", "pro"],
            &["keys", "list"],
            &["domains", "list"],
            &["backup", backup.to_str().unwrap()],
        ] {
            let (succeeded, message) = run(beside);
            assert!(succeeded, "{time} {beside:?}: {message}");
        }
        std::fs::remove_file(&backup).unwrap();
        let links = Caller::new(key.clone()).json(Method::GET, process.url("/links"), &Value::Null).await;
        assert_eq!(links, Some(json!([])), "{time}");
    }
}

#[tokio::test]
async fn two_processes_that_start_on_an_empty_database_create_its_schema_once() {
    let database = Database::postgres().await;
    // Keeps both from creating it until both have come that far.
    let mut lock = database.connect().await;
    let take = "BEGIN; SELECT 1 FROM pg_advisory_xact_lock(hashtext('weir schema'))";
    lock.execute(sqlx::raw_sql(take)).await.unwrap();
    let start = || {
        let url = database.url.clone();
        tokio::task::spawn_blocking(move || Process::start(&url))
    };
    let (first, second) = (start(), start());
    database.waits_for_locks(2).await;
    lock.execute("ROLLBACK").await.unwrap();
    let processes = [first.await.unwrap(), second.await.unwrap()];

    let caller = Caller::new(make_key(&database.url));
    for process in processes {
        let links = caller.json(Method::GET, process.url("/links"), &Value::Null).await;
        assert_eq!(links, Some(json!([])));
    }
    let versions = "SELECT COUNT(*) FROM schema_version";
    assert_eq!(sqlx::query_scalar::<_, i64>(versions).fetch_one(&mut lock).await.unwrap(), 1);
}

#[tokio::test]
async fn a_change_of_the_keys_through_one_service_is_seen_by_another() {
    let database = Database::postgres().await;
    let settings = Settings { internal_token: Some("s3cret".to_owned()), ..settings() };
    let first = Service::with_settings(database.shared(), settings).await;
    let second = first.beside(database).await;
    let directory = async |service: &Service, tag: &str| {
        let request = Request::get("/internal/keys").header("authorization", "Bearer s3cret");
        let answer =
            service.send_internal(request.header("if-none-match", tag).body(Body::empty()).unwrap()).await;
        (answer.status, answer.headers["etag"].to_str().unwrap().to_owned())
    };
    let (_, mut tag) = directory(&second, "").await;
    let (workspace, _) = first.new_workspace("other").await;
    let (id, _) =
        first.backend.store().create_key(&workspace, &Terms::of_plan("pro"), first.now()).await.unwrap();
    for change in ["made", "revoked", "unchanged"] {
        if change == "revoked" {
            assert!(first.backend.store().revoke_key(&id, first.now()).await.unwrap());
        }
        let (status, new) = directory(&second, &tag).await;
        let expected = if change == "unchanged" { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        assert_eq!(status, expected, "{change}");
        assert_eq!(new == tag, change == "unchanged", "{change}");
        assert_eq!(directory(&first, &new).await, (StatusCode::NOT_MODIFIED, new.clone()), "{change}");
        tag = new;
    }
}

#[tokio::test]
async fn two_services_on_one_postgresql_deliver_each_event_once_and_count_every_click() {
    let database = Database::postgres().await;
    let first = Arc::new(Service::start(database.shared()).await);
    let second = Arc::new(first.beside(database).await);
    let mut receiver = Receiver::start().await;
    let body = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created", "link.clicked"]});
    assert_eq!(first.post("/webhooks", &body).await.status, StatusCode::CREATED);
    let mut ids = Vec::new();
    for n in 0..10 {
        let link =
            first.link(&json!({"url": format!("https://example.com/{n}"), "key": format!("k{n}")})).await;
        ids.push(link["id"].as_str().unwrap().to_owned());
    }
    // Both record clicks on the same links, in batches whose links come in opposite orders.
    let mut recording = JoinSet::new();
    for (service, reversed) in [(Arc::clone(&first), false), (Arc::clone(&second), true)] {
        let mut ids = ids.clone();
        if reversed {
            ids.reverse();
        }
        recording.spawn(async move {
            for _ in 0..10 {
                let clicks: Vec<Click> = ids.iter().map(|id| Click::new(id, service.now())).collect();
                service.backend.store().record_clicks(&clicks).await.unwrap();
            }
        });
    }
    while let Some(done) = recording.join_next().await {
        done.unwrap();
    }
    // What was written past the services is found when they look again.
    first.clock.advance(Duration::from_secs(1));
    second.clock.advance(Duration::from_secs(1));
    let mut seen = BTreeSet::new();
    for _ in 0..10 + 200 {
        let id = receiver.next().await.json()["id"].as_str().unwrap().to_owned();
        assert!(seen.insert(id), "an event came twice");
    }
    for service in [first, second] {
        assert_eq!(service.get("/analytics?start=1+hour+ago").await.body["clicks"], 200);
        assert_eq!(service.get("/analytics?groupBy=top_links").await.each("clicks"), vec![&json!(20); 10]);
        assert_eq!(service.get("/links").await.each("clicks"), vec![&json!(20); 10]);
        Arc::into_inner(service).unwrap().shut_down().await;
    }
    assert!(receiver.is_empty());
}
