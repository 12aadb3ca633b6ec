//! Pages of links in any order and at any depth.

use axum::http::StatusCode;
use backend::Click;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

on_both_databases! {
    the_pages_of_a_list_have_each_link_once_in_its_order,
}

async fn the_pages_of_a_list_have_each_link_once_in_its_order(database: Database) {
    let service = Service::start(database).await;
    let tenant = |n: usize| if n.is_multiple_of(5) { "fifth" } else { "other" };
    let body: Value = (0..90).map(|n| json!({"url": "https://example.com", "tenantId": tenant(n)})).collect();
    let made = service.post("/links/bulk", &body).await;
    let ids: Vec<&str> = made.each("id").into_iter().map(|id| id.as_str().unwrap()).collect();
    // Some links have equal clicks, and a third has none.
    let clicks_of = |n: usize| if n.is_multiple_of(3) { 0 } else { n % 7 + 1 };
    let mut clicks = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let at = service.now() - SignedDuration::from_mins(i64::try_from(n * 37 % 90).unwrap());
        clicks.extend((0..clicks_of(n)).map(|_| Click::new(*id, at)));
    }
    service.backend.store().record_clicks(&clicks).await.unwrap();
    let clicked = |n: &usize| std::cmp::Reverse((clicks_of(*n), *n));
    let last_clicked = |n: &usize| {
        let minutes = if clicks_of(*n) > 0 { Some(std::cmp::Reverse(n * 37 % 90)) } else { None };
        std::cmp::Reverse((minutes, *n))
    };
    for (filter, selected) in [("", (0..90).collect()), ("&tenantId=fifth", (0..90).step_by(5).collect())] {
        let selected: Vec<usize> = selected;
        let (mut by_clicks, mut by_last) = (selected.clone(), selected.clone());
        by_clicks.sort_by_key(clicked);
        by_last.sort_by_key(last_clicked);
        let newest: Vec<usize> = selected.iter().rev().copied().collect();
        for (order, expected) in [("createdAt", newest), ("clicks", by_clicks), ("lastClicked", by_last)] {
            let expected: Vec<&str> = expected.into_iter().map(|n| ids[n]).collect();
            let mut found = Vec::new();
            for page in 1.. {
                let path = format!("/links?sortBy={order}&pageSize=20&page={page}{filter}");
                let answer = service.get(&path).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}");
                let links = answer.each("id");
                if links.is_empty() {
                    break;
                }
                found.extend(links.into_iter().map(|id| id.as_str().unwrap().to_owned()));
            }
            assert_eq!(found, expected, "{order}{filter}");
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_deep_page_neither_keeps_nor_writes_the_links_before_it() {
    use axum::http::Method;

    use crate::process::{Caller, Process, make_key};

    const MIB: u64 = 1024 * 1024;
    let database = Database::sqlite();
    let caller = Caller::new(make_key(&database.url));
    // A hundred megabytes, before the process starts, which would write them from the log into the file.
    let mut connection = database.connect().await;
    sqlx::query(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO links (id, workspace_seq, domain, key, key_folded, url, archived, details, created_at, updated_at)
         SELECT 'link_' || i, 1, 's.test', 'k' || i, 'k' || i, 'https://example.com', 0, $1, 0, 0 FROM n",
    )
    .bind(json!({"comments": "c".repeat(100_000)}).to_string())
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    let process = Process::start(&database.url);
    let page = async |page: usize| {
        let url = process.url(&format!("/links?sortBy=clicks&pageSize=1&page={page}"));
        caller.json(Method::GET, url, &Value::Null).await.unwrap()[0]["id"].clone()
    };
    assert_eq!(page(1).await, "link_1000");
    let before = (process.peak_memory(), process.written());
    assert_eq!(page(1_000).await, "link_1");
    assert!(process.peak_memory() - before.0 < 30 * MIB, "{before:?} {}", process.peak_memory());
    assert!(process.written() - before.1 < 30 * MIB, "{before:?} {}", process.written());
}

/// A client asks for the links after the last that it knows, while others make links.
#[tokio::test]
async fn a_client_that_asks_for_the_links_after_the_last_one_misses_none() {
    let service = Service::start(Database::postgres().await).await;
    service.webhook("https://receiver.test/", &["link.created"]).await;
    let first = service.link(&json!({"url": "https://example.com/0", "key": "l0"})).await;
    let mut busy = service.database().connect().await;
    // A creation that tells webhooks waits for this after it has written its link.
    busy.execute(sqlx::raw_sql("BEGIN; SELECT seq FROM webhooks FOR UPDATE")).await.unwrap();
    let link = |n: usize| json!({"url": format!("https://example.com/{n}"), "key": format!("l{n}")});
    let (told, untold) = (link(1), json!([link(2)]));
    let mut known = vec![first["id"].as_str().unwrap().to_owned()];
    let poll = async |known: &mut Vec<String>| {
        let newer = service.get(&format!("/links?endingBefore={}", known.last().unwrap())).await;
        known.extend(newer.each("id").into_iter().rev().map(|id| id.as_str().unwrap().to_owned()));
    };
    let creations = async {
        let second = async {
            service.database().waits_for_locks(1).await;
            service.post("/links/bulk", &untold).await
        };
        tokio::join!(service.post("/links", &told), second)
    };
    let polls = async {
        service.database().waits_for_locks(2).await;
        poll(&mut known).await;
        busy.execute("ROLLBACK").await.unwrap();
    };
    let ((one, other), ()) = tokio::join!(creations, polls);
    assert_eq!((one.status, other.status), (StatusCode::OK, StatusCode::OK));
    poll(&mut known).await;
    assert_eq!(known.len(), 3, "{known:?}");
}
