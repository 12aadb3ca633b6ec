//! One customer sends the largest requests that are legal, as fast as they are answered, while another works as usual.
//!
//! The other customer's requests are all answered, and nothing that was acknowledged to it is lost. `make soak` also
//! judges how long they take, beside a time in which that customer is alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use backend::{Click, Clock, PublicUrl, Store};
use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, timeout};

use crate::database::{Database, on_both_databases};
use crate::process::{Caller, Process, make_key};
use crate::receiver::{Receiver, Silent};
use crate::soak::row;

on_both_databases! {
    another_customer_is_served_and_loses_nothing,
}

/// Most times that a request may take as long as without the hostile customer, at the 99th percentile.
const SLOWER: f64 = 5.0;
/// Pause between two requests of a kind by the customer who works as usual. With [`QUESTION_EVERY`], it uses up the quotas
/// of the plan `advanced`: 50 requests a second, and 8 about clicks.
const PACE: Duration = Duration::from_micros(62_500);
/// Rounds of requests with one question about clicks.
const QUESTION_EVERY: usize = 2;
/// Pause between two questions about clicks by the hostile customer, which has the same plan.
const QUESTION_PACE: Duration = Duration::from_millis(125);

/// What the customer who works as usual does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Follow,
    Read,
    Create,
    List,
    Analytics,
}

impl Action {
    const ALL: [Self; 5] = [Self::Follow, Self::Read, Self::Create, Self::List, Self::Analytics];
}

/// The customer who works as usual, with a webhook for what happens to its links.
struct Customer {
    caller: Caller,
    server: String,
    /// A link that is followed and read.
    link: String,
    receiver: Receiver,
}

/// What a customer did and how long it took.
#[derive(Default)]
struct Work {
    took: BTreeMap<Action, Vec<Duration>>,
    /// Ids of the links whose creation was acknowledged.
    created: BTreeSet<String>,
    clicks: usize,
}

impl Customer {
    async fn new(process: &Process, key: String) -> Self {
        let caller = Caller::new(key);
        let receiver = Receiver::start().await;
        let webhook = json!({
            "name": "rx", "url": receiver.url("/"), "triggers": ["link.created", "link.clicked"],
        });
        caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
        let link = json!({"url": "https://example.com/", "key": "usual"});
        let link = caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
        let link = link["id"].as_str().unwrap().to_owned();
        Self { caller, server: process.url(""), link, receiver }
    }

    /// Sends requests of each kind at a steady pace, whether or not earlier ones are answered, and waits for all answers.
    #[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
    async fn work(&self, time: Duration, work: &mut Work) {
        let mut under_way = JoinSet::new();
        let mut ticks = interval(PACE);
        let end = Instant::now() + time;
        for number in 0.. {
            ticks.tick().await;
            if Instant::now() >= end {
                break;
            }
            for action in Action::ALL {
                if action == Action::Analytics && number % QUESTION_EVERY != 0 {
                    continue;
                }
                let (method, path, body) = match action {
                    Action::Follow => (Method::GET, "/r/usual".to_owned(), Value::Null),
                    Action::Read => (Method::GET, format!("/links/{}", self.link), Value::Null),
                    Action::Create => {
                        let body = json!({"url": format!("https://example.com/{number}"), "title": "t"});
                        (Method::POST, "/links".to_owned(), body)
                    }
                    Action::List => (Method::GET, "/links?pageSize=10".to_owned(), Value::Null),
                    Action::Analytics => {
                        (Method::GET, "/analytics?groupBy=top_links".to_owned(), Value::Null)
                    }
                };
                let (caller, url) = (self.caller.clone(), format!("{}{path}", self.server));
                under_way.spawn(async move {
                    let sent = Instant::now();
                    let (status, body) = loop {
                        let answer = caller.call(method.clone(), url.clone(), &body).await;
                        let answer = answer.unwrap_or_else(|| panic!("{action:?} was not answered"));
                        // The only answer that asks a customer who keeps to its quotas to come back.
                        if (action, answer.0) != (Action::Analytics, StatusCode::SERVICE_UNAVAILABLE) {
                            break answer;
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    };
                    let expected = if action == Action::Follow { StatusCode::FOUND } else { StatusCode::OK };
                    assert_eq!(status, expected, "{action:?}: {body}");
                    (action, sent.elapsed(), body)
                });
            }
        }
        while let Some(answered) = under_way.join_next().await {
            let (action, took, body) = answered.unwrap();
            work.took.entry(action).or_default().push(took);
            match action {
                Action::Follow => work.clicks += 1,
                Action::Create => _ = work.created.insert(body["id"].as_str().unwrap().to_owned()),
                Action::Read | Action::List | Action::Analytics => {}
            }
        }
    }

    /// Looks for everything that was acknowledged.
    #[expect(clippy::disallowed_methods, reason = "a deadline for another process")]
    async fn assert_nothing_is_lost(&mut self, work: &Work) {
        let url = |path: &str| format!("{}{path}", self.server);
        for id in &work.created {
            let found = self.caller.json(Method::GET, url(&format!("/links/{id}")), &Value::Null).await;
            assert_eq!(found.unwrap()["id"], json!(id));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut counted = 0;
        while counted < work.clicks && Instant::now() < deadline {
            let answer = self.caller.json(Method::GET, url("/analytics?interval=all"), &Value::Null).await;
            counted = usize::try_from(answer.unwrap()["clicks"].as_u64().unwrap()).unwrap();
        }
        assert_eq!(counted, work.clicks, "clicks counted of those acknowledged");
        let mut created = work.created.clone();
        created.insert(self.link.clone());
        let mut clicks = BTreeSet::new();
        while !created.is_empty() || clicks.len() < work.clicks {
            let event = self.receiver.next().await.json();
            match event["event"].as_str().unwrap() {
                "link.created" => _ = created.remove(event["data"]["id"].as_str().unwrap()),
                "link.clicked" => _ = clicks.insert(event["id"].as_str().unwrap().to_owned()),
                other => panic!("nobody listens to {other}"),
            }
        }
        assert_eq!(clicks.len(), work.clicks, "events of clicks");
    }
}

/// Values of a list in a query, of a length that the URL has room for.
fn values(count: usize, length: usize) -> String {
    let values: Vec<String> = (0..count).map(|n| format!("{n:x<length$}")).collect();
    values.join(",")
}

/// Answers that the hostile customer has got, by status.
type Answers = Arc<Mutex<BTreeMap<u16, usize>>>;
type Questions = tokio::sync::Mutex<Interval>;

/// The customer that sends the largest legal requests.
#[derive(Clone)]
struct Hostile {
    caller: Caller,
    server: String,
    address: SocketAddr,
    answers: Answers,
    /// Tells when the quota has room for another question about clicks.
    questions: Arc<Questions>,
}

/// How much of everything the hostile customer does.
#[derive(Clone, Copy)]
struct Scale {
    /// Clicks that its links have already, on each of two.
    clicks: i64,
    /// Connections on which it sends each kind of request.
    connections: usize,
    /// Connections on which it sends nothing.
    idle: usize,
}

/// What the hostile customer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    Bulk,
    Lists,
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
    const ALL: [Self; 10] = [
        Self::Bulk,
        Self::Lists,
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

/// The longest names of as many tags as a link may have.
fn longest_tags() -> Vec<String> {
    (0..100).map(|n| format!("{n:x<255}")).collect()
}

/// A link of 64 KiB with as many tags as it may have.
fn largest_link(id: &str) -> Value {
    let tags = longest_tags();
    json!({
        "url": format!("https://example.com/{}", "u".repeat(31_900)), "comments": "c".repeat(32_000),
        "title": "t".repeat(1_000), "externalId": id, "tagNames": tags,
    })
}

impl Hostile {
    async fn new(process: &Process, key: String, database: &Database, scale: Scale) -> Self {
        let hostile = Self {
            caller: Caller::new(key),
            server: process.url(""),
            address: process.address(),
            answers: Answers::default(),
            questions: Arc::new(Questions::new(interval(QUESTION_PACE))),
        };
        for name in longest_tags() {
            hostile.caller.json(Method::POST, process.url("/tags"), &json!({"name": name})).await.unwrap();
        }
        let mut ids = Vec::new();
        for key in ["clicked", "doomed"] {
            let mut link = largest_link(key);
            link["key"] = json!(key);
            let link = hostile.caller.json(Method::POST, process.url("/links"), &link).await.unwrap();
            ids.push(link["id"].as_str().unwrap().to_owned());
        }
        let store = Store::open(&database.url).await.unwrap();
        let public = PublicUrl::parse(&process.url("")).unwrap();
        let now = Clock::system().now();
        for id in &ids {
            let click = |n: i64| {
                let mut click = Click::new(id.clone(), now - SignedDuration::from_secs(n));
                click.details.referer_url = format!("https://referer.example/{n}").into();
                click
            };
            for first in (0..scale.clicks).step_by(10_000) {
                let clicks: Vec<Click> = (first..scale.clicks.min(first + 10_000)).map(click).collect();
                assert_eq!(store.record_clicks(&clicks, &public).await.unwrap(), clicks.len());
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
            hostile.caller.json(Method::POST, process.url("/webhooks"), &webhook).await.unwrap();
        }
        hostile
    }

    async fn send(&self, method: Method, path: &str, body: &Bytes) {
        let status = self.caller.status(method, format!("{}{path}", self.server), body.clone()).await;
        let status = status.map_or(0, |status| status.as_u16());
        *self.answers.lock().unwrap().entry(status).or_default() += 1;
    }

    async fn get(&self, path: &str) {
        if ["/analytics", "/events"].iter().any(|start| path.starts_with(start)) {
            self.questions.lock().await.tick().await;
        }
        self.send(Method::GET, path, &Bytes::new()).await;
    }

    /// Begins an attack, which goes on until the set is dropped.
    fn begin(&self, attack: Attack, scale: Scale, attacks: &mut JoinSet<()>) {
        let connections = match attack {
            Attack::Idle => scale.idle,
            Attack::SlowBodies => 8 * scale.connections,
            Attack::Deletion => 1,
            _ => scale.connections,
        };
        for connection in 0..connections {
            let hostile = self.clone();
            attacks.spawn(async move {
                match attack {
                    Attack::Bulk => hostile.bulk(connection).await,
                    Attack::Lists => hostile.lists().await,
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

    /// Makes, changes and deletes as many of the largest links as a call takes.
    async fn bulk(&self, connection: usize) {
        let ids: Vec<String> = (0..100).map(|n| format!("bulk-{connection}-{n}")).collect();
        let links: Value = ids.iter().map(|id| largest_link(id)).collect();
        let creation = Bytes::from(links.to_string());
        let data = json!({"comments": "d".repeat(32_000), "archived": true});
        let change = Bytes::from(json!({"externalIds": ids, "data": data}).to_string());
        let named: Vec<String> = ids.iter().map(|id| format!("ext_{id}")).collect();
        let deletion = format!("/links/bulk?linkIds={}", named.join(","));
        loop {
            self.send(Method::POST, "/links/bulk", &creation).await;
            self.send(Method::PATCH, "/links/bulk", &change).await;
            self.send(Method::DELETE, &deletion, &Bytes::new()).await;
        }
    }

    async fn lists(&self) {
        let search = "u".repeat(999);
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

    async fn analytics(&self) {
        self.ask_for(&[
            "/analytics?groupBy=referer_urls&interval=all",
            "/analytics?groupBy=timeseries&start=99+years+ago",
            &format!("/analytics?groupBy=referer_urls&interval=all&refererUrl=-{}", values(1_000, 60)),
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
        loop {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let head = "POST /links/bulk HTTP/1.1\r\nhost: s.test\r\ncontent-length: 16000000\r\n\r\n[";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = [0; 1_024];
            // The answer is that it took too long.
            while timeout(Duration::from_millis(500), stream.read(&mut answer)).await.is_err()
                && stream.write_all(b" ").await.is_ok()
            {}
        }
    }

    /// Sends what is not HTTP, or is and makes no sense.
    async fn odd_bytes(&self) {
        let requests: [&[u8]; 6] = [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET /links?search=%ff%00%c3%28 HTTP/1.1\r\nhost: s.test\r\n\r\n",
            b"POST /links HTTP/1.1\r\nhost: s.test\r\ncontent-length: 4\r\n\r\n\xff\xfe\x00{",
            b"GET /r/%f0%9f%92%a9%e2%80%ae HTTP/1.1\r\nhost: \xff\r\nuser-agent: \xf0\x28\x8c\xbc\r\n\r\n",
            b"GET /links HTTP/1.1\r\nhost: s.test\r\nauthorization: Bearer \xc3\x28\r\n\r\n",
            b"POST /links HTTP/1.1\r\nhost: s.test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ];
        loop {
            for request in requests {
                let mut stream = TcpStream::connect(self.address).await.unwrap();
                let mut answer = [0; 1_024];
                if stream.write_all(request).await.is_ok() {
                    let _closed = timeout(Duration::from_millis(100), stream.read(&mut answer)).await;
                }
            }
        }
    }
}

/// The 99th percentile.
fn p99(took: &[Duration]) -> Duration {
    let mut took = took.to_vec();
    took.sort();
    took[took.len() * 99 / 100]
}

/// What the other customer's work took, alone and beside the hostile one.
struct Outcome {
    alone: Work,
    beside: Work,
    answers: BTreeMap<u16, usize>,
}

/// Lets one customer work alone, and then beside a hostile one, and looks for all that was acknowledged.
async fn run(
    database: Database,
    scale: Scale,
    attacks: &[Attack],
    time_alone: Duration,
    time_beside: Duration,
) -> Outcome {
    let usual_key = make_key(&database.url);
    let hostile_key = make_key(&database.url);
    let process = Process::start(&database.url);
    let mut customer = Customer::new(&process, usual_key).await;
    let hostile = Hostile::new(&process, hostile_key, &database, scale).await;

    let (mut alone, mut beside) = (Work::default(), Work::default());
    customer.work(time_alone, &mut alone).await;
    let mut attacking = JoinSet::new();
    for attack in attacks {
        hostile.begin(*attack, scale, &mut attacking);
    }
    customer.work(time_beside, &mut beside).await;
    drop(attacking);

    let mut all = Work { clicks: alone.clicks + beside.clicks, ..Work::default() };
    all.created = alone.created.union(&beside.created).cloned().collect();
    customer.assert_nothing_is_lost(&all).await;
    let answers = hostile.answers.lock().unwrap().clone();
    // Legal requests are answered, if only with a refusal; none is a failure of the service.
    let unexpected = answers.keys().filter(|status| ![200, 302, 408, 503].contains(*status));
    assert_eq!(unexpected.collect::<Vec<_>>(), Vec::<&u16>::new(), "{answers:?}");
    Outcome { alone, beside, answers }
}

async fn another_customer_is_served_and_loses_nothing(database: Database) {
    let scale = Scale { clicks: 2_000, connections: 1, idle: 50 };
    let outcome = run(database, scale, &Attack::ALL, Duration::from_secs(1), Duration::from_secs(4)).await;
    assert!(outcome.answers[&200] > 0 && outcome.answers[&302] > 0, "{:?}", outcome.answers);
}

/// Writes a row with the times of `actions`, and judges them.
fn judge(what: &str, form: &str, outcome: &Outcome, actions: &[Action]) {
    let mut figures = Vec::new();
    let mut worst = 0.0_f64;
    for action in actions {
        let (alone, beside) = (p99(&outcome.alone.took[action]), p99(&outcome.beside.took[action]));
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        worst = worst.max(ratio);
        figures.push(format!("{action:?} {alone:.1?} became {beside:.1?} ({ratio:.1} x)"));
    }
    row(what, form, format!("99th percentiles: {}; answers {:?}", figures.join(", "), outcome.answers));
    assert!(worst <= SLOWER, "{worst:.1} times as slow beside the hostile customer");
}

async fn a_minute_of_the_largest_requests(name: &str, database: Database) {
    const ALONE: Duration = Duration::from_secs(30);
    const BESIDE: Duration = Duration::from_secs(60);
    let scale = Scale { clicks: 200_000, connections: 4, idle: 500 };
    let outcome = run(database, scale, &Attack::ALL, ALONE, BESIDE).await;
    let form = format!("{name}, {} s alone and {} s beside the other", ALONE.as_secs(), BESIDE.as_secs());
    judge("a customer beside a hostile one", &form, &outcome, &Action::ALL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn another_customer_is_served_as_fast_on_sqlite() {
    a_minute_of_the_largest_requests("SQLite", Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn another_customer_is_served_as_fast_on_postgresql() {
    a_minute_of_the_largest_requests("PostgreSQL", Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of the long forms: make soak"]
async fn questions_about_clicks_and_a_deletion_stall_neither_authentication_nor_redirects() {
    const TIME: Duration = Duration::from_secs(30);
    let scale = Scale { clicks: 200_000, connections: 4, idle: 0 };
    let attacks = [Attack::Analytics, Attack::Events, Attack::Deletion];
    let outcome = run(Database::sqlite(), scale, &attacks, TIME, TIME).await;
    let form = format!("{} clicks deleted, {} s alone and as long beside it", scale.clicks, TIME.as_secs());
    judge("questions about clicks and a deletion", &form, &outcome, &[Action::Follow, Action::Read]);
}
