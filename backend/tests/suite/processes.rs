//! Several processes on one PostgreSQL, and a process that is killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use backend::Click;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::receiver::Receiver;
use crate::service::Service;

#[tokio::test]
async fn two_services_on_one_postgresql_deliver_each_event_once_and_count_every_click() {
    let database = Database::postgres().await;
    let first = Arc::new(Service::start(database.shared()).await);
    let second = Arc::new(first.beside(database).await);
    let mut receiver = Receiver::start().await;
    let body = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created", "link.clicked"]});
    assert_eq!(first.post("/webhooks", &body).await.status, StatusCode::CREATED);
    let mut ids = Vec::new();
    for n in 0..10 {
        let link =
            first.link(&json!({"url": format!("https://example.com/{n}"), "key": format!("k{n}")})).await;
        ids.push(link["id"].as_str().unwrap().to_owned());
    }
    // Both record clicks on the same links, in batches whose links come in opposite orders.
    let mut recording = JoinSet::new();
    for (service, reversed) in [(Arc::clone(&first), false), (Arc::clone(&second), true)] {
        let mut ids = ids.clone();
        if reversed {
            ids.reverse();
        }
        recording.spawn(async move {
            for _ in 0..10 {
                let clicks: Vec<Click> = ids.iter().map(|id| Click::new(id, service.now())).collect();
                service.backend.store().record_clicks(&clicks, service.backend.public_url()).await.unwrap();
            }
        });
    }
    while let Some(done) = recording.join_next().await {
        done.unwrap();
    }
    // What was written past the services is found when they look again.
    first.clock.advance(Duration::from_secs(1));
    second.clock.advance(Duration::from_secs(1));
    let mut seen = BTreeSet::new();
    for _ in 0..10 + 200 {
        let id = receiver.next().await.json()["id"].as_str().unwrap().to_owned();
        assert!(seen.insert(id), "an event came twice");
    }
    for service in [first, second] {
        assert_eq!(service.get("/analytics?start=1+hour+ago").await.body["clicks"], 200);
        assert_eq!(service.get("/analytics?groupBy=top_links").await.each("clicks"), vec![&json!(20); 10]);
        assert_eq!(service.get("/links").await.each("clicks"), vec![&json!(20); 10]);
        Arc::into_inner(service).unwrap().shut_down().await;
    }
    assert!(receiver.is_empty());
}

/// A backend in a process of its own.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(database: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_backend"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--internal-listen",
                "127.0.0.1:0",
                "--allow-private-webhooks",
            ])
            .args(["--database", database])
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
        assert!(lines.next().unwrap().starts_with("internal on "));
        Self { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

type HttpClient = Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>;

/// The JSON of a 2xx answer; None if the process was gone before it answered.
async fn call(client: &HttpClient, key: &str, method: Method, url: String, body: &Value) -> Option<Value> {
    let request = Request::builder().method(method).uri(url).header("authorization", format!("Bearer {key}"));
    let response = client.request(request.body(Full::from(body.to_string())).unwrap()).await.ok()?;
    assert!(response.status().is_success(), "{}", response.status());
    let bytes = Body::new(response.into_body()).collect().await.ok()?.to_bytes();
    serde_json::from_slice(&bytes).ok()
}

#[tokio::test]
async fn a_killed_process_loses_no_acknowledged_link_and_no_event() {
    const CREATIONS: usize = 400;
    const KILLED_AFTER: usize = 150;
    let folder = TempDir::new().unwrap();
    let database = format!("sqlite:{}", folder.path().join("test.db").display());
    let seeded = Command::new(env!("CARGO_BIN_EXE_backend"))
        .args(["keys", "create", "--plan", "pro", "--json", "--database", &database])
        .output()
        .unwrap();
    let seeded: Value = serde_json::from_slice(&seeded.stdout).unwrap();
    let key: Arc<str> = seeded["key"].as_str().unwrap().into();
    let client: HttpClient = Client::builder(TokioExecutor::new()).build_http();
    let mut receiver = Receiver::start().await;

    let process = Process::start(&database);
    let webhook = json!({"name": "rx", "url": receiver.url("/"), "triggers": ["link.created"]});
    call(&client, &key, Method::POST, format!("{}/webhooks", process.address), &webhook).await.unwrap();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(Notify::new());
    let mut creating = JoinSet::new();
    for worker in 0..8 {
        let (client, key, url) = (client.clone(), Arc::clone(&key), format!("{}/links", process.address));
        let (acknowledged, enough) = (Arc::clone(&acknowledged), Arc::clone(&enough));
        creating.spawn(async move {
            let mut ids = Vec::new();
            for n in (worker..CREATIONS).step_by(8) {
                let body = json!({"url": format!("https://example.com/{n}")});
                let Some(link) = call(&client, &key, Method::POST, url.clone(), &body).await else { break };
                ids.push(link["id"].as_str().unwrap().to_owned());
                if acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == KILLED_AFTER {
                    enough.notify_one();
                }
            }
            ids
        });
    }
    tokio::time::timeout(Duration::from_secs(60), enough.notified()).await.expect("links are made");
    drop(process);
    let mut ids = BTreeSet::new();
    while let Some(made) = creating.join_next().await {
        ids.extend(made.unwrap());
    }
    assert!((KILLED_AFTER..CREATIONS).contains(&ids.len()), "{} were acknowledged", ids.len());

    let process = Process::start(&database);
    for id in &ids {
        let url = format!("{}/links/{id}", process.address);
        assert!(call(&client, &key, Method::GET, url, &Value::Null).await.is_some(), "{id} is lost");
    }
    let mut unheard = ids;
    while !unheard.is_empty() {
        unheard.remove(receiver.next().await.json()["data"]["id"].as_str().unwrap());
    }
}
