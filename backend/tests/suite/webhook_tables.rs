//! The documented tables of webhooks, and inputs of their deliveries that are refused.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::{Answer, Service};

on_both_databases! {
    each_field_of_a_webhook_has_its_documented_maximum,
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
