//! Tags: made, listed, changed and deleted, and the links that carry them.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    a_tag_is_made_changed_and_deleted,
    an_unknown_tag_is_404_or_422_or_finds_nothing,
    a_malformed_tag_is_refused,
    a_name_is_one_tag_in_upper_and_lower_case,
    one_of_many_calls_at_once_makes_the_tag,
    tags_are_listed_page_by_page,
    a_workspace_has_at_most_5000_tags,
    a_deleted_tag_is_off_its_links_at_once,
}

async fn a_tag_is_made_changed_and_deleted(database: Database) {
    let service = Service::start(database).await;
    let made = service.post("/tags", &json!({"name": " news ", "color": "red"})).await;
    assert_eq!(made.status, 201);
    let id = made.body["id"].as_str().unwrap();
    assert!(id.starts_with("tag_"), "{id}");
    assert_eq!(made.body, json!({"id": id, "name": "news", "color": "red"}));
    let link = service.link(&json!({"url": "https://example.com", "tagIds": [id]})).await;
    assert_eq!((&link["tags"], &link["tagId"]), (&json!([made.body]), &json!(id)));

    let path = format!("/tags/{id}");
    for (body, name, color) in [
        (json!({"name": "News"}), "News", "red"),
        (json!({"color": "pink"}), "News", "pink"),
        (json!({"tag": "old"}), "old", "pink"),
        (json!({}), "old", "pink"),
    ] {
        let changed = service.patch(&path, &body).await;
        let expected = json!({"id": id, "name": name, "color": color});
        assert_eq!((changed.status.as_u16(), &changed.body), (200, &expected), "{body}");
        assert_eq!(service.get("/tags").await.body, json!([expected]));
        assert_eq!(service.get("/links").await.body[0]["tags"], json!([expected]));
    }
    let deleted = service.delete(&path).await;
    assert_eq!((deleted.status.as_u16(), &deleted.body), (200, &json!({"id": id})));
    assert_eq!(service.get("/tags").await.body, json!([]));
    assert_eq!(service.get("/links").await.body[0]["tags"], json!([]));
    // A tag without a colour gets one.
    let made = service.post("/tags", &json!({"tag": "news"})).await;
    assert!(made.body["color"].is_string(), "{}", made.body);
}

async fn an_unknown_tag_is_404_or_422_or_finds_nothing(database: Database) {
    let service = Service::start(database).await;
    service.tags(&["known"]).await;
    service.link(&json!({"url": "https://example.com", "tagNames": ["known"]})).await;
    for answer in [
        service.patch("/tags/tag_nobody", &json!({"name": "known"})).await,
        service.patch("/tags/tag_nobody", &json!({})).await,
        service.delete("/tags/tag_nobody").await,
    ] {
        assert_eq!(answer.error(), (404, "not_found", "Tag not found."));
    }
    for (tags, message) in [
        (json!({"tagIds": ["tag_nobody"]}), "Invalid tagIds detected: tag_nobody"),
        (json!({"tagId": "tag_nobody"}), "Invalid tagId detected: tag_nobody"),
        (json!({"tagNames": "known,nobody"}), "Invalid tagNames detected: nobody"),
    ] {
        let mut link = json!({"url": "https://example.com"});
        link.as_object_mut().unwrap().extend(tags.as_object().unwrap().clone());
        assert_eq!(service.post("/links", &link).await.error(), (422, "unprocessable_entity", message));
        let bulk = service.post("/links/bulk", &json!([link, {"url": "https://example.com/2"}])).await;
        assert_eq!(bulk.each("code"), [&json!("unprocessable_entity"), &Value::Null]);
        assert_eq!(bulk.body[0]["error"], message);
    }
    for filter in ["tagIds=tag_nobody", "tagId=tag_nobody", "tagNames=nobody"] {
        assert_eq!(service.get(&format!("/links?{filter}")).await.body, json!([]), "{filter}");
        assert_eq!(service.get(&format!("/links/count?{filter}")).await.body, 0, "{filter}");
    }
    assert_eq!(service.get("/tags?ids=tag_nobody").await.body, json!([]));
}

async fn a_malformed_tag_is_refused(database: Database) {
    let service = Service::start(database).await;
    let colors = "red, yellow, green, blue, purple, brown, gray, pink";
    let table = [
        (json!({}), "invalid_type: name: Invalid input: expected string, received undefined".to_owned()),
        (
            json!({"name": null}),
            "invalid_type: name: Invalid input: expected string, received null".to_owned(),
        ),
        (
            json!({"name": " "}),
            "too_small: name: Too small: expected string to have >=1 characters".to_owned(),
        ),
        (
            json!({"name": "x".repeat(256)}),
            "too_big: name: Too big: expected string to have <=255 characters".to_owned(),
        ),
        (
            json!({"name": "x", "color": "black"}),
            format!("invalid_value: color: Invalid option: expected one of {colors}"),
        ),
    ];
    for (body, message) in table {
        let answer = service.post("/tags", &body).await;
        assert_eq!(answer.error(), (422, "unprocessable_entity", message.as_str()), "{body}");
    }
    for query in ["ids=", "sortBy=color", "sortOrder=up", "page=0", "pageSize=101", "pageSize=0"] {
        assert_eq!(service.get(&format!("/tags?{query}")).await.error().0, 422, "{query}");
    }
}

async fn a_name_is_one_tag_in_upper_and_lower_case(database: Database) {
    let service = Service::start(database).await;
    let ids = service.tags(&["News", "x".repeat(255).as_str(), "é"]).await;
    let taken = (409, "conflict", "A tag with that name already exists.");
    assert_eq!(service.post("/tags", &json!({"name": "nEWS"})).await.error(), taken);
    assert_eq!(service.patch(&format!("/tags/{}", ids[1]), &json!({"name": "NEWS"})).await.error(), taken);
    assert_eq!(service.patch(&format!("/tags/{}", ids[0]), &json!({"name": "NEWS"})).await.status, 200);
    let link = service.link(&json!({"url": "https://example.com", "tagNames": ["news", "NEWS", "é"]})).await;
    let names: Vec<&Value> = link["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    assert_eq!(names, ["NEWS", "é"]);
    for (filter, count) in [("tagNames=News", 1), ("tagNames=news,x", 1), ("tagNames=new", 0)] {
        assert_eq!(service.get(&format!("/links/count?{filter}")).await.body, count, "{filter}");
    }
}

async fn one_of_many_calls_at_once_makes_the_tag(database: Database) {
    let service = Service::start(database).await;
    for path in ["/tags", "/folders"] {
        let body = json!({"name": "one"});
        let answers = join_all((0..8).map(|_| service.post(path, &body))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409], "{path}");
        assert_eq!(service.get(path).await.each("name"), ["one"], "{path}");
    }
}

async fn tags_are_listed_page_by_page(database: Database) {
    let service = Service::start(database).await;
    let ids = service.tags(&["b", "D", "a", "C", "100%", "e_f"]).await;
    let all = [&ids[..2], &["tag_nobody".to_owned()]].concat().join(",");
    for (query, names) in [
        ("", vec!["100%", "a", "b", "C", "D", "e_f"]),
        ("sortBy=name&sortOrder=desc", vec!["e_f", "D", "C", "b", "a", "100%"]),
        ("sortBy=createdAt", vec!["b", "D", "a", "C", "100%", "e_f"]),
        ("sortBy=createdAt&sortOrder=desc&pageSize=2", vec!["e_f", "100%"]),
        ("pageSize=4", vec!["100%", "a", "b", "C"]),
        ("pageSize=4&page=2", vec!["D", "e_f"]),
        ("pageSize=4&page=3", vec![]),
        ("search=d", vec!["D"]),
        ("search=%25", vec!["100%"]),
        ("search=_", vec!["e_f"]),
        ("search=", vec!["100%", "a", "b", "C", "D", "e_f"]),
        (&format!("ids={all}"), vec!["b", "D"]),
        (&format!("ids={}&ids={}&search=b", ids[0], ids[1]), vec!["b"]),
    ] {
        assert_eq!(service.get(&format!("/tags?{query}")).await.each("name"), names, "{query}");
    }
}

async fn a_workspace_has_at_most_5000_tags(database: Database) {
    let service = Service::start(database).await;
    let mut connection = service.database().connect().await;
    for (path, table, columns, values, most) in [
        ("/tags", "tags", "color", "'red'", 5_000),
        ("/folders", "folders", "created_at, updated_at", "0, 0", 1_000),
    ] {
        let rows = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})
             INSERT INTO {table} (workspace_seq, id, name, {columns})
             SELECT w.seq, '{table}' || n.i, 'n' || n.i, {values} FROM n, workspaces w WHERE w.name = 'first'",
            most - 1
        );
        sqlx::query(AssertSqlSafe(rows)).execute(&mut connection).await.unwrap();
        let made = service.post(path, &json!({"name": "last"})).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let message = format!("A workspace has at most {most} {table}.");
        let answer = service.post(path, &json!({"name": "one more"})).await;
        assert_eq!(answer.error(), (403, "forbidden", message.as_str()));
        // Another workspace has room.
        let (_, other) = service.new_workspace(path).await;
        let made = service.call_as(&other, "POST".parse().unwrap(), path, Some(&json!({"name": "x"}))).await;
        assert_eq!(made.status, 201);
        // A place becomes free at once.
        assert_eq!(service.delete(&format!("{path}/{table}1")).await.status, 200);
        assert_eq!(service.post(path, &json!({"name": "one more"})).await.status, 201);
    }
}

async fn a_deleted_tag_is_off_its_links_at_once(database: Database) {
    let service = Service::start(database).await;
    let ids = service.tags(&["gone", "kept"]).await;
    let link = json!({"url": "https://example.com", "key": "k", "tagIds": ids});
    let link = service.link(&link).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    service.click_hours_ago(link["id"].as_str().unwrap(), &[1]).await;
    assert_eq!(service.get("/analytics?groupBy=top_link_tags").await.body.as_array().unwrap().len(), 2);
    assert_eq!(service.delete(&format!("/tags/{}", ids[0])).await.status, 200);

    let kept = json!([link["tags"][1]]);
    let shown = service.get(&path).await.body;
    assert_eq!((&shown["tags"], &shown["tagId"]), (&kept, &json!(ids[1])));
    assert_eq!(service.get("/links").await.body[0]["tags"], kept);
    assert_eq!(service.get("/events").await.body[0]["link"]["tags"], kept);
    for (query, count) in [("tagNames=gone", 0), ("tagNames=kept", 1)] {
        assert_eq!(service.get(&format!("/links/count?{query}")).await.body, count, "{query}");
    }
    for (filter, count) in [
        (format!("tagIds={}", ids[0]), 0),
        (format!("tagIds=-{}", ids[0]), 1),
        (format!("tagIds={}", ids[1]), 1),
    ] {
        assert_eq!(service.get(&format!("/analytics?{filter}")).await.body["clicks"], count, "{filter}");
    }
    assert_eq!(service.get(&format!("/links/count?tagIds={}", ids[0])).await.body, 0);
    assert_eq!(service.get("/links/count?groupBy=tagId").await.each("tagId"), [&json!(ids[1])]);
    assert_eq!(service.get("/analytics?groupBy=top_link_tags").await.each("tagId"), [&json!(ids[1])]);
    assert_eq!(service.patch(&path, &json!({"tagIds": ids})).await.error().0, 422);
    assert_eq!(service.delete(&format!("/tags/{}", ids[0])).await.error().0, 404);
    // The name is free for another.
    let again = service.tags(&["gone"]).await;
    assert_eq!(service.get(&format!("/links/count?tagIds={}", again[0])).await.body, 0);
    let changed = service.patch(&path, &json!({"tagIds": again})).await.body;
    assert_eq!(changed["tags"][0]["id"], json!(again[0]));
}

#[tokio::test]
async fn the_tags_of_a_link_are_read_from_an_index_on_postgresql() {
    let service = Service::start(Database::postgres().await).await;
    let names: Vec<String> = (0..20).map(|n| format!("tag {n}")).collect();
    service.tags(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for _ in 0..20 {
        let link = json!({"url": "https://example.com", "tagNames": names});
        assert_eq!(service.post("/links/bulk", &json!(vec![link; 100])).await.status, 200);
    }
    let id = service.get("/links").await.body[0]["id"].as_str().unwrap().to_owned();
    let mut database = service.database().connect().await;
    database.execute("ANALYZE link_tags").await.unwrap();
    // A connection reports what it has read when it ends.
    let now = "SELECT CAST(clock_timestamp() AS TEXT)";
    let now: String = sqlx::query_scalar(now).fetch_one(&mut database).await.unwrap();
    let service = service.restart().await;
    let earlier = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND pid <> pg_backend_pid() AND backend_start < CAST($1 AS TIMESTAMPTZ)";
    let ended = async {
        while sqlx::query_scalar::<_, i64>(earlier).bind(&now).fetch_one(&mut database).await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    let mut reads = async || {
        let reads = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'link_tags'";
        sqlx::query_as::<_, (i64, i64)>(reads).fetch_one(&mut database).await.unwrap()
    };
    let (whole, by_index) = reads().await;
    for _ in 0..10 {
        let link = service.get(&format!("/links/{id}")).await.body;
        assert_eq!(link["tags"].as_array().unwrap().len(), names.len());
    }
    service.shut_down().await;
    let reported = async {
        loop {
            let found = reads().await;
            if found.0 + found.1 >= whole + by_index + 10 {
                break found.0;
            }
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), reported).await.unwrap();
    assert_eq!(found, whole, "the whole table was read");
}
