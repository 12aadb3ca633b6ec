//! The log of deliveries of webhooks with large deliveries.

use serde_json::{Value, json};
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::Service;

on_both_databases! {
    a_page_of_large_deliveries_is_whole,
}

fn deliveries(webhook: &Value) -> String {
    format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap())
}

async fn a_page_of_large_deliveries_is_whole(database: Database) {
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
    let log = service.get(&deliveries(&webhook)).await.body;
    let log = log.as_array().unwrap();
    assert_eq!(log.len(), LINKS);
    for delivery in log {
        let payload: Value = serde_json::from_str(delivery["requestBody"].as_str().unwrap()).unwrap();
        assert_eq!((&payload["data"]["comments"], &payload["id"]), (&json!(comments), &delivery["eventId"]));
        let attempts = delivery["attempts"].as_array().unwrap();
        let statuses: Vec<&Value> = attempts.iter().map(|attempt| &attempt["httpStatus"]).collect();
        assert_eq!(statuses, [200, 501, 502, 503]);
        assert_eq!(attempts[3]["responseBody"], "é".repeat(500));
    }
    let last = log[LINKS - 1]["id"].as_str().unwrap();
    assert_eq!(service.bytes(&format!("{}?startingAfter={last}", deliveries(&webhook))).await, "[]");
}
