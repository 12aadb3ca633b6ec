//! `host-sim serve` beside Envoy: the same filter, the same upstream, one run.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
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
    fn start(command: &Path, policy: &Policy, upstream: SocketAddr, workers: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("policy.json");
        std::fs::write(&config, policy.to_string()).expect("the policy's file");
        let process = Process::start(
            "host-sim",
            Command::new(command)
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

/// An Envoy with one worker and without an access log.
fn envoy(upstream: SocketAddr) -> Envoy {
    let setup = Setup::new(policy(), envoy::Upstream::At(upstream)).workers(1);
    let envoy = Envoy::start_amended(setup, |bootstrap, _| {
        let filter = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
        let manager = bootstrap.pointer_mut(filter).context("the connection manager")?;
        manager.as_object_mut().context("its fields")?.remove("access_log").context("an access log")?;
        Ok(())
    });
    envoy.expect("Envoy serves")
}

/// An nginx that answers each request itself.
struct Nginx {
    address: SocketAddr,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Nginx {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // nginx takes no port 0 for a free one.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let configuration = format!(
            "master_process off; daemon off; pid {}; error_log stderr notice; events {{}}
             http {{ access_log off; keepalive_requests 1000000000;
                     server {{ listen {address}; location / {{ add_header x-upstream yes; return 200 ok; }} }} }}",
            folder.path().join("pid").display()
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration).expect("its configuration");
        // Debian has it where only root's PATH leads.
        let name = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let process = Process::start("nginx", Command::new(name).args(["-e", "stderr", "-c"]).arg(file));
        let process = process.expect("nginx starts");
        // The last line before it serves. A worker of its own would outlive the process that is ended here.
        process
            .wait_for(|line| line.contains("getrlimit(RLIMIT_NOFILE)").then_some(()))
            .expect("nginx serves");
        Self { address, _process: process, _folder: folder }
    }
}

/// User and system time of a process (proc_pid_stat(5), fields 14 and 15, in hundredths).
fn cpu_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Some(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>().ok()?))
}

/// Has wrk keep sixteen connections busy for some seconds, and returns the CPU microseconds of the gateway's process for each
/// request; every one must be answered 200.
fn cpu_per_request(process: u32, address: SocketAddr) -> f64 {
    let before = cpu_time(process);
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &CONNECTIONS.to_string(), "--duration", "4s"])
        .args(["--header", &format!("authorization: Bearer {KEY}"), &format!("http://{address}/links/abc")])
        .output()
        .expect("wrk runs");
    let spent = cpu_time(process).zip(before).map(|(after, before)| after - before);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !said.contains("Non-2xx") && !said.contains("Socket errors"),
        "{said}"
    );
    let requests = said.split_once(" requests in").and_then(|(before, _)| before.split_whitespace().last());
    let requests = requests.and_then(|text| text.parse::<f64>().ok()).expect("what wrk counts");
    spent.expect("the process's time").as_secs_f64() * 1e6 / requests
}

/// Sends requests until an answer says that the connection closes. Each of them must be answered.
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
    const REQUESTS: usize = 4000;
    let upstream = upstream();
    let serve = Serve::start(artifacts::command("host-sim"), &policy(), upstream.address(), 1);
    let envoy = envoy(upstream.address());
    for address in [serve.address, envoy.address()] {
        let counts = flood::send(address, CONNECTIONS, (0..REQUESTS).map(|_| ((), request())));
        assert_eq!(counts.expect("answers"), [(((), 200), REQUESTS)].into());
    }
}

#[test]
#[ignore = "one of the long forms: make soak"]
fn cpu_time_beside_envoy() {
    /// The most that the simulator may take for a request, in Envoy's CPU time.
    const FACTOR: f64 = 2.0;
    const ROUNDS: usize = 5;
    let upstream = Nginx::start();
    let released = artifacts::released("host-sim-cli", "host-sim").expect("a release build");
    let serve = Serve::start(&released, &policy(), upstream.address, 1);
    let envoy = envoy(upstream.address);
    let (mut of_serve, mut of_envoy) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_serve.push(cpu_per_request(serve.process.id(), serve.address));
        of_envoy.push(cpu_per_request(envoy.id(), envoy.address()));
    }
    let median = |mut rounds: Vec<f64>| {
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    };
    let (serve, envoy) = (median(of_serve), median(of_envoy));
    let factor = serve / envoy;
    soak::row(
        "host-sim serve beside Envoy",
        format_args!("release builds, one worker each, wrk, median of {ROUNDS} rounds of 4 s"),
        format_args!("{serve:.1} µs of CPU for a request, Envoy {envoy:.1}: {factor:.2} ×"),
    );
    assert!(factor <= FACTOR, "{factor:.2} × Envoy's CPU time is more than {FACTOR}");
}

#[test]
fn no_request_is_lost_when_it_is_terminated_under_load() {
    let upstream = upstream();
    let mut serve = Serve::start(artifacts::command("host-sim"), &policy(), upstream.address(), 2);
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
