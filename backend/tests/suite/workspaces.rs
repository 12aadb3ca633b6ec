//! Keys open a workspace: they share its data until they are revoked.

use axum::http::Method;
use backend::Terms;
use backend::keys::Subscriber;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    two_keys_of_a_workspace_share_its_data_until_one_is_revoked,
    the_list_of_keys_is_what_the_gateway_takes,
}

async fn two_keys_of_a_workspace_share_its_data_until_one_is_revoked(database: Database) {
    let service = Service::start(database).await;
    let (workspace, key) = service.new_workspace("second").await;
    let store = service.backend.store();
    let (id, other) = store.create_key(&workspace, &Terms::of_plan("free"), service.now()).await.unwrap();
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
    let (id, key) = store
        .create_key(
            &workspace,
            &Terms { limits: Some(limits), ..Terms::of_plan("enterprise") },
            service.now(),
        )
        .await
        .unwrap();
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
