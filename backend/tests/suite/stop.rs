//! The end of a process that is asked to stop while its database does not answer.

use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::database::{Database, on_both_databases};
use crate::process::{Caller, Process, counted, make_key};

on_both_databases! {
    a_process_whose_database_does_not_answer_ends_in_time_and_leaves_its_clicks_in_the_log,
}

const CLICKS: u64 = 20;
/// What the documentation promises.
const IN_TIME: Duration = Duration::from_secs(40);
/// After the second signal, nothing is waited for.
const AT_ONCE: Duration = Duration::from_secs(3);

async fn a_process_whose_database_does_not_answer_ends_in_time_and_leaves_its_clicks_in_the_log(
    database: Database,
) {
    let folder = TempDir::new().unwrap();
    let (log, click_log) = (folder.path().join("log"), folder.path().join("clicks"));
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"]);
        command.args(["--database", &database.url]);
        command.arg("--click-log").arg(&click_log);
        Process::start_as_it_is({
            command.env("RUST_LOG", "backend=info").stderr(File::create(&log).unwrap());
            command
        })
    };
    let logged = async |text: &str| {
        let found = async {
            while !fs::read_to_string(&log).unwrap().contains(text) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), found).await.unwrap_or_else(|_| panic!("{text} is not logged"));
    };
    let caller = Caller::new(make_key(&database.url));
    let link = json!({"url": "https://example.com", "key": "k"});
    let process = start();
    caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    drop(process);
    //  number of signals, the time until the process ends, and its exit code
    for (round, (signals, limit, code)) in (1..).zip([(1, IN_TIME, 0), (2, AT_ONCE, 1)]) {
        let mut process = start();
        let mut block = database.block_recording().await;
        for _ in 0..CLICKS {
            let followed = caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();
            assert_eq!(followed.0, StatusCode::FOUND);
        }
        let logged_clicks = format!("weir_backend_click_log_clicks {CLICKS}\n");
        let all = async {
            while !caller.text(process.internal_url("/metrics")).await.unwrap().contains(&logged_clicks) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), all).await.expect("the clicks are in the log");
        process.terminate();
        logged("stopping").await;
        for _ in 1..signals {
            process.terminate();
        }
        let ended = timeout(limit, process.ended()).await;
        assert_eq!(ended, Ok(Some(code)), "{signals}: {}", fs::read_to_string(&log).unwrap());
        logged("clicks of the click log that could not be recorded: 20. The next process records them").await;
        block.execute("ROLLBACK").await.unwrap();
        drop(process);

        let mut process = start();
        counted(&caller, &process, CLICKS * round).await;
        // The next one finds an empty click log.
        process.terminate();
        assert_eq!(timeout(IN_TIME, process.ended()).await, Ok(Some(0)));
    }
}
