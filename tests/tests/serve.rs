//! `host-sim serve` beside Envoy: the same filter, the same upstream, one run.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tests::artifacts;
use tests::client::Connection;
use tests::differential::{self, Upstream};
use tests::envoy::{self, Envoy, Setup};
use tests::exchange::{Request, get};
use tests::flood;
use tests::policy::Policy;
use tests::process::Process;
use tests::soak;

const CONNECTIONS: usize = 16;
const KEY: &str = "load";

/// The contract, with a key that may ask as often as it likes.
fn policy() -> Policy {
    let policy = Policy::contract().expect("the contract");
    let quota = serde_json::json!({"standard": ["4000000000/month"]});
    policy.with_at("/plans/unlimited", quota).subscriber("load", "unlimited", KEY)
}

fn upstream() -> Upstream {
    let scenario = differential::scenario("{upstream: {headers: {x-upstream: 'yes'}}, steps: []}");
    Upstream::start(&scenario.expect("a scenario").upstream).expect("an upstream")
}

fn request() -> Request {
    get("/links/abc").key(KEY)
}

/// A gateway that was started with `host-sim serve`.
struct Serve {
    process: Process,
    address: SocketAddr,
}

impl Serve {
    fn start(policy: &Policy, upstream: SocketAddr, workers: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("policy.json");
        std::fs::write(&config, policy.to_string()).expect("the policy's file");
        let process = Process::start(
            "host-sim",
            Command::new(artifacts::command("host-sim"))
                .arg("serve")
                .arg("--wasm")
                .arg(artifacts::filter_wasm())
                .arg("--config")
                .arg(&config)
                .args(["--listen", "127.0.0.1:0", "--workers", &workers.to_string()])
                .args(["--upstream", &format!("http://{upstream}")]),
        )
        .expect("host-sim starts");
        let address = process
            .wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())
            .expect("host-sim serves");
        Self { process, address }
    }

    /// Asks it to end, as an operator does.
    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

/// Requests answered by a gateway in a second, and CPU microseconds of its process for each.
#[derive(Debug, Clone, Copy)]
struct Pace {
    per_second: f64,
    cpu: Option<f64>,
}

/// User and system time of a process, where the system tells (proc_pid_stat(5), fields 14 and 15, in hundredths).
fn cpu_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Some(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>().ok()?))
}

/// Sends requests over sixteen busy connections; every one of them must be answered 200.
#[expect(clippy::disallowed_methods, reason = "the pace is told, not judged")]
fn load(process: u32, address: SocketAddr, requests: usize) -> Pace {
    let before = cpu_time(process);
    let started = std::time::Instant::now();
    let counts = flood::send(address, CONNECTIONS, (0..requests).map(|_| ((), request())));
    let took = started.elapsed().as_secs_f64();
    let spent = cpu_time(process).zip(before).map(|(after, before)| after - before);
    assert_eq!(counts.expect("answers"), [(((), 200), requests)].into());
    let requests = requests as f64;
    Pace { per_second: requests / took, cpu: spent.map(|spent| spent.as_secs_f64() * 1e6 / requests) }
}

/// Loads both gateways in turn, and returns each one's best pace.
fn race(requests: usize, rounds: usize) -> (Pace, Pace) {
    let upstream = upstream();
    let serve = Serve::start(&policy(), upstream.address(), 1);
    let envoy = Envoy::start(Setup::new(policy(), envoy::Upstream::At(upstream.address())).workers(1))
        .expect("Envoy serves");
    let mut paces = Vec::new();
    for _ in 0..rounds {
        let of_serve = load(serve.process.id(), serve.address, requests);
        paces.push((of_serve, load(envoy.id(), envoy.address(), requests)));
    }
    let best = |paces: &mut dyn Iterator<Item = Pace>| {
        paces.max_by(|one, other| one.per_second.total_cmp(&other.per_second)).expect("a round")
    };
    let serve = best(&mut paces.iter().map(|(serve, _)| *serve));
    (serve, best(&mut paces.iter().map(|(_, envoy)| *envoy)))
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} requests/s", self.per_second)?;
        self.cpu.map_or(Ok(()), |cpu| write!(f, " at {cpu:.1} µs of CPU each"))
    }
}

/// Asks again and again until it is told that the connection closes. It is owed every answer till then.
async fn ask_until_closed(address: SocketAddr, answered: Arc<AtomicUsize>) {
    let post = Request::new(Method::POST, "/links").key(KEY).json(&serde_json::json!({"a": 1}));
    let mut connection = Connection::to(address);
    loop {
        let answer = connection.send(&post).await.expect("an answer to every request");
        assert_eq!(answer.status(), 200, "{answer}");
        answered.fetch_add(1, Ordering::Relaxed);
        if answer.header("connection") == Some("close") {
            return;
        }
    }
}

#[test]
fn answers_every_request_under_load_as_envoy_does() {
    race(4000, 1);
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn pace_beside_envoy() {
    const REQUESTS: usize = 40_000;
    const ROUNDS: usize = 5;
    let (serve, envoy) = race(REQUESTS, ROUNDS);
    soak::row(
        "host-sim serve beside Envoy",
        format_args!("{REQUESTS} requests, one worker each, best of {ROUNDS} rounds"),
        format_args!("{serve}, Envoy {envoy}: {:.2} ×", serve.per_second / envoy.per_second),
    );
}

#[test]
fn no_request_is_lost_when_it_is_terminated_under_load() {
    let upstream = upstream();
    let mut serve = Serve::start(&policy(), upstream.address(), 2);
    let answered = Arc::new(AtomicUsize::new(0));
    let address = serve.address;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            clients.spawn(ask_until_closed(address, Arc::clone(&answered)));
        }
        // All of them are under way when the signal comes.
        while answered.load(Ordering::Relaxed) < 50 * CONNECTIONS {
            tokio::task::yield_now().await;
        }
        serve.terminate();
        while let Some(client) = clients.join_next().await {
            client.expect("no client misses an answer");
        }
    });
    let status = serve.process.wait().expect("its status");
    assert!(status.success(), "it ended with {status}");
    println!("{} requests, each answered", answered.load(Ordering::Relaxed));
}
