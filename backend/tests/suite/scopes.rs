//! Scopes of webhooks: the links and folders whose events they receive.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::receiver::Receiver;
use crate::service::Service;

on_both_databases! {
    a_changed_scope_applies_to_the_next_event,
    a_scope_is_not_parsed_for_an_event,
}

const ALL: [&str; 4] = ["link.created", "link.updated", "link.deleted", "link.clicked"];

/// A webhook for all types of events, whose scope is one of these links.
async fn scoped(service: &Service, receiver: &Receiver, link: &Value) -> String {
    let scope = json!({"name": "rx", "url": receiver.url("/"), "triggers": ALL,
                       "linkScope": "links", "linkIds": [link["id"]]});
    let answer = service.post("/webhooks", &scope).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    format!("/webhooks/{}", answer.body["id"].as_str().unwrap())
}

/// The keys of the links in the next events, in order.
async fn keys(receiver: &mut Receiver, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(receiver.next().await.json()["data"]["key"].as_str().unwrap().to_owned());
    }
    keys.sort();
    assert!(receiver.is_empty());
    keys
}

async fn a_changed_scope_applies_to_the_next_event(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let folders = [service.folder("first").await, service.folder("second").await];
    let empty = service.folder("empty").await;
    let mut links = Vec::new();
    for (key, folder) in [("a", &folders[0]), ("b", &folders[0]), ("c", &folders[1])] {
        let link = json!({"url": "https://example.com", "key": key, "folderId": folder});
        links.push(service.link(&link).await);
    }
    let webhook = scoped(&service, &receiver, &links[0]).await;
    let (a, b) = (&links[0]["id"], &links[1]["id"]);
    //  changed scope, and the keys of the links whose events are sent
    for (number, (scope, expected)) in [
        (json!({}), vec!["a"]),
        (json!({"linkIds": [b, b]}), vec!["b"]),
        (json!({"name": "renamed"}), vec!["b"]),
        (json!({"linkIds": [a, b]}), vec!["a", "b"]),
        (json!({"linkScope": "folders", "folderIds": [folders[1]]}), vec!["c"]),
        (json!({"folderIds": folders}), vec!["a", "b", "c"]),
        (json!({"linkScope": "folders", "folderIds": [empty]}), vec![]),
        (json!({"linkScope": "workspace"}), vec!["a", "b", "c"]),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = service.patch(&webhook, &scope).await;
        assert_eq!(answer.status, StatusCode::OK, "{scope}: {}", answer.body);
        for link in &links {
            let path = format!("/links/{}", link["id"].as_str().unwrap());
            service.patch(&path, &json!({"title": number.to_string()})).await;
        }
        assert_eq!(keys(&mut receiver, expected.len()).await, expected, "{scope}");
    }
    // A link in a deleted folder is in no folder.
    service.patch(&webhook, &json!({"linkScope": "folders", "folderIds": folders})).await;
    service.delete(&format!("/folders/{}", folders[0])).await;
    for link in &links {
        service.delete(&format!("/links/{}", link["id"].as_str().unwrap())).await;
    }
    assert_eq!(keys(&mut receiver, 1).await, ["c"]);
}

/// A scope may have a thousand ids, and a workspace twenty webhooks. All writers wait while a transaction of SQLite lasts.
async fn a_scope_is_not_parsed_for_an_event(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let link = service.link(&json!({"url": "https://example.com", "key": "a"})).await;
    scoped(&service, &receiver, &link).await;
    let mut connection = service.database().connect().await;
    connection.execute("UPDATE webhooks SET scope_ids = 'not JSON'").await.unwrap();
    service.patch(&format!("/links/{}", link["id"].as_str().unwrap()), &json!({"title": "t"})).await;
    assert_eq!(keys(&mut receiver, 1).await, ["a"]);
    service.follow(Method::GET, "/r/a", "curl/8").await;
    assert_eq!(receiver.next().await.json()["event"], "link.clicked");
}
