//! Webhooks that change: each accepted field has an effect, concurrent changes all count, and promises are kept.

use std::time::Duration;

use axum::http::Method;
use backend::{Click, signature};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use crate::database::{Database, on_both_databases};
use crate::deliveries::log_after;
use crate::receiver::Receiver;
use crate::service::Service;

on_both_databases! {
    unknown_links_and_folders_of_a_scope_are_named,
    a_scope_keeps_what_is_deleted_later,
    concurrent_updates_of_different_fields_all_count,
    a_change_counts_what_another_process_writes_before_it,
    the_longest_url_is_stored_and_a_longer_one_is_refused,
    a_promised_secret_signs_until_its_overlap_ends,
    a_new_webhook_cannot_be_disabled,
}

fn path_of(webhook: &Value) -> String {
    format!("/webhooks/{}", webhook["id"].as_str().unwrap())
}

/// Makes a link and returns its id.
async fn link(service: &Service, body: Value) -> String {
    service.link(&body).await["id"].as_str().unwrap().to_owned()
}

async fn unknown_links_and_folders_of_a_scope_are_named(database: Database) {
    let service = Service::start(database).await;
    let (_, stranger) = service.new_workspace("second").await;
    let theirs = json!({"url": "https://example.com", "externalId": "theirs"});
    let theirs = service.call_as(&stranger, Method::POST, "/links", Some(&theirs)).await.body;
    let theirs = theirs["id"].as_str().unwrap();
    let a = &link(&service, json!({"url": "https://example.com/a", "externalId": "a"})).await;
    let b = &link(&service, json!({"url": "https://example.com/b"})).await;
    let deleted = &link(&service, json!({"url": "https://example.com/c"})).await;
    service.delete(&format!("/links/{deleted}")).await;
    let folder = &service.folder("f").await;
    //  scope, the ids in a request, and those of the webhook or the unknown ones
    let table = [
        ("links", json!([a, b]), Ok(json!([a, b]))),
        ("links", json!(["ext_a", b, a]), Ok(json!([a, b]))),
        ("links", json!(format!("{b},ext_a")), Ok(json!([b, a]))),
        ("links", json!([a, "x"]), Err("x".to_owned())),
        ("links", json!(["a"]), Err("a".to_owned())),
        ("links", json!([theirs, a, "ext_theirs", deleted]), Err(format!("{theirs}, ext_theirs, {deleted}"))),
        ("folders", json!([folder, folder]), Ok(json!([folder]))),
        ("folders", json!([folder, "x", a]), Err(format!("x, {a}"))),
    ];
    let webhook = service.webhook("http://rx.test/", &["link.created"]).await;
    for (scope, ids, expected) in table {
        let field = if scope == "links" { "linkIds" } else { "folderIds" };
        let change = json!({"linkScope": scope, field: ids});
        let mut new = json!({"name": "rx", "url": "http://rx.test/new", "triggers": ["link.created"]});
        new.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let created = service.post("/webhooks", &new).await;
        let updated = service.patch(&path_of(&webhook), &change).await;
        service.patch(&path_of(&webhook), &json!({"linkScope": null})).await;
        for answer in [&created, &updated] {
            match &expected {
                Ok(ids) => assert_eq!(&answer.body[field], ids, "{change}: {}", answer.body),
                Err(unknown) => {
                    let message = format!("Invalid {field} detected: {unknown}");
                    assert_eq!(answer.error(), (400, "bad_request", message.as_str()), "{change}");
                }
            }
        }
        if expected.is_ok() {
            service.delete(&path_of(&created.body)).await;
        }
    }
}

async fn a_scope_keeps_what_is_deleted_later(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let [kept, deleted, new] = ["a", "b", "c"].map(|key| json!({"url": "https://example.com", "key": key}));
    let (kept, deleted) = (link(&service, kept).await, link(&service, deleted).await);
    let made = json!({
        "name": "rx", "url": receiver.url("/"), "triggers": ["link.updated"], "linkScope": "links",
        "linkIds": [kept, deleted],
    });
    let made = service.post("/webhooks", &made).await.body;
    service.delete(&format!("/links/{deleted}")).await;
    // A client that writes back what it has read changes nothing.
    let read = service.get(&path_of(&made)).await.body;
    assert_eq!(read["linkIds"], json!([kept, deleted]));
    assert_eq!(service.patch(&path_of(&made), &read).await.body, read);
    let ids = json!([deleted, kept, link(&service, new).await]);
    let changed = service.patch(&path_of(&made), &json!({"linkIds": ids})).await.body;
    assert_eq!(changed["linkIds"], ids);
    service.patch(&format!("/links/{kept}"), &json!({"title": "t"})).await;
    assert_eq!(receiver.next().await.json()["data"]["id"], kept);
}

async fn concurrent_updates_of_different_fields_all_count(database: Database) {
    let service = Service::start(database).await;
    let links = [
        link(&service, json!({"url": "https://example.com/1"})).await,
        link(&service, json!({"url": "https://example.com/2"})).await,
    ];
    let path = path_of(&service.webhook("http://rx.test/", &["link.created"]).await);
    for round in 0..10 {
        let triggers = [["link.created"], ["link.deleted"]][round % 2];
        let changes = [
            json!({"name": format!("{round}")}),
            json!({"url": format!("http://rx.test/{round}")}),
            json!({"triggers": triggers}),
            json!({"linkScope": "links", "linkIds": [links[round % 2]]}),
            json!({"disabled": round % 2 == 0}),
        ];
        for answer in join_all(changes.iter().map(|change| service.patch(&path, change))).await {
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        let shown = service.get(&path).await.body;
        for change in &changes {
            for (field, value) in change.as_object().unwrap() {
                let shown = match field.as_str() {
                    "disabled" => &json!(!shown["disabledAt"].is_null()),
                    field => &shown[field],
                };
                assert_eq!(shown, value, "{field} in round {round}");
            }
        }
    }
}

/// Returns once a request waits for a transaction of another process.
async fn a_request_waits(service: &Service) {
    let mut connection = service.database().connect().await;
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut waits = async || {
        if service.database().is_sqlite() {
            let writing = "weir_backend_connections{pool=\"write\",state=\"used\"} 1";
            service.metrics().await.contains(writing)
        } else {
            sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut connection).await.unwrap() > 0
        }
    };
    while !waits().await {
        tokio::task::yield_now().await;
    }
}

async fn a_change_counts_what_another_process_writes_before_it(database: Database) {
    let service = Service::start(database).await;
    let begin = if service.database().is_sqlite() { "BEGIN IMMEDIATE" } else { "BEGIN" };
    let (delete, disable) = ("DELETE FROM webhooks", "UPDATE webhooks SET disabled_at = 7");
    let (patch, rotate) =
        ((Method::PATCH, "", json!({"name": "ry"})), (Method::POST, "/rotate-secret", json!({})));
    //  what the other process writes, the request, and its status
    let table =
        [(delete, &patch, 404), (delete, &rotate, 404), (disable, &patch, 200), (disable, &rotate, 200)];
    for (written, (method, path, body), status) in table {
        let webhook = service.webhook("http://rx.test/", &["link.created"]).await;
        let path = format!("{}{path}", path_of(&webhook));
        let mut other = service.database().connect().await;
        other.execute(AssertSqlSafe(format!("{begin}; {written}"))).await.unwrap();
        let others = async {
            a_request_waits(&service).await;
            other.execute("COMMIT").await.unwrap();
        };
        let (answer, ()) =
            tokio::join!(service.call_as(service.key(), method.clone(), &path, Some(body)), others);
        assert_eq!(answer.status, status, "{written}: {}", answer.body);
        if status == 200 {
            assert_eq!(answer.body["disabledAt"], "1970-01-01T00:00:00.007Z");
            let shown = service.get(&path_of(&webhook)).await.body;
            assert_eq!(shown["disabledAt"], answer.body["disabledAt"]);
            service.delete(&path_of(&webhook)).await;
        }
    }
}

async fn the_longest_url_is_stored_and_a_longer_one_is_refused(database: Database) {
    const MAX: usize = 2_048;
    let service = Service::start(database).await;
    // Random, so that no index can compress it.
    let random = || Click::new("", service.now()).id.into_bytes().into_iter().map(u32::from);
    let ascii = |length: usize| -> String {
        let letters = std::iter::repeat_with(random).flatten().filter_map(char::from_u32);
        "http://rx.test/".chars().chain(letters).take(length).collect()
    };
    // A Chinese character is nine characters in a URL.
    let chinese = |count: usize| -> String {
        let characters =
            std::iter::repeat_with(random).flatten().filter_map(|n| char::from_u32(0x4E00 + 99 * (n - 48)));
        "http://rx.test/".chars().chain(characters.take(count)).collect()
    };
    let most = (MAX - "http://rx.test/".len()) / 9;
    //  URL, and whether it is accepted
    let table = [
        (ascii(MAX), true),
        (ascii(MAX + 1), false),
        (chinese(most), true),
        (chinese(most + 1), false),
        (chinese(MAX - 15), false),
    ];
    for (url, accepted) in table {
        let body = json!({"name": "rx", "url": url, "triggers": ["link.created"]});
        let created = service.post("/webhooks", &body).await;
        let other = service.webhook("http://rx.test/other", &["link.created"]).await;
        let duplicate = service.patch(&path_of(&other), &json!({"url": url})).await;
        if accepted {
            assert_eq!(created.status, 201, "{url}: {}", created.body);
            assert_eq!(duplicate.error().0, 409, "{url}");
            service.delete(&path_of(&created.body)).await;
            assert_eq!(service.patch(&path_of(&other), &json!({"url": url})).await.status, 200, "{url}");
        } else {
            for refused in [created, duplicate] {
                let (status, _, message) = refused.error();
                assert!(
                    status == 422 && message.contains("url: ") && message.contains("<=2048"),
                    "{message}"
                );
            }
        }
        service.delete(&path_of(&other)).await;
    }
}

async fn a_promised_secret_signs_until_its_overlap_ends(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/"), &["link.created"]).await;
    let path = path_of(&webhook);
    let rotate = format!("{path}/rotate-secret");
    let secret = |body: &Value| body["secret"].as_str().unwrap().to_owned();
    // The secrets that sign a delivery.
    let signers = async |receiver: &mut Receiver, secrets: &[&str]| {
        service.post(&format!("{path}/test"), &json!({})).await;
        let delivery = receiver.next().await;
        log_after(&service, &webhook, 1).await;
        let header = |name: &str| delivery.headers[name].to_str().unwrap();
        let timestamp = header("webhook-timestamp").parse().unwrap();
        let signed =
            |secret: &str| signature::standard(secret, header("webhook-id"), timestamp, &delivery.body);
        let signatures: Vec<String> = secrets.iter().map(|secret| signed(secret).unwrap()).collect();
        assert_eq!(header("webhook-signature"), signatures.join(" "));
        // The oldest one signs for receivers that read one signature.
        assert_eq!(header("dub-signature"), signature::dub(secrets.last().unwrap(), &delivery.body));
    };
    let overlap = json!({"overlapSeconds": 3_600});
    let a = secret(&webhook);
    let b = secret(&service.post(&rotate, &overlap).await.body);
    let message = "The previous secret signs deliveries until 2026-03-15T13:34:56.789Z. Rotate after that, or with \
                   overlapSeconds 0, which ends all previous secrets at once.";
    for moment in [0, 3_599_999] {
        service.clock.advance(Duration::from_millis(moment));
        for body in [&overlap, &json!({}), &json!({"overlapSeconds": 1})] {
            assert_eq!(service.post(&rotate, body).await.error(), (409, "conflict", message), "{moment} ms");
        }
        signers(&mut receiver, &[&b, &a]).await;
    }
    service.clock.advance(Duration::from_millis(1));
    signers(&mut receiver, &[&b]).await;
    let c = secret(&service.post(&rotate, &overlap).await.body);
    signers(&mut receiver, &[&c, &b]).await;
    let rotated = service.post(&rotate, &json!({"overlapSeconds": 0})).await.body;
    assert_eq!(rotated["oldSecretUntil"], Value::Null);
    signers(&mut receiver, &[&secret(&rotated)]).await;
}

async fn a_new_webhook_cannot_be_disabled(database: Database) {
    let service = Service::start(database).await;
    //  `disabled`, and the status
    for (disabled, status) in [(json!(true), 422), (json!(0), 422), (json!(false), 201), (Value::Null, 201)] {
        let url = format!("http://rx.test/{disabled}");
        let body = json!({"name": "rx", "url": url, "triggers": ["link.created"], "disabled": disabled});
        assert_eq!(service.post("/webhooks", &body).await.status, status, "{disabled}");
    }
}
