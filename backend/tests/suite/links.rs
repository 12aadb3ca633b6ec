//! Links: made alone and in bulk, listed, counted, deleted.

use std::time::Duration;

use axum::http::StatusCode;
use backend::Click;
use serde_json::{Value, json};
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row};

use crate::database::{Database, on_both_databases};
use crate::service::Service;

/// The fields of a link that the published clients require to be present, inside events and webhooks.
const FIELDS: [&str; 51] = [
    "id",
    "domain",
    "key",
    "url",
    "trackConversion",
    "externalId",
    "tenantId",
    "programId",
    "partnerId",
    "archived",
    "expiresAt",
    "expiredUrl",
    "disabledAt",
    "password",
    "proxy",
    "title",
    "description",
    "image",
    "video",
    "rewrite",
    "doIndex",
    "ios",
    "android",
    "geo",
    "publicStats",
    "tags",
    "folderId",
    "comments",
    "shortLink",
    "qrCode",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_term",
    "utm_content",
    "testVariants",
    "testStartedAt",
    "testCompletedAt",
    "userId",
    "workspaceId",
    "clicks",
    "leads",
    "conversions",
    "sales",
    "saleAmount",
    "lastClicked",
    "createdAt",
    "updatedAt",
    "tagId",
    "projectId",
    "webhookIds",
];

on_both_databases! {
    a_link_shows_all_its_fields_whatever_was_given,
    a_bulk_call_answers_in_the_order_of_its_items_with_a_refusal_in_the_place_of_each_conflict,
    a_bulk_call_that_is_refused_makes_nothing,
    a_key_is_one_link_whatever_its_case,
    links_are_listed_newest_first_page_by_page,
    filters_of_links_never_widen_the_list,
    a_deleted_link_is_gone_with_its_clicks,
    whoever_reads_finds_nothing_of_a_deleted_link_while_its_rows_go,
}

async fn a_link_shows_all_its_fields_whatever_was_given(database: Database) {
    let service = Service::start(database).await;
    let link = service
        .link(&json!({"url": "https://example.com/pricing", "utm_source": "x", "externalId": "ext_7"}))
        .await;
    for field in FIELDS {
        assert!(link.as_object().unwrap().contains_key(field), "{field} is missing");
    }
    assert_eq!(link["url"], "https://example.com/pricing?utm_source=x");
    assert_eq!(link["utm_source"], "x");
    assert_eq!(link["externalId"], "7");
    assert_eq!(link["domain"], "s.test");
    assert_eq!(link["shortLink"], format!("https://s.test/r/{}", link["key"].as_str().unwrap()));
    assert_eq!(link["createdAt"], "2026-03-15T12:34:56.789Z");
    assert_eq!(service.get(&format!("/links/{}", link["id"].as_str().unwrap())).await.body, link);
    assert_eq!(service.get("/links/ext_7").await.body, link);
}

async fn a_bulk_call_answers_in_the_order_of_its_items_with_a_refusal_in_the_place_of_each_conflict(
    database: Database,
) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com/0", "key": "Taken"})).await;
    let answer = service
        .post(
            "/links/bulk",
            &json!([
                {"url": "https://example.com/1", "key": "one"},
                {"url": "https://example.com/2", "key": "taken"},
                {"url": "https://example.com/3", "externalId": "same"},
                {"url": "https://example.com/4", "externalId": "same"},
                {"url": "https://example.com/5"},
            ]),
        )
        .await;
    assert_eq!(answer.status, 200);
    let urls: Vec<&Value> = answer
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|item| if item["error"].is_null() { &item["url"] } else { &item["link"]["url"] })
        .collect();
    assert_eq!(
        urls,
        [1, 2, 3, 4, 5].map(|n| json!(format!("https://example.com/{n}"))).iter().collect::<Vec<_>>()
    );
    assert_eq!(
        answer.body[1],
        json!({
            "link": {"url": "https://example.com/2", "key": "taken"},
            "error": "Duplicate key: This short link already exists.",
            "code": "conflict",
        })
    );
    assert_eq!(answer.body[3]["error"], "A link with this externalId already exists in this workspace.");
    assert_eq!(service.get("/links/count").await.body, 4);
}

async fn a_bulk_call_that_is_refused_makes_nothing(database: Database) {
    let service = Service::start(database).await;
    let items = |count| {
        Value::Array((0..count).map(|n| json!({"url": format!("https://example.com/{n}")})).collect())
    };
    let table = [
        (items(101), 422, "too_big: : You can only create up to 100 links at a time."),
        (items(0), 422, "too_small: : No links created – you must provide at least one link."),
        (
            json!({"url": "https://example.com"}),
            422,
            "invalid_type: : Invalid input: expected array, received object",
        ),
        (
            json!([{"url": "https://example.com"}, {"url": 7}]),
            422,
            "invalid_type: [1].url: Invalid input: expected string, received number",
        ),
        (
            json!([{"url": "https://example.com"}, {"key": "x"}]),
            422,
            "invalid_type: [1].url: Invalid input: expected string, received undefined",
        ),
        (
            json!([{"url": "https://a.test", "key": "docs"}, {"url": "https://b.test", "key": "DOCS"}]),
            400,
            "Duplicate links found: s.test/DOCS",
        ),
    ];
    for (body, status, message) in table {
        let answer = service.post("/links/bulk", &body).await;
        assert_eq!((answer.error().0, answer.error().2), (status, message));
    }
    assert_eq!(service.get("/links/count").await.body, 0);
    assert_eq!(service.post("/links/bulk", &items(100)).await.body.as_array().unwrap().len(), 100);
    assert_eq!(service.get("/links/count").await.body, 100);
}

async fn a_key_is_one_link_whatever_its_case(database: Database) {
    let service = Service::start(database).await;
    service.link(&json!({"url": "https://example.com", "key": "Docs"})).await;
    let answer = service.post("/links", &json!({"url": "https://example.com", "key": "dOCS"})).await;
    assert_eq!(answer.error(), (409, "conflict", "Duplicate key: This short link already exists."));
}

async fn links_are_listed_newest_first_page_by_page(database: Database) {
    let service = Service::start(database).await;
    for n in 0..5 {
        service.link(&json!({"url": format!("https://example.com/{n}"), "key": format!("k{n}")})).await;
    }
    let all = service.get("/links").await;
    assert_eq!(all.each("key"), ["k4", "k3", "k2", "k1", "k0"]);
    assert_eq!(service.get("/links?page=2&pageSize=2").await.each("key"), ["k2", "k1"]);
    let third = all.body[2]["id"].as_str().unwrap();
    assert_eq!(service.get(&format!("/links?startingAfter={third}&page=2")).await.each("key"), ["k1", "k0"]);
    assert_eq!(service.get(&format!("/links?endingBefore={third}&pageSize=1")).await.each("key"), ["k3"]);
    assert_eq!(service.get("/links?search=example.com%2F3").await.each("key"), ["k3"]);
    assert_eq!(service.get("/links?page=2.0&pageSize=2.0").await.each("key"), ["k2", "k1"]);
    assert_eq!(
        service.get("/links?pageSize=101").await.error(),
        (422, "unprocessable_entity", "too_big: pageSize: Max page size is 100.")
    );
    assert_eq!(
        service.get("/links?startingAfter=link_nobody").await.error(),
        (422, "unprocessable_entity", "Invalid cursor: the provided ID does not exist.")
    );
}

async fn filters_of_links_never_widen_the_list(database: Database) {
    let service = Service::start(database).await;
    service.tags(&["x", "y"]).await;
    let x = service.link(&json!({"url": "https://example.com/x", "key": "x", "tagNames": ["x"]})).await;
    let y = service.link(&json!({"url": "https://example.com/y", "key": "y", "tagNames": ["y"]})).await;
    service.link(&json!({"url": "https://example.com/z", "key": "z"})).await;
    let tag = |link: &Value| link["tags"][0]["id"].as_str().unwrap().to_owned();
    let table = [
        (format!("tagIds={},{}", tag(&x), tag(&y)), 2),
        (format!("tagIds={}&tagId={}", tag(&x), tag(&y)), 0),
        ("tagNames=x&tagNames=y".to_owned(), 2),
        (format!("tagNames=x&tagId={}", tag(&y)), 0),
        ("tagNames=nobody".to_owned(), 0),
        ("withTags=true".to_owned(), 2),
        ("withTags=false".to_owned(), 3),
        ("userId=user_1".to_owned(), 0),
        ("tenantId=t".to_owned(), 0),
    ];
    for (filter, count) in table {
        assert_eq!(service.get(&format!("/links?{filter}")).await.each("id").len(), count, "{filter}");
        assert_eq!(service.get(&format!("/links/count?{filter}")).await.body, count, "{filter}");
    }
    // A filter without a value would select everything.
    for name in ["domain", "tagId", "tagIds", "tagNames", "folderId", "tenantId", "userId", "linkIds"] {
        for path in ["/links", "/links/count"] {
            let answer = service.get(&format!("{path}?{name}=")).await;
            assert_eq!(answer.status, 422, "{path} {name}");
            assert!(answer.error().2.starts_with(&format!("too_small: {name}: ")), "{}", answer.error().2);
        }
    }
}

async fn a_deleted_link_is_gone_with_its_clicks(database: Database) {
    let service = Service::start(database).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "gone"})).await;
    let id = link["id"].as_str().unwrap();
    service.click_hours_ago(id, &[1, 2]).await;
    assert_eq!(service.get("/analytics").await.body["clicks"], 2);
    let answer = service.delete(&format!("/links/{id}")).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (200, &json!({"id": id})));
    assert_eq!(service.delete(&format!("/links/{id}")).await.error(), (404, "not_found", "Link not found."));
    assert_eq!(service.follow("GET".parse().unwrap(), "/r/gone", "curl/8").await.status, 404);
    assert_eq!(service.get("/analytics").await.body["clicks"], 0);
    assert_eq!(service.get("/events").await.body, json!([]));
}

async fn whoever_reads_finds_nothing_of_a_deleted_link_while_its_rows_go(database: Database) {
    const CLICKS: usize = 5_000;
    let url = database.url.clone();
    let service = Service::start(database).await;
    let body = json!({"url": "https://example.com/x?utm_source=s", "key": "k", "externalId": "e", "tagNames": ["t"]});
    service.tags(&["t"]).await;
    let gone = service.link(&body).await;
    let kept = service.link(&json!({"url": "https://example.com/y", "key": "y"})).await;
    let (gone, kept) = (gone["id"].as_str().unwrap(), kept["id"].as_str().unwrap());
    let hours: Vec<i64> = (0..CLICKS).map(|n| (n % 100) as i64).collect();
    service.click_hours_ago(gone, &hours).await;
    service.click_hours_ago(kept, &[1, 2, 30]).await;
    assert_eq!(service.delete(&format!("/links/{gone}")).await.status, StatusCode::OK);

    let again = service.link(&body).await;
    assert_eq!(again["clicks"], 0);
    let path = format!("/links/{gone}");
    assert_eq!(service.get(&path).await.error().0, 404);
    assert_eq!(service.delete(&path).await.error().0, 404);
    assert_eq!(service.patch(&path, &json!({"title": "t"})).await.error().0, 404);
    assert_eq!(service.get(&format!("/links?linkIds={gone}")).await.body, json!([]));
    let counted = async |service: &Service| {
        for interval in ["7d", "all"] {
            let total = async |query: &str| {
                let answer = service.get(&format!("/analytics?interval={interval}&{query}")).await.body;
                let entries = answer.as_array().cloned().unwrap_or_else(|| vec![answer]);
                entries.iter().map(|entry| entry["clicks"].as_i64().unwrap()).sum::<i64>()
            };
            for (group, expected) in [
                ("count", 3),
                ("timeseries", 3),
                ("top_links", 3),
                ("triggers", 3),
                ("top_domains", 3),
                ("utm_sources", 0),
                ("top_link_tags", 0),
            ] {
                assert_eq!(total(&format!("groupBy={group}")).await, expected, "{group} over {interval}");
            }
            let events = service.get(&format!("/events?interval={interval}&limit=1000")).await;
            assert_eq!(events.each("link_id"), vec![kept; 3]);
        }
    };
    counted(&service).await;
    // A click that was on its way.
    let late = [Click::new(gone, service.now())];
    let recorded = service.backend.store().record_clicks(&late).await.unwrap();
    assert_eq!(recorded, 0);
    let service = service.restart().await;
    counted(&service).await;
    let mut database = AnyConnection::connect(&url).await.unwrap();
    let mut rows = async |table: &'static str| {
        let count = sqlx::query(table).fetch_one(&mut database).await.unwrap();
        count.get::<i64, _>(0)
    };
    while rows("SELECT COUNT(*) FROM deleted_links").await > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rows("SELECT COUNT(*) FROM clicks").await, 3);
    assert_eq!(rows("SELECT COUNT(*) FROM links").await, 2);
    counted(&service).await;
}

#[tokio::test]
async fn a_transaction_deletes_some_rows_of_several_deleted_links_on_postgresql() {
    const LINKS: usize = 100;
    const TABLES: [&str; 5] = ["clicks", "clicks_hourly", "clicks_daily", "link_tags", "links"];
    let service = Service::start(Database::postgres().await).await;
    let mut database = service.database().connect().await;
    let log = "CREATE TABLE deletions (transaction BIGINT NOT NULL, name TEXT NOT NULL);
        CREATE FUNCTION log_deletion() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO deletions VALUES (txid_current(), TG_TABLE_NAME); RETURN OLD; END'";
    database.execute(sqlx::raw_sql(log)).await.unwrap();
    for table in TABLES {
        let log = format!(
            "CREATE TRIGGER log AFTER DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION log_deletion()"
        );
        database.execute(AssertSqlSafe(log)).await.unwrap();
    }
    service.tags(&["a", "b"]).await;
    let link = json!({"url": "https://example.com", "tagNames": ["a", "b"]});
    let made = service.post("/links/bulk", &json!(vec![link; LINKS])).await;
    let ids: Vec<&str> = made.each("id").into_iter().map(|id| id.as_str().unwrap()).collect();
    for (n, id) in ids.iter().enumerate() {
        let clicks = if n == 50 { 1_200 } else { 3 };
        service.click_hours_ago(id, &vec![1; clicks]).await;
    }
    let deleted = service.delete(&format!("/links/bulk?linkIds={}", ids.join(","))).await;
    assert_eq!(deleted.body["deletedCount"], LINKS);
    let mut number = async |query: String| {
        let number = sqlx::query(AssertSqlSafe(query)).fetch_one(&mut database).await.unwrap();
        usize::try_from(number.get::<i64, _>(0)).unwrap()
    };
    let all = async {
        while number("SELECT COUNT(*) FROM links".to_owned()).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("deleted links go");
    for (table, rows) in TABLES.into_iter().zip([1_200 + 3 * (LINKS - 1), LINKS, LINKS, 2 * LINKS, LINKS]) {
        assert_eq!(number(format!("SELECT COUNT(*) FROM deletions WHERE name = '{table}'")).await, rows);
        assert_eq!(number(format!("SELECT COUNT(*) FROM {table}")).await, 0, "rows of {table} are left");
    }
    let most = "SELECT MAX(rows) FROM (SELECT COUNT(*) AS rows FROM deletions GROUP BY transaction) d";
    let (most, transactions) = (
        number(most.to_owned()).await,
        number("SELECT COUNT(DISTINCT transaction) FROM deletions".to_owned()).await,
    );
    assert!(most <= 500, "a transaction deletes {most} rows");
    assert!(transactions <= LINKS / 10, "{transactions} transactions delete {LINKS} links");
}
