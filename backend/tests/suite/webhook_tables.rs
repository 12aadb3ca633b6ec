//! The documented tables of webhooks, and inputs of their deliveries that are refused.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::receiver::Receiver;
use crate::service::{Answer, Service};

on_both_databases! {
    each_field_of_a_webhook_has_its_documented_maximum,
    the_filters_of_deliveries_work_as_documented,
    events_that_a_webhook_never_received_are_named,
}

/// The rows of a documented table with this heading: the code in the first cell, and the other cells.
fn documented(heading: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        let code = cells.next().unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (code, cells.collect())
    });
    rows.collect()
}

/// The names of the fields, or of the parameters, of an operation. The parts of its path are left out.
fn names(document: &Value, operation: &Value) -> BTreeSet<String> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str()).unwrap_or_default();
    let properties = &document.pointer(reference.trim_start_matches('#')).unwrap_or(schema)["properties"];
    let fields = properties.as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.filter(|parameter| parameter["in"] == "query");
    fields.chain(parameters.map(|parameter| parameter["name"].as_str().unwrap().to_owned())).collect()
}

async fn each_field_of_a_webhook_has_its_documented_maximum(database: Database) {
    let service = Service::start(database).await;
    let (link, folder) =
        (service.link(&json!({"url": "https://example.com"})).await["id"].clone(), service.folder("f").await);
    let rotate = service.webhook("http://rx.test/rotated", &["link.created"]).await;
    let rotate = format!("/webhooks/{}/rotate-secret", rotate["id"].as_str().unwrap());
    let sent = async |field: &str, size: usize| -> Answer {
        let text = |length: usize| "x".repeat(length);
        let url = |length: usize| format!("http://rx.test/{}", text(length - "http://rx.test/".len()));
        let ids = |id: &Value| json!(vec![id; size]);
        let (path, fields) = match field {
            "name" => ("/webhooks", json!({"name": text(size)})),
            "url" => ("/webhooks", json!({"url": url(size)})),
            "triggers" => ("/webhooks", json!({"triggers": vec!["link.created"; size]})),
            "linkIds" => ("/webhooks", json!({"linkScope": "links", "linkIds": ids(&link)})),
            "folderIds" => ("/webhooks", json!({"linkScope": "folders", "folderIds": ids(&json!(folder))})),
            "secret" => {
                ("/webhooks", json!({"secret": format!("whsec_{}", BASE64_STANDARD.encode(text(size)))}))
            }
            "overlapSeconds" => (rotate.as_str(), json!({"overlapSeconds": size})),
            other => panic!("{other} is documented and not tried"),
        };
        let mut body = json!({"name": "rx", "url": url(100), "triggers": ["link.created"]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        service.post(path, &body).await
    };
    let mut tried: BTreeSet<String> = ["linkScope", "disabled", "disabledAt"].map(str::to_owned).into();
    for (fields, cells) in documented("| field of a webhook |") {
        let digits: String = cells[0].split([' ', '(']).next().unwrap().replace(',', "");
        let max: usize = digits.parse().unwrap();
        for field in fields {
            let accepted = sent(&field, max).await;
            assert!(accepted.status.is_success(), "{field} of {max}: {}", accepted.body);
            let refused = sent(&field, max + 1).await;
            let (status, _, message) = refused.error();
            assert!(status == 422 && message.contains(&field), "{field} of {}: {message}", max + 1);
            if accepted.status == StatusCode::CREATED {
                service.delete(&format!("/webhooks/{}", accepted.body["id"].as_str().unwrap())).await;
            }
            tried.insert(field);
        }
    }
    let document = service.get("/openapi.json").await.body;
    let paths = &document["paths"];
    let described = [&paths["/webhooks"]["post"], &paths["/webhooks/{id}/rotate-secret"]["post"]];
    assert_eq!(
        tried,
        described.into_iter().flat_map(|operation| names(&document, operation)).collect(),
        "each field is documented"
    );
}

async fn the_filters_of_deliveries_work_as_documented(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let webhook = service.webhook(&receiver.url("/"), &["link.created"]).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    let event = service.post(&format!("{path}/test"), &json!({})).await.body["id"].clone();
    receiver.next().await;
    let list = format!("{path}/deliveries");
    let replay = format!("{list}/replay");
    let by_query =
        async |name: &str, value: &str| service.get(&format!("{list}?{name}={value}")).await.status;
    let by_body = async |name: &str, value: &str| service.post(&replay, &json!({name: value})).await.status;
    let mut tried = BTreeSet::new();
    for (filters, cells) in documented("| filter of deliveries |") {
        let expected = |cell: &str| if cell.starts_with("422") { 422 } else { 200 };
        for filter in filters {
            let (name, value) = filter.split_once('=').unwrap_or((&filter, ""));
            let value = match (name, value) {
                ("event", _) => "link.created",
                ("start" | "end", _) => "2026-03-15",
                ("eventIds", _) => event.as_str().unwrap(),
                (_, value) => value,
            };
            assert_eq!(by_query(name, value).await, expected(&cells[0]), "{filter} of the list");
            assert_eq!(by_body(name, value).await, expected(&cells[1]), "{filter} of a replay");
            for refused in ["", "lost"] {
                // An id in the list is one that no event may have.
                if (name, refused) != ("eventIds", "lost") {
                    assert_eq!(by_query(name, refused).await, 422, "{name}={refused} of the list");
                }
                assert_eq!(by_body(name, refused).await, 422, "{name}={refused} of a replay");
            }
            tried.insert(name.to_owned());
        }
    }
    let document = service.get("/openapi.json").await.body;
    let described = &document["paths"]["/webhooks/{id}/deliveries/replay"]["post"];
    assert_eq!(tried, names(&document, described));
    let mut described = names(&document, &document["paths"]["/webhooks/{id}/deliveries"]["get"]);
    assert!(described.remove("page") && described.remove("pageSize"));
    assert_eq!(tried, described);
    let contradictory = json!({"start": "2026-03-15T12:00:00Z", "end": "2026-03-15T11:59:59Z"});
    let answers = [
        service.get(&format!("{list}?start=2026-03-15T12:00:00Z&end=2026-03-15T11:59:59Z")).await,
        service.post(&replay, &contradictory).await,
    ];
    for answer in answers {
        let message = "custom: start: Invalid range: start is after end";
        assert_eq!(answer.error(), (422, "unprocessable_entity", message));
    }
}

async fn events_that_a_webhook_never_received_are_named(database: Database) {
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    let mut made = Vec::new();
    for path in ["/a", "/b"] {
        let webhook = service.webhook(&receiver.url(path), &["link.created"]).await;
        let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
        let event = service.post(&format!("{path}/test"), &json!({})).await.body["id"].clone();
        receiver.next().await;
        made.push((format!("{path}/deliveries/replay"), event));
    }
    let [(replay, mine), (_, theirs)] = made.as_slice() else { unreachable!("two webhooks") };
    let unknown = |ids: String| format!("Invalid eventIds detected: {ids}");
    let empty = "too_small: eventIds: Too small: expected array to have >=1 items".to_owned();
    //  events, and the message
    let table = [
        (json!([]), empty),
        (json!(""), "invalid_type: eventIds: Invalid input: expected array, received null".to_owned()),
        (json!(["evt_x"]), unknown("evt_x".to_owned())),
        (json!([mine, theirs, "evt_x"]), unknown(format!("{}, evt_x", theirs.as_str().unwrap()))),
    ];
    for (ids, message) in table {
        let answer = service.post(replay, &json!({"eventIds": ids})).await;
        assert_eq!(answer.error(), (422, "unprocessable_entity", message.as_str()), "{ids}");
    }
    assert!(receiver.is_empty(), "a refused call sends nothing");
    let answer = service.post(replay, &json!({"eventIds": [mine]})).await;
    assert_eq!(answer.body, json!({"replayed": 1, "more": false}));
    assert_eq!(&receiver.next().await.json()["id"], mine);
}
