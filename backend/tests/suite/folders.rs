//! Folders: made, listed, changed and deleted, and the links in them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_folder_is_made_changed_and_deleted,
    an_unknown_folder_is_404_or_422_or_finds_nothing,
    a_malformed_folder_is_refused,
    folders_are_listed_page_by_page,
    a_deleted_folder_leaves_its_links_in_none_at_once,
}

async fn a_folder_is_made_changed_and_deleted(database: Database) {
    let service = Service::start(database).await;
    // As the published clients send it.
    let body = json!({"name": "Ads", "accessLevel": "write"});
    let made = service.post("/folders", &body).await;
    assert_eq!(made.status, 201);
    let id = made.body["id"].as_str().unwrap();
    assert!(id.starts_with("fold_"), "{id}");
    let mut expected = json!({
        "id": id, "name": "Ads", "description": null, "type": "default", "accessLevel": "write",
        "createdAt": "2026-03-15T12:34:56.789Z", "updatedAt": "2026-03-15T12:34:56.789Z",
    });
    assert_eq!(made.body, expected);
    let link = service.link(&json!({"url": "https://example.com", "folderId": id})).await;
    assert_eq!(link["folderId"], json!(id));

    let path = format!("/folders/{id}");
    service.clock.advance(Duration::from_secs(60));
    for body in [json!({}), json!({"accessLevel": null}), json!({"name": "Ads"})] {
        assert_eq!(service.patch(&path, &body).await.body, expected, "nothing changed, so nothing is newer");
    }
    expected["updatedAt"] = json!("2026-03-15T12:35:56.789Z");
    for (body, field, value) in [
        (json!({"name": "ads"}), "name", json!("ads")),
        (json!({"description": "d", "accessLevel": "write"}), "description", json!("d")),
        (json!({"description": null}), "description", Value::Null),
    ] {
        expected[field] = value;
        let changed = service.patch(&path, &body).await;
        assert_eq!((changed.status.as_u16(), &changed.body), (200, &expected), "{body}");
        assert_eq!(service.get("/folders").await.body, json!([expected]));
    }
    assert_eq!(service.post("/folders", &json!({"name": "ADS"})).await.error().0, 409);
    let deleted = service.delete(&path).await;
    assert_eq!((deleted.status.as_u16(), &deleted.body), (200, &json!({"id": id})));
    assert_eq!(service.get("/folders").await.body, json!([]));
}

async fn an_unknown_folder_is_404_or_422_or_finds_nothing(database: Database) {
    let service = Service::start(database).await;
    service.folder("known").await;
    let link = service.link(&json!({"url": "https://example.com", "folderId": ""})).await;
    assert_eq!(link["folderId"], Value::Null, "the empty id asks for no folder");
    for answer in [
        service.patch("/folders/fold_nobody", &json!({"name": "known"})).await,
        service.delete("/folders/fold_nobody").await,
    ] {
        assert_eq!(answer.error(), (404, "not_found", "Folder not found."));
    }
    let body = json!({"url": "https://example.com", "folderId": "fold_nobody"});
    let unknown = (422, "unprocessable_entity", "Invalid folderId detected: fold_nobody");
    for answer in [
        service.post("/links", &body).await,
        service.put("/links/upsert", &body).await,
        service.patch(&format!("/links/{}", link["id"].as_str().unwrap()), &body).await,
        service.patch("/links/bulk", &json!({"linkIds": [link["id"]], "data": body})).await,
    ] {
        assert_eq!(answer.error(), unknown);
    }
    let bulk = service.post("/links/bulk", &json!([body])).await;
    assert_eq!(bulk.body[0]["error"], unknown.2);
    for path in ["/links", "/events"] {
        assert_eq!(service.get(&format!("{path}?folderId=fold_nobody")).await.body, json!([]));
    }
}

async fn a_malformed_folder_is_refused(database: Database) {
    let service = Service::start(database).await;
    let table = [
        (json!({}), "invalid_type: name: Invalid input: expected string, received undefined"),
        (json!({"name": ""}), "invalid_type: name: Invalid input: expected string, received null"),
        (json!({"name": " "}), "too_small: name: Too small: expected string to have >=1 characters"),
        (
            json!({"name": "x".repeat(191)}),
            "too_big: name: Too big: expected string to have <=190 characters",
        ),
        (
            json!({"name": "x", "description": "x".repeat(501)}),
            "too_big: description: Too big: expected string to have <=500 characters",
        ),
        (
            json!({"name": "x", "accessLevel": "read"}),
            "invalid_value: accessLevel: Invalid option: expected one of write",
        ),
    ];
    for (body, message) in table {
        assert_eq!(service.post("/folders", &body).await.error(), (422, "unprocessable_entity", message));
    }
}

async fn folders_are_listed_page_by_page(database: Database) {
    let service = Service::start(database).await;
    for name in ["b", "C", "a"] {
        service.folder(name).await;
    }
    for (query, names) in [
        ("", vec!["a", "b", "C"]),
        ("search=c", vec!["C"]),
        ("pageSize=2", vec!["a", "b"]),
        ("pageSize=2&page=2", vec!["C"]),
    ] {
        assert_eq!(service.get(&format!("/folders?{query}")).await.each("name"), names, "{query}");
    }
    assert_eq!(service.get("/folders?pageSize=51").await.error().0, 422);
}

async fn a_deleted_folder_leaves_its_links_in_none_at_once(database: Database) {
    let service = Service::start(database).await;
    let (gone, kept) = (service.folder("gone").await, service.folder("kept").await);
    let mut ids = Vec::new();
    for (key, folder) in [("g", json!(gone)), ("k", json!(kept)), ("n", Value::Null)] {
        let link = service.link(&json!({"url": "https://example.com", "key": key, "folderId": folder})).await;
        let id = link["id"].as_str().unwrap().to_owned();
        service.click_hours_ago(&id, &[1]).await;
        ids.push(id);
    }
    assert_eq!(service.get("/links/count?folderId=unsorted").await.body, 1);
    assert_eq!(service.delete(&format!("/folders/{gone}")).await.status, 200);

    let checked = async |service: &Service| {
        assert_eq!(service.get(&format!("/links/{}", ids[0])).await.body["folderId"], Value::Null);
        let kept = json!(kept);
        assert_eq!(service.get("/links").await.each("folderId"), [&Value::Null, &kept, &Value::Null]);
        assert_eq!(service.get("/links?folderId=unsorted").await.each("key"), ["n", "g"]);
        assert_eq!(
            service.get("/links/count?groupBy=folderId").await.body,
            json!([{"folderId": null, "_count": 2}, {"folderId": kept, "_count": 1}])
        );
        let top = service.get("/analytics?groupBy=top_links").await;
        assert_eq!(top.each("folderId"), [&Value::Null, &kept, &Value::Null]);
        assert_eq!(service.get("/analytics?groupBy=top_folders").await.each("folderId"), [&kept]);
        let gone = &gone;
        for (filter, count) in [(format!("folderId={gone}"), 0), (format!("folderId=-{gone}"), 3)] {
            assert_eq!(service.get(&format!("/analytics?{filter}")).await.body["clicks"], count, "{filter}");
        }
        assert_eq!(service.get(&format!("/links/count?folderId={gone}")).await.body, 0);
    };
    checked(&service).await;
    let refused = service.patch(&format!("/links/{}", ids[1]), &json!({"folderId": gone})).await;
    assert_eq!(refused.error().0, 422);
    assert_eq!(service.delete(&format!("/folders/{gone}")).await.error().0, 404);
    // Once the links' rows are changed too, nothing is different.
    let mut connection = service.database().connect().await;
    let mut left = async || {
        let rows = sqlx::query("SELECT 1 FROM folders WHERE workspace_seq = 0").fetch_all(&mut connection);
        rows.await.unwrap().len()
    };
    while left().await > 0 {
        tokio::task::yield_now().await;
    }
    checked(&service).await;
}
