//! Keys of deleted links stay with their workspace, and keys without links are remembered.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    the_key_of_a_deleted_link_stays_with_its_workspace,
    a_key_without_a_link_is_looked_up_once,
}

const DAY: u64 = 86_400;

async fn the_key_of_a_deleted_link_stays_with_its_workspace(database: Database) {
    let service = Service::start(database).await;
    let (_, other) = service.new_workspace("other").await;
    let link = |key: &str| json!({"url": "https://example.com/", "key": key});
    let path = |link: &Value| format!("/links/{}", link["id"].as_str().unwrap());
    let taken = (409, "conflict", "Duplicate key: This short link already exists.");
    let theirs = async |key: &str| service.call_as(&other, Method::POST, "/links", Some(&link(key))).await;

    // Deleted alone, deleted with others, and renamed.
    let [a, b, c] =
        [service.link(&link("a")).await, service.link(&link("b")).await, service.link(&link("c")).await];
    service.delete(&path(&a)).await;
    service.delete(&format!("/links/bulk?linkIds={}", b["id"].as_str().unwrap())).await;
    assert_eq!(service.patch(&path(&c), &json!({"key": "d"})).await.status, 200);
    let free = theirs("free").await.body;
    for key in ["a", "A", "b", "c"] {
        assert_eq!(theirs(key).await.error(), taken, "{key}");
        let renamed = json!({"key": key});
        let answer = service.call_as(&other, Method::PATCH, &path(&free), Some(&renamed)).await;
        assert_eq!(answer.error(), taken, "{key}");
        let bulk = service.call_as(&other, Method::POST, "/links/bulk", Some(&json!([link(key)]))).await;
        assert_eq!(bulk.body[0]["code"], "conflict", "{key}");
    }
    // Its own workspace may use it again.
    assert_eq!(service.patch(&path(&c), &json!({"key": "c"})).await.status, 200);
    let again = service.link(&link("a")).await;
    service.delete(&path(&again)).await;
    service.clock.advance(Duration::from_secs(90 * DAY - 1));
    assert_eq!(theirs("a").await.error(), taken);
    service.clock.advance(Duration::from_secs(1));
    for key in ["a", "b"] {
        assert_eq!(theirs(key).await.status, 200, "{key}");
    }
}

async fn a_key_without_a_link_is_looked_up_once(database: Database) {
    let service = Service::start(database).await;
    let mut connection = service.database().connect().await;
    let visit =
        async |key: &str| service.follow(Method::GET, &format!("/r/{key}"), "curl/8").await.status.as_u16();
    assert_eq!(visit("unknown").await, 404);
    connection.execute("ALTER TABLE links RENAME TO elsewhere").await.unwrap();
    // No link can have the second of these keys.
    for key in ["UNKNOWN", &"x".repeat(191)] {
        assert_eq!(visit(key).await, 404, "without the database");
    }
    assert_ne!(visit("other").await, 404);
    service.clock.advance(Duration::from_secs(1));
    assert_ne!(visit("unknown").await, 404, "after a second");
    connection.execute("ALTER TABLE elsewhere RENAME TO links").await.unwrap();

    // A link counts as soon as it is created, however that is.
    let link = |key: &str| json!({"url": format!("https://example.com/{key}"), "key": key});
    for key in ["one", "many", "upserted", "renamed"] {
        assert_eq!(visit(key).await, 404, "{key}");
    }
    let one = service.link(&link("one")).await;
    service.post("/links/bulk", &json!([link("many")])).await;
    service.put("/links/upsert", &link("upserted")).await;
    for key in ["one", "many", "upserted"] {
        assert_eq!(visit(key).await, 302, "{key}");
    }
    service.patch(&format!("/links/{}", one["id"].as_str().unwrap()), &json!({"key": "renamed"})).await;
    assert_eq!((visit("renamed").await, visit("one").await), (302, 404));
}

/// Two processes: one deletes a link of the first workspace, while the other makes a link for another workspace.
#[tokio::test]
async fn a_key_that_is_being_kept_for_a_workspace_is_taken_from_the_others() {
    let service = Service::start(Database::postgres().await).await;
    let (_, other) = service.new_workspace("other").await;
    let free =
        service.call_as(&other, Method::POST, "/links", Some(&json!({"url": "https://b.test/"}))).await;
    let free = format!("/links/{}", free.body["id"].as_str().unwrap());
    let taken = (409, "conflict", "Duplicate key: This short link already exists.");
    //  what the other workspace asks for
    for (method, path) in [(Method::POST, "/links"), (Method::PUT, "/links/upsert"), (Method::PATCH, &free)] {
        service.link(&json!({"url": "https://a.test/", "key": "sale"})).await;
        let mut deletion = service.database().connect().await;
        // What the deletion of a link does, before it is committed.
        let delete = "BEGIN;
            INSERT INTO kept_keys (domain, key_folded, workspace_seq, until)
            SELECT domain, key_folded, workspace_seq, 99999999999999 FROM links WHERE key_folded = 'sale'
            ON CONFLICT (domain, key_folded) DO UPDATE SET until = excluded.until;
            UPDATE links SET workspace_seq = 0, domain = '', key_folded = id WHERE key_folded = 'sale'";
        deletion.execute(sqlx::raw_sql(delete)).await.unwrap();
        let link = json!({"url": format!("https://b.test/{method}"), "key": "sale"});
        let mut theirs = Box::pin(service.call_as(&other, method.clone(), path, Some(&link)));
        // The check of an update sees the link until the deletion is committed, and refuses it without waiting.
        let early = tokio::select! {
            answer = &mut theirs => Some(answer),
            () = service.database().waits_for_locks(1) => None,
        };
        deletion.execute("COMMIT").await.unwrap();
        let theirs = match early {
            Some(answer) => answer,
            None => theirs.await,
        };
        assert_eq!(theirs.error(), taken, "{method} {path}");
    }
}
