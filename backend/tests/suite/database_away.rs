//! A database that does not answer, or cannot be reached, and is back later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use backend::{Analytics, Settings};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Executor;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::database::{Database, OwnServer};
use crate::process::{Caller, Process, make_key};
use crate::proxy::{Proxy, Way};
use crate::receiver::Receiver;
use crate::service::{Service, settings};
use crate::soak::row;

/// Longer than a redirect may take while the database is away, and much less than a request may.
const PROMPT: Duration = Duration::from_secs(5);

/// Much less than a request may take, and than connections wait for a database that does not answer.
const DEADLINE: Duration = Duration::from_secs(15);

async fn follow(service: &Service, key: &str) -> (StatusCode, bool) {
    let request = Request::get(format!("/r/{key}")).header("user-agent", "curl/8");
    let answer = timeout(PROMPT, service.send(request.body(Body::empty()).unwrap())).await;
    let answer = answer.unwrap_or_else(|_| panic!("{key} is not answered"));
    (answer.status, answer.headers.contains_key("retry-after"))
}

#[tokio::test]
async fn known_links_lead_on_while_the_database_is_away_and_their_clicks_wait_in_the_log() {
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let settings = Settings { max_stale: Duration::from_secs(600), ..settings() };
    let service = Service::with_settings(database, settings).await;
    for key in ["k", "unseen"] {
        service.link(&json!({"url": "https://example.com", "key": key})).await;
    }
    let mut clicks = 0;
    for way in [Way::Stalled, Way::Cut] {
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND);
        service.backend.flush_clicks().await;
        proxy.set(way);
        service.clock.advance(Duration::from_secs(599));
        for _ in 0..50 {
            assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{way:?}");
        }
        // Clicks are in the log by then.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{way:?}");
        assert_eq!(follow(&service, "unseen").await, (StatusCode::SERVICE_UNAVAILABLE, true), "{way:?}");
        service.clock.advance(Duration::from_secs(2));
        assert_eq!(follow(&service, "k").await, (StatusCode::SERVICE_UNAVAILABLE, true), "{way:?}");
        proxy.set(Way::Open);
        clicks += 53;
        let found = async {
            while follow(&service, "k").await.0 != StatusCode::FOUND {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, found).await.expect("the database is back");
        timeout(Duration::from_secs(20), service.backend.flush_clicks()).await.unwrap();
        let counted = service.get("/analytics?interval=all").await.body;
        assert_eq!(counted["clicks"], clicks, "{way:?}");
    }
}

#[tokio::test]
async fn requests_end_within_their_time_while_the_database_is_away() {
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let settings = Settings { request_timeout: Duration::from_secs(8), ..settings() };
    let service = Service::with_settings(database, settings).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let ready = || service.send_internal(Request::get("/readyz").body(Body::empty()).unwrap());
    let table = [
        (Method::GET, "/links", None),
        (Method::HEAD, "/links", None),
        (Method::POST, "/links", Some(json!({"url": "https://example.com"}))),
        (Method::DELETE, "/links/x", None),
        (Method::GET, "/analytics", None),
        (Method::GET, "/events", None),
        (Method::GET, "/r/unknown", None),
    ];
    for way in [Way::Stalled, Way::Cut] {
        proxy.set(way);
        // More than there are connections to the database. All are answered, though nothing answers them.
        let requests = table.iter().cycle().take(100 * table.len()).map(async |(method, path, body)| {
            let answer = service.call_as(service.key(), method.clone(), path, body.as_ref()).await;
            // What had a connection waits for its answer.
            let is_late = way == Way::Stalled && answer.status == StatusCode::REQUEST_TIMEOUT;
            if !is_late {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{way:?}: {method} {path}");
                assert!(answer.headers.contains_key("retry-after"), "{way:?}: {method} {path}");
            }
        });
        timeout(DEADLINE, join_all(requests)).await.expect("requests wait");
        assert_eq!(ready().await.status, StatusCode::SERVICE_UNAVAILABLE, "{way:?}");
        proxy.set(Way::Open);
        let answered = async {
            while service.get("/links/count").await.status != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, answered).await.expect("the database is back");
        assert_eq!(service.get("/links/count").await.body, 1, "{way:?}");
        assert_eq!(ready().await.status, StatusCode::OK, "{way:?}");
    }
}

/// A count of the outbox that hangs keeps its connection for as long as a query may take.
#[tokio::test]
async fn metrics_take_no_connection_from_customers() {
    let analytics = Analytics { readers: 1, timeout: Duration::from_secs(60) };
    let service = Service::with_analytics(Database::postgres().await, analytics).await;
    let mut busy = service.database().connect().await;
    busy.execute(sqlx::raw_sql("BEGIN; LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    for _ in 0..3 {
        let metrics = service.metrics().await;
        assert!(!metrics.contains("weir_backend_outbox_deliveries{"), "{metrics}");
        for path in ["/links", "/links/count", "/tags", "/analytics"] {
            let answer = timeout(PROMPT, service.get(path)).await.unwrap_or_else(|_| panic!("{path} waits"));
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        }
    }
    busy.execute("ROLLBACK").await.unwrap();
}

/// A redirect that waited for the database would wait here.
#[tokio::test]
async fn a_redirect_of_a_known_link_never_waits_for_the_database() {
    let service = Service::start(Database::postgres().await).await;
    let keys: Vec<_> = (0..24).map(|number| format!("k{number}")).collect();
    for key in &keys {
        service.link(&json!({"url": "https://example.com", "key": key})).await;
        assert_eq!(follow(&service, key).await.0, StatusCode::FOUND);
    }
    let mut busy = service.database().connect().await;
    busy.execute(sqlx::raw_sql("BEGIN; LOCK TABLE links IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    service.clock.advance(Duration::from_secs(599));
    let follow_all = async {
        for key in &keys {
            assert_eq!(follow(&service, key).await.0, StatusCode::FOUND, "{key}");
        }
    };
    timeout(PROMPT, follow_all).await.expect("each takes less than a tenth of a second");
    busy.execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_link_stays_known_while_others_are_made() {
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let service = Arc::new(Service::start(database).await);
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for round in 1..=5 {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut creating = JoinSet::new();
        for _ in 0..4 {
            let (service, is_over) = (Arc::clone(&service), Arc::clone(&is_over));
            creating.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    service.post("/links", &json!({"url": "https://example.com"})).await;
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{round}");
            service.clock.advance(Duration::from_secs(2));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy.set(Way::Stalled);
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{round}");
        is_over.store(true, Ordering::Relaxed);
        proxy.set(Way::Open);
        creating.join_all().await;
    }
}

#[tokio::test]
async fn what_another_process_changes_takes_effect_one_visit_later() {
    let database = Database::postgres().await;
    let first = Service::start(database.shared()).await;
    let second = first.beside(database).await;
    let visit = async || {
        let answer = second.follow(Method::GET, "/r/k", "curl/8").await;
        answer.headers.get("location").map(|location| location.to_str().unwrap().to_owned())
    };
    let link = first.link(&json!({"url": "https://example.com/old", "key": "k"})).await;
    let path = format!("/links/{}", link["id"].as_str().unwrap());
    assert_eq!(visit().await.as_deref(), Some("https://example.com/old"));
    //  the change by the first process, and where the link then leads
    for (change, before, after) in [
        ("changed", Some("https://example.com/old"), Some("https://example.com/new")),
        ("deleted", Some("https://example.com/new"), None),
    ] {
        let changed = match change {
            "changed" => first.patch(&path, &json!({"url": "https://example.com/new"})).await,
            _ => first.delete(&path).await,
        };
        assert_eq!(changed.status, StatusCode::OK, "{change}");
        second.clock.advance(Duration::from_secs(2));
        assert_eq!(visit().await.as_deref(), before, "{change}");
        // The visit has scheduled this.
        let is_read = async {
            while visit().await.as_deref() != after {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, is_read).await.unwrap_or_else(|_| panic!("{change}"));
    }
}

#[tokio::test]
async fn what_is_in_the_log_is_recorded_by_the_next_process_and_once() {
    let mut service = Service::start(Database::postgres().await).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    for round in 1..=3 {
        for _ in 0..100 {
            assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND);
        }
        service = service.restart().await;
        let counted = service.get("/analytics").await.body;
        assert_eq!(counted["clicks"], 100 * round);
    }
}

#[tokio::test]
async fn what_is_counted_in_the_database_is_absent_from_the_metrics_while_that_is_away() {
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let service = Service::start(database).await;
    proxy.set(Way::Stalled);
    let metrics = service.metrics().await;
    // The alert on a database that is away looks for this.
    let counted = ["weir_backend_outbox_deliveries{", "weir_backend_webhook_lag_seconds{"];
    assert!(counted.iter().all(|counted| !metrics.contains(counted)), "{metrics}");
    proxy.set(Way::Open);
}

/// The database then has the clicks, and the service does not know it.
#[tokio::test]
async fn clicks_count_once_and_their_events_keep_their_ids_if_the_answer_to_a_commit_is_lost() {
    const CLICKS: usize = 30;
    let direct = Database::postgres().await;
    let (proxy, database) = Proxy::to(&direct).await;
    let service = Service::start(database).await;
    let mut receiver = Receiver::start().await;
    service.webhook(&receiver.url("/"), &["link.clicked"]).await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND);
    service.backend.flush_clicks().await;
    receiver.next().await;
    log_is_quiet(&service).await;
    proxy.set(Way::LosesAnswer);
    for _ in 1..CLICKS {
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND);
    }
    proxy.broken().await;
    let recorded = "SELECT COUNT(*) FROM clicks";
    let mut connection = direct.connect().await;
    let arrived = async {
        while sqlx::query_scalar::<_, i64>(recorded).fetch_one(&mut connection).await.unwrap() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, arrived).await.expect("the commit has arrived");
    proxy.set(Way::Open);
    timeout(Duration::from_secs(60), service.backend.flush_clicks()).await.unwrap();
    assert_eq!(service.get("/analytics").await.body["clicks"], CLICKS);
    assert_eq!(service.get("/links").await.each("clicks"), [&json!(CLICKS)]);
    let events = service.get("/events?limit=1000").await;
    assert_eq!(events.body.as_array().unwrap().len(), CLICKS);
    service.clock.advance(Duration::from_secs(1));
    let (mut clicks, mut ids) = (BTreeSet::new(), BTreeSet::new());
    while clicks.len() < CLICKS - 1 {
        let event = receiver.next().await.json();
        clicks.insert(event["data"]["click"]["id"].to_string());
        ids.insert(event["id"].to_string());
    }
    assert_eq!(ids.len(), CLICKS - 1);
}

/// Waits until the attempts so far are stored.
async fn log_is_quiet(service: &Service) {
    let pending = "SELECT COUNT(*) FROM webhook_deliveries WHERE due_at IS NOT NULL";
    let mut connection = service.database().connect().await;
    while sqlx::query_scalar::<_, i64>(pending).fetch_one(&mut connection).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_restart_of_postgresql_under_load_loses_nothing_and_redirects_go_on() {
    restart_under_load(1, 200).await;
}

#[tokio::test]
#[ignore = "one of the long forms: make soak"]
async fn ten_restarts_of_postgresql_under_load_lose_nothing_and_redirects_go_on() {
    const RESTARTS: usize = 10;
    let Loaded { links, redirects, slowest } = restart_under_load(RESTARTS, 1_000).await;
    row(
        "PostgreSQL restarted under load",
        format!("{RESTARTS} immediate restarts"),
        format!(
            "{links} links acknowledged and {redirects} clicks, none lost; the slowest redirect {slowest:.2?}"
        ),
    );
}

struct Loaded {
    links: usize,
    redirects: usize,
    slowest: Duration,
}

/// Restarts PostgreSQL as if it were killed, while links are made and followed, each time after as many links. Then all that
/// was acknowledged is looked for.
#[expect(clippy::disallowed_methods, reason = "how long redirects take is a matter of real time")]
async fn restart_under_load(restarts: usize, links: usize) -> Loaded {
    let (server, database) = OwnServer::start().await;
    let caller = Caller::new(make_key(&database.url));
    let process = Arc::new(Process::start(&database.url));
    let mut receiver = Receiver::start().await;
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created"]});
    caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
    let link = json!({"url": "https://example.com", "key": "k"});
    let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
    caller.call(Method::GET, process.url("/r/k"), &Value::Null).await.unwrap();

    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut creating = JoinSet::new();
    for _ in 0..4 {
        let (caller, process) = (caller.clone(), Arc::clone(&process));
        let (is_over, made) = (Arc::clone(&is_over), Arc::clone(&made));
        creating.spawn(async move {
            let mut ids = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let body = json!({"url": "https://example.com/"});
                let (status, link) = caller.call(Method::POST, process.url("/links"), &body).await.unwrap();
                // While the server is away none is made, and none acknowledged.
                if status.is_success() {
                    ids.push(link["id"].as_str().unwrap().to_owned());
                    made.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(status.is_server_error(), "{status} {link}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            ids
        });
    }
    let mut following = JoinSet::new();
    for _ in 0..2 {
        let (caller, process, is_over) = (caller.clone(), Arc::clone(&process), Arc::clone(&is_over));
        following.spawn(async move {
            let (mut redirects, mut slowest) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let started = std::time::Instant::now();
                let redirect = caller.call(Method::GET, process.url("/r/k"), &Value::Null);
                let (status, _) = timeout(PROMPT, redirect).await.expect("no redirect waits").unwrap();
                assert_eq!(status, StatusCode::FOUND);
                slowest = slowest.max(started.elapsed());
                redirects += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (redirects, slowest)
        });
    }
    let mut wanted = 0;
    for restart in 0..=restarts {
        wanted = made.load(Ordering::Relaxed).max(wanted) + links;
        let enough = async {
            while made.load(Ordering::Relaxed) < wanted {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), enough).await.expect("links are made again");
        if restart < restarts {
            server.restart().await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut ids: BTreeSet<String> = creating.join_all().await.into_iter().flatten().collect();
    ids.insert(link["id"].as_str().unwrap().to_owned());
    let (redirects, slowest) = following
        .join_all()
        .await
        .into_iter()
        .fold((1, Duration::ZERO), |(all, slowest), (redirects, took)| (all + redirects, slowest.max(took)));

    for id in &ids {
        caller.json(Method::GET, process.url(&format!("/links/{id}")), &Value::Null).await.unwrap();
    }
    let counted = async {
        let analytics = process.url("/analytics?interval=all");
        while caller.json(Method::GET, analytics.clone(), &Value::Null).await.unwrap()["clicks"] != redirects
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), counted).await.expect("each redirect is counted, and once");
    let mut unheard = ids.clone();
    while !unheard.is_empty() {
        unheard.remove(receiver.next().await.json()["data"]["id"].as_str().unwrap());
    }
    Loaded { links: ids.len(), redirects, slowest }
}
