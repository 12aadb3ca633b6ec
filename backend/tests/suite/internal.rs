//! What operators and the gateway see.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use backend::{Analytics, Settings, Terms};
use regex::Regex;
use serde_json::json;
use sqlx::Executor;

use crate::database::{Database, on_both_databases};
use crate::receiver::{Receiver, Silent};
use crate::service::{Answer, Service, settings};

on_both_databases! {
    the_directory_of_keys_is_polled_with_a_token_and_a_tag,
    the_list_of_keys_has_pages_on_which_each_key_that_stays_is_once,
    a_gateway_learns_what_has_changed_since_the_version_that_it_has,
    the_service_is_ready_and_counts_what_it_does,
    every_answer_names_its_request,
    what_waits_is_gauged,
    a_count_of_the_outbox_that_takes_too_long_is_interrupted_and_left_out,
    the_dashboard_and_the_readme_name_all_metrics_and_the_alerts_only_some_that_exist,
}

async fn keys(service: &Service, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get("/internal/keys");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service.send_internal(request.body(Body::empty()).unwrap()).await
}

async fn the_directory_of_keys_is_polled_with_a_token_and_a_tag(database: Database) {
    let settings = Settings { internal_token: Some("s3cret".to_owned()), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let store = service.backend.store();
    let (workspace, _) = service.new_workspace("second").await;
    let limits = backend::keys::parse_limits("standard=5000/minute").unwrap();
    let anchor = backend::keys::parse_anchor("2026-01-31").unwrap();
    let (id, key) = store
        .create_key(
            &workspace,
            &Terms { plan: "enterprise".to_owned(), limits: Some(limits), billing_anchor: Some(anchor) },
            service.now(),
        )
        .await
        .unwrap();
    let token = ("authorization", "Bearer s3cret");
    let answer = keys(&service, &[token]).await;
    assert_eq!(answer.status, 200);
    let expected = json!({
        "sha256": backend::ids::sha256(key.as_bytes()), "subscriber": id, "plan": "enterprise",
        "limits": {"standard": ["5000/minute"]}, "billing_anchor": "2026-01-31T00:00:00Z",
    });
    assert_eq!(answer.body["keys"].as_array().unwrap().last().unwrap(), &expected);
    assert_eq!(answer.body["keys"][0]["limits"], json!({}));
    let tag = answer.headers["etag"].to_str().unwrap();
    assert_eq!(keys(&service, &[token, ("if-none-match", tag)]).await.status, 304);
    store.revoke_key(&id, service.now()).await.unwrap();
    let changed = keys(&service, &[token, ("if-none-match", tag)]).await;
    assert_eq!((changed.status.as_u16(), changed.body["keys"].as_array().unwrap().len()), (200, 2));
    let tag = changed.headers["etag"].to_str().unwrap();
    assert_eq!(keys(&service, &[token, ("if-none-match", tag)]).await.status, 304);
    assert_eq!(keys(&service, &[]).await.error().0, 401);
    assert_eq!(keys(&service, &[("authorization", "Bearer other")]).await.error().0, 401);
    let public = service.get("/internal/keys").await;
    assert_eq!(public.error().0, 404, "clients cannot reach it");
}

/// An answer of the directory to a query.
async fn asked(service: &Service, query: &str) -> Answer {
    let request = Request::get(format!("/internal/keys{query}")).header("authorization", "Bearer s3cret");
    service.send_internal(request.body(Body::empty()).unwrap()).await
}

fn texts(list: &serde_json::Value, field: &str) -> Vec<String> {
    let text = |row: &serde_json::Value| if field.is_empty() { row.clone() } else { row[field].clone() };
    let rows = list.as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| text(row).as_str().unwrap().to_owned()).collect()
}

async fn with_keys(database: Database, keys: usize) -> (Service, Vec<(String, String)>) {
    let settings = Settings { internal_token: Some("s3cret".to_owned()), ..settings() };
    let service = Service::with_settings(database, settings).await;
    let (workspace, _) = service.new_workspace("of keys").await;
    let mut made = Vec::new();
    for _ in 0..keys {
        let (id, key) = service
            .backend
            .store()
            .create_key(&workspace, &Terms::of_plan("pro"), service.now())
            .await
            .unwrap();
        made.push((id, backend::ids::sha256(key.as_bytes())));
    }
    (service, made)
}

async fn the_list_of_keys_has_pages_on_which_each_key_that_stays_is_once(database: Database) {
    let (service, made) = with_keys(database, 10).await;
    let all = texts(&asked(&service, "").await.body["keys"], "sha256");
    assert!(made.iter().all(|(_, sha256)| all.contains(sha256)));
    for limit in [1, 3, 12, 100] {
        let (mut found, mut pages) = (Vec::new(), 0);
        let mut query = format!("?limit={limit}");
        loop {
            let page = asked(&service, &query).await;
            assert_eq!(page.status, 200, "{query}");
            pages += 1;
            found.extend(texts(&page.body["keys"], "sha256"));
            let Some(next) = page.body["next"].as_str() else { break };
            query = format!("?limit={limit}&cursor={next}");
        }
        assert_eq!((&found, pages), (&all, all.len().div_ceil(limit)), "{limit}");
    }
    for odd in ["?limit=x", "?cursor=x", "?cursor=list-x"] {
        assert_eq!(asked(&service, odd).await.error().0, 400, "{odd}");
    }
}

async fn a_gateway_learns_what_has_changed_since_the_version_that_it_has(database: Database) {
    let (service, made) = with_keys(database, 5).await;
    let store = service.backend.store();
    let version = |answer: &Answer| answer.body["version"].as_str().unwrap().to_owned();
    let first = version(&asked(&service, "").await);
    let since = async |version: &str| asked(&service, &format!("?since={version}")).await;
    let none = since(&first).await;
    assert_eq!(
        (version(&none), &none.body["since"], &none.body["keys"]),
        (first.clone(), &json!(first), &json!([]))
    );

    let (workspace, _) = service.new_workspace("later").await;
    let before = version(&asked(&service, "").await);
    let (id, key) = store.create_key(&workspace, &Terms::of_plan("free"), service.now()).await.unwrap();
    store.revoke_key(&made[1].0, service.now()).await.unwrap();
    let (passing, _) = store.create_key(&workspace, &Terms::of_plan("free"), service.now()).await.unwrap();
    store.revoke_key(&passing, service.now()).await.unwrap();
    let changed = since(&before).await;
    assert_eq!(changed.body["since"], json!(before));
    assert_eq!(texts(&changed.body["keys"], "subscriber"), [id]);
    assert_eq!(texts(&changed.body["keys"], "sha256"), [backend::ids::sha256(key.as_bytes())]);
    let removed = texts(&changed.body["removed"], "");
    assert!(removed.len() == 2 && removed[0] == made[1].1, "{removed:?}");
    assert_eq!(since(&version(&changed)).await.body["keys"], json!([]));

    // The same in pages.
    let page = asked(&service, &format!("?since={before}&limit=2")).await;
    let next = page.body["next"].as_str().unwrap().to_owned();
    let rest = asked(&service, &format!("?cursor={next}&limit=2")).await;
    let of_both = [&page, &rest]
        .map(|page| texts(&page.body["keys"], "sha256").len() + texts(&page.body["removed"], "").len());
    assert_eq!((of_both, &rest.body["next"]), ([2, 1], &json!(null)));

    // A text that is not a version, or is one of another history, is answered with the first page of all keys.
    let (number, token) = before.split_once('-').unwrap();
    for odd in ["", "x", "-", &format!("{number}-0{token}"), &format!("999999-{token}")] {
        let whole = since(odd).await;
        assert_eq!(
            (&whole.body["since"], whole.body["keys"].as_array().unwrap().len()),
            (&json!(null), 8),
            "{odd}"
        );
    }
}

async fn the_service_is_ready_and_counts_what_it_does(database: Database) {
    let service = Service::start(database).await;
    assert_eq!(
        keys(&service, &[("authorization", "Bearer ")]).await.error().0,
        403,
        "no token is configured"
    );
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for user_agent in ["curl/8", "Googlebot/2.1", "curl/8"] {
        service.follow("GET".parse().unwrap(), "/r/k", user_agent).await;
    }
    service.backend.flush_clicks().await;
    let internal =
        async |path: &str| service.send_internal(Request::get(path).body(Body::empty()).unwrap()).await;
    assert_eq!(internal("/readyz").await.body, "ready\n");
    let metrics = internal("/metrics").await;
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = metrics.body.as_str().unwrap();
    for line in [
        "# HELP weir_backend_clicks_total Clicks on short links",
        "# TYPE weir_backend_clicks_total counter",
        "# TYPE weir_backend_request_duration_seconds histogram",
        r#"weir_backend_clicks_total{outcome="lost"} 0"#,
        r#"weir_backend_requests_total{method="POST",route="/links",status="200"} 1"#,
        r#"weir_backend_requests_total{method="GET",route="/r/{*key}",status="302"} 3"#,
        r#"weir_backend_clicks_total{outcome="recorded"} 2"#,
        r#"weir_backend_clicks_total{outcome="bot"} 1"#,
        r#"weir_backend_request_duration_seconds_count{route="/links"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

async fn every_answer_names_its_request(database: Database) {
    let service = Service::start(database).await;
    let ids = [("abc-123", true), ("has space", false), ("", false), (&"x".repeat(129), false)];
    for (id, kept) in ids {
        let request = Request::get("/links").header("x-request-id", id).body(Body::empty()).unwrap();
        let answer = service.send(request).await;
        let named = answer.headers["x-request-id"].to_str().unwrap();
        assert_eq!(named == id, kept, "{id:?} became {named:?}");
        assert!(kept || named.starts_with("req_"), "{named}");
    }
}

/// The value of a series.
fn value_of(metrics: &str, series: &str) -> Option<i64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.map(|value| value.trim().parse().unwrap())
}

async fn within(waiting: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the gauges show it within a minute");
}

async fn what_waits_is_gauged(database: Database) {
    let service = Service::start(database).await;
    let silent = Silent::start().await;
    let body = json!({"name": "rx", "url": silent.url(), "triggers": ["link.created"]});
    let webhook = service.post("/webhooks", &body).await.body;
    for key in ["k", "l", "m", "n", "o", "p"] {
        service.link(&json!({"url": "https://example.com", "key": key})).await;
    }
    let gauged = async |expected: &[(&str, i64)]| loop {
        let metrics = service.metrics().await;
        if expected.iter().all(|(series, value)| value_of(&metrics, series) == Some(*value)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let outbox = |state: &str| {
        let name = "weir_backend_outbox";
        (
            format!("{name}_deliveries{{state=\"{state}\"}}"),
            format!("{name}_oldest_seconds{{state=\"{state}\"}}"),
        )
    };
    let [(due, due_for), (later, _), (disabled, disabled_for)] = ["due", "later", "disabled"].map(outbox);
    // Four are under way.
    within(gauged(&[(&due, 2), (&later, 4), (&disabled, 0), (&due_for, 0)])).await;
    service.clock.advance(Duration::from_secs(10));
    within(gauged(&[(&due, 2), (&later, 4), (&due_for, 10)])).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    service.patch(&path, &json!({"disabled": true})).await;
    within(gauged(&[(&due, 0), (&later, 0), (&disabled, 6), (&disabled_for, 10)])).await;

    let (clicks, bytes) = ("weir_backend_click_log_clicks", "weir_backend_click_log_bytes");
    within(gauged(&[(clicks, 0), (bytes, 0)])).await;
    let mut block = service.database().block_recording().await;
    for _ in 0..3 {
        service.follow("GET".parse().unwrap(), "/r/k", "curl/8").await;
    }
    within(gauged(&[(clicks, 3)])).await;
    let used = |pool: &str| format!("weir_backend_connections{{pool=\"{pool}\",state=\"used\"}}");
    if service.database().is_sqlite() {
        // They wait for the other writer.
        within(gauged(&[(&used("write"), 1)])).await;
    }
    let metrics = service.metrics().await;
    assert!(value_of(&metrics, bytes).unwrap() > 0);
    // Of 256 MiB.
    assert!(metrics.contains("weir_backend_click_log_used_ratio 0.00000"), "{metrics}");
    block.execute("ROLLBACK").await.unwrap();
    within(gauged(&[(clicks, 0), (bytes, 0)])).await;
    if service.database().is_sqlite() {
        within(gauged(&[(&used("write"), 0)])).await;
    } else {
        let lock = "BEGIN; LOCK TABLE links IN ACCESS EXCLUSIVE MODE";
        block.execute(sqlx::raw_sql(lock)).await.unwrap();
        let waits = async {
            within(gauged(&[(&used("analytics"), 1)])).await;
            block.execute("ROLLBACK").await.unwrap();
        };
        tokio::join!(service.get("/links"), waits);
        within(gauged(&[(&used("analytics"), 0)])).await;
    }

    //  pool, how many connections it has at least and at most
    let pools: &[(&str, i64, i64)] = if service.database().is_sqlite() {
        &[("read", 1, 4), ("write", 1, 1), ("analytics", 1, 4)]
    } else {
        &[("main", 1, 20), ("analytics", 1, 4)]
    };
    let metrics = service.metrics().await;
    for (pool, min, max) in pools {
        let of = |state: &str| {
            value_of(&metrics, &format!("weir_backend_connections{{pool=\"{pool}\",state=\"{state}\"}}"))
                .unwrap()
        };
        let may = value_of(&metrics, &format!("weir_backend_connections_max{{pool=\"{pool}\"}}"));
        assert_eq!(may, Some(*max), "{metrics}");
        assert!((*min..=*max).contains(&(of("idle") + of("used"))), "{metrics}");
    }
}

/// Many deliveries of the first webhook, which are not due.
const DELIVERIES: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO webhook_events (id, workspace_seq, event, payload, created_at)
    SELECT 'evt_' || i, 1, 'link.created', '{}', 0 FROM n;
    INSERT INTO webhook_deliveries (event_seq, webhook_seq, attempts, due_at)
    SELECT e.seq, 1, 0, 9000000000000 FROM webhook_events e;
";
const LATER: &str = "weir_backend_outbox_deliveries{state=\"later\"}";
const LAG: &str = "weir_backend_webhook_lag_seconds{}";

async fn a_count_of_the_outbox_that_takes_too_long_is_interrupted_and_left_out(database: Database) {
    let service = Service::start(database).await;
    let webhook = json!({"name": "rx", "url": "https://rx.test", "triggers": ["link.deleted"]});
    assert_eq!(service.post("/webhooks", &webhook).await.status, 201);
    service.database().connect().await.execute(sqlx::raw_sql(DELIVERIES)).await.unwrap();
    within(async { while value_of(&service.metrics().await, LATER) != Some(100_000) {} }).await;
    let timeout = Duration::from_millis(1);
    let service = service.restart_with_analytics(Analytics { timeout, ..Analytics::default() }).await;
    let metrics = service.metrics().await;
    assert_eq!((value_of(&metrics, LATER), value_of(&metrics, LAG)), (None, None), "{metrics}");
    assert!(metrics.contains("weir_backend_clicks_total"));
}

#[tokio::test]
async fn scrapes_share_one_count_of_the_outbox_and_take_no_connection_from_requests() {
    let service = Service::start(Database::postgres().await).await;
    let mut lock = service.database().connect().await;
    let statement = "BEGIN; LOCK TABLE webhook_deliveries IN ACCESS EXCLUSIVE MODE";
    lock.execute(sqlx::raw_sql(statement)).await.unwrap();
    // More than there are connections.
    let scrapes = futures_util::future::join_all((0..20).map(|_| service.metrics())).await;
    for metrics in &scrapes {
        assert_eq!((value_of(metrics, LATER), value_of(metrics, LAG)), (None, None), "{metrics}");
    }
    let used = |pool: &str| {
        let series = format!("weir_backend_connections{{pool=\"{pool}\",state=\"used\"}}");
        scrapes.iter().map(|metrics| value_of(metrics, &series).unwrap()).max()
    };
    assert_eq!(used("analytics"), Some(0));
    // The sender of webhooks waits for the lock, too.
    assert!(used("main") < Some(4), "{:?}", used("main"));
    assert_eq!(service.get("/tags").await.status, 200);
    lock.execute("ROLLBACK").await.unwrap();
    within(async { while value_of(&service.metrics().await, LATER) != Some(0) {} }).await;
}

/// The families of the backend's metrics that a text names.
fn families(text: &str) -> BTreeSet<&str> {
    let name = Regex::new(r"weir_backend_\w+").unwrap();
    name.find_iter(text).map(|found| found.as_str().trim_end_matches("_bucket")).collect()
}

async fn the_dashboard_and_the_readme_name_all_metrics_and_the_alerts_only_some_that_exist(
    database: Database,
) {
    let service = Service::start(database).await;
    let receiver = Receiver::start().await;
    let body = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created"]});
    service.post("/webhooks", &body).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let mut metrics = String::new();
    within(async {
        // A counter without a label that came up is not there.
        while !metrics.contains("webhook_attempts_total{") {
            metrics = service.metrics().await;
        }
    })
    .await;
    let described = metrics.lines().filter(|line| line.starts_with("# TYPE ")).collect::<Vec<_>>().join("\n");
    let all = families(&described);
    let text =
        |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (dashboard, readme, rules) =
        (text("../envoy/grafana/weir.json"), text("README.md"), text("../envoy/prometheus/rules.yaml"));
    assert_eq!(families(&dashboard), all);
    assert_eq!(families(&readme), all);
    assert!(families(&rules).is_subset(&all), "{:?}", families(&rules));
}
