//! Requests in flight: ten of a key are at the upstream at once, never eleven, and each gives its place back once, however its stream ends.

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use filter::event::Event;
use serde_json::{Value, json};
use tests::envoy::{Envoy, Setup};
use tests::exchange::get;
use tests::policy::Policy;
use tests::{clock, envoy, flood, soak};

mod simulator;

const KEY: &str = "key-0";
const LIMIT: usize = 10;
const WORKERS: usize = 4;

fn policy(quotas: Value) -> Policy {
    Policy::contract()
        .unwrap()
        .with("plans", json!({"pro": {}}))
        .with_at("/plans/pro/standard", quotas)
        .with("classes", json!([]))
        .with("usage_path", json!("/quota"))
        .subscriber("acme", "pro", KEY)
}

fn ten_in_flight() -> Policy {
    policy(json!([{"in_flight": LIMIT, "longest": "5m"}]))
}

/// An upstream that counts the requests that it works on.
struct Upstream {
    address: SocketAddr,
    works: Arc<Works>,
}

#[derive(Default)]
struct Works {
    at_once: AtomicUsize,
    most: AtomicUsize,
    /// The queries of the requests that have come.
    seen: Mutex<HashSet<String>>,
    /// Whether `/hold` is answered.
    answers: Mutex<bool>,
    changed: Condvar,
}

/// A request at the upstream.
struct AtWork<'w>(&'w Works);

impl AtWork<'_> {
    fn begin<'w>(works: &'w Works, query: &str) -> AtWork<'w> {
        works.most.fetch_max(works.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        works.seen.lock().unwrap().insert(query.to_owned());
        AtWork(works)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Upstream {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, works) = (listener.local_addr().unwrap(), Arc::new(Works::default()));
        let shared = Arc::clone(&works);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let works = Arc::clone(&shared);
                // What breaks off is a case of its own.
                std::thread::spawn(move || while serve(&stream, &works).is_ok_and(|goes_on| goes_on) {});
            }
        });
        Self { address, works }
    }

    fn has_seen(&self, query: &str) -> bool {
        self.works.seen.lock().unwrap().contains(query)
    }

    /// Whether requests for `/hold` are answered from now on.
    fn answer(&self, answers: bool) {
        *self.works.answers.lock().unwrap() = answers;
        self.works.changed.notify_all();
    }
}

/// Serves a request, by its path. Whether its connection serves another.
fn serve(mut stream: &TcpStream, works: &Works) -> std::io::Result<bool> {
    let target = target(&head(stream)?);
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let at_work = AtWork::begin(works, query);
    let (status, more) = match path {
        "/work" => {
            clock::pass(Duration::from_millis(query.parse().unwrap_or(0)));
            ("200 OK", "")
        }
        "/hold" => {
            let held = works.changed.wait_while(works.answers.lock().unwrap(), |answers| !*answers);
            drop(held);
            ("200 OK", "")
        }
        "/redirect" => ("302 Found", "location: http://api.example.test/end\r\n"),
        "/reset" => return Ok(false),
        "/half" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it")?;
            return Ok(false);
        }
        "/begin" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it")?;
            return Ok(stream.read(&mut [0])? > 0);
        }
        // Until Envoy gives up.
        "/hang" | "/hang/timeout" => return Ok(stream.read(&mut [0])? > 0),
        "/echo" | "/greet" => {
            stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
            )?;
            let mut byte = [0];
            if stream.read(&mut byte)? > 0 {
                stream.write_all(&byte)?;
            }
            if path == "/echo" {
                stream.read_exact(&mut byte)?;
            }
            return Ok(false);
        }
        _ => ("200 OK", ""),
    };
    drop(at_work);
    stream.write_all(format!("HTTP/1.1 {status}\r\n{more}content-length: 0\r\n\r\n").as_bytes())?;
    Ok(true)
}

/// What comes up to an empty line.
fn head(mut stream: &TcpStream) -> std::io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The second word of a head: a request's target, or the status of a response.
fn target(head: &str) -> String {
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client reads a whole answer of this status.
    Answered(u16),
    /// The answer breaks off.
    BreaksOff,
    /// The client goes once the upstream has its request.
    Leaves,
    /// The client goes in the middle of the answer.
    LeavesMidway,
    /// The client sends a byte over the upgraded connection, gets it back and goes.
    ClosesUpgraded,
    /// The same, but the upstream goes.
    UpstreamClosesUpgraded,
}

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\n";

/// Ways of streams: what they are, path, more headers, end.
const WAYS: [(&str, &str, &str, End); 12] = [
    ("ends", "/end", "", End::Answered(200)),
    ("is reset by the upstream", "/reset", "", End::Answered(503)),
    ("is reset by the upstream midway", "/half", "", End::BreaksOff),
    ("is reset by the client", "/hang", "", End::Leaves),
    ("is reset by the client midway", "/begin", "", End::LeavesMidway),
    ("times out", "/hang/timeout", "", End::Answered(504)),
    ("is upgraded, the client closes", "/echo", UPGRADE, End::ClosesUpgraded),
    ("is upgraded, the upstream closes", "/greet", UPGRADE, End::UpstreamClosesUpgraded),
    ("is not upgraded", "/end", UPGRADE, End::Answered(200)),
    ("is answered by a filter before", "/end", "x-answered: before\r\n", End::Answered(418)),
    ("is answered by a filter behind", "/end", "x-answered: behind\r\n", End::Answered(421)),
    ("is redirected internally", "/redirect", "", End::Answered(200)),
];

/// Sends a request that goes this way. Whether it was admitted; it may come before the end of the one before it.
fn goes(envoy: &Envoy, upstream: &Upstream, number: usize) -> bool {
    let (name, path, headers, end) = WAYS[number % WAYS.len()];
    let mut stream = TcpStream::connect(envoy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request = format!(
        "GET {path}?{number} HTTP/1.1\r\nhost: api.example.test\r\nauthorization: Bearer {KEY}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    if end == End::Leaves {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        loop {
            if upstream.has_seen(&number.to_string()) {
                return true;
            }
            match stream.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                answered => {
                    answered.unwrap();
                    assert_eq!(target(&head(&stream).unwrap()), "429", "{name}");
                    return false;
                }
            }
        }
    }
    let answer = head(&stream).unwrap_or_else(|error| panic!("{name}: {error}"));
    let status = target(&answer);
    if status == "429" {
        return false;
    }
    let expected = match end {
        End::Answered(status) => status,
        End::ClosesUpgraded | End::UpstreamClosesUpgraded => 101,
        End::BreaksOff | End::Leaves | End::LeavesMidway => 200,
    };
    assert_eq!(status, expected.to_string(), "{name}: {answer}");
    match end {
        End::Answered(_) | End::Leaves | End::LeavesMidway => {}
        End::BreaksOff => drop(stream.read_to_end(&mut Vec::new())),
        End::ClosesUpgraded | End::UpstreamClosesUpgraded => {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            if end == End::UpstreamClosesUpgraded {
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{name}");
            }
        }
    }
    true
}

/// An Envoy with routes, upgrades and filters for all ways.
fn envoy_for(policy: Policy, upstream: &Upstream) -> Envoy {
    const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let answers = |name: &str, status: u16| {
        json!({
            "name": format!("answers-{name}"),
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
                "abort": {"http_status": status, "percentage": {"numerator": 100}},
                "headers": [{"name": "x-answered", "string_match": {"exact": name}}],
            },
        })
    };
    let route = |prefix: &str, field: &str, value: Value| json!({"match": {"prefix": prefix}, "route": {"cluster": "backend", field: value}});
    let setup = Setup::new(policy, envoy::Upstream::At(upstream.address)).workers(WORKERS);
    let amended = Envoy::start_amended(setup, |bootstrap, _| {
        let manager = bootstrap.pointer_mut(MANAGER).unwrap();
        manager["upgrade_configs"] = json!([{"upgrade_type": "websocket"}]);
        let filters = manager["http_filters"].as_array_mut().unwrap();
        filters.insert(filters.len() - 1, answers("behind", 421));
        filters.insert(0, answers("before", 418));
        let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes").unwrap();
        let routes = routes.as_array_mut().unwrap();
        routes.insert(0, route("/hang/timeout", "timeout", json!("0.05s")));
        routes.insert(0, route("/redirect", "internal_redirect_policy", json!({})));
        Ok(())
    });
    amended.unwrap()
}

/// Requests that may still begin, as the usage endpoint says.
fn left(envoy: &Envoy) -> u64 {
    let usage = envoy.send(&get("/quota").key(KEY)).unwrap().json().unwrap();
    usage
        .pointer("/classes/0/quotas/0/remaining")
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{usage}"))
}

/// Ten requests are at the upstream, and an eleventh is refused. Then all end.
fn assert_ten_again(envoy: &Envoy, upstream: &Upstream) {
    upstream.answer(false);
    std::thread::scope(|scope| {
        let held: Vec<_> = (0..LIMIT)
            .map(|_| scope.spawn(|| flood::send(envoy.address(), 1, [((), get("/hold").key(KEY))]).unwrap()))
            .collect();
        clock::eventually("ten requests at the upstream", Duration::from_secs(10), || {
            (upstream.works.at_once.load(Ordering::SeqCst) == LIMIT).then_some(())
        })
        .unwrap();
        let refused = envoy.send(&get("/hold").key(KEY)).unwrap();
        assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("1")), "{refused}");
        upstream.answer(true);
        for held in held {
            assert_eq!(held.join().unwrap(), BTreeMap::from([(((), 200), 1)]));
        }
    });
    assert_all_free(envoy);
}

/// All places are free within a second of the last stream's end.
fn assert_all_free(envoy: &Envoy) {
    clock::eventually("no request in flight", Duration::from_secs(1), || {
        (left(envoy) == LIMIT as u64).then_some(())
    })
    .unwrap();
}

#[test]
fn while_nobody_leaves_ten_requests_are_at_the_upstream_and_never_eleven() {
    const REQUESTS: usize = 4_000;
    let upstream = Upstream::start();
    let envoy = envoy_for(ten_in_flight(), &upstream);
    let requests = (0..REQUESTS).map(|number| ((), get(format!("/work?{}", number * 7 % 13)).key(KEY)));
    let counts = flood::send(envoy.address(), 32, requests).unwrap();
    let [admitted, refused] = [200, 429].map(|status| counts.get(&((), status)).copied().unwrap_or(0));
    assert_eq!(admitted + refused, REQUESTS, "{counts:?}");
    assert!(admitted > LIMIT && refused > 0, "{counts:?}");
    assert_eq!(upstream.works.most.load(Ordering::SeqCst), LIMIT, "{counts:?}");
    assert_ten_again(&envoy, &upstream);
    let connections = envoy.connections_by_worker().unwrap();
    assert!(connections.len() == WORKERS && !connections.contains(&0), "{connections:?}");
}

/// So many streams, which take all ways in turn.
fn streams_end_in_every_way(streams: usize) {
    let upstream = Upstream::start();
    let envoy = envoy_for(ten_in_flight(), &upstream);
    let next = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..LIMIT {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= streams {
                        return;
                    }
                    while !goes(&envoy, &upstream, number) {
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_all_free(&envoy);
    assert_ten_again(&envoy, &upstream);
    let unsettled = envoy.stat(&format!("wasmcustom.{}", Event::CostUnsettled.metric())).unwrap();
    assert_eq!(unsettled, 0);
    soak::row(
        "places of requests in flight are given back in Envoy",
        format_args!("{streams} streams, {} ways to end, {WORKERS} workers", WAYS.len()),
        format_args!(
            "all free within 1 s of the last, then ten again; {refused:?} came too early and were refused"
        ),
    );
}

#[test]
fn a_thousand_streams_that_end_in_every_way_give_their_places_back() {
    streams_end_in_every_way(1_000);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn ten_thousand_streams_that_end_in_every_way_give_their_places_back() {
    streams_end_in_every_way(10_000);
}
