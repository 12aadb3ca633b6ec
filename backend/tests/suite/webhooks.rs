//! Webhooks: made, told of events, signed, tried again.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::{AddressPolicy, signature};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::receiver::{Delivery, Receiver};
use crate::service::Service;

async fn webhook(service: &Service, receiver: &Receiver, triggers: &[&str]) -> Value {
    let body = json!({"name": "rx", "url": receiver.url("/hook"), "triggers": triggers});
    let answer = service.post("/webhooks", &body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    answer.body
}

fn verify(delivery: &Delivery, secret: &str) {
    let header = |name: &str| delivery.headers[name].to_str().unwrap();
    let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
    let expected = signature::standard(secret, header("webhook-id"), timestamp, &delivery.body).unwrap();
    assert_eq!(header("webhook-signature"), expected);
    assert_eq!(header("dub-signature"), signature::dub(secret, &delivery.body));
}

on_both_databases! {
    events_arrive_signed_with_the_link_and_the_click,
    a_delivery_is_tried_again_with_the_same_id_when_its_wait_is_over,
    a_receiver_that_is_gone_hears_nothing_more,
    bulk_creation_tells_nobody,
    webhooks_are_made_listed_and_deleted,
    a_webhook_to_an_address_that_is_not_public_is_refused,
}

async fn events_arrive_signed_with_the_link_and_the_click(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = webhook(&service, &receiver, &["link.created", "link.clicked"]).await;
    let secret = webhook["secret"].as_str().unwrap();

    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let created = receiver.next().await;
    verify(&created, secret);
    let payload = created.json();
    assert_eq!((&payload["event"], &payload["data"]), (&json!("link.created"), &link));
    assert_eq!(payload["createdAt"], "2026-03-15T12:34:56.789Z");
    assert_eq!(payload["id"], created.headers["webhook-id"].to_str().unwrap());

    service.follow(Method::GET, "/r/k", "curl/8").await;
    let clicked = receiver.next().await;
    verify(&clicked, secret);
    let payload = clicked.json();
    assert_eq!(payload["event"], "link.clicked");
    assert_eq!(
        (&payload["data"]["link"]["id"], &payload["data"]["link"]["clicks"]),
        (&link["id"], &json!(1))
    );
    assert_eq!(payload["data"]["click"]["url"], "https://example.com/");
}

async fn a_delivery_is_tried_again_with_the_same_id_when_its_wait_is_over(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    webhook(&service, &receiver, &["link.created"]).await;
    receiver.answer(StatusCode::INTERNAL_SERVER_ERROR);
    receiver.answer((StatusCode::FOUND, [("location", "/elsewhere")]));
    service.link(&json!({"url": "https://example.com"})).await;
    let first = receiver.next().await.json();
    // Stepping only wakes what is waiting, so step until the worker has written the wait down and slept on it.
    for wait in [6, 360] {
        let next = loop {
            service.clock.advance(Duration::from_secs(wait));
            tokio::select! {
                next = receiver.next() => break next,
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        };
        assert_eq!(next.json(), first);
    }
    assert!(receiver.is_empty());
}

async fn a_receiver_that_is_gone_hears_nothing_more(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = webhook(&service, &receiver, &["link.created"]).await;
    receiver.answer(StatusCode::GONE);
    service.link(&json!({"url": "https://example.com"})).await;
    receiver.next().await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    while service.get(&path).await.body["disabledAt"].is_null() {
        tokio::task::yield_now().await;
    }
    service.link(&json!({"url": "https://example.com"})).await;
    service.shut_down().await;
    assert!(receiver.is_empty());
}

async fn bulk_creation_tells_nobody(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    webhook(&service, &receiver, &["link.created"]).await;
    service.post("/links/bulk", &json!([{"url": "https://example.com/bulk"}])).await;
    service.link(&json!({"url": "https://example.com/single"})).await;
    assert_eq!(receiver.next().await.json()["data"]["url"], "https://example.com/single");
    assert!(receiver.is_empty());
}

async fn webhooks_are_made_listed_and_deleted(database: Database) {
    let service = Service::start(database).await;
    let receiver = Receiver::start().await;
    let webhook = webhook(&service, &receiver, &["link.created"]).await;
    assert_eq!(service.get("/webhooks").await.body, json!([webhook]));
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    assert_eq!(service.get(&path).await.body, webhook);
    let again = json!({"name": "rx", "url": webhook["url"], "triggers": ["link.created"]});
    let answer = service.post("/webhooks", &again).await;
    assert_eq!(answer.error(), (409, "conflict", "A Webhook with this URL already exists."));
    assert_eq!(service.delete(&path).await.body, json!({"id": webhook["id"]}));
    assert_eq!(service.get(&path).await.error(), (404, "not_found", "Webhook not found."));
    assert_eq!(service.get("/webhooks").await.body, json!([]));
}

async fn a_webhook_to_an_address_that_is_not_public_is_refused(database: Database) {
    let service = Service::with(database, AddressPolicy::public_only()).await;
    for url in [
        "http://127.0.0.1/",
        "http://localhost:8080/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://2130706433/",
    ] {
        let answer =
            service.post("/webhooks", &json!({"name": "x", "url": url, "triggers": ["link.created"]})).await;
        let message = "custom: url: Invalid URL: the address is not public";
        assert_eq!(answer.error(), (422, "unprocessable_entity", message), "{url}");
    }
    for url in ["ftp://example.com/", "example.com", "http://"] {
        let answer =
            service.post("/webhooks", &json!({"name": "x", "url": url, "triggers": ["link.created"]})).await;
        assert_eq!(answer.error().0, 422, "{url}");
    }
}
