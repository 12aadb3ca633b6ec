//! What one customer sends does not stop the requests of another.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::Settings;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{AnyConnection, Executor};

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    requests_that_cannot_go_on_are_refused_and_take_no_place_from_others,
    a_request_that_waits_too_long_for_a_lock_is_to_be_repeated,
}

async fn requests_that_cannot_go_on_are_refused_and_take_no_place_from_others(database: Database) {
    // Requests wait for a third of it.
    let request_timeout = Duration::from_secs(9);
    let service = Service::with_settings(database, Settings { request_timeout, ..settings() }).await;
    let (_, other) = service.new_workspace("other").await;
    let link = json!({"url": "https://example.com", "key": "k"});
    let link = service.call_as(&other, Method::POST, "/links", Some(&link)).await.body;
    let path = format!("/links/{}", link["id"].as_str().unwrap());

    // Nothing can be written for now.
    let mut block = keep_from_writing(&service).await;
    let link = json!({"url": "https://example.com"});
    let writes = join_all((0..20).map(|_| service.post("/links", &link)));
    let others = async {
        tokio::time::sleep(request_timeout / 6).await;
        for path in [&*path, "/links", "/links/count", "/analytics", "/tags"] {
            let answer = service.call_as(&other, Method::GET, path, None).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        }
    };
    let (answers, ()) = tokio::join!(writes, others);
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    let refused = count(StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((refused, count(StatusCode::REQUEST_TIMEOUT)), (12, 8), "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE) {
        let message = "Your workspace has too many requests at once. Try again later.";
        assert_eq!(answer.error(), (503, "service_unavailable", message));
        assert_eq!(answer.headers["retry-after"], "1");
    }
    block.execute("ROLLBACK").await.unwrap();
    assert_eq!(service.post("/links", &link).await.status, StatusCode::OK, "the places are free again");
}

async fn a_request_that_waits_too_long_for_a_lock_is_to_be_repeated(database: Database) {
    let request_timeout = Duration::from_secs(600);
    let service = Service::with_settings(database, Settings { request_timeout, ..settings() }).await;
    let link = json!({"url": "https://example.com", "key": "k"});
    // Of SQLite, another process has the lock. The second request waits for the first.
    let mut block = keep_from_writing(&service).await;
    for answer in join_all((0..2).map(|_| service.post("/links", &link))).await {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    block.execute("ROLLBACK").await.unwrap();
    assert_eq!(service.post("/links", &link).await.status, StatusCode::OK, "nothing was written");
}

/// Keeps the service from writing links until the connection ends its transaction.
async fn keep_from_writing(service: &Service) -> AnyConnection {
    let mut block = service.database().connect().await;
    let lock = if service.database().is_sqlite() {
        "BEGIN IMMEDIATE"
    } else {
        "BEGIN; LOCK TABLE links IN EXCLUSIVE MODE"
    };
    block.execute(sqlx::raw_sql(lock)).await.unwrap();
    block
}
