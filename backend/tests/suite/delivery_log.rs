//! The log of deliveries, and replays, of webhooks with many or large deliveries.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Executor};

use crate::database::{Database, on_both_databases};
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::Service;

on_both_databases! {
    a_page_of_large_deliveries_is_sent_in_parts_of_about_a_megabyte,
    a_pending_event_is_not_replayed,
    there_is_more_to_replay_only_if_further_events_match,
    an_event_is_found_among_many_others,
}

fn deliveries(webhook: &Value) -> String {
    format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap())
}

/// Writes events of clicks, `evt_1` and so on, whose deliveries to the only webhook have failed.
pub(crate) async fn insert_failed(service: &Service, count: usize) {
    let insert = format!(
        r#"INSERT INTO webhook_events (id, workspace_seq, event, payload, created_at)
           WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
           SELECT 'evt_' || i, 1, 'link.clicked', '{{"id":"evt_' || i || '"}}', {} FROM n;
           INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts)
           SELECT e.seq, h.seq, 10 FROM webhook_events e CROSS JOIN webhooks h WHERE e.payload LIKE '{{"id":"evt_%"}}'"#,
        service.now().as_millisecond()
    );
    let mut connection = service.database().connect().await;
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(insert))).await.unwrap();
}

/// A webhook for clicks with deliveries that have failed, and a connection beside the service.
async fn with_failed(service: &Service, receiver: &Receiver, count: usize) -> (Value, AnyConnection) {
    let webhook = service.webhook(&receiver.url("/hook"), &["link.clicked", "link.created"]).await;
    insert_failed(service, count).await;
    (webhook, service.database().connect().await)
}

async fn a_page_of_large_deliveries_is_sent_in_parts_of_about_a_megabyte(database: Database) {
    const LINKS: usize = 20;
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    // Quotation marks are escaped in the payload, and again in the log.
    let (comments, title) = ("\"".repeat(15_000), "t".repeat(30_000));
    for _ in 0..LINKS {
        let link = json!({"url": "https://example.com", "comments": comments, "title": title});
        service.link(&link).await;
        receiver.next().await;
        log_after(&service, &webhook, 1).await;
    }
    let mut connection = service.database().connect().await;
    let attempts = format!(
        "INSERT INTO webhook_attempts (delivery_seq, at, http_status, response_body)
         SELECT a.delivery_seq, a.at, n.status, '{}' FROM webhook_attempts a CROSS JOIN
         (SELECT 501 AS status UNION ALL SELECT 502 UNION ALL SELECT 503) n ORDER BY a.seq, n.status",
        "é".repeat(500)
    );
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(attempts))).await.unwrap();
    let parts = service.parts(&deliveries(&webhook)).await;
    assert!(parts.len() >= 3, "{} parts", parts.len());
    for part in &parts {
        assert!(part.len() < 1_500_000, "{} bytes", part.len());
    }
    let log: Vec<Value> = serde_json::from_slice(&parts.concat()).unwrap();
    assert_eq!(log.len(), LINKS);
    for delivery in &log {
        let payload: Value = serde_json::from_str(delivery["requestBody"].as_str().unwrap()).unwrap();
        assert_eq!((&payload["data"]["comments"], &payload["id"]), (&json!(comments), &delivery["eventId"]));
        let attempts = delivery["attempts"].as_array().unwrap();
        let statuses: Vec<&Value> = attempts.iter().map(|attempt| &attempt["httpStatus"]).collect();
        assert_eq!(statuses, [200, 501, 502, 503]);
        assert_eq!(attempts[3]["responseBody"], "é".repeat(500));
    }
    assert_eq!(service.bytes(&format!("{}?page=2", deliveries(&webhook))).await, "[]");
}

async fn a_pending_event_is_not_replayed(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    log_after(&service, &webhook, 1).await;
    let replay = format!("{}/replay", deliveries(&webhook));
    let named = json!({"eventIds": [first["id"]]});
    //  what happens before, and the number of replayed events
    for (wait, expected) in [(0, 0), (6, 1)] {
        service.clock.advance(Duration::from_secs(wait));
        if wait > 0 {
            receiver.next().await;
            log_after(&service, &webhook, 2).await;
        }
        let answer = service.post(&replay, &named).await.body;
        assert_eq!(answer, json!({"replayed": expected, "more": false}), "after {wait} s");
    }
    assert_eq!(receiver.next().await.json(), first);
}

async fn there_is_more_to_replay_only_if_further_events_match(database: Database) {
    const AT_ONCE: usize = 1_000;
    let service = Service::start(database).await;
    let receiver = Receiver::start().await;
    let (webhook, _) = with_failed(&service, &receiver, AT_ONCE).await;
    let answer = service.post(&format!("{}/replay", deliveries(&webhook)), &json!({})).await.body;
    assert_eq!(answer, json!({"replayed": AT_ONCE, "more": false}));
}

/// A search reads five thousand deliveries at a time.
async fn an_event_is_found_among_many_others(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let (webhook, mut connection) = with_failed(&service, &receiver, 1).await;
    let many = "INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, delivered_at)
                WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
                SELECT d.event_seq, d.webhook_seq, 1, 0 FROM webhook_deliveries d CROSS JOIN n";
    connection.execute(many).await.unwrap();
    service.link(&json!({"url": "https://example.com"})).await;
    let created = receiver.next().await.json();
    log_after(&service, &webhook, 1).await;
    //  selected events, and the number of those that match
    for (body, expected) in [
        (json!({"status": "delivered", "event": "link.created"}), 1),
        (json!({"status": "failed"}), 0),
        (json!({"status": "delivered", "event": "link.clicked"}), 1),
        (json!({"status": "delivered", "event": "link.updated"}), 0),
    ] {
        let answer = service.post(&format!("{}/replay", deliveries(&webhook)), &body).await.body;
        assert_eq!(answer, json!({"replayed": expected, "more": false}), "{body}");
    }
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(receiver.next().await.json()["id"].clone());
    }
    assert!(ids.contains(&created["id"]), "{ids:?}");
}

/// SQLite has one writer, which all workspaces wait for.
#[tokio::test]
async fn events_are_searched_without_the_writer_of_sqlite() {
    let service = Service::start(Database::sqlite()).await;
    let receiver = Receiver::start().await;
    let (webhook, _) = with_failed(&service, &receiver, 1).await;
    let _writing = service.database().block_recording().await;
    let body = json!({"status": "delivered"});
    let answer = service.post(&format!("{}/replay", deliveries(&webhook)), &body).await.body;
    assert_eq!(answer, json!({"replayed": 0, "more": false}));
}
