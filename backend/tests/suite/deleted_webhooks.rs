//! Deleted webhooks: gone at once for requests and for the outbox, and their rows a little later.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::Settings;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use crate::database::{Database, on_both_databases};
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::{Service, settings};

on_both_databases! {
    a_deleted_webhook_is_gone_at_once_for_requests_and_for_the_outbox,
}

/// Waits until none of these tables has a row.
async fn empty(service: &Service, tables: &[&str]) {
    let mut connection = service.database().connect().await;
    for table in tables {
        let rows = format!("SELECT COUNT(*) FROM {table}");
        let emptied = async {
            while sqlx::query_scalar::<_, i64>(AssertSqlSafe(rows.clone()))
                .fetch_one(&mut connection)
                .await
                .unwrap()
                > 0
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), emptied).await.expect(table);
    }
}

/// A webhook with one pending delivery, which had one attempt, and the id of its event.
async fn with_pending_delivery(service: &Service, receiver: &mut Receiver) -> (Value, String) {
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
    service.link(&json!({"url": "https://example.com/1"})).await;
    receiver.next().await;
    let log = log_after(service, &webhook, 1).await;
    (webhook, log[0]["eventId"].as_str().unwrap().to_owned())
}

async fn a_deleted_webhook_is_gone_at_once_for_requests_and_for_the_outbox(database: Database) {
    let service = Service::with_settings(database, Settings { max_webhooks: 1, ..settings() }).await;
    let mut receiver = Receiver::start().await;
    let (webhook, event) = with_pending_delivery(&service, &mut receiver).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    assert_eq!(service.delete(&path).await.body, json!({"id": webhook["id"]}));
    let (update, test) = (json!({"name": "other"}), json!({"trigger": "link.created"}));
    //  request
    for (method, path, body) in [
        (Method::GET, path.clone(), None),
        (Method::PATCH, path.clone(), Some(&update)),
        (Method::DELETE, path.clone(), None),
        (Method::POST, format!("{path}/test"), Some(&test)),
        (Method::GET, format!("{path}/deliveries"), None),
        (Method::POST, format!("{path}/deliveries/{event}/replay"), Some(&json!({}))),
    ] {
        let answer = service.call_as(service.key(), method.clone(), &path, body).await;
        assert_eq!(answer.error(), (404, "not_found", "Webhook not found."), "{method} {path}");
    }
    assert_eq!(service.get("/webhooks").await.body, json!([]));
    empty(&service, &["webhook_deliveries", "webhook_attempts", "webhooks"]).await;

    // Its URL is free, and it does not count towards the maximum.
    service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    service.clock.advance(Duration::from_secs(3_600));
    service.link(&json!({"url": "https://example.com/2"})).await;
    assert_eq!(receiver.next().await.json()["data"]["url"], "https://example.com/2");
    assert!(receiver.is_empty());
}

/// The deliveries may be many, so the request neither deletes them nor waits for them.
#[tokio::test]
async fn a_webhook_is_deleted_while_its_deliveries_are_locked_on_postgresql() {
    let service = Service::start(Database::postgres().await).await;
    let mut receiver = Receiver::start().await;
    let (webhook, _) = with_pending_delivery(&service, &mut receiver).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    let mut other = service.database().connect().await;
    other.execute("BEGIN").await.unwrap();
    other.execute("SELECT seq FROM webhook_deliveries FOR UPDATE").await.unwrap();
    assert_eq!(service.delete(&path).await.body, json!({"id": webhook["id"]}));
    assert_eq!(service.get("/webhooks").await.body, json!([]));
    service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    other.execute("ROLLBACK").await.unwrap();
    empty(&service, &["webhook_deliveries", "webhook_attempts"]).await;
}
