//! Clicks that are kept for thirty days, and what is counted of them afterwards.

use std::time::Duration;

use axum::http::Method;
use backend::{Click, Settings};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row};

use crate::database::{Database, on_both_databases};
use crate::receiver::{Receiver, Silent};
use crate::service::{Answer, Service, settings};

const DAY: u64 = 86_400;
/// Where the horizon is when the tests' clocks start.
const HORIZON: &str = "2026-02-13T12:00:00.000Z";

on_both_databases! {
    expired_clicks_are_in_no_answer_and_their_counts_stay,
    a_range_may_start_at_the_horizon_until_it_moves,
    parts_of_hours_are_refused_where_there_were_clicks,
    a_query_that_needs_no_expired_clicks_is_answered,
    late_clicks_are_counted_and_deleted,
    all_clicks_of_a_workspace_may_expire,
    webhook_events_about_expired_clicks_are_deleted_whether_delivered_or_not,
}

fn thirty_days() -> Settings {
    Settings { retention: Some(Duration::from_secs(30 * DAY)), ..settings() }
}

/// The clicks in an answer: of a count, of all its groups, or its events.
fn clicks_in(path: &str, answer: &Answer) -> i64 {
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    let clicks = |entry: &Value| entry["clicks"].as_i64().unwrap();
    match &answer.body {
        Value::Array(events) if path.starts_with("/events") => i64::try_from(events.len()).unwrap(),
        Value::Array(groups) => groups.iter().map(clicks).sum(),
        count => clicks(count),
    }
}

/// Asks for clicks that have expired.
async fn assert_refused(service: &Service, path: &str, horizon: &str) {
    let message = format!(
        "custom: start: Invalid range: clicks from before {horizon} are deleted. The earliest start is {horizon}. For earlier \
         times, only counts by link and by whole UTC hours are available."
    );
    let answer = service.get(path).await;
    assert_eq!(answer.status, 422, "{path}: {}", answer.body);
    assert_eq!(answer.error(), (422, "unprocessable_entity", message.as_str()), "{path}");
}

async fn click_at(service: &Service, link: &str, instants: &[&str]) {
    let clicks: Vec<Click> = instants
        .iter()
        .map(|at| {
            let mut click = Click::new(link, at.parse().unwrap());
            click.details.country = "DE".into();
            click
        })
        .collect();
    let recorded = service.backend.store().record_clicks(&clicks).await;
    assert_eq!(recorded.unwrap(), clicks.len());
}

async fn count(service: &Service, query: String) -> i64 {
    let mut connection = service.database().connect().await;
    sqlx::query(AssertSqlSafe(query)).fetch_one(&mut connection).await.unwrap().get(0)
}

/// Single clicks from before the horizon that are in the database.
async fn expired_rows(service: &Service, horizon: &str) -> i64 {
    let before = horizon.parse::<Timestamp>().unwrap().as_millisecond();
    count(service, format!("SELECT COUNT(*) FROM clicks WHERE at < {before}")).await
}

/// Lets the service look for expired clicks, and returns once they are deleted.
async fn deleted(service: &Service, horizon: &str) {
    service.clock.advance(Duration::from_secs(60));
    let gone = async {
        while expired_rows(service, horizon).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("expired clicks are deleted");
}

async fn expired_clicks_are_in_no_answer_and_their_counts_stay(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let folder = service.post("/folders", &json!({"name": "f"})).await.body["id"].clone();
    assert_eq!(service.post("/tags", &json!({"name": "t"})).await.status, 201);
    let body = json!({"url": "https://example.com", "folderId": folder, "tagNames": ["t"]});
    let link = service.link(&body).await;
    let (id, tag) = (link["id"].as_str().unwrap(), link["tags"][0]["id"].as_str().unwrap());
    // Three are kept: 720 hours are the thirty days.
    service.click_hours_ago(id, &[1, 100, 720, 721, 1_000, 5_000]).await;
    let of_clicks = [
        "continents",
        "countries",
        "regions",
        "cities",
        "devices",
        "browsers",
        "os",
        "trigger",
        "triggers",
        "referers",
        "referer_urls",
        "top_urls",
        "top_base_urls",
        "utm_sources",
    ];
    let filters = [
        "country=DE",
        "city=x",
        "region=x",
        "continent=EU",
        "device=x",
        "browser=x",
        "os=x",
        "trigger=link",
        "referer=x",
        "refererUrl=x",
        "url=x",
        "qr=true",
        "qr=false",
        "country=-DE",
        "utm_source=-x",
    ];
    let mut refused = vec![
        "/events?interval=all".to_owned(),
        "/events?interval=1y".to_owned(),
        "/events?start=2026-02-13".to_owned(),
        format!("/events?interval=90d&linkId={id}"),
        "/analytics?groupBy=timeseries&interval=1y&country=DE".to_owned(),
        "/analytics?groupBy=top_links&interval=1y&country=DE".to_owned(),
        "/analytics?groupBy=top_folders&interval=1y&country=DE".to_owned(),
        // Its days start within UTC hours.
        "/analytics?groupBy=timeseries&interval=1y&timezone=Asia/Kolkata".to_owned(),
    ];
    refused.extend(of_clicks.map(|group| format!("/analytics?groupBy={group}&interval=all")));
    refused.extend(filters.map(|filter| format!("/analytics?interval=1y&{filter}")));
    refused.extend(filters.map(|filter| format!("/events?interval=1y&{filter}")));
    let mut counted = vec![
        ("/analytics?groupBy=timeseries&interval=1y&timezone=America/New_York".to_owned(), 6),
        ("/analytics?start=2026-01-01&end=2026-02-13T11:59:59.999Z".to_owned(), 2),
        ("/analytics?start=2026-02-01&end=2026-02-10".to_owned(), 1),
        ("/analytics?groupBy=top_links&start=2026-02-01&end=2026-02-10".to_owned(), 1),
        (format!("/events?start={HORIZON}"), 3),
        (format!("/events?start={HORIZON}&qr=false"), 3),
        ("/events?interval=30d".to_owned(), 2),
        (format!("/analytics?groupBy=triggers&start={HORIZON}"), 3),
        ("/analytics?groupBy=triggers".to_owned(), 1),
        ("/events?interval=all&event=leads".to_owned(), 0),
        ("/analytics?groupBy=countries&interval=all&event=sales".to_owned(), 0),
    ];
    let about_links =
        ["".to_owned(), format!("&linkId={id}"), format!("&tagId={tag}"), "&domain=s.test".to_owned()];
    for interval in ["all", "1y"] {
        for filter in &about_links {
            let query = format!("/analytics?interval={interval}{filter}");
            counted.push((query.clone(), 6));
            for group in ["timeseries", "top_links", "top_domains", "top_folders", "top_link_tags"] {
                counted.push((format!("{query}&groupBy={group}"), 6));
            }
        }
    }
    let assert_answers = async |service: &Service, when: &str| {
        for path in &refused {
            assert_refused(service, path, HORIZON).await;
        }
        for (path, clicks) in &counted {
            assert_eq!(clicks_in(path, &service.get(path).await), *clicks, "{path}, {when}");
        }
        assert_eq!(service.get(&format!("/links/{id}")).await.body["clicks"], 6, "{when}");
    };
    let rows = "SELECT COUNT(*) FROM clicks";
    assert_eq!(count(&service, rows.to_owned()).await, 6);
    assert_answers(&service, "before they are deleted").await;
    deleted(&service, HORIZON).await;
    assert_eq!(count(&service, rows.to_owned()).await, 3);
    assert_answers(&service, "after they are deleted").await;
    // What is gone stays gone, whatever the operator says now.
    let service = service.restart_with(settings()).await;
    assert_answers(&service, "kept for ever").await;
    let longer = Settings { retention: Some(Duration::from_secs(400 * DAY)), ..settings() };
    let service = service.restart_with(longer).await;
    assert_answers(&service, "kept longer").await;
}

async fn a_range_may_start_at_the_horizon_until_it_moves(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    click_at(&service, link["id"].as_str().unwrap(), &["2026-02-13T11:59:59.999Z", HORIZON]).await;
    let whole = "/analytics?start=2026-02-13T11:00:00Z";
    for path in ["/events?start=", "/analytics?groupBy=countries&start=", "/analytics?start="] {
        let at = |start: &str| format!("{path}{start}");
        let answer = service.get(&at(HORIZON)).await;
        assert_eq!(clicks_in(path, &answer), 1, "{path}");
        assert_refused(&service, &at("2026-02-13T11:59:59.999Z"), HORIZON).await;
        // A start between two milliseconds leaves out the earlier one.
        assert_eq!(clicks_in(path, &service.get(&at("2026-02-13T11:59:59.9995Z")).await), 1, "{path}");
        assert_eq!(clicks_in(path, &service.get(&at("30+days+ago")).await), 0, "{path}");
    }
    assert_eq!(clicks_in(whole, &service.get(whole).await), 2);
    // At 12:59:59.999 it is where it was, and a millisecond later an hour further.
    service.clock.advance(Duration::from_millis(25 * 60_000 + 3_210));
    let start = format!("/events?start={HORIZON}");
    assert_eq!(clicks_in(&start, &service.get(&start).await), 1);
    service.clock.advance(Duration::from_millis(1));
    assert_refused(&service, &start, "2026-02-13T13:00:00.000Z").await;
    assert_refused(&service, "/events?interval=all", "2026-02-13T13:00:00.000Z").await;
    assert_eq!(clicks_in(whole, &service.get(whole).await), 2);
}

async fn parts_of_hours_are_refused_where_there_were_clicks(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    click_at(&service, link["id"].as_str().unwrap(), &["2026-01-10T08:15:00Z"]).await;
    //  from, to on 2026-01-10, and the clicks; None where that is refused
    let table = [
        ("08:00:00", "08:59:59.999", Some(1)),
        ("08:00:00", "09:00:00", Some(1)),
        ("08:00:00", "08:59:59.998", None),
        ("08:00:00.001", "09:59:59.999", None),
        ("08:00:00", "08:20:00", None),
        ("08:30:00", "08:45:00", None),
        // There were none in these parts, nor in the rest of their hours.
        ("07:30:00", "09:30:00", Some(1)),
        ("09:30:00", "10:30:00", Some(0)),
    ];
    for when in ["before it is deleted", "after it is deleted"] {
        for (from, to, clicks) in table {
            for group in ["count", "timeseries", "top_links", "top_domains"] {
                let path =
                    format!("/analytics?groupBy={group}&start=2026-01-10T{from}Z&end=2026-01-10T{to}Z");
                match clicks {
                    Some(clicks) => {
                        assert_eq!(clicks_in(&path, &service.get(&path).await), clicks, "{path}, {when}");
                    }
                    None => assert_refused(&service, &path, HORIZON).await,
                }
            }
        }
        deleted(&service, HORIZON).await;
    }
}

async fn a_query_that_needs_no_expired_clicks_is_answered(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let (_, idle) = service.new_workspace("idle").await;
    let old_folder = service.post("/folders", &json!({"name": "old"})).await.body["id"].clone();
    let old_folder = old_folder.as_str().unwrap();
    let old = service.link(&json!({"url": "https://example.com", "folderId": old_folder})).await;
    service.click_hours_ago(old["id"].as_str().unwrap(), &[0]).await;
    service.clock.advance(Duration::from_secs(60 * DAY));
    let horizon = "2026-04-14T12:00:00.000Z";
    let (_, new) = service.new_workspace("new").await;
    let link = json!({"url": "https://example.com"});
    for key in [&idle, &new] {
        let link = service.call_as(key, Method::POST, "/links", Some(&link)).await.body;
        click_at(&service, link["id"].as_str().unwrap(), &["2026-05-10T00:00:00Z"]).await;
        for query in ["/events?", "/analytics?groupBy=countries&", "/analytics?country=DE&", "/analytics?"] {
            for range in ["interval=all", "interval=1y", "start=2020-01-01T00:00:00.001Z"] {
                let path = format!("{query}{range}");
                let answer = service.call_as(key, Method::GET, &path, None).await;
                assert_eq!(clicks_in(&path, &answer), 1, "{path}");
            }
        }
    }
    // So it is with a link of a workspace that has lost clicks on others.
    let recent_folder = service.post("/folders", &json!({"name": "recent"})).await.body["id"].clone();
    let recent_folder = recent_folder.as_str().unwrap();
    let recent = service.link(&json!({"url": "https://example.com", "folderId": recent_folder})).await;
    click_at(&service, recent["id"].as_str().unwrap(), &["2026-05-10T00:00:00Z"]).await;
    for (filter, answered) in [
        (format!("linkId={}", recent["id"].as_str().unwrap()), true),
        (format!("folderId=-{old_folder}"), true),
        (format!("folderId={recent_folder},{old_folder}"), false),
        ("country=DE".to_owned(), false),
        (format!("linkId={}", old["id"].as_str().unwrap()), false),
    ] {
        for query in ["/events?", "/analytics?groupBy=countries&"] {
            let path = format!("{query}interval=1y&{filter}");
            if answered {
                assert_eq!(clicks_in(&path, &service.get(&path).await), 1, "{path}");
            } else {
                assert_refused(&service, &path, horizon).await;
            }
        }
    }
    // Clicks on a deleted link are asked about by nobody.
    assert_eq!(service.delete(&format!("/links/{}", old["id"].as_str().unwrap())).await.status, 200);
    assert_eq!(clicks_in("/events", &service.get("/events?interval=1y").await), 1);
}

async fn late_clicks_are_counted_and_deleted(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let id = link["id"].as_str().unwrap();
    click_at(&service, id, &["2026-01-10T08:15:00Z", "2026-03-10T08:15:00Z"]).await;
    deleted(&service, HORIZON).await;
    // One in a minute whose clicks are gone, and one in a day of which nothing was known.
    click_at(&service, id, &["2026-01-10T08:15:30Z", "2026-01-20T00:00:00Z"]).await;
    for when in ["before they are deleted", "after they are deleted"] {
        for group in ["count", "timeseries", "top_links", "top_domains"] {
            let path = format!("/analytics?groupBy={group}&interval=1y");
            assert_eq!(clicks_in(&path, &service.get(&path).await), 4, "{path}, {when}");
        }
        let path = "/analytics?groupBy=top_links&start=2026-01-10&end=2026-01-10";
        assert_eq!(clicks_in(path, &service.get(path).await), 2, "{when}");
        assert_refused(&service, "/events?interval=1y", HORIZON).await;
        let path = format!("/events?start={HORIZON}");
        assert_eq!(clicks_in(&path, &service.get(&path).await), 1, "{when}");
        deleted(&service, HORIZON).await;
    }
}

async fn all_clicks_of_a_workspace_may_expire(database: Database) {
    let service = Service::with_settings(database, thirty_days()).await;
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let id = link["id"].as_str().unwrap();
    service.click_hours_ago(id, &[0, 1, 2, 30]).await;
    let now = service.now();
    click_at(&service, id, &[&(now - SignedDuration::from_mins(3)).to_string()]).await;
    service.clock.advance(Duration::from_secs(90 * DAY));
    let horizon = "2026-05-14T12:00:00.000Z";
    let queries = ["count", "timeseries", "top_links", "top_domains"]
        .map(|group| format!("/analytics?groupBy={group}&interval=all"));
    for (when, clicks) in
        [("before they are deleted", 5), ("after they are deleted", 5), ("and a new one", 6)]
    {
        if clicks == 6 {
            service.click_hours_ago(id, &[0]).await;
        }
        for path in &queries {
            assert_eq!(clicks_in(path, &service.get(path).await), clicks, "{path}, {when}");
        }
        assert_refused(&service, "/events?interval=all", horizon).await;
        deleted(&service, horizon).await;
    }
    assert_eq!(count(&service, "SELECT COUNT(*) FROM clicks".to_owned()).await, 1);
}

async fn webhook_events_about_expired_clicks_are_deleted_whether_delivered_or_not(database: Database) {
    // More than one transaction deletes.
    const EXPIRED: usize = 250;
    let settings = Settings { retention: Some(Duration::from_secs(DAY)), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let (receiver, silent) = (Receiver::start().await, Silent::start().await);
    for url in [receiver.url("/"), silent.url()] {
        service.webhook(&url, &["link.created", "link.clicked"]).await;
    }
    let link = service.link(&json!({"url": "https://example.com"})).await;
    let mut hours = vec![1, 25];
    hours.extend([30; EXPIRED]);
    service.click_hours_ago(link["id"].as_str().unwrap(), &hours).await;
    deleted(&service, "2026-03-14T12:00:00.000Z").await;
    let events = "SELECT COUNT(*) FROM webhook_events".to_owned();
    let webhooks = service.get("/webhooks").await;
    // Of the click that is kept, and of the link.
    let are_left = async || {
        for webhook in webhooks.each("id") {
            let log = service.get(&format!("/webhooks/{}/deliveries", webhook.as_str().unwrap())).await;
            let is_of_kept =
                |body: &Value| body.as_str().is_some_and(|body| body.contains("2026-03-15T11:34:56.789Z"));
            if log.each("event") != ["link.clicked", "link.created"]
                || !is_of_kept(&log.body[0]["requestBody"])
            {
                return false;
            }
        }
        count(&service, events.clone()).await == 2
    };
    let left = async {
        while !are_left().await {
            // The attempts for the click that is kept begin at the next check, and so may those for expired ones, which a later one deletes.
            service.clock.advance(Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), left).await.expect("all others are deleted");
}
