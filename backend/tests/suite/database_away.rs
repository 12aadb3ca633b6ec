//! A database that does not answer, or cannot be reached, and is back later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use backend::{Settings, WhenFull};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::Executor;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::database::{Database, OwnServer};
use crate::process::{Caller, Process, make_key};
use crate::receiver::Receiver;
use crate::service::{Service, settings};
use crate::soak::row;

/// Longer than a redirect may take while the database is away, and much less than a request may.
const PROMPT: Duration = Duration::from_secs(5);

/// Much less than a request may take, and than connections wait for a database that does not answer.
const DEADLINE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing gets through, and nobody is told.
    Stalled,
    /// Connections break, and no other is made.
    Cut,
}

/// The way to a PostgreSQL.
struct Proxy(watch::Sender<Way>);

impl Proxy {
    async fn to(database: &Database) -> (Self, Database) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (through, server) = database.through(port);
        let (way, state) = watch::channel(Way::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *state.borrow() == Way::Cut {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(carry(from_client, to_server, state.clone()));
                tokio::spawn(carry(from_server, to_client, state.clone()));
            }
        });
        (Self(way), through)
    }

    fn set(&self, way: Way) {
        self.0.send_replace(way);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: watch::Receiver<Way>) {
    let mut bytes = vec![0; 1 << 16];
    let mut until_cut = way.clone();
    let carrying = async {
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            if way.wait_for(|way| *way != Way::Stalled).await.is_err()
                || to.write_all(&bytes[..read]).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        () = carrying => {}
        _ = until_cut.wait_for(|way| *way == Way::Cut) => {}
    }
}

async fn follow(service: &Service, key: &str) -> (StatusCode, bool) {
    let request = Request::get(format!("/r/{key}")).header("user-agent", "curl/8");
    let answer = timeout(PROMPT, service.send(request.body(Body::empty()).unwrap())).await;
    let answer = answer.unwrap_or_else(|_| panic!("{key} is not answered"));
    (answer.status, answer.headers.contains_key("retry-after"))
}

#[tokio::test]
async fn known_links_lead_on_while_the_database_is_away_and_their_clicks_wait_in_the_spool() {
    let folder = TempDir::new().unwrap();
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let settings = Settings { max_stale: Duration::from_secs(600), ..settings() };
    let service = Service::spooling(database, Some(folder.path().join("spool")), settings).await;
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
        // Held for longer than a click is without a spool.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{way:?}");
        for _ in 0..50 {
            assert_eq!(follow(&service, "unseen").await, (StatusCode::SERVICE_UNAVAILABLE, true), "{way:?}");
        }
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
async fn requests_are_refused_at_once_while_the_database_is_away() {
    let folder = TempDir::new().unwrap();
    let (proxy, database) = Proxy::to(&Database::postgres().await).await;
    let service = Service::spooling(database, Some(folder.path().join("spool")), settings()).await;
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
        for times in [1, 100] {
            let requests =
                table.iter().cycle().take(times * table.len()).map(async |(method, path, body)| {
                    let answer = service.call_as(service.key(), method.clone(), path, body.as_ref()).await;
                    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{way:?}: {method} {path}");
                    assert!(answer.headers.contains_key("retry-after"), "{way:?}: {method} {path}");
                });
            timeout(DEADLINE, join_all(requests)).await.expect("requests wait");
        }
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

#[tokio::test]
async fn a_database_that_is_only_busy_is_not_away() {
    let service = Service::start(Database::postgres().await).await;
    let mut administrator = Database::postgres().await.connect().await;
    service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let (_, name) = service.database().url.rsplit_once('/').unwrap();
    let mut busy = service.database().connect().await;
    //  waiting requests, whether the server accepts further connections: those that the first requests opened are enough
    for (requests, accepts) in [(12, true), (4, false)] {
        busy.execute(sqlx::raw_sql("BEGIN; LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")).await.unwrap();
        let accept = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {accepts}");
        administrator.execute(sqlx::AssertSqlSafe(accept)).await.unwrap();
        let waiting = join_all((0..requests).map(|_| service.get("/domains")));
        // Longer than a request waits before it makes the database suspected.
        let free = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            for _ in 0..50 {
                assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "{accepts}");
                assert_eq!(follow(&service, "unknown").await.0, StatusCode::NOT_FOUND, "{accepts}");
            }
            busy.execute("ROLLBACK").await.unwrap();
        };
        let (answers, ()) = tokio::join!(waiting, free);
        assert!(answers.iter().all(|answer| answer.status == StatusCode::OK), "{accepts}: {answers:?}");
    }
}

#[tokio::test]
async fn what_is_spooled_is_recorded_by_the_next_process_and_once() {
    let folder = TempDir::new().unwrap();
    let database = Database::postgres().await;
    let spool = Some(folder.path().join("spool"));
    let mut service = Service::spooling(database, spool, settings()).await;
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
async fn clicks_without_room_wait_or_are_dropped_as_the_operator_says() {
    for when_full in [WhenFull::Wait, WhenFull::Drop] {
        let (proxy, database) = Proxy::to(&Database::postgres().await).await;
        let settings = Settings { when_full, ..settings() };
        let service = Service::spooling(database, None, settings).await;
        service.link(&json!({"url": "https://example.com", "key": "k"})).await;
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND);
        service.backend.flush_clicks().await;
        proxy.set(Way::Stalled);
        assert_eq!(follow(&service, "k").await.0, StatusCode::FOUND, "a first click is held");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let waits = timeout(Duration::from_secs(1), service.follow(Method::GET, "/r/k", "curl/8")).await;
        assert_eq!(waits.is_err(), when_full == WhenFull::Wait, "{when_full:?}");
        let metrics = service.metrics().await;
        let dropped = metrics.contains(r#"clicks_total{outcome="dropped"} 1"#);
        assert_eq!(dropped, when_full == WhenFull::Drop, "{metrics}");
        // The alert on a database that is away looks for this.
        let counted = ["weir_backend_outbox_deliveries{", "weir_backend_set_aside_entries{"];
        assert!(counted.iter().all(|counted| !metrics.contains(counted)), "{metrics}");
        proxy.set(Way::Open);
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
    let folder = TempDir::new().unwrap();
    let spool = folder.path().join("spool");
    let caller = Caller::new(make_key(&database.url));
    let process = Arc::new(Process::start_with(&database.url, &["--spool", spool.to_str().unwrap()]));
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
