//! The customer who sends the largest requests that are legal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::Method;
use backend::{Click, Clock, Store};
use bytes::Bytes;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Interval, interval, timeout};

use crate::database::Database;
use crate::process::{Caller, Process, make_key};
use crate::receiver::Silent;

/// Pause between two analytics queries of the hostile customer, which has the same plan.
const QUERY_PACE: Duration = Duration::from_millis(125);

/// Size of a body that is sent slowly, in bytes. All of them leave room for the other bodies of the hostile customer.
const SLOW_BODY: usize = 1_000_000;

/// Values of a list in a query, of a length that the URL has room for.
fn values(count: usize, length: usize) -> String {
    let values: Vec<String> = (0..count).map(|n| format!("{n:x<length$}")).collect();
    values.join(",")
}

/// Numbers of answers that the hostile customer has got, by status.
pub(super) type Answers = BTreeMap<u16, usize>;
type Queries = tokio::sync::Mutex<Interval>;

/// The customer that sends the largest legal requests.
#[derive(Clone)]
pub(super) struct Hostile {
    caller: Caller,
    key: String,
    server: String,
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    /// Ticks when the quota permits another analytics query.
    queries: Arc<Queries>,
    begun: watch::Sender<bool>,
}

/// How much of everything the hostile customer does.
#[derive(Clone, Copy, Deserialize, Serialize)]
pub(super) struct Scale {
    /// Clicks that its links have already, on each of two.
    pub(super) clicks: i64,
    /// Connections on which it sends each kind of request.
    pub(super) connections: usize,
    /// Connections on which it sends nothing.
    pub(super) idle: usize,
}

/// What the hostile customer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Attack {
    Bulk,
    Lists,
    /// HEAD of the same lists, and writes without a body.
    Bodiless,
    Analytics,
    Events,
    Clicks,
    Images,
    SlowBodies,
    OddBytes,
    Idle,
    Deletion,
}

impl Attack {
    pub(super) const ALL: [Self; 11] = [
        Self::Bulk,
        Self::Lists,
        Self::Bodiless,
        Self::Analytics,
        Self::Events,
        Self::Clicks,
        Self::Images,
        Self::SlowBodies,
        Self::OddBytes,
        Self::Idle,
        Self::Deletion,
    ];
}

/// Names of as many tags as a link may have, so long that a bulk call of the largest links fits into a body.
fn longest_tags() -> Vec<String> {
    (0..100).map(|n| format!("{n:x<150}")).collect()
}

/// A link of 64 KiB with as many tags as it may have.
fn largest_link(id: &str) -> Value {
    let tags = longest_tags();
    json!({
        "url": format!("https://example.com/{}", "u".repeat(31_900)), "comments": "c".repeat(32_000),
        "title": "t".repeat(1_000), "externalId": id, "tagNames": tags,
    })
}

/// Makes what the hostile customer has when it begins.
pub(super) async fn prepare(process: &Process, key: String, database: &Database, scale: Scale) {
    let caller = Caller::new(key);
    for name in longest_tags() {
        caller.json(Method::POST, process.url("/tags"), &json!({"name": name})).await.unwrap();
    }
    let mut ids = Vec::new();
    for key in ["clicked", "doomed"] {
        let mut link = largest_link(key);
        link["key"] = json!(key);
        let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
        ids.push(link["id"].as_str().unwrap().to_owned());
    }
    let store = Store::open_or_create(&database.url).await.unwrap();
    let now = Clock::system().now();
    for id in &ids {
        let click = |n: i64| {
            let mut click = Click::new(id.clone(), now - SignedDuration::from_secs(n));
            click.details.referer_url = format!("https://referer.example/{n}").into();
            click
        };
        for first in (0..scale.clicks).step_by(10_000) {
            let clicks: Vec<Click> = (first..scale.clicks.min(first + 10_000)).map(click).collect();
            assert_eq!(store.record_clicks(&clicks).await.unwrap(), clicks.len());
        }
    }
    store.close().await;
    // After the clicks, so that they hear of those to come.
    let receiver = Silent::start().await;
    for n in 0..20 {
        let webhook = json!({
            "name": "rx", "url": format!("{}{n}", receiver.url()),
            "triggers": ["link.created", "link.updated", "link.deleted", "link.clicked"],
        });
        caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
    }
}

/// Calls that make, change and delete as many of the largest links as a call takes.
fn bulk_calls(connection: usize) -> Vec<(Method, String, Bytes)> {
    let ids: Vec<String> = (0..100).map(|n| format!("bulk-{connection}-{n}")).collect();
    let links: Value = ids.iter().map(|id| largest_link(id)).collect();
    let data = json!({"comments": "d".repeat(32_000), "archived": true});
    let change = json!({"externalIds": ids, "data": data});
    let named: Vec<String> = ids.iter().map(|id| format!("ext_{id}")).collect();
    let path = "/links/bulk".to_owned();
    let deletion = format!("{path}?linkIds={}", named.join(","));
    vec![
        (Method::POST, path.clone(), links.to_string().into()),
        (Method::PATCH, path, change.to_string().into()),
        (Method::DELETE, deletion, Bytes::new()),
    ]
}

impl Hostile {
    pub(super) fn new(address: SocketAddr, key: String) -> Self {
        Self {
            caller: Caller::new(key.clone()),
            key,
            server: format!("http://{address}"),
            address,
            answers: Arc::default(),
            queries: Arc::new(Queries::new(interval(QUERY_PACE))),
            begun: watch::Sender::new(false),
        }
    }

    /// Begins the attacks that are prepared.
    pub(super) fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// The answers until now.
    pub(super) fn answers(&self) -> Answers {
        self.answers.lock().unwrap().clone()
    }

    async fn send(&self, method: Method, path: &str, body: &Bytes) {
        let status = self.caller.status(method, format!("{}{path}", self.server), body.clone()).await;
        self.count(status.map_or(0, |status| status.as_u16()));
    }

    fn count(&self, status: u16) {
        *self.answers.lock().unwrap().entry(status).or_default() += 1;
    }

    async fn get(&self, path: &str) {
        if ["/analytics", "/events"].iter().any(|start| path.starts_with(start)) {
            self.queries.lock().await.tick().await;
        }
        self.send(Method::GET, path, &Bytes::new()).await;
    }

    /// Prepares an attack, which goes on from the beginning until the runtime ends.
    pub(super) fn prepare(&self, attack: Attack, scale: Scale) {
        let connections = match attack {
            Attack::Idle => scale.idle,
            Attack::SlowBodies => 8 * scale.connections,
            Attack::Deletion => 1,
            // Each costs the hostile customer little.
            Attack::Bodiless => 4 * scale.connections,
            _ => scale.connections,
        };
        for connection in 0..connections {
            let (hostile, mut begun) = (self.clone(), self.begun.subscribe());
            let calls = if attack == Attack::Bulk { bulk_calls(connection) } else { Vec::new() };
            tokio::spawn(async move {
                begun.wait_for(|begun| *begun).await.unwrap();
                match attack {
                    Attack::Bulk => hostile.repeat(&calls).await,
                    Attack::Lists => hostile.lists().await,
                    Attack::Bodiless => hostile.bodiless().await,
                    Attack::Analytics => hostile.analytics().await,
                    Attack::Events => {
                        hostile.ask_for(&["/events?limit=1000", "/events?limit=1000&page=2"]).await;
                    }
                    Attack::Clicks => hostile.clicks().await,
                    Attack::Images => {
                        hostile.ask_for(&[&format!("/qr?size=4096&url={}", "x".repeat(2_953))]).await;
                    }
                    Attack::SlowBodies => hostile.slow_body().await,
                    Attack::OddBytes => hostile.odd_bytes().await,
                    Attack::Idle => {
                        let _stream = TcpStream::connect(hostile.address).await.unwrap();
                        std::future::pending::<()>().await;
                    }
                    Attack::Deletion => {
                        hostile.send(Method::DELETE, "/links/ext_doomed", &Bytes::new()).await;
                    }
                }
            });
        }
    }

    async fn ask_for(&self, paths: &[&str]) {
        loop {
            for path in paths {
                self.get(path).await;
            }
        }
    }

    async fn repeat(&self, calls: &[(Method, String, Bytes)]) {
        loop {
            for (method, path, body) in calls {
                self.send(method.clone(), path, body).await;
            }
        }
    }

    async fn lists(&self) {
        let search = "u".repeat(254);
        self.ask_for(&[
            "/links?pageSize=100&showArchived=true",
            &format!("/links?pageSize=100&showArchived=true&search={search}u"),
            &format!("/links/count?showArchived=true&search={search}x"),
            &format!("/links?linkIds={}", values(1_000, 60)),
            &format!("/links/count?tagNames={}", values(1_000, 60)),
            "/links/count?showArchived=true&groupBy=tagId",
        ])
        .await;
    }

    async fn bodiless(&self) {
        loop {
            for path in
                ["/links?pageSize=100&showArchived=true", "/links/count?showArchived=true&groupBy=tagId"]
            {
                self.send(Method::HEAD, path, &Bytes::new()).await;
            }
            self.send(Method::POST, "/webhooks/wh_x/deliveries/evt_x/replay", &Bytes::new()).await;
        }
    }

    async fn analytics(&self) {
        let addresses = values(1_000, 42);
        let addresses: Vec<String> = addresses.split(',').map(|value| format!("app://{value}")).collect();
        self.ask_for(&[
            "/analytics?groupBy=referer_urls&interval=all",
            "/analytics?groupBy=timeseries&start=99+years+ago",
            &format!(
                "/analytics?groupBy=referer_urls&interval=all&refererUrl=-{}",
                addresses.join("&refererUrl=")
            ),
        ])
        .await;
    }

    /// Follows a link with parameters that go into the destination, as many as a URL has room for, and without any.
    async fn clicks(&self) {
        let long = "p".repeat(60_000);
        for number in 0.. {
            self.get("/r/clicked").await;
            self.get("/r/clicked?qr=1").await;
            self.get("/r/clicked").await;
            // A new one each time, so that none is kept in place of another.
            self.get(&format!("/r/clicked?{number}{long}")).await;
        }
    }

    /// Sends the headers of a request and then a byte of its body now and then.
    async fn slow_body(&self) {
        let head = format!(
            "POST /links/bulk HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer {}\r\ncontent-length: {SLOW_BODY}\r\n\r\n[",
            self.key
        );
        loop {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            loop {
                match timeout(Duration::from_millis(500), status(&mut stream)).await {
                    // The answer is that it took too long.
                    Ok(Some(status)) => {
                        self.count(status);
                        break;
                    }
                    Err(_) if stream.write_all(b" ").await.is_ok() => {}
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }

    /// Sends what is not HTTP, or is and makes no sense. Only other answers than it is meant to get are counted.
    async fn odd_bytes(&self) {
        loop {
            for (request, expected) in odd_requests(&self.key) {
                if let Ok(Some(status)) = timeout(Duration::from_millis(100), self.send_raw(&request)).await
                    && status != expected
                {
                    self.count(status);
                }
            }
        }
    }

    /// Sends bytes on a new connection. None if it was closed without an answer.
    async fn send_raw(&self, request: &[u8]) -> Option<u16> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.ok()?;
        status(&mut stream).await
    }
}

/// What is not HTTP, or is and makes no sense, and the status of the answer.
fn odd_requests(key: &str) -> [(Vec<u8>, u16); 7] {
    let with_key = |line: &str, rest: &[u8]| {
        let head = format!("{line} HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer {key}\r\n");
        [head.as_bytes(), rest].concat()
    };
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400),
        (with_key("GET /links?search=%ff%00%c3%28", b"\r\n"), 422),
        (with_key("POST /links", b"content-length: 4\r\n\r\n\xff\xfe\x00{"), 400),
        (
            b"GET /r/%f0%9f%92%a9%e2%80%ae HTTP/1.1\r\nhost: \xff\r\nuser-agent: \xf0\x28\x8c\xbc\r\n\r\n"
                .to_vec(),
            404,
        ),
        (b"GET /links HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer \xc3\x28\r\n\r\n".to_vec(), 401),
        (with_key("POST /links", b"transfer-encoding: chunked\r\n\r\nzz\r\n"), 400),
        (with_key("POST /links", b"transfer-encoding: chunked\r\n\r\n2\r\n[[\r\n0\r\n\r\n"), 400),
    ]
}

/// The status of the answer on a connection. None if it is closed before.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).await.ok()?;
    std::str::from_utf8(&line).ok()?.strip_prefix("HTTP/1.1 ")?.parse().ok()
}

#[tokio::test]
async fn slow_bodies_are_read_until_they_take_too_long() {
    let database = Database::sqlite();
    let key = make_key(&database.url);
    let process = Process::start_with(&database.url, &["--request-timeout", "1"]);
    let hostile = Hostile::new(process.address(), key);
    hostile.prepare(Attack::SlowBodies, Scale { clicks: 0, connections: 1, idle: 0 });
    hostile.begin();
    let answered = async {
        while hostile.answers().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), answered).await.unwrap();
    assert_eq!(hostile.answers().into_keys().collect::<Vec<_>>(), [408]);
}

#[tokio::test]
async fn odd_bytes_are_read_as_far_as_they_make_sense() {
    let database = Database::sqlite();
    let key = make_key(&database.url);
    let process = Process::start(&database.url);
    let hostile = Hostile::new(process.address(), key.clone());
    for (request, expected) in odd_requests(&key) {
        let answer = timeout(Duration::from_secs(60), hostile.send_raw(&request)).await.unwrap();
        assert_eq!(answer, Some(expected), "{}", request.escape_ascii());
    }
}
