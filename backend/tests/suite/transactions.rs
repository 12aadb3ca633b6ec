//! What is written together.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::Click;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::database::{Database, on_both_databases};
use crate::receiver::{Receiver, Silent};
use crate::service::Service;

on_both_databases! {
    a_bulk_update_that_conflicts_with_the_last_link_changes_none,
    large_links_are_updated_and_deleted_in_bulk,
    a_bulk_call_of_which_a_part_fails_changes_nothing_and_one_that_succeeds_is_seen_at_once,
    a_webhook_that_is_behind_costs_nothing_but_its_cursor,
}

/// A bulk call of as many links as it may have, about as large as they may be.
fn large_links() -> Value {
    let link = |n| {
        let url = format!("https://example.com/{}", "u".repeat(31_000));
        json!({"url": url, "comments": "c".repeat(32_000), "externalId": format!("large-{n}")})
    };
    (0..100).map(link).collect()
}

async fn count(service: &Service, query: &str) -> i64 {
    let mut connection = service.database().connect().await;
    sqlx::query(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.unwrap().get(0)
}

async fn a_bulk_update_that_conflicts_with_the_last_link_changes_none(database: Database) {
    let service = Service::start(database).await;
    let mut links = large_links();
    for link in links.as_array_mut().unwrap() {
        link["comments"] = Value::Null;
    }
    links[99]["title"] = json!("t".repeat(1_000));
    links[99]["ios"] = json!(format!("https://example.com/{}", "i".repeat(31_000)));
    assert_eq!(service.post("/links/bulk", &links).await.status, StatusCode::OK);
    let ids: Vec<String> = (0..100).map(|n| format!("large-{n}")).collect();
    let update = json!({"externalIds": ids, "data": {"comments": "c".repeat(20_000)}});
    let refused = service.patch("/links/bulk", &update).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.body);
    assert_eq!(count(&service, "SELECT COUNT(*) FROM links WHERE details LIKE '%ccc%'").await, 0);
}

async fn large_links_are_updated_and_deleted_in_bulk(database: Database) {
    let service = Service::start(database).await;
    assert_eq!(service.post("/links/bulk", &large_links()).await.status, StatusCode::OK);
    // The last first: answers are in the order of the request.
    let ids: Vec<String> = (0..100).rev().map(|n| format!("large-{n}")).collect();
    let update = json!({"externalIds": ids, "data": {"comments": "d".repeat(32_000)}});
    let updated = service.patch("/links/bulk", &update).await;
    assert_eq!(updated.status, StatusCode::OK);
    assert_eq!(
        updated.each("externalId"),
        ids.iter().map(|id| json!(id)).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
    assert!(updated.each("comments").iter().all(|comments| **comments == json!("d".repeat(32_000))));
    let named: Vec<String> = ids.iter().map(|id| format!("ext_{id}")).collect();
    let deleted = service.delete(&format!("/links/bulk?linkIds={}", named.join(","))).await;
    assert_eq!(deleted.body, json!({"deletedCount": 100}));
    assert_eq!(service.get("/links/count").await.body, json!(0));
}

async fn a_bulk_call_of_which_a_part_fails_changes_nothing_and_one_that_succeeds_is_seen_at_once(
    database: Database,
) {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let service = Service::start(database).await;
    let links: Value = KEYS.iter().map(|key| json!({"url": "https://old.test/", "key": key})).collect();
    let made = service.post("/links/bulk", &links).await;
    let ids: Vec<&str> = made.each("id").into_iter().map(|id| id.as_str().unwrap()).collect();
    let lead = async || {
        let mut to = Vec::new();
        for key in KEYS {
            let answer = service.follow(Method::GET, &format!("/r/{key}"), "curl/8").await;
            to.push(answer.headers.get("location").map(|to| to.to_str().unwrap().to_owned()));
        }
        to
    };
    let all = |to: &str| vec![Some(to.to_owned()); KEYS.len()];
    assert_eq!(lead().await, all("https://old.test/"));
    let fail = if service.database().is_sqlite() {
        "CREATE TRIGGER fail BEFORE UPDATE ON links WHEN old.key = 'c' BEGIN SELECT RAISE(ABORT, 'c'); END"
    } else {
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'c'; END $$;
         CREATE TRIGGER fail BEFORE UPDATE ON links FOR EACH ROW WHEN (old.key = 'c') EXECUTE FUNCTION fail()"
    };
    let unfail =
        if service.database().is_sqlite() { "DROP TRIGGER fail" } else { "DROP TRIGGER fail ON links" };
    let update = json!({"linkIds": ids, "data": {"url": "https://new.test/"}});
    let path = format!("/links/bulk?linkIds={}", ids.join(","));
    let mut connection = service.database().connect().await;
    connection.execute(sqlx::raw_sql(fail)).await.unwrap();
    assert!(service.patch("/links/bulk", &update).await.status.is_server_error());
    assert!(service.delete(&path).await.status.is_server_error());
    assert_eq!(lead().await, all("https://old.test/"));
    assert_eq!(service.get("/links").await.each("url"), [&json!("https://old.test/"); 3]);
    connection.execute(unfail).await.unwrap();
    assert_eq!(service.patch("/links/bulk", &update).await.status, StatusCode::OK);
    assert_eq!(lead().await, all("https://new.test/"));
    assert_eq!(service.delete(&path).await.status, StatusCode::OK);
    assert_eq!(lead().await, vec![None; KEYS.len()]);
}

async fn a_webhook_that_is_behind_costs_nothing_but_its_cursor(database: Database) {
    const CLICKS: usize = 30;
    let service = Service::start(database).await;
    let (mut receiver, silent) = (Receiver::start().await, Silent::start().await);
    let mut logs = Vec::new();
    for url in [receiver.url("/"), silent.url()] {
        let webhook = json!({"name": "rx", "url": url, "triggers": ["link.clicked"]});
        let webhook = service.post("/webhooks", &webhook).await.body;
        logs.push(format!("/webhooks/{}/deliveries", webhook["id"].as_str().unwrap()));
    }
    let link = service.link(&large_links()[0]).await;
    let id = link["id"].as_str().unwrap();
    let clicks: Vec<Click> = (0..CLICKS).map(|_| Click::new(id, service.now())).collect();
    service.backend.store().record_clicks(&clicks).await.unwrap();
    // The deliverer is not notified here and finds the clicks at its next check.
    service.clock.advance(Duration::from_secs(1));
    let mut clicked: Vec<String> = clicks.iter().map(|click| click.id.clone()).collect();
    clicked.sort();
    let mut told = Vec::new();
    for _ in 0..CLICKS {
        let event = receiver.next().await.json();
        assert_eq!(event["data"]["link"]["comments"], link["comments"]);
        assert_eq!(event["data"]["link"]["clicks"], json!(CLICKS));
        told.push(event["data"]["click"]["id"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, clicked);
    let [heard, behind] = logs.as_slice() else { unreachable!("two webhooks") };
    let log = service.get(&format!("{heard}?pageSize=1")).await;
    let body: Value = serde_json::from_str(log.body[0]["requestBody"].as_str().unwrap()).unwrap();
    assert_eq!(body["data"]["link"]["url"], link["url"]);
    // Four attempts to the silent receiver are under way. It has no row for the other clicks, and both webhooks share the events.
    let deliveries = service.get(behind).await.body.as_array().unwrap().len();
    assert!((1..=4).contains(&deliveries), "{deliveries} deliveries");
    let rows = count(&service, "SELECT COUNT(*) FROM webhook_deliveries").await;
    assert_eq!(rows, (CLICKS + deliveries) as i64);
    assert_eq!(count(&service, "SELECT COUNT(*) FROM webhook_events").await, CLICKS as i64);

    service.clock.advance(Duration::from_secs(31 * 24 * 60 * 60));
    let purged = async {
        while count(&service, "SELECT COUNT(*) FROM webhook_events").await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            // Deletion comes round every hour, and leaves what a delivery has not been noted for yet.
            service.clock.advance(Duration::from_secs(60 * 60));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), purged).await.expect("old events are deleted");
}
