//! Webhooks: their fields, the events that they receive, and the signatures.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::{Click, Settings, signature};
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::{Service, settings};

on_both_databases! {
    events_arrive_signed_with_the_link_and_the_click,
    updates_and_deletions_send_events_and_bulk_calls_do_not,
    a_scope_restricts_the_events,
    each_of_many_clicks_is_sent_once,
    a_webhook_is_updated_and_enabled_again,
    bulk_creation_sends_no_events,
    webhooks_are_created_listed_and_deleted,
    a_webhook_to_an_address_that_is_not_public_is_refused,
    a_workspace_has_a_maximum_of_webhooks_and_one_per_url,
    ids_that_do_not_belong_to_the_scope_are_refused,
    an_update_changes_the_fields_that_it_names,
    both_secrets_sign_until_the_overlap_of_a_rotation_ends,
}

async fn events_arrive_signed_with_the_link_and_the_click(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created", "link.clicked"]).await;
    let secret = webhook["secret"].as_str().unwrap();

    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let created = receiver.next().await;
    created.verify(secret);
    let payload = created.json();
    assert_eq!((&payload["event"], &payload["data"]), (&json!("link.created"), &link));
    assert_eq!(payload["createdAt"], "2026-03-15T12:34:56.789Z");
    assert_eq!(payload["id"], created.headers["webhook-id"].to_str().unwrap());

    service.follow(Method::GET, "/r/k", "curl/8").await;
    let clicked = receiver.next().await;
    clicked.verify(secret);
    let payload = clicked.json();
    assert_eq!(payload["event"], "link.clicked");
    assert_eq!(
        (&payload["data"]["link"]["id"], &payload["data"]["link"]["clicks"]),
        (&link["id"], &json!(1))
    );
    assert_eq!(payload["data"]["click"]["url"], "https://example.com");
}

async fn each_of_many_clicks_is_sent_once(database: Database) {
    // More clicks than one batch has.
    const CLICKS: usize = 1_200;
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let links = [
        service.link(&json!({"url": "https://example.com/0"})).await,
        service.link(&json!({"url": "https://example.com/1"})).await,
    ];
    let ids = links.each_ref().map(|link| link["id"].as_str().unwrap());
    // One webhook receives all clicks, the other only those on one link.
    for (path, scope) in [("/all", json!({})), ("/one", json!({"linkScope": "links", "linkIds": [ids[1]]}))] {
        let mut body = json!({"name": path, "url": receiver.url(path), "triggers": ["link.clicked"]});
        body.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        let answer = service.post("/webhooks", &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }
    let clicks: Vec<Click> =
        (0..CLICKS).map(|n| Click::new(ids[usize::from(n % 4 == 0)], service.now())).collect();
    let recorded = service.backend.store().record_clicks(&clicks).await.unwrap();
    assert_eq!(recorded, CLICKS);
    // The deliverer is not notified here and finds the events at its next check.
    service.clock.advance(Duration::from_secs(1));
    let mut received: BTreeMap<(String, String), usize> = BTreeMap::new();
    for _ in 0..CLICKS + CLICKS / 4 {
        let payload = receiver.next().await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (click, link) = (&payload["data"]["click"]["id"], &payload["data"]["link"]["id"]);
        *received.entry((text(click), text(link))).or_default() += 1;
    }
    let expected = clicks.iter().map(|click| {
        ((click.id.clone(), click.link_id.clone()), if click.link_id == ids[1] { 2 } else { 1 })
    });
    assert_eq!(received, expected.collect());
}

async fn updates_and_deletions_send_events_and_bulk_calls_do_not(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    service.webhook(&receiver.url("/hook"), &["link.updated", "link.deleted"]).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    service.patch("/links/bulk", &json!({"linkIds": [link["id"]], "data": {"title": "bulk"}})).await;
    service.patch(&path, &json!({})).await;
    let changed = service.patch(&path, &json!({"title": "one"})).await.body;
    let event = receiver.next().await.json();
    assert_eq!((&event["event"], &event["data"]), (&json!("link.updated"), &changed));
    service.delete(&path).await;
    let event = receiver.next().await.json();
    assert_eq!((&event["event"], &event["data"]), (&json!("link.deleted"), &changed));
    assert!(receiver.is_empty());
}

async fn a_scope_restricts_the_events(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let a = service.link(&json!({"url": "https://example.com/a", "key": "a"})).await;
    let folder = service.folder("f").await;
    service.link(&json!({"url": "https://example.com/b", "key": "b", "folderId": folder})).await;
    service.link(&json!({"url": "https://example.com/c", "key": "c"})).await;
    let scopes = [
        json!({"linkScope": "links", "linkIds": [a["id"]]}),
        json!({"linkScope": "folders", "folderIds": [folder]}),
    ];
    for (path, scope) in ["/links", "/folders"].iter().zip(scopes) {
        let mut body = json!({"name": "rx", "url": receiver.url(path), "triggers": ["link.clicked"]});
        body.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        assert_eq!(service.post("/webhooks", &body).await.status, StatusCode::CREATED);
    }
    for key in ["c", "a", "b"] {
        service.follow(Method::GET, &format!("/r/{key}"), "curl/8").await;
    }
    let mut keys = Vec::new();
    for _ in 0..2 {
        keys.push(receiver.next().await.json()["data"]["link"]["key"].as_str().unwrap().to_owned());
    }
    keys.sort();
    assert_eq!(keys, ["a", "b"]);
    assert!(receiver.is_empty());
}

async fn a_webhook_is_updated_and_enabled_again(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let made = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}", made["id"].as_str().unwrap());
    let changed = service
        .patch(&path, &json!({"name": "other", "url": receiver.url("/b"), "disabled": true}))
        .await
        .body;
    assert_eq!(
        (&changed["name"], &changed["disabledAt"]),
        (&json!("other"), &json!("2026-03-15T12:34:56.789Z"))
    );
    service.link(&json!({"url": "https://example.com/unsent"})).await;
    assert_eq!(service.post(&format!("{path}/test"), &json!({})).await.error().0, 409);
    assert_eq!(service.patch(&path, &json!({"disabled": false})).await.body["disabledAt"], Value::Null);
    service.link(&json!({"url": "https://example.com/sent"})).await;
    assert_eq!(receiver.next().await.json()["data"]["url"], "https://example.com/sent");
    let other = service.webhook(&receiver.url("/c"), &["link.created"]).await;
    let taken = service.patch(&path, &json!({"url": other["url"]})).await;
    assert_eq!(taken.error(), (409, "conflict", "A Webhook with this URL already exists."));
}

async fn bulk_creation_sends_no_events(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    service.post("/links/bulk", &json!([{"url": "https://example.com/bulk"}])).await;
    service.link(&json!({"url": "https://example.com/single"})).await;
    assert_eq!(receiver.next().await.json()["data"]["url"], "https://example.com/single");
    assert!(receiver.is_empty());
}

async fn webhooks_are_created_listed_and_deleted(database: Database) {
    let service = Service::start(database).await;
    let receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let mut shown = webhook.clone();
    assert!(shown.as_object_mut().unwrap().remove("secret").is_some());
    assert_eq!(service.get("/webhooks").await.body, json!([shown]));
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    assert_eq!(service.get(&path).await.body, shown);
    let again = json!({"name": "rx", "url": webhook["url"], "triggers": ["link.created"]});
    let answer = service.post("/webhooks", &again).await;
    assert_eq!(answer.error(), (409, "conflict", "A Webhook with this URL already exists."));
    assert_eq!(service.delete(&path).await.body, json!({"id": webhook["id"]}));
    assert_eq!(service.get(&path).await.error(), (404, "not_found", "Webhook not found."));
    assert_eq!(service.get("/webhooks").await.body, json!([]));
}

async fn a_webhook_to_an_address_that_is_not_public_is_refused(database: Database) {
    let service = Service::guarded(database).await;
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

async fn a_workspace_has_a_maximum_of_webhooks_and_one_per_url(database: Database) {
    let service = Service::with_settings(database, Settings { max_webhooks: 3, ..settings() }).await;
    //  address                           status
    let table = [
        ("http://rx.test/a", 201),
        ("HTTP://RX.test:80/a", 409),
        ("http://rx.test./a#fragment", 409),
        ("http://rx.test/a?", 409),
        ("http://user:secret@rx.test/b", 422),
        ("http://rx.test/b", 201),
        ("http://rx.test/c", 201),
        ("http://rx.test/d", 403),
        ("http://rx.test/c", 409),
    ];
    for (url, status) in table {
        let body = json!({"name": "rx", "url": url, "triggers": ["link.created"]});
        assert_eq!(service.post("/webhooks", &body).await.status, status, "{url}");
    }
    let (_, key) = service.new_workspace("second").await;
    let body = json!({"name": "rx", "url": "http://rx.test/a", "triggers": ["link.created"]});
    let other = service.call_as(&key, Method::POST, "/webhooks", Some(&body)).await;
    assert_eq!(other.status, StatusCode::CREATED, "{}", other.body);
    let oldest = service.get("/webhooks").await.body[2]["id"].as_str().unwrap().to_owned();
    service.delete(&format!("/webhooks/{oldest}")).await;
    service.webhook("http://rx.test/d", &["link.created"]).await;
}

async fn ids_that_do_not_belong_to_the_scope_are_refused(database: Database) {
    let service = Service::start(database).await;
    let link = &service.link(&json!({"url": "https://example.com"})).await["id"];
    let folder = &service.folder("f").await;
    //  fields of a new webhook, and the refused field
    let table = [
        (json!({"linkIds": [link]}), Some("linkIds")),
        (json!({"folderIds": [folder]}), Some("folderIds")),
        (json!({"linkScope": null, "linkIds": [link]}), Some("linkIds")),
        (json!({"linkScope": "workspace", "linkIds": [link]}), Some("linkIds")),
        (json!({"linkScope": "links", "linkIds": []}), Some("linkIds")),
        (json!({"linkScope": "links", "linkIds": [link], "folderIds": [folder]}), Some("folderIds")),
        (json!({"linkScope": "domain"}), Some("linkScope")),
        (json!({"linkIds": [], "folderIds": null}), None),
        (json!({"linkScope": "links", "linkIds": [link], "folderIds": []}), None),
    ];
    for (n, (fields, refused)) in table.into_iter().enumerate() {
        let url = format!("http://rx.test/{n}");
        let mut body = json!({"name": "rx", "url": url, "triggers": ["link.created"]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = service.post("/webhooks", &body).await;
        match refused {
            Some(field) => {
                let (status, _, message) = answer.error();
                assert!(status == 422 && message.contains(field), "{fields}: {message}");
            }
            None => assert_eq!(answer.status, StatusCode::CREATED, "{fields}: {}", answer.body),
        }
    }
}

async fn an_update_changes_the_fields_that_it_names(database: Database) {
    let service = Service::start(database).await;
    let one = &service.link(&json!({"url": "https://example.com/1"})).await["id"];
    let two = &service.link(&json!({"url": "https://example.com/2"})).await["id"];
    let folder = &service.folder("f").await;
    let made = service.webhook("http://rx.test/", &["link.created"]).await;
    let path = format!("/webhooks/{}", made["id"].as_str().unwrap());
    let mut shown = service.get(&path).await.body;
    //  update, and the fields of the response that change, or the refused field
    let table = [
        (json!({}), Ok(vec![])),
        (json!({"name": "rx", "url": "http://RX.test:80/#"}), Ok(vec![])),
        (json!({"name": "ry", "triggers": ["link.deleted"]}), Ok(vec!["name", "triggers"])),
        (json!({"linkIds": [one]}), Err("linkIds")),
        (json!({"linkScope": "links", "linkIds": [one]}), Ok(vec!["linkIds", "linkScope"])),
        (json!({"linkIds": [two]}), Ok(vec!["linkIds"])),
        (json!({"linkIds": []}), Err("linkIds")),
        (
            json!({"linkScope": "folders", "folderIds": [folder]}),
            Ok(vec!["folderIds", "linkIds", "linkScope"]),
        ),
        (json!({"linkScope": null, "disabled": true}), Ok(vec!["disabledAt", "folderIds", "linkScope"])),
        (json!({"disabled": true}), Ok(vec![])),
        (json!({"secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}), Err("secret")),
    ];
    for (change, expected) in table {
        let answer = service.patch(&path, &change).await;
        match expected {
            Ok(expected) => {
                let after = answer.body.as_object().unwrap();
                let changed: Vec<&String> = after
                    .iter()
                    .filter(|(name, value)| shown[*name] != **value)
                    .map(|(name, _)| name)
                    .collect();
                assert_eq!(changed, expected, "{change}: {}", answer.body);
                shown = service.get(&path).await.body;
                assert_eq!(shown, answer.body, "an update does not return the secret");
            }
            Err(field) => {
                let (status, _, message) = answer.error();
                assert!(status == 422 && message.contains(field), "{change}: {message}");
            }
        }
    }
}

async fn both_secrets_sign_until_the_overlap_of_a_rotation_ends(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let made = service.webhook(&receiver.url("/hook"), &["link.created"]).await;
    let path = format!("/webhooks/{}", made["id"].as_str().unwrap());
    let rotate = format!("{path}/rotate-secret");
    let old = made["secret"].as_str().unwrap();
    let rotated = service.post(&rotate, &json!({"overlapSeconds": 3_600})).await.body;
    let new = rotated["secret"].as_str().unwrap();
    assert_ne!(new, old);
    assert_eq!(rotated["oldSecretUntil"], "2026-03-15T13:34:56.789Z");
    assert_eq!(service.get(&path).await.body["secret"], Value::Null, "shown only once");
    let signed = async |receiver: &mut Receiver| {
        service.post(&format!("{path}/test"), &json!({})).await;
        let delivery = receiver.next().await;
        // Otherwise, the delivery could be retried after the clock is stepped.
        log_after(&service, &made, 1).await;
        let header = |name: &str| delivery.headers[name].to_str().unwrap().to_owned();
        let timestamp: i64 = header("webhook-timestamp").parse().unwrap();
        let by = |secret: &str| {
            let standard =
                signature::standard(secret, &header("webhook-id"), timestamp, &delivery.body).unwrap();
            (standard, signature::dub(secret, &delivery.body))
        };
        (header("webhook-signature"), header("dub-signature"), by(old), by(new))
    };
    let (standard, dub, (old_standard, old_dub), (new_standard, _)) = signed(&mut receiver).await;
    assert_eq!(standard, format!("{new_standard} {old_standard}"));
    assert_eq!(dub, old_dub);
    service.clock.advance(Duration::from_secs(3_600));
    let (standard, dub, _, (new_standard, new_dub)) = signed(&mut receiver).await;
    assert_eq!((standard, dub), (new_standard, new_dub));
    assert_eq!(service.get(&path).await.body["oldSecretUntil"], Value::Null);

    let given = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    let rotated = service.post(&rotate, &json!({"secret": given, "overlapSeconds": 0})).await.body;
    assert_eq!((&rotated["secret"], &rotated["oldSecretUntil"]), (&json!(given), &Value::Null));
    service.post(&format!("{path}/test"), &json!({})).await;
    receiver.next().await.verify(given);
    for refused in
        [json!({"secret": "short"}), json!({"overlapSeconds": 604_801}), json!({"overlapSeconds": -1})]
    {
        assert_eq!(service.post(&rotate, &refused).await.error().0, 422, "{refused}");
    }
}

/// Events of weeks are kept, so a link or a click with a webhook must not read them all.
#[tokio::test]
async fn an_event_is_written_without_reading_the_earlier_ones_on_postgresql() {
    const EVENTS: i64 = 200;
    let receiver = Receiver::start().await;
    let service = Service::start(Database::postgres().await).await;
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created"]});
    service.post("/webhooks", &webhook).await;
    for n in 0..EVENTS {
        // Long destinations make the table large.
        let url = format!("https://example.com/{n}{}", "x".repeat(1_000));
        assert_eq!(service.post("/links", &json!({"url": url})).await.status, 200);
    }
    let mut database = service.database().connect().await;
    service.shut_down().await;
    let others = "SELECT COUNT(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    // A connection reports what it has read when it ends.
    let ended = async {
        while sqlx::query_scalar::<_, i64>(others).fetch_one(&mut database).await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    let read = "SELECT n_tup_ins, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'webhook_events'";
    let (written, read): (i64, i64) = sqlx::query_as(read).fetch_one(&mut database).await.unwrap();
    assert_eq!(written, EVENTS);
    assert!(read < 10 * EVENTS, "{read} rows were read from the whole table");
}
