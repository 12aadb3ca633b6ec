//! Bulk calls that are cut off: by the time limit of requests, by a client that vanishes, by the end of the process and by the database.
//! All of their links are written, or none.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::Settings;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Executor, Row};
use tokio::time::Instant;

use crate::database::{Database, on_both_databases};
use crate::process::{BROWSER, Caller, Process, make_key};
use crate::service::{Service, settings};

on_both_databases! {
    a_bulk_call_that_times_out_writes_all_of_its_links_or_none,
    a_bulk_call_whose_client_vanishes_or_whose_process_is_killed_writes_all_of_its_links_or_none,
    a_bulk_call_that_fails_in_the_middle_leaves_no_link_that_is_deleted_and_followed,
}

/// Links of a call.
const LINKS: usize = 100;

#[derive(Clone, Copy, Debug)]
enum Call {
    Create,
    Update,
    Delete,
}

fn external_ids(round: usize) -> Vec<String> {
    (0..LINKS).map(|n| format!("large-{round}-{n}")).collect()
}

fn request(call: Call, round: usize) -> (Method, String, Value) {
    let ids = external_ids(round);
    match call {
        Call::Create => {
            let url = format!("https://example.com/{}", "u".repeat(30_000));
            let link = |id: &String| json!({"url": url, "comments": "c".repeat(30_000), "externalId": id, "key": id});
            (Method::POST, "/links/bulk".to_owned(), ids.iter().map(link).collect())
        }
        Call::Update => {
            let body = json!({"externalIds": ids, "data": {"comments": "d".repeat(30_000)}});
            (Method::PATCH, "/links/bulk".to_owned(), body)
        }
        Call::Delete => {
            let ids: Vec<String> = ids.iter().map(|id| format!("ext_{id}")).collect();
            (Method::DELETE, format!("/links/bulk?linkIds={}", ids.join(",")), Value::Null)
        }
    }
}

/// Number of links that a call has written.
async fn written(database: &mut AnyConnection, call: Call, round: usize) -> usize {
    let updated = if matches!(call, Call::Update) { r#"%"comments":"ddd%"# } else { "%" };
    let query = "SELECT COUNT(*) FROM links WHERE external_id LIKE $1 AND details LIKE $2";
    let query = sqlx::query(query).bind(format!("large-{round}-%")).bind(updated);
    let stored: i64 = query.fetch_one(database).await.unwrap().get(0);
    let stored = usize::try_from(stored).unwrap();
    if matches!(call, Call::Delete) { LINKS - stored } else { stored }
}

async fn a_bulk_call_that_times_out_writes_all_of_its_links_or_none(database: Database) {
    let mut service = Service::start(database).await;
    let mut connection = service.database().connect().await;
    let (_, path, body) = request(Call::Create, 0);
    let began = Instant::now();
    assert_eq!(service.post(&path, &body).await.status, StatusCode::OK);
    let took = began.elapsed();
    let mut timed_out = 0;
    for round in 1..=16 {
        let request_timeout = took * u32::try_from(round).unwrap() / 12;
        service = service.restart_with(Settings { request_timeout, ..settings() }).await;
        let (_, path, body) = request(Call::Create, round);
        let status = service.post(&path, &body).await.status;
        service = service.restart_with(settings()).await;
        let left = written(&mut connection, Call::Create, round).await;
        let is_complete = status == StatusCode::OK;
        assert!(left == LINKS || (left == 0 && !is_complete), "{status}, and {left} links in round {round}");
        timed_out += usize::from(status == StatusCode::REQUEST_TIMEOUT);
    }
    assert!(timed_out > 0);
}

async fn a_bulk_call_whose_client_vanishes_or_whose_process_is_killed_writes_all_of_its_links_or_none(
    database: Database,
) {
    let caller = Caller::new(make_key(&database.url));
    let mut process = Process::start(&database.url);
    let mut connection = database.connect().await;
    let mut round = 0;
    for call in [Call::Create, Call::Update, Call::Delete] {
        for is_killed in [false, true] {
            for milliseconds in [30, 100, 250] {
                round += 1;
                let send = |call| {
                    let (method, path, body) = request(call, round);
                    let (caller, url) = (caller.clone(), process.url(&path));
                    async move { caller.call(method, url, &body).await }
                };
                if !matches!(call, Call::Create) {
                    assert_eq!(send(Call::Create).await.unwrap().0, StatusCode::OK);
                }
                let calling = tokio::spawn(send(call));
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                let is_acknowledged = calling.is_finished();
                calling.abort();
                if is_killed {
                    drop(process);
                    process = Process::start(&database.url);
                }
                let is_whole = async {
                    // A call goes on without its client.
                    loop {
                        let left = written(&mut connection, call, round).await;
                        assert!([0, LINKS].contains(&left), "{call:?} {milliseconds} ms: {left} links");
                        if left == LINKS || (is_killed && !is_acknowledged) {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                let waited = tokio::time::timeout(Duration::from_secs(3), is_whole).await;
                assert!(
                    waited.is_ok() || !is_acknowledged,
                    "{call:?} {milliseconds} ms: an acknowledged call is lost"
                );
            }
        }
    }
}

async fn a_bulk_call_that_fails_in_the_middle_leaves_no_link_that_is_deleted_and_followed(
    database: Database,
) {
    let service = Service::start(database).await;
    let (_, path, body) = request(Call::Create, 0);
    assert_eq!(service.post(&path, &body).await.status, StatusCode::OK);
    let follow = async |id: &str| service.follow(Method::GET, &format!("/r/{id}"), BROWSER).await.status;
    for id in external_ids(0) {
        assert_eq!(follow(&id).await, StatusCode::FOUND);
    }
    let refuse = if service.database().is_sqlite() {
        "CREATE TRIGGER refuse BEFORE UPDATE ON links WHEN OLD.external_id = 'large-0-60' AND NEW.workspace_seq = 0
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    } else {
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$ LANGUAGE plpgsql;
         CREATE TRIGGER refuse BEFORE UPDATE ON links FOR EACH ROW
         WHEN (OLD.external_id = 'large-0-60' AND NEW.workspace_seq = 0) EXECUTE FUNCTION refuse()"
    };
    service.database().connect().await.execute(sqlx::raw_sql(refuse)).await.unwrap();
    let (_, path, _) = request(Call::Delete, 0);
    assert_eq!(service.delete(&path).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    for id in external_ids(0) {
        let exists = service.get(&format!("/links/ext_{id}")).await.status == StatusCode::OK;
        assert_eq!(follow(&id).await == StatusCode::FOUND, exists, "{id}");
    }
}
