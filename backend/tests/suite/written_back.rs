//! Links that are read, changed and written back, and the fields that name tags.

use std::time::Duration;

use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_link_is_the_same_after_it_is_read_and_written_back,
    a_change_of_a_link_that_was_read_is_the_only_one,
    a_link_that_was_read_can_be_created_again,
    each_field_of_tags_counts_or_is_refused,
    campaign_parameters_are_bounded_wherever_they_are,
}

/// Links with several tags, a folder, and destinations that an encoder would change.
async fn links(service: &Service) -> Vec<Value> {
    let tags = service.tags(&["x", "y", "z"]).await;
    let folder = service.folder("f").await;
    let mut links = Vec::new();
    for url in [
        "https://example.com",
        "https://Example.com?a=b%20c&flag",
        "https://example.com/?utm_source=a+b&utm_term=&sig=%2f%2B+&&x#top",
        "https://example.com/?utm_source=one&utm_source=two&ref=r",
        "mailto:someone@example.com",
    ] {
        let number = links.len();
        links.push(
            service
                .link(&json!({
                    "url": url, "key": format!("k{number}"), "externalId": format!("e{number}"), "tenantId": "t",
                    "tagIds": [tags[1], tags[0]], "folderId": folder, "title": "T", "comments": "c", "archived": true,
                    "expiresAt": "2026-05-01T00:00:00.123456Z", "expiredUrl": "over.test", "ios": "apps.test",
                    "geo": {"DE": "https://de.test?a=b%20c"}, "doIndex": true, "programId": "p",
                }))
                .await,
        );
    }
    links.push(service.link(&json!({"url": "https://example.com/untagged", "key": "plain"})).await);
    links
}

async fn a_link_is_the_same_after_it_is_read_and_written_back(database: Database) {
    let service = Service::start(database).await;
    for link in links(&service).await {
        service.clock.advance(Duration::from_secs(60));
        let path = format!("/links/{}", link["id"].as_str().unwrap());
        // An update would send an event, and move `updatedAt`.
        assert_eq!(service.patch(&path, &link).await.body, link);
        assert_eq!(service.put("/links/upsert", &link).await.body, link);
        let mut data = link.clone();
        let id = link["externalId"].clone();
        for name in ["domain", "key", "externalId"] {
            data.as_object_mut().unwrap().remove(name);
        }
        let body = json!({"linkIds": [link["id"]], "data": data});
        assert_eq!(service.patch("/links/bulk", &body).await.body, json!([link]), "{id}");
        assert_eq!(service.get(&path).await.body, link);
    }
}

async fn a_change_of_a_link_that_was_read_is_the_only_one(database: Database) {
    let service = Service::start(database).await;
    for link in links(&service).await {
        let path = format!("/links/{}", link["id"].as_str().unwrap());
        service.clock.advance(Duration::from_secs(60));
        let mut changed = link.clone();
        changed["title"] = json!("changed");
        let mut answer = service.patch(&path, &changed).await.body;
        assert_ne!(answer["updatedAt"], link["updatedAt"]);
        answer["updatedAt"] = link["updatedAt"].clone();
        assert_eq!(answer, changed);
    }
}

async fn a_link_that_was_read_can_be_created_again(database: Database) {
    let service = Service::start(database).await;
    for link in links(&service).await {
        service.delete(&format!("/links/{}", link["id"].as_str().unwrap())).await;
        for bulk in [false, true] {
            let mut made = if bulk {
                service.post("/links/bulk", &json!([link])).await.body[0].clone()
            } else {
                service.post("/links", &link).await.body
            };
            assert_ne!(made["id"], link["id"], "{made}");
            service.delete(&format!("/links/{}", made["id"].as_str().unwrap())).await;
            for name in ["id", "createdAt", "updatedAt"] {
                made[name] = link[name].clone();
            }
            assert_eq!(made, link);
        }
    }
}

async fn each_field_of_tags_counts_or_is_refused(database: Database) {
    let service = Service::start(database).await;
    let ids = service.tags(&["x", "y"]).await;
    let (x, y) = (&ids[0], &ids[1]);
    let other = "custom: tagNames: Does not name the same tags as";
    //  fields, and the names of the tags or the message
    let table = [
        (json!({"tagIds": [x], "tagNames": ["X"]}), Ok(vec!["x"])),
        (json!({"tagIds": [x, y], "tagId": x}), Ok(vec!["x", "y"])),
        (json!({"tagId": null, "tagNames": ["x"]}), Ok(vec!["x"])),
        (json!({"tagIds": null, "tagId": y}), Ok(vec!["y"])),
        (json!({"tagIds": null}), Ok(vec![])),
        (json!({"tags": [{"id": x}, {"id": y}], "tagId": x}), Ok(vec!["x", "y"])),
        (json!({"tags": [{"id": x}], "tagId": x, "tagNames": "y"}), Ok(vec!["y"])),
        (json!({"tags": [{"id": x}], "tagId": y}), Ok(vec!["y"])),
        (json!({"tags": [{"id": x}], "tagId": null}), Ok(vec![])),
        (json!({"tags": [{"id": x}], "tagIds": [y], "tagId": x}), Ok(vec!["y"])),
        (json!({"tagIds": [x], "tagNames": ["nobody"]}), Err("Invalid tagNames detected: nobody".to_owned())),
        (json!({"tagId": "tag_nobody"}), Err("Invalid tagId detected: tag_nobody".to_owned())),
        (json!({"tags": [{"id": "tag_nobody"}]}), Err("Invalid tags detected: tag_nobody".to_owned())),
        (json!({"tagIds": [x], "tagNames": ["y"]}), Err(format!("{other} tagIds"))),
        (json!({"tagId": x, "tagNames": "x,y"}), Err(format!("{other} tagId"))),
        (json!({"tagIds": [], "tagNames": "x"}), Err(format!("{other} tagIds"))),
    ];
    let target = service.link(&json!({"url": "https://example.com/target", "tagIds": [x]})).await;
    let path = format!("/links/{}", target["id"].as_str().unwrap());
    for (fields, expected) in table {
        let mut body = fields.clone();
        body["url"] = json!("https://example.com/target");
        let mut created = body.clone();
        created["url"] = json!("https://example.com/new");
        let many = json!({"linkIds": [target["id"]], "data": fields});
        let answers = [
            ("create", service.post("/links", &created).await),
            ("update", service.patch(&path, &fields).await),
            ("upsert", service.put("/links/upsert", &body).await),
            ("bulk update", service.patch("/links/bulk", &many).await),
            ("bulk create", service.post("/links/bulk", &json!([created])).await),
        ];
        for (call, answer) in answers {
            let link = if answer.body.is_array() { &answer.body[0] } else { &answer.body };
            match &expected {
                Ok(names) => {
                    let tags: Vec<&Value> =
                        link["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
                    assert_eq!(tags, *names, "{call} {fields}");
                }
                Err(message) => {
                    let said = if call == "bulk create" { &link["error"] } else { &link["error"]["message"] };
                    assert_eq!(said, message, "{call} {fields}");
                }
            }
        }
    }
}

async fn campaign_parameters_are_bounded_wherever_they_are(database: Database) {
    let service = Service::start(database).await;
    let long = format!("https://example.com/?utm_term={}", "t".repeat(256));
    let full = format!("https://example.com/?{}", "u".repeat(31_978));
    let link = service.link(&json!({"url": full})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    let term = "too_big: utm_term: Too big: expected string to have <=255 characters";
    let url = "too_big: url: Too big: expected string to have <=32000 characters";
    for (body, message) in [
        (json!({"url": long}), term),
        (json!({"url": long, "utm_term": "t".repeat(256)}), term),
        (json!({"url": full, "utm_term": "t"}), url),
    ] {
        assert_eq!(service.post("/links", &body).await.error(), (422, "unprocessable_entity", message));
        assert_eq!(service.put("/links/upsert", &body).await.error(), (422, "unprocessable_entity", message));
        assert_eq!(service.patch(&path, &body).await.error(), (422, "unprocessable_entity", message));
        let bulk = service.post("/links/bulk", &json!([body])).await;
        match body.get("utm_term").filter(|value| value.as_str().unwrap().len() > 255) {
            None => assert_eq!(bulk.body[0]["error"], message),
            Some(_) => assert_eq!(bulk.error().2, message.replace("utm_term:", "[0].utm_term:")),
        }
    }
    assert_eq!(service.patch(&path, &json!({"utm_term": "t"})).await.error().2, url);
    assert_eq!(service.get(&path).await.body, link);
}
