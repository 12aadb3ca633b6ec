//! Creations that a client repeats because it does not know whether they succeeded.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use backend::Settings;
use futures_util::future::select;
use serde_json::{Value, json};
use sqlx::{Executor, Row};

use crate::database::{Database, on_both_databases};
use crate::service::{Answer, Service, settings};

on_both_databases! {
    a_repeated_creation_is_answered_as_the_first_one,
    a_key_stands_for_one_request_of_one_workspace,
    a_refused_creation_may_be_tried_again,
    a_creation_that_was_cut_off_creates_once,
    a_key_of_a_running_request_is_refused,
    an_answer_is_kept_for_a_day,
    of_a_workspace_the_latest_answers_are_kept,
}

async fn post(service: &Service, key: &str, repeat: &str, path: &str, body: &Value) -> Answer {
    let request = Request::post(path).header("authorization", format!("Bearer {key}"));
    let request = request.header("idempotency-key", repeat).body(Body::from(body.to_string()));
    service.send(request.unwrap()).await
}

async fn a_repeated_creation_is_answered_as_the_first_one(database: Database) {
    let service = Service::start(database).await;
    let link = json!({"url": "https://example.com/"});
    service.link(&json!({"url": "https://example.com/", "key": "taken"})).await;
    let hook = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.created"]});
    //  path, body, status, what lists the created, and their number
    let table = [
        ("/links", link.clone(), 200, "/links", 2),
        ("/links/bulk", json!([link, {"url": "https://example.com/", "key": "taken"}]), 200, "/links", 3),
        ("/tags", json!({"name": "t"}), 201, "/tags", 1),
        ("/folders", json!({"name": "f"}), 201, "/folders", 1),
        ("/webhooks", hook, 201, "/webhooks", 1),
    ];
    for (path, body, status, list, number) in table {
        let first = post(&service, service.key(), &format!("\"{path}\""), path, &body).await;
        assert_eq!(first.status, status, "{path}: {}", first.body);
        assert!(!first.headers.contains_key("idempotency-replayed"), "{path}");
        service.clock.advance(Duration::from_secs(60));
        // The quotation marks of the draft may be absent.
        for repeat in [format!("\"{path}\""), path.to_owned()] {
            let again = post(&service, service.key(), &repeat, path, &body).await;
            assert_eq!((again.status.as_u16(), &again.body), (status, &first.body), "{path}");
            assert_eq!(again.headers["idempotency-replayed"], "true", "{path}");
            assert_eq!(again.headers["content-type"], "application/json", "{path}");
        }
        let listed = service.get(list).await;
        assert_eq!(listed.body.as_array().unwrap().len(), number, "{path}");
    }
}

async fn a_key_stands_for_one_request_of_one_workspace(database: Database) {
    let service = Service::start(database).await;
    let body = json!({"url": "https://example.com/"});
    let first = post(&service, service.key(), "k", "/links", &body).await;
    let other = json!({"url": "https://example.com/other"});
    let message = "This Idempotency-Key was used for another request.";
    for (path, body) in [("/links", &other), ("/tags", &body)] {
        let refused = post(&service, service.key(), "k", path, body).await;
        assert_eq!(refused.error(), (422, "unprocessable_entity", message), "{path}");
    }
    let (_, key) = service.new_workspace("second").await;
    let second = post(&service, &key, "k", "/links", &other).await;
    assert_ne!(second.body["id"], first.body["id"]);
    for repeat in ["", "\"\"", "a b", "ä", &"k".repeat(256), "\"a\"b\""] {
        let refused = post(&service, service.key(), repeat, "/links", &body).await;
        assert_eq!(refused.error().0, 400, "{repeat}");
    }
    // Requests that create nothing ignore the header.
    let request = Request::get("/links").header("authorization", format!("Bearer {key}"));
    let request = request.header("idempotency-key", "k").body(Body::empty()).unwrap();
    assert_eq!(service.send(request).await.each("id"), [&second.body["id"]]);
}

async fn a_refused_creation_may_be_tried_again(database: Database) {
    let service = Service::start(database).await;
    let body = json!({"url": "https://example.com/", "key": "taken"});
    let id = service.link(&body).await["id"].clone();
    let answer = post(&service, service.key(), "k", "/links", &body).await;
    assert_eq!(answer.error().0, 409);
    service.delete(&format!("/links/{}", id.as_str().unwrap())).await;
    assert_eq!(post(&service, service.key(), "k", "/links", &body).await.status, 200);
    // An answer that is too large to be kept creates nothing.
    let text = "x".repeat(30_000);
    let items: Vec<_> = (0..30)
        .map(|n| json!({"url": "https://example.com/", "key": format!("b{n}"), "title": text}))
        .collect();
    let answer = post(&service, service.key(), "large", "/links/bulk", &json!(items)).await;
    assert_eq!(answer.error().0, 422);
    assert_eq!(service.get("/links/count").await.body, 1);
}

/// Locks the database so that no link can be created.
async fn lock(database: &Database) -> sqlx::AnyConnection {
    let mut connection = database.connect().await;
    let lock = if database.is_sqlite() {
        "BEGIN IMMEDIATE"
    } else {
        "BEGIN; LOCK TABLE links IN SHARE ROW EXCLUSIVE MODE"
    };
    connection.execute(lock).await.unwrap();
    connection
}

async fn a_creation_that_was_cut_off_creates_once(database: Database) {
    let settings = Settings { request_timeout: Duration::from_millis(500), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let body = json!({"url": "https://example.com/"});
    let mut lock = lock(service.database()).await;
    assert_eq!(post(&service, service.key(), "k", "/links", &body).await.error().0, 408);
    lock.execute("ROLLBACK").await.unwrap();
    let made = async {
        loop {
            let answer = post(&service, service.key(), "k", "/links", &body).await;
            if answer.status == 200 {
                break;
            }
            assert!([408, 409].contains(&answer.status.as_u16()), "{}", answer.body);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), made).await.unwrap();
    assert_eq!(service.get("/links/count").await.body, 1);
}

async fn a_key_of_a_running_request_is_refused(database: Database) {
    let service = Service::start(database).await;
    let body = json!({"url": "https://example.com/"});
    let mut lock = lock(service.database()).await;
    let [one, other] = [(); 2].map(|()| Box::pin(post(&service, service.key(), "k", "/links", &body)));
    // The one that runs waits for the database, whichever that is.
    let (refused, running) = select(one, other).await.factor_first();
    let message = "A request with this Idempotency-Key is in progress.";
    assert_eq!(refused.error(), (409, "conflict", message));
    lock.execute("ROLLBACK").await.unwrap();
    let made = running.await;
    assert_eq!(made.status, 200, "{}", made.body);
}

async fn an_answer_is_kept_for_a_day(database: Database) {
    let service = Service::start(database).await;
    let body = json!({"url": "https://example.com/"});
    let first = post(&service, service.key(), "k", "/links", &body).await;
    service.clock.advance(Duration::from_secs(86_399));
    assert_eq!(post(&service, service.key(), "k", "/links", &body).await.body, first.body);
    service.clock.advance(Duration::from_secs(1));
    let second = post(&service, service.key(), "k", "/links", &body).await;
    assert_ne!(second.body["id"], first.body["id"]);
    assert_eq!(post(&service, service.key(), "k", "/links", &body).await.body, second.body);
}

async fn of_a_workspace_the_latest_answers_are_kept(database: Database) {
    let service = Service::start(database).await;
    post(&service, service.key(), "first", "/tags", &json!({"name": "t"})).await;
    let mut connection = service.database().connect().await;
    let fill = "INSERT INTO answers (workspace_seq, key, fingerprint, status, body, created_at)
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 11000)
                SELECT a.workspace_seq, 'k' || n.i, '', 200, '', a.created_at FROM answers a, n WHERE a.key = 'first'";
    connection.execute(fill).await.unwrap();
    let mut count = async || {
        let row = connection.fetch_one("SELECT CAST(COUNT(*) AS BIGINT) FROM answers").await.unwrap();
        row.get::<i64, _>(0)
    };
    // The sweeper looks every minute, and what has expired goes altogether.
    for (seconds, left) in [(60, 10_000), (86_400, 0)] {
        service.clock.advance(Duration::from_secs(seconds));
        let swept = async {
            while count().await > left {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), swept).await.unwrap();
        assert_eq!(count().await, left);
    }
}
