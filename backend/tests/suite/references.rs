//! Rows that refer to others, in PostgreSQL: none is written about what another transaction deletes meanwhile.

use axum::http::StatusCode;
use backend::Click;
use serde_json::json;
use sqlx::{AnyConnection, AssertSqlSafe, Executor};

use crate::database::Database;
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::Service;

async fn rows(connection: &mut AnyConnection, table: &str) -> i64 {
    let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    sqlx::query_scalar(count).fetch_one(connection).await.unwrap()
}

/// Locks rows as the sweeper does, lets `writes` wait for them, deletes the rows with `deletions`, and waits for `writes`.
async fn while_deleted<T>(
    database: &Database,
    other: &mut AnyConnection,
    locked: &str,
    deletions: &[&str],
    writes: impl Future<Output = T>,
) -> T {
    other.execute("BEGIN").await.unwrap();
    other.execute(AssertSqlSafe(format!("SELECT 1 FROM {locked} FOR UPDATE"))).await.unwrap();
    let mut writes = Box::pin(writes);
    tokio::select! {
        _ = &mut writes => panic!("it does not wait for {locked}"),
        () = database.waits_for_locks(1) => {}
    }
    for deletion in deletions {
        other.execute(AssertSqlSafe((*deletion).to_owned())).await.unwrap();
    }
    other.execute("COMMIT").await.unwrap();
    writes.await
}

#[tokio::test]
async fn nothing_is_written_about_what_is_deleted_meanwhile_on_postgresql() {
    let service = Service::start(Database::postgres().await).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let link = service.link(&json!({"url": "https://example.com/"})).await;
    receiver.next().await;
    let event = log_after(&service, &webhook, 1).await[0]["eventId"].as_str().unwrap().to_owned();
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    let mut other = service.database().connect().await;

    let clicks = [Click::new(link["id"].as_str().unwrap(), service.now())];
    let recording = service.backend.store().record_clicks(&clicks);
    let recorded =
        while_deleted(service.database(), &mut other, "links", &["DELETE FROM links"], recording).await;
    assert_eq!(recorded.unwrap(), 0);
    for table in ["clicks", "clicks_hourly", "clicks_daily"] {
        assert_eq!(rows(&mut other, table).await, 0, "{table}");
    }

    let (replay, nothing) = (format!("{path}/deliveries/{event}/replay"), json!({}));
    let deletions = ["DELETE FROM webhook_deliveries", "DELETE FROM webhook_events"];
    let replay = service.post(&replay, &nothing);
    let answer = while_deleted(service.database(), &mut other, "webhook_events", &deletions, replay).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(rows(&mut other, "webhook_deliveries").await, 0);

    let test = format!("{path}/test");
    let sample = service.post(&test, &nothing);
    let answer =
        while_deleted(service.database(), &mut other, "webhooks", &["DELETE FROM webhooks"], sample).await;
    assert_eq!(answer.error(), (404, "not_found", "Webhook not found."));
    assert_eq!(rows(&mut other, "webhook_deliveries").await, 0);
}
