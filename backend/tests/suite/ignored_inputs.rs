//! Inputs that would be ignored, or make a result wider, are refused or count.

use axum::http::Method;
use serde_json::json;

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    texts_with_nul_and_long_ids_are_refused_in_every_list,
    empty_parameters_are_refused,
    the_names_of_one_link_must_agree,
    a_bulk_update_takes_the_list_that_is_not_empty,
    what_generates_a_key_is_refused_where_none_is_generated,
    a_generated_key_has_at_most_190_characters,
    the_two_names_of_a_tag_must_agree,
    links_of_a_deleted_tag_have_no_tags_at_once,
    a_filter_by_address_keeps_its_commas_and_its_end,
    null_and_an_empty_text_are_no_value_in_every_field,
    fields_that_always_have_a_value_refuse_none,
}

async fn null_and_an_empty_text_are_no_value_in_every_field(database: Database) {
    let service = Service::start(database).await;
    let folder = service.post("/folders", &json!({"name": "f"})).await.body["id"].clone();
    let tag = service.tags(&["t"]).await.remove(0);
    let hook = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.clicked"]});
    let hook = service.post("/webhooks", &hook).await.body["id"].clone();
    let text = "https://example.com/x";
    //  field of a link, a value, and the field in the response without one
    let table = [
        ("externalId", json!("e"), json!(null)),
        ("tenantId", json!("t"), json!(null)),
        ("folderId", folder.clone(), json!(null)),
        ("archived", json!(true), json!(false)),
        ("doIndex", json!(true), json!(false)),
        ("tagIds", json!([tag]), json!(null)),
        ("utm_source", json!("s"), json!(null)),
        ("programId", json!("p"), json!(null)),
        ("title", json!("t"), json!(null)),
        ("expiredUrl", json!(text), json!(null)),
        ("ios", json!(text), json!(null)),
        ("geo", json!({"DE": text}), json!(null)),
        ("expiresAt", json!("in 2 days"), json!(null)),
        ("password", json!(null), json!(null)),
        ("disabledAt", json!(null), json!(null)),
        ("proxy", json!(false), json!(false)),
        ("testVariants", json!([]), json!(null)),
    ];
    for (name, value, expected) in table {
        for nothing in [json!(null), json!("")] {
            let link = service.link(&json!({"url": "https://example.com/", name: value})).await;
            let path = format!("/links/{}", link["id"].as_str().unwrap());
            let answer = service.patch(&path, &json!({ name: nothing })).await;
            let shown = if name == "tagIds" { "tagId" } else { name };
            assert_eq!((answer.status.as_u16(), &answer.body[shown]), (200, &expected), "{name}: {nothing}");
            assert_eq!(service.delete(&path).await.status, 200);
            let made = service.link(&json!({"url": "https://example.com/", name: nothing})).await;
            assert_eq!(made[shown], expected, "{name}: {nothing}");
        }
    }
    for nothing in [json!(null), json!("")] {
        // What a creation gives by itself.
        let link = json!({"url": "https://example.com/", "domain": nothing, "key": nothing, "prefix": nothing, "keyLength": nothing});
        assert_eq!(service.link(&link).await["domain"], "s.test");
        let path = format!("/folders/{}", folder.as_str().unwrap());
        service.patch(&path, &json!({"description": "d"})).await;
        assert_eq!(
            service.patch(&path, &json!({"description": nothing})).await.body["description"],
            json!(null)
        );
        // A webhook without the time at which it was disabled is enabled.
        let path = format!("/webhooks/{}", hook.as_str().unwrap());
        let disabled = service.patch(&path, &json!({"disabled": true})).await.body;
        assert!(disabled["disabledAt"].is_string(), "{disabled}");
        let written_back = service.patch(&path, &json!({"disabledAt": disabled["disabledAt"]})).await.body;
        assert_eq!(written_back["disabledAt"], disabled["disabledAt"]);
        let enabled = service.patch(&path, &json!({"disabledAt": nothing})).await.body;
        assert_eq!(enabled["disabledAt"], json!(null));
        let both = json!({"disabledAt": nothing, "disabled": true});
        assert_eq!(service.patch(&path, &both).await.error().2, "custom: disabledAt: Differs from disabled");
    }
}

async fn fields_that_always_have_a_value_refuse_none(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com/"})).await["id"].clone();
    let tag = json!(service.tags(&["t"]).await.remove(0));
    let folder = service.post("/folders", &json!({"name": "f"})).await.body["id"].clone();
    let hook = json!({"name": "x", "url": "http://127.0.0.1:9/", "triggers": ["link.clicked"]});
    let hook = service.post("/webhooks", &hook).await.body["id"].clone();
    for (kind, id, name) in [
        ("links", &link, "url"),
        ("links", &link, "domain"),
        ("links", &link, "key"),
        ("tags", &tag, "name"),
        ("tags", &tag, "color"),
        ("folders", &folder, "name"),
        ("webhooks", &hook, "name"),
        ("webhooks", &hook, "url"),
        ("webhooks", &hook, "triggers"),
    ] {
        for nothing in [json!(null), json!("")] {
            let path = format!("/{kind}/{}", id.as_str().unwrap());
            let answer = service.patch(&path, &json!({ name: nothing })).await;
            let expected = if name == "triggers" { "array" } else { "string" };
            let expected = format!("invalid_type: {name}: Invalid input: expected {expected}, received null");
            assert_eq!(answer.error(), (422, "unprocessable_entity", &*expected), "{path}");
        }
    }
}

async fn texts_with_nul_and_long_ids_are_refused_in_every_list(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    let nul = |field: &str| format!("custom: {field}: Invalid string: must not contain NUL");
    let table = [
        (json!({"tagNames": "a,b\0"}), nul("tagNames")),
        (json!({"tagIds": ["a\0"]}), nul("tagIds[0]")),
        (json!({"tagId": "a\0"}), nul("tagId")),
        (json!({"title": "a\0"}), nul("title")),
        (json!({"geo": {"DE": "https://de.test/\0"}}), "custom: geo.DE: Invalid destination URL".to_owned()),
        (json!({"url": "https://exa\nmple.com"}), "custom: url: Invalid destination URL".to_owned()),
        (json!({"tags": [{"id": "\0"}]}), nul("tags[0].id")),
    ];
    for (body, message) in table {
        assert_eq!(service.patch(&path, &body).await.error(), (422, "unprocessable_entity", &*message));
    }
    for field in ["linkIds", "externalIds"] {
        let body = json!({field: "a\0", "data": {}});
        assert_eq!(service.patch("/links/bulk", &body).await.error().2, nul(field));
    }
    let long = "i".repeat(256);
    for path in [
        format!("/links?tagIds={long}"),
        format!("/links?linkIds=a,{long}"),
        format!("/tags?ids={long}"),
        format!("/analytics?linkId=-{long}"),
    ] {
        let answer = service.get(&path).await;
        assert!(answer.error().2.ends_with("expected string to have <=255 characters"), "{path}");
        assert_eq!(service.get(&path.replace(&long, &long[1..])).await.status, 200, "{path}");
    }
    assert_eq!(service.delete(&format!("/links/bulk?linkIds=ext_{}", &long[1..])).await.status, 200);
    assert_eq!(service.follow(Method::GET, "/r/k", "curl/8").await.status, 302);
    assert_eq!(service.get("/analytics?groupBy=top_partners").await.status, 200);
}

async fn empty_parameters_are_refused(database: Database) {
    let service = Service::start(database).await;
    for path in ["/analytics?start=", "/analytics?end=", "/events?timezone=", "/analytics?query="] {
        assert_eq!(service.get(path).await.error().0, 422, "{path}");
    }
    for path in ["/links?startingAfter=", "/links?endingBefore=", "/links/info?linkId="] {
        assert_eq!(service.get(path).await.error().0, 422, "{path}");
    }
    let link = service.link(&json!({"url": "https://example.com", "tenantId": ""})).await;
    assert_eq!(link["tenantId"], json!(null));
}

async fn the_names_of_one_link_must_agree(database: Database) {
    let service = Service::start(database).await;
    let a = service.link(&json!({"url": "https://example.com/a", "key": "a", "externalId": "a"})).await;
    service.link(&json!({"url": "https://example.com/b", "key": "b", "externalId": "b"})).await;
    let id = a["id"].as_str().unwrap();
    //  query, and the status
    let table = [
        (format!("linkId={id}&domain=s.test&key=A&externalId=ext_a"), 200),
        (format!("linkId={id}&domain=s.test&key=b"), 404),
        (format!("linkId={id}&externalId=ext_b"), 404),
        ("externalId=ext_a&domain=s.test&key=nobody".to_owned(), 404),
        (format!("linkId={id}&key=a"), 400),
    ];
    for (query, status) in table {
        assert_eq!(service.get(&format!("/links/info?{query}")).await.status, status, "{query}");
    }
}

async fn a_bulk_update_takes_the_list_that_is_not_empty(database: Database) {
    let service = Service::start(database).await;
    let a = service.link(&json!({"url": "https://example.com/a", "externalId": "a"})).await;
    let b = service.link(&json!({"url": "https://example.com/b", "externalId": "b"})).await;
    let data = json!({"title": "t"});
    let both = json!({"linkIds": [], "externalIds": ["a"], "data": data});
    assert_eq!(service.patch("/links/bulk", &both).await.each("id"), [&a["id"]]);
    let both = json!({"linkIds": [b["id"]], "externalIds": ["a"], "data": data});
    assert_eq!(service.patch("/links/bulk", &both).await.each("id"), [&b["id"]]);
}

async fn what_generates_a_key_is_refused_where_none_is_generated(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k", "externalId": "a"})).await;
    let id = link["id"].as_str().unwrap();
    let path = format!("/links/{id}");
    for (name, value) in [("prefix", json!("p")), ("keyLength", json!(5)), ("keyLength", json!(7.0))] {
        let only_new = |at: &str| format!("custom: {at}{name}: Applies only to new links");
        let body = json!({"title": "t", name: value});
        assert_eq!(service.patch(&path, &body).await.error(), (422, "unprocessable_entity", &*only_new("")));
        assert_eq!(service.put(&path, &body).await.error().2, only_new(""));
        let bulk = json!({"linkIds": [id], "data": body});
        assert_eq!(service.patch("/links/bulk", &bulk).await.error().2, only_new("data."));
    }
    assert_eq!(service.get(&path).await.body["title"], json!(null));
    let neutral = json!({"title": "t", "prefix": "", "keyLength": null});
    assert_eq!(service.patch(&path, &neutral).await.status, 200);
    let bulk = json!({"externalIds": ["a"], "data": neutral});
    assert_eq!(service.patch("/links/bulk", &bulk).await.status, 200);
    let document = service.get("/openapi.json").await.body;
    let schemas = &document["components"]["schemas"];
    for (schema, has) in [("CreateLink", true), ("UpdateLink", false)] {
        for name in ["prefix", "keyLength"] {
            assert_eq!(schemas[schema]["properties"][name].is_object(), has, "{schema}: {name}");
        }
        assert!(schemas[schema]["properties"]["key"].is_object());
    }

    // The published API documents that it ignores them if there is a key.
    for (number, (name, value)) in [("prefix", json!("p")), ("keyLength", json!(5))].into_iter().enumerate() {
        let url = format!("https://example.com/{number}");
        let body = json!({"url": url, "key": format!("n{number}"), name: value});
        assert_eq!(service.post("/links", &body).await.body["key"], body["key"]);
        assert_eq!(service.put("/links/upsert", &body).await.body["key"], body["key"]);
        for key in [json!(null), json!(""), json!("/")] {
            let body = json!({"url": "https://example.com/new", "key": key, name: value});
            assert_eq!(service.post("/links", &body).await.status, 200, "{body}");
        }
    }
    // They count if the link is created, and a link that exists keeps its key.
    let upsert = json!({"url": "https://example.com/upserted", "prefix": "p", "keyLength": 5, "title": "t"});
    let made = service.put("/links/upsert", &upsert).await.body;
    let key = made["key"].as_str().unwrap();
    assert!(key.starts_with("p/") && key.len() == 7, "{key}");
    let upsert = json!({"url": "https://example.com/upserted", "prefix": "q", "keyLength": 9, "title": "u"});
    let again = service.put("/links/upsert", &upsert).await.body;
    assert_eq!((&again["id"], &again["key"], &again["title"]), (&made["id"], &made["key"], &json!("u")));
}

async fn a_generated_key_has_at_most_190_characters(database: Database) {
    let service = Service::start(database).await;
    //  characters of the prefix, length of the key, and the maximum if that is too long
    let table = [
        (182, None, Ok(())),
        (183, None, Err(182)),
        (182, Some(7), Ok(())),
        (183, Some(7), Err(182)),
        (186, Some(3), Ok(())),
        (187, Some(3), Err(186)),
        (89, Some(100), Ok(())),
        (90, Some(100), Err(89)),
        (1, Some(190), Err(0)),
        (0, Some(190), Ok(())),
    ];
    for (length, key_length, expected) in table {
        let body =
            json!({"url": "https://example.com", "prefix": "é".repeat(length), "keyLength": key_length});
        let message = |at: &str, max: usize| {
            format!("too_big: {at}prefix: Too big: expected string to have <={max} characters")
        };
        let answer = service.post("/links", &body).await;
        let bulk = service.post("/links/bulk", &json!([body])).await;
        match expected {
            Ok(()) => {
                let characters = length + key_length.unwrap_or(7) + usize::from(length > 0);
                assert_eq!(answer.body["key"].as_str().unwrap().chars().count(), characters, "{body}");
                assert_eq!(bulk.body[0]["key"].as_str().unwrap().chars().count(), characters, "{body}");
                // As a key of a request, it is short enough.
                let path = format!("/links/{}", answer.body["id"].as_str().unwrap());
                assert_eq!(service.patch(&path, &json!({"key": answer.body["key"]})).await.status, 200);
            }
            Err(max) => {
                assert_eq!(answer.error(), (422, "unprocessable_entity", &*message("", max)));
                assert_eq!(bulk.error().2, message("[0].", max));
            }
        }
    }
}

async fn the_two_names_of_a_tag_must_agree(database: Database) {
    let service = Service::start(database).await;
    let id = service.tags(&["t"]).await.remove(0);
    let path = format!("/tags/{id}");
    let differs = (422, "unprocessable_entity", "custom: tag: Differs from name");
    let body = json!({"name": "a", "tag": "b"});
    assert_eq!(service.patch(&path, &body).await.error(), differs);
    assert_eq!(service.post("/tags", &body).await.error(), differs);
    assert_eq!(service.get("/tags").await.each("name"), ["t"]);
    for body in [json!({"name": "a", "tag": "a "}), json!({"tag": "b"}), json!({"name": "c"})] {
        let answer = service.patch(&path, &body).await;
        let name = body.get("name").or(body.get("tag")).unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body["name"]), (200, name), "{body}");
    }
}

async fn links_of_a_deleted_tag_have_no_tags_at_once(database: Database) {
    let service = Service::start(database).await;
    let tag = service.tags(&["t"]).await.remove(0);
    // More than the background removes at once.
    let links: Vec<_> =
        (0..100).map(|n| json!({"url": format!("https://example.com/{n}"), "tagIds": [tag]})).collect();
    for _ in 0..12 {
        assert_eq!(service.post("/links/bulk", &json!(links)).await.status, 200);
    }
    assert_eq!(service.get("/links/count?withTags=true").await.body, 1_200);
    service.delete(&format!("/tags/{tag}")).await;
    assert_eq!(service.get("/links/count?withTags=true").await.body, 0);
    assert_eq!(service.get("/links?withTags=true").await.body, json!([]));
}

async fn a_filter_by_address_keeps_its_commas_and_its_end(database: Database) {
    let service = Service::start(database).await;
    let long = format!("https://example.com/{}", "x".repeat(3_000));
    for (key, url) in [("a", "https://example.com/?a=1"), ("b", "https://example.com/?a=1,2"), ("c", &long)] {
        service.link(&json!({"url": url, "key": key})).await;
        service.follow(Method::GET, &format!("/r/{key}"), "curl/8").await;
    }
    service.backend.flush_clicks().await;
    //  filter, and the clicks
    let table: [(&[&str], i64); 5] = [
        (&["https://example.com/?a=1"], 1),
        (&["https://example.com/?a=1,2"], 1),
        (&["https://example.com/?a=1", "https://example.com/?a=1,2"], 2),
        (&["-https://example.com/?a=1,2"], 2),
        (&[&long[..2_048]], 1),
    ];
    for (urls, clicks) in table {
        let url = |url: &&str| format!("url={}", url.replace('?', "%3F").replace('=', "%3D"));
        let query: Vec<String> = urls.iter().map(url).collect();
        let answer = service.get(&format!("/analytics?{}", query.join("&"))).await;
        assert_eq!(answer.body["clicks"], clicks, "{query:?}");
    }
    let message = "too_big: url: Too big: expected string to have <=2048 characters";
    assert_eq!(service.get(&format!("/analytics?url={long}")).await.error().2, message);
}
