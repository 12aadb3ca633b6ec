//! Copies of a database while the service runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::process::{Caller, Process, make_key};

async fn back_up(database: &str, file: &Path) -> Output {
    let mut backend = Command::new(env!("CARGO_BIN_EXE_backend"));
    backend.args(["backup", "--database", database]).arg(file);
    tokio::task::spawn_blocking(move || backend.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_copy_made_under_load_has_every_link_that_was_acknowledged_before() {
    const BEFORE: usize = 300;
    let (folder, database) = (TempDir::new().unwrap(), Database::sqlite());
    let caller = Caller::new(make_key(&database.url));
    let process = Arc::new(Process::start(&database.url));
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let (acknowledged, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (caller, process) = (caller.clone(), Arc::clone(&process));
        let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
        load.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let body = json!({"url": "https://example.com/"});
                let link = caller.json(Method::POST, process.url("/links"), &body).await.unwrap();
                acknowledged.lock().await.push(link["id"].as_str().unwrap().to_owned());
                let (status, _) = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
                assert_eq!(status, StatusCode::FOUND);
            }
        });
    }
    while acknowledged.lock().await.len() < BEFORE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let counted = async |process: &Process| {
        let counted = caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap();
        counted["clicks"].as_u64().unwrap()
    };
    let (before, recorded) = (acknowledged.lock().await.clone(), counted(&process).await);
    assert!(recorded > 0, "clicks are recorded before the copy");
    let copy = folder.path().join("it's a copy.db");
    let output = back_up(&database.url, &copy).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(acknowledged.lock().await.len() > before.len(), "links are made during the copy");
    is_over.store(true, Ordering::Relaxed);
    load.join_all().await;

    let restored = folder.path().join("restored.db");
    fs::copy(&copy, &restored).unwrap();
    let restored = Process::start(&format!("sqlite:{}", restored.display()));
    for id in &before {
        let found = caller.json(Method::GET, restored.url(&format!("/links/{id}")), &Value::Null);
        assert!(found.await.is_some(), "{id} is lost");
    }
    // It goes on from there, and so does the one that was copied.
    for process in [&*process, &restored] {
        let another = json!({"url": "https://example.com/another"});
        caller.json(Method::POST, process.url("/links"), &another).await.unwrap();
    }
    let (copied, all) = (counted(&restored).await, acknowledged.lock().await.len() as u64);
    assert!((recorded..=all).contains(&copied), "{copied} clicks were copied, of {recorded} to {all}");
}

#[tokio::test]
async fn a_copy_that_is_refused_leaves_no_file_and_overwrites_none() {
    let (folder, sqlite, postgres) =
        (TempDir::new().unwrap(), Database::sqlite(), Database::postgres().await);
    let (taken, free) = (folder.path().join("taken"), folder.path().join("free"));
    fs::write(&taken, "precious").unwrap();
    for database in [&sqlite, &postgres] {
        make_key(&database.url);
    }
    //  database, file, and what the message contains
    for (database, file, expected) in [
        (&sqlite, &taken, "taken already exists"),
        (&sqlite, &folder.path().join("none/copy.db"), "none/copy.db.incomplete: No such file"),
        (&postgres, &free, "pg_dump"),
    ] {
        let output = back_up(&database.url, file).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["taken"], "{expected}");
    }
    assert_eq!(fs::read_to_string(&taken).unwrap(), "precious");
}
