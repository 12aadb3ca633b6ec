//! Backups of a service that runs, restored in another place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::database::{self, Database, on_both_databases};
use crate::process::{Caller, Process, make_key};

on_both_databases! {
    a_backup_under_load_has_every_link_that_was_acknowledged_before,
    a_backup_has_the_clicks_that_are_only_in_the_log,
    nothing_is_overwritten,
    only_a_complete_and_unchanged_backup_is_restored,
}

/// A database with its click log, where it is not found by itself.
struct Place {
    database: Database,
    click_log: Option<PathBuf>,
}

impl Place {
    fn of(database: Database, folder: &Path, name: &str) -> Self {
        let click_log = (!database.is_sqlite()).then(|| folder.join(name));
        Self { database, click_log }
    }

    /// An empty one of the same kind.
    async fn another(&self, folder: &Path, name: &str) -> Self {
        let database =
            if self.database.is_sqlite() { Database::sqlite() } else { Database::postgres().await };
        Self::of(database, folder, name)
    }

    fn options(&self) -> Vec<&str> {
        self.click_log.iter().flat_map(|file| ["--click-log", file.to_str().unwrap()]).collect()
    }

    fn start(&self) -> Process {
        Process::start_with(&self.database.url, &self.options())
    }

    /// Runs `backend backup` or `backend restore`.
    async fn run(&self, command: &str, folder: &Path) -> Output {
        let mut backend = Command::new(env!("CARGO_BIN_EXE_backend"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(database::bin()).chain(std::env::split_paths(&path));
        backend.env("PATH", std::env::join_paths(path).unwrap());
        backend.args([command, "--database", &self.database.url]).args(self.options()).arg(folder);
        tokio::task::spawn_blocking(move || backend.output()).await.unwrap().unwrap()
    }
}

fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn a_backup_under_load_has_every_link_that_was_acknowledged_before(database: Database) {
    const BEFORE: usize = 300;
    let folder = TempDir::new().unwrap();
    let place = Place::of(database, folder.path(), "clicks");
    let caller = Caller::new(make_key(&place.database.url));
    let process = Arc::new(place.start());
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let (acknowledged, is_over) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(AtomicBool::new(false)));
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let (caller, process) = (caller.clone(), Arc::clone(&process));
        let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
        load.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let body = json!({"url": "https://example.com/"});
                let link = caller.json(Method::POST, process.url("/links"), &body).await.unwrap();
                acknowledged.lock().await.insert(link["id"].as_str().unwrap().to_owned());
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
    let before = acknowledged.lock().await.clone();
    let recorded = counted(&process).await;
    assert!(recorded > 0, "clicks are recorded before the backup");
    let copy = folder.path().join("backup");
    assert_done(&place.run("backup", &copy).await);
    let after = acknowledged.lock().await.len();
    assert!(after > before.len(), "links are made during the backup");
    is_over.store(true, Ordering::Relaxed);
    load.join_all().await;

    let restored = place.another(folder.path(), "restored-clicks").await;
    assert_done(&restored.run("restore", &copy).await);
    let restored_process = restored.start();
    for id in &before {
        let found = caller.json(Method::GET, restored_process.url(&format!("/links/{id}")), &Value::Null);
        assert!(found.await.is_some(), "{id} is lost");
    }
    // It goes on from there, and so does the one that was copied.
    for process in [&*process, &restored_process] {
        let another = json!({"url": "https://example.com/another"});
        caller.json(Method::POST, process.url("/links"), &another).await.unwrap();
    }
    let (copied, all) = (counted(&restored_process).await, acknowledged.lock().await.len() as u64);
    assert!((recorded..=all).contains(&copied), "{copied} clicks were copied, of {recorded} to {all}");
}

async fn a_backup_has_the_clicks_that_are_only_in_the_log(database: Database) {
    const CLICKS: u64 = 50;
    let folder = TempDir::new().unwrap();
    let place = Place::of(database, folder.path(), "clicks");
    let caller = Caller::new(make_key(&place.database.url));
    let process = place.start();
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let mut block = place.database.block_recording().await;
    for _ in 0..CLICKS {
        caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
    }
    let logged = async {
        let logged = format!("weir_backend_click_log_clicks {CLICKS}\n");
        while !caller.text(process.internal_url("/metrics")).await.unwrap().contains(&logged) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), logged).await.expect("the clicks are in the log");
    let copy = folder.path().join("backup");
    assert_done(&place.run("backup", &copy).await);
    block.execute("ROLLBACK").await.unwrap();

    let restored = place.another(folder.path(), "restored-clicks").await;
    assert_done(&restored.run("restore", &copy).await);
    for start in ["first", "second"] {
        let process = restored.start();
        let counted = caller.json(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap();
        assert_eq!(counted["clicks"], CLICKS, "{start} start");
    }
}

async fn nothing_is_overwritten(database: Database) {
    let folder = TempDir::new().unwrap();
    let place = Place::of(database, folder.path(), "clicks");
    make_key(&place.database.url);
    let copy = folder.path().join("backup");
    if let Some(click_log) = &place.click_log {
        let said = place.run("backup", &copy).await.stderr;
        assert!(String::from_utf8_lossy(&said).contains("clicks: no such file"), "a mistyped name");
        fs::write(click_log, "").unwrap();
    }
    assert_done(&place.run("backup", &copy).await);
    place.click_log.iter().for_each(|file| fs::remove_file(file).unwrap());
    for command in ["backup", "restore"] {
        let output = place.run(command, &copy).await;
        let said = String::from_utf8_lossy(&output.stderr);
        // PostgreSQL says it of a table.
        assert!(!output.status.success() && said.contains("already exists"), "{command}: {said}");
    }
    assert!(!folder.path().join("backup.incomplete").exists());
    // The clicks of another database would be recorded in the restored one.
    let restored = place.another(folder.path(), "restored-clicks").await;
    let click_log = restored.click_log.clone().unwrap_or_else(|| {
        format!("{}-clicks", restored.database.url.strip_prefix("sqlite:").unwrap()).into()
    });
    fs::write(&click_log, "").unwrap();
    let output = restored.run("restore", &copy).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{} already exists", click_log.display());
    assert!(!output.status.success() && said.contains(&expected), "{said}");
    fs::remove_file(&click_log).unwrap();
    assert_done(&restored.run("restore", &copy).await);
    let nowhere = place.run("restore", &folder.path().join("no-such-backup")).await;
    assert!(!nowhere.status.success(), "there is no such backup");
}

/// Copies the files of a folder to a new one.
fn copy_of(folder: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

async fn only_a_complete_and_unchanged_backup_is_restored(database: Database) {
    let folder = TempDir::new().unwrap();
    let place = Place::of(database, folder.path(), "clicks");
    let caller = Caller::new(make_key(&place.database.url));
    let process = place.start();
    let link = json!({"url": "https://example.com", "key": "k"});
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    let backup = folder.path().join("backup");
    assert_done(&place.run("backup", &backup).await);
    let (database, other) = match place.database.is_sqlite() {
        true => ("weir.db", "it is a backup of SQLite"),
        false => ("weir.pgdump", "it is a backup of PostgreSQL"),
    };
    //  change of a copy, and the reason why that is not restored
    type Change<'a> = Box<dyn Fn(&Path) + 'a>;
    let mut table: Vec<(Change<'_>, String)> = vec![
        // As a killed process leaves it.
        (
            Box::new(|copy| fs::remove_file(copy.join("manifest.json")).unwrap()),
            "it has no manifest.json, which `backend backup` writes last".to_owned(),
        ),
        (Box::new(|copy| fs::remove_file(copy.join("clicks-1")).unwrap()), "clicks-1 is missing".to_owned()),
        (
            Box::new(|copy| {
                let mut bytes = fs::read(copy.join(database)).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                fs::write(copy.join(database), bytes).unwrap();
            }),
            format!("{database} is damaged or was changed"),
        ),
    ];
    if let Some(file) = place.database.url.strip_prefix("sqlite:") {
        table.push((
            Box::new(|copy| {
                fs::remove_dir_all(copy).unwrap();
                copy_of(Path::new(file).parent().unwrap(), copy);
                fs::rename(copy.join("test.db"), copy.join(database)).unwrap();
            }),
            "belongs to a database in use".to_owned(),
        ));
    }
    for (number, (change, expected)) in table.iter().enumerate() {
        let copy = folder.path().join(format!("copy-{number}.incomplete"));
        copy_of(&backup, &copy);
        change(&copy);
        let target = place.another(folder.path(), "restored-clicks").await;
        let output = target.run("restore", &copy).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected.as_str()), "{expected}: {said}");
        assert!(said.contains(copy.to_str().unwrap()), "{said}");
        // It is still as empty as it was.
        assert_done(&target.run("restore", &backup).await);
        target.click_log.iter().for_each(|file| fs::remove_file(file).unwrap());
    }
    let wrong_url = if place.database.is_sqlite() {
        "postgres://127.0.0.1:1/none".to_owned()
    } else {
        format!("sqlite:{}", folder.path().join("none.db").display())
    };
    let wrong = Command::new(env!("CARGO_BIN_EXE_backend"))
        .args(["restore", "--database", &wrong_url])
        .arg(&backup)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains(other), "{said}");
}
