//! Searches in links of a busy workspace.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use backend::{PublicUrl, Settings};
use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::database::{Database, on_both_databases};
use crate::service::{Service, settings};

on_both_databases! {
    a_search_finds_short_links_as_responses_show_them,
}

const LINKS: usize = 300;
/// Length of a link's destination, in bytes.
const LONG: usize = 30_000;
const DEADLINE: Duration = Duration::from_secs(60);
/// The connections that rest in a query.
const RESTING: &str = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event = 'PgSleep' AND query LIKE '%FROM links%'";

/// Makes long links, every tenth of which has the word.
async fn make_links(service: &Service) {
    let link = |n: usize| {
        let word = if n.is_multiple_of(10) { "needle" } else { "" };
        json!({"url": format!("https://example.com/{n}/{}{word}", "x".repeat(LONG)), "key": format!("k{n}")})
    };
    let links: Vec<Value> = (0..LINKS).map(link).collect();
    for links in links.chunks(100) {
        let answer = service.post("/links/bulk", &json!(links)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
}

async fn a_search_finds_short_links_as_responses_show_them(database: Database) {
    let public_url = PublicUrl::parse("http://S.test:8080/go%C3%A9").unwrap();
    let settings = Settings { public_url, ..settings() };
    let service = Service::with_settings_on_domains(database, settings, &["go.test"]).await;
    let mut shown = Vec::new();
    for (domain, key) in [("s.test", "docs"), ("s.test", "Акция/東京-😀"), ("go.test", "docs")] {
        let link =
            service.link(&json!({"url": "https://example.com/%2F", "domain": domain, "key": key})).await;
        shown.push(link["shortLink"].as_str().unwrap().to_owned());
    }
    let [docs, encoded, other] = <[String; 3]>::try_from(shown).unwrap();
    assert_eq!(docs, "http://s.test:8080/go%C3%A9/r/docs");
    assert_eq!(other, "http://go.test/r/docs");
    //  text, and the short links that have it
    let table: [(&str, &[&str]); 17] = [
        (&docs, &[&docs]),
        (&docs.to_uppercase(), &[&docs]),
        (&encoded, &[&encoded]),
        (&other, &[&other]),
        ("http://s.test:8080/goé/r/Акция/東", &[&encoded]),
        ("%D0%BA%D1%86%D0%B8%D1%8F/%E6%9D%B1", &[&encoded]),
        ("-%f0%9f%98%80", &[&encoded]),
        ("http://", &[&other, &encoded, &docs]),
        ("/r/", &[&other, &encoded, &docs]),
        ("test/r/docs", &[&other]),
        (":8080/go", &[&encoded, &docs]),
        // Of the destination.
        ("example.com/%2F", &[&other, &encoded, &docs]),
        // Not as responses show them.
        ("s.test/docs", &[]),
        ("https://go.test", &[]),
        ("http://s.test/r/docs", &[]),
        ("%2Fr%2F", &[]),
        ("/r/%64ocs", &[]),
    ];
    for (text, expected) in table {
        let search = utf8_percent_encode(text, NON_ALPHANUMERIC);
        assert_eq!(
            service.get(&format!("/links?search={search}")).await.each("shortLink"),
            expected,
            "{text}"
        );
        assert_eq!(
            service.get(&format!("/links/count?search={search}")).await.body,
            expected.len(),
            "{text}"
        );
    }
}

#[tokio::test]
async fn searches_of_a_busy_workspace_rest_in_postgresql_and_find_the_same() {
    let database = Database::postgres().await;
    let mut observer = database.connect().await;
    let service = Service::start(database).await;
    make_links(&service).await;
    let paths =
        ["/links?search=needle", "/links/count?search=needle", "/links/count?search=needle&groupBy=domain"];
    let mut expected = Vec::new();
    for path in paths {
        let answer = service.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        expected.push(answer.body);
    }
    assert_eq!(expected[0].as_array().unwrap().len(), LINKS / 10);
    assert_eq!(expected[1], LINKS / 10);

    let (_, other) = service.new_workspace("other").await;
    let (done, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let is_done = || done.load(Ordering::Relaxed);
    // More at a time than there are processors make the workspace busy, if another one sends requests too.
    let searchers = 2 * available_parallelism().map_or(1, NonZero::get) + 8;
    let search = join_all((0..searchers).map(async |n| {
        let which = n % paths.len();
        while !is_done() {
            let answer = service.get(paths[which]).await;
            if answer.status == StatusCode::OK {
                assert_eq!(answer.body, expected[which], "{}", paths[which]);
                answered.fetch_add(1, Ordering::Relaxed);
            } else {
                // It waited for too long.
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
            }
        }
    }));
    let ask = async {
        while !is_done() {
            assert_eq!(service.call_as(&other, Method::GET, "/links/count", None).await.body, 0);
            sleep(Duration::from_millis(20)).await;
        }
    };
    let observe = async {
        let resting = async || sqlx::query_scalar::<_, i64>(RESTING).fetch_one(&mut observer).await.unwrap();
        let mut resting = resting;
        while resting().await == 0 {
            sleep(Duration::from_millis(2)).await;
        }
        // Some are answered that have rested.
        let before = answered.load(Ordering::Relaxed);
        while answered.load(Ordering::Relaxed) < before + 10 {
            sleep(Duration::from_millis(20)).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    timeout(DEADLINE, async { tokio::join!(search, ask, observe) }).await.expect("no search rests");
}
