//! Links changed: alone, in bulk, and by their destination.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_change_touches_what_it_names_and_nothing_else,
    every_field_can_be_set_and_emptied,
    what_has_no_effect_is_refused_and_neutral_values_are_not,
    a_change_into_another_links_way_is_refused,
    a_changed_key_moves_the_short_link_at_once,
    an_upsert_finds_its_link_by_the_destination,
    a_bulk_change_leaves_out_what_is_not_there,
    a_bulk_deletion_counts_what_it_deleted,
    a_link_is_found_by_each_of_its_names,
    links_are_counted_by_what_they_share,
    links_live_on_other_domains_too,
}

fn id(link: &Value) -> &str {
    link["id"].as_str().unwrap()
}

async fn a_change_touches_what_it_names_and_nothing_else(database: Database) {
    let service = Service::start(database).await;
    service.tags(&["t"]).await;
    let made = service
        .link(&json!({"url": "https://example.com/a?utm_source=x", "title": "A", "tagNames": "t"}))
        .await;
    service.clock.advance(Duration::from_secs(60));
    let path = format!("/links/{}", id(&made));
    let changed = service.patch(&path, &json!({"url": "https://example.com/b", "archived": true})).await;
    assert_eq!(changed.status, 200);
    let mut expected = made.clone();
    expected["url"] = json!("https://example.com/b");
    expected["utm_source"] = Value::Null;
    expected["archived"] = json!(true);
    expected["updatedAt"] = json!("2026-03-15T12:35:56.789Z");
    assert_eq!(changed.body, expected);
    assert_eq!(service.get(&path).await.body, expected);
    service.clock.advance(Duration::from_secs(60));
    assert_eq!(service.patch(&path, &json!({})).await.body, expected, "nothing changed, so nothing is newer");
    assert_eq!(service.put(&path, &json!({"archived": false})).await.body["archived"], false);
    assert_eq!(service.patch("/links/link_nobody", &json!({})).await.error().0, 404);
}

async fn every_field_can_be_set_and_emptied(database: Database) {
    let service = Service::start(database).await;
    let folder = service.folder("f").await;
    let table = [
        ("externalId", json!("e"), Value::Null),
        ("tenantId", json!("t"), Value::Null),
        ("programId", json!("p"), Value::Null),
        ("partnerId", json!("p"), Value::Null),
        ("folderId", json!(folder), Value::Null),
        ("comments", json!("c"), Value::Null),
        ("expiresAt", json!("2026-05-01T00:00:00.000Z"), Value::Null),
        ("expiredUrl", json!("https://over.test"), Value::Null),
        ("title", json!("t"), Value::Null),
        ("description", json!("d"), Value::Null),
        ("image", json!("https://i.test/i.png"), Value::Null),
        ("video", json!("https://i.test/v.mp4"), Value::Null),
        ("ios", json!("https://apps.test/1"), Value::Null),
        ("android", json!("https://apps.test/2"), Value::Null),
        ("geo", json!({"DE": "https://de.test"}), Value::Null),
        ("utm_source", json!("s"), Value::Null),
        ("utm_medium", json!("m"), Value::Null),
        ("utm_campaign", json!("c"), Value::Null),
        ("utm_term", json!("t"), Value::Null),
        ("utm_content", json!("c"), Value::Null),
        ("archived", json!(true), json!(false)),
        ("doIndex", json!(true), json!(false)),
    ];
    for (field, value, empty) in table {
        let mut body = json!({"url": "https://example.com/x"});
        body[field] = value.clone();
        let made = service.link(&body).await;
        assert_eq!(made[field], value, "{field}");
        let path = format!("/links/{}", id(&made));
        let emptied = service.patch(&path, &json!({ field: empty })).await.body;
        assert_eq!(emptied[field], empty, "{field}");
        assert_eq!(emptied["url"], "https://example.com/x", "{field}");
        assert_eq!(service.patch(&path, &json!({ field: value })).await.body[field], value, "{field}");
        assert_eq!(service.get(&path).await.body[field], value, "{field}");
        service.delete(&path).await;
    }
}

async fn what_has_no_effect_is_refused_and_neutral_values_are_not(database: Database) {
    let service = Service::start(database).await;
    let variants =
        json!([{"url": "https://a.test", "percentage": 40}, {"url": "https://b.test", "percentage": 60}]);
    //  field, what asks for an effect, and what does not
    let table = [
        ("password", json!("secret"), vec![]),
        ("trackConversion", json!(true), vec![json!(false)]),
        ("proxy", json!(true), vec![json!(false)]),
        ("rewrite", json!(true), vec![json!(false)]),
        ("publicStats", json!(true), vec![json!(false)]),
        ("testVariants", variants, vec![json!([])]),
        ("webhookIds", json!(["wh_1"]), vec![json!([])]),
        ("testStartedAt", json!("2026-05-01T00:00:00.000Z"), vec![]),
        ("testCompletedAt", json!("2026-05-02T00:00:00.000Z"), vec![]),
    ];
    for (field, effect, mut neutral) in table {
        neutral.push(Value::Null);
        let body = |value: &Value| json!({"url": "https://example.com", field: value});
        let answer = service.post("/links", &body(&effect)).await;
        assert_eq!(answer.status, 422, "{field}");
        assert!(answer.error().2.starts_with(&format!("custom: {field}: ")), "{}", answer.error().2);
        for value in neutral {
            let made = service.post("/links", &body(&value)).await;
            assert_eq!(made.status, 200, "{field}: {value}");
            // As it was read.
            let path = format!("/links/{}", id(&made.body));
            assert_eq!(service.patch(&path, &made.body).await.body, made.body, "{field}: {value}");
            assert_eq!(service.patch(&path, &json!({ field: effect })).await.status, 422, "{field}");
        }
    }
}

async fn a_change_into_another_links_way_is_refused(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/a", "key": "a", "externalId": "a"})).await;
    let link = service.link(&json!({"url": "https://example.com/b", "key": "b"})).await;
    let path = format!("/links/{}", id(&link));
    let table = [
        (json!({"key": "A"}), 409, "Duplicate key: This short link already exists."),
        (json!({"externalId": "a"}), 409, "A link with this externalId already exists in this workspace."),
        (json!({"domain": "other.test"}), 403, "Domain does not belong to workspace."),
        (json!({"tagIds": ["tag_nobody"]}), 422, "Invalid tagIds detected: tag_nobody"),
        (json!({"tagNames": ["nobody", "none"]}), 422, "Invalid tagNames detected: nobody, none"),
        (json!({"folderId": "fold_nobody"}), 422, "Invalid folderId detected: fold_nobody"),
        (json!({"url": "nonsense"}), 422, "custom: url: Invalid destination URL"),
        (json!({"url": null}), 422, "invalid_type: url: Invalid input: expected string, received null"),
    ];
    for (body, status, message) in table {
        let answer = service.patch(&path, &body).await;
        assert_eq!((answer.error().0, answer.error().2), (status, message));
    }
    assert_eq!(service.get(&path).await.body, link);
}

async fn a_changed_key_moves_the_short_link_at_once(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com/", "key": "old"})).await;
    assert_eq!(service.follow(Method::GET, "/r/old", "curl/8").await.status, 302);
    let changed = service.patch(&format!("/links/{}", id(&link)), &json!({"key": "new"})).await.body;
    assert_eq!(changed["shortLink"], "https://s.test/r/new");
    assert_eq!(service.follow(Method::GET, "/r/old", "curl/8").await.status, 404);
    assert_eq!(service.follow(Method::GET, "/r/new", "curl/8").await.status, 302);
    service.backend.flush_clicks().await;
    assert_eq!(service.get("/links?showArchived=true").await.body[0]["clicks"], 2);
}

async fn an_upsert_finds_its_link_by_the_destination(database: Database) {
    let service = Service::start(database).await;
    let made = service.put("/links/upsert", &json!({"url": "https://example.com/a"})).await;
    assert_eq!(made.status, 200);
    service.clock.advance(Duration::from_secs(1));
    let again = service.put("/links/upsert", &json!({"url": "https://example.com/a"})).await;
    assert_eq!(again.body, made.body, "an identical link is not touched");
    let changed = service.put("/links/upsert", &json!({"url": "https://example.com/a", "title": "A"})).await;
    assert_eq!((&changed.body["id"], &changed.body["title"]), (&made.body["id"], &json!("A")));
    let other = service.put("/links/upsert", &json!({"url": "https://example.com/a/"})).await;
    assert_ne!(other.body["id"], made.body["id"]);
    assert_eq!(service.get("/links/count").await.body, 2);
}

async fn a_bulk_change_leaves_out_what_is_not_there(database: Database) {
    let service = Service::start(database).await;
    let a = service.link(&json!({"url": "https://example.com/a", "externalId": "a"})).await;
    let b = service.link(&json!({"url": "https://example.com/b", "externalId": "b"})).await;
    service.tags(&["x"]).await;
    let body =
        json!({"linkIds": [id(&b), "link_nobody", id(&a)], "data": {"tagNames": ["x"], "utm_source": "s"}});
    let answer = service.patch("/links/bulk", &body).await;
    assert_eq!(answer.each("id"), [&b["id"], &a["id"]]);
    assert_eq!(
        answer.each("url"),
        ["https://example.com/b?utm_source=s", "https://example.com/a?utm_source=s"]
    );
    assert_eq!(answer.body[0]["tags"][0]["name"], "x");
    let body = json!({"externalIds": ["ext_a"], "data": {"archived": true}});
    assert_eq!(service.patch("/links/bulk", &body).await.each("id"), [&a["id"]]);
    let many: Vec<String> = (0..101).map(|n| format!("link_{n}")).collect();
    let table = [
        (json!({"data": {}}), "custom: linkIds: You must provide linkIds or externalIds"),
        (
            json!({"linkIds": ["x"], "data": {"key": "k"}}),
            "custom: data.key: Cannot be changed for many links at once",
        ),
        (json!({"linkIds": ["x"]}), "invalid_type: data: Invalid input: expected object, received null"),
        (
            json!({"linkIds": many, "data": {}}),
            "too_big: linkIds: Too big: expected array to have <=100 items",
        ),
    ];
    for (body, message) in table {
        assert_eq!(service.patch("/links/bulk", &body).await.error(), (422, "unprocessable_entity", message));
    }
}

async fn a_bulk_deletion_counts_what_it_deleted(database: Database) {
    let service = Service::start(database).await;
    let a = service.link(&json!({"url": "https://example.com/a", "key": "a"})).await;
    service.link(&json!({"url": "https://example.com/b", "externalId": "b/2"})).await;
    service.link(&json!({"url": "https://example.com/c"})).await;
    assert_eq!(service.follow(Method::GET, "/r/a", "curl/8").await.status, 302);
    let path = format!("/links/bulk?linkIds={},ext_b%2F2%2Clink_nobody", id(&a));
    assert_eq!(service.delete(&path).await.body, json!({"deletedCount": 2}));
    assert_eq!(service.follow(Method::GET, "/r/a", "curl/8").await.status, 404);
    assert_eq!(service.get("/links/count").await.body, 1);
    assert_eq!(service.delete("/links/bulk").await.error().0, 400);
}

async fn a_link_is_found_by_each_of_its_names(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com/a", "key": "k/1", "externalId": "e"})).await;
    for query in [
        format!("linkId={}", id(&link)),
        "linkId=ext_e".to_owned(),
        "externalId=ext_e".to_owned(),
        "domain=S.test&key=K%2F1".to_owned(),
    ] {
        assert_eq!(service.get(&format!("/links/info?{query}")).await.body, link, "{query}");
    }
    let slashed = service.link(&json!({"url": "https://example.com/b", "externalId": "e/1 2"})).await;
    for path in ["/links/ext_e%2F1%202", "/links/ext_e/1%202"] {
        assert_eq!(service.get(path).await.body, slashed, "{path}");
    }
    for (query, status) in [("", 400), ("key=k", 400), ("externalId=e", 400), ("linkId=link_nobody", 404)] {
        assert_eq!(service.get(&format!("/links/info?{query}")).await.error().0, status, "{query}");
    }
}

async fn links_are_counted_by_what_they_share(database: Database) {
    let service = Service::start(database).await;
    service.tags(&["t", "u"]).await;
    let folder = service.folder("f").await;
    service.link(&json!({"url": "https://example.com/a", "folderId": folder, "tagNames": ["t", "u"]})).await;
    service.link(&json!({"url": "https://example.com/b", "tagNames": ["t"]})).await;
    service.link(&json!({"url": "https://example.com/c", "archived": true})).await;
    let count = async |query: &str| service.get(&format!("/links/count?{query}")).await.body;
    assert_eq!(count("").await, 2);
    assert_eq!(count("showArchived=true").await, 3);
    assert_eq!(count(&format!("folderId={folder}")).await, 1);
    assert_eq!(count("folderId=fold_nobody").await, 0);
    assert_eq!(count("folderId=unsorted").await, 1);
    assert_eq!(count("tagNames=t").await, 2);
    assert_eq!(count("tagNames=U,x").await, 1);
    assert_eq!(count("groupBy=domain").await, json!([{"domain": "s.test", "_count": 2}]));
    assert_eq!(
        count("groupBy=folderId").await,
        json!([{"folderId": null, "_count": 1}, {"folderId": folder, "_count": 1}])
    );
    assert_eq!(count("groupBy=userId").await, json!([{"userId": null, "_count": 2}]));
    let tags = service.get("/links/count?groupBy=tagId").await;
    assert_eq!(tags.each("_count"), [2, 1]);
    let tag = tags.body[0]["tagId"].as_str().unwrap();
    assert_eq!(count(&format!("tagIds={tag}")).await, 2);
    assert_eq!(service.get("/links/count?groupBy=moon").await.error().0, 422);
}

async fn links_live_on_other_domains_too(database: Database) {
    let service = Service::on_domains(database, &["go.test"]).await;
    service.link(&json!({"url": "https://example.com/s", "key": "k"})).await;
    let link = service.link(&json!({"url": "https://example.com/go", "key": "k", "domain": "Go.test"})).await;
    assert_eq!(link["shortLink"], "https://go.test/r/k");
    for (host, destination) in [("go.test", "go"), ("GO.test:443", "go"), ("s.test", "s")] {
        let answer = service.visit(host, "/r/k").await;
        assert_eq!(answer.headers["location"], format!("https://example.com/{destination}"), "{host}");
    }
}
