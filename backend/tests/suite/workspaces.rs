//! Data is the workspace's: its keys share it, other keys do not know that it exists.

use axum::http::Method;
use backend::keys::Subscriber;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    two_workspaces_see_nothing_of_each_other,
    two_keys_of_a_workspace_share_its_data_until_one_is_revoked,
    the_list_of_keys_is_what_the_gateway_takes,
}

async fn two_workspaces_see_nothing_of_each_other(database: Database) {
    let service = Service::start(database).await;
    let (_, stranger) = service.new_workspace("second").await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k", "externalId": "e"})).await;
    let id = link["id"].as_str().unwrap();
    service.click_hours_ago(id, &[1]).await;
    let webhook = json!({"name": "x", "url": "https://rx.test", "triggers": ["link.created"]});
    let webhook = service.post("/webhooks", &webhook).await.body;
    let webhook = webhook["id"].as_str().unwrap();

    let hidden = [
        (Method::GET, format!("/links/{id}")),
        (Method::GET, "/links/ext_e".to_owned()),
        (Method::DELETE, format!("/links/{id}")),
        (Method::GET, "/analytics?externalId=ext_e".to_owned()),
        (Method::GET, "/events?domain=s.test&key=k".to_owned()),
        (Method::GET, format!("/webhooks/{webhook}")),
        (Method::DELETE, format!("/webhooks/{webhook}")),
    ];
    for (method, path) in hidden {
        let answer = service.call_as(&stranger, method.clone(), &path, None).await;
        assert_eq!(answer.error().0, 404, "{method} {path}");
    }
    let table = [
        ("/links".to_owned(), json!([])),
        ("/links/count".to_owned(), json!(0)),
        ("/webhooks".to_owned(), json!([])),
        ("/events".to_owned(), json!([])),
        (format!("/events?linkId={id}"), json!([])),
        ("/analytics?groupBy=top_links".to_owned(), json!([])),
        ("/analytics".to_owned(), json!({"clicks": 0, "leads": 0, "sales": 0, "saleAmount": 0})),
        (format!("/analytics?linkId={id}"), json!({"clicks": 0, "leads": 0, "sales": 0, "saleAmount": 0})),
    ];
    for (path, expected) in table {
        assert_eq!(service.call_as(&stranger, Method::GET, &path, None).await.body, expected, "{path}");
    }
    let cursor = format!("/links?startingAfter={id}");
    assert_eq!(service.call_as(&stranger, Method::GET, &cursor, None).await.error().0, 422);
    assert_eq!(service.get("/links/count").await.body, 1);
}

async fn two_keys_of_a_workspace_share_its_data_until_one_is_revoked(database: Database) {
    let service = Service::start(database).await;
    let (workspace, key) = service.new_workspace("second").await;
    let store = service.backend.store();
    let (id, other) = store.create_key(&workspace, "free", None, service.now()).await.unwrap();
    let link = json!({"url": "https://example.com", "key": "k"});
    assert_eq!(service.call_as(&key, Method::POST, "/links", Some(&link)).await.status, 200);
    assert_eq!(service.call_as(&other, Method::GET, "/links/count", None).await.body, 1);
    assert!(store.revoke_key(&id, service.now()).await.unwrap());
    assert!(!store.revoke_key(&id, service.now()).await.unwrap());
    assert_eq!(service.call_as(&other, Method::GET, "/links/count", None).await.error().0, 401);
    assert_eq!(service.call_as(&key, Method::GET, "/links/count", None).await.body, 1);
}

async fn the_list_of_keys_is_what_the_gateway_takes(database: Database) {
    let service = Service::start(database).await;
    let store = service.backend.store();
    let (workspace, _) = service.new_workspace("second").await;
    let limits = backend::keys::parse_limits("standard=5000/minute,analytics=20/second").unwrap();
    let (id, key) = store.create_key(&workspace, "enterprise", Some(&limits), service.now()).await.unwrap();
    let last = store.keys().await.unwrap().pop().map(Subscriber::from).unwrap();
    assert_eq!(
        json!(last),
        json!({
            "id": id, "plan": "enterprise", "keys": [format!("sha256:{}", backend::ids::sha256(key.as_bytes()))],
            "limits": {"standard": ["5000/minute"], "analytics": ["20/second"]},
        })
    );
    assert!(store.revoke_key(&id, service.now()).await.unwrap());
    assert!(store.keys().await.unwrap().iter().all(|key| key.id != id));
}
