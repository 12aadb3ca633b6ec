//! `weir serve`: the filter in front of an upstream.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use demo::artifacts::filter_wasm;
use demo::client::Client;
use demo::clock::eventually;
use demo::exchange::{Answer, get};
use demo::policy::hash;
use demo::process::Process;
use demo::server::{Response, Server};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::weir_in;

const KEY: &str = "a-key-that-is-not-printed";

/// What a start or a change may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn answer(status: u16) -> Response {
    http::Response::builder().status(status).body(Full::new(Bytes::from_static(b"[]"))).unwrap()
}

/// `weir serve` in front of an upstream of this process.
struct Serving {
    process: Process,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    client: Client,
    /// Number of requests that were waited for.
    sent: AtomicU32,
    _upstream: Server,
}

impl Serving {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::before(Server::start(|_| answer(200)).unwrap(), folder, arguments)
    }

    fn before(upstream: Server, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["serve", "limits.json", "--listen", "127.0.0.1:0", "--workers", "1"])
            .args(["--upstream", &format!("http://{}", upstream.address()), "--wasm"])
            .arg(filter_wasm())
            .args(arguments)
            .env("KEYS_TOKEN", "token")
            .current_dir(folder);
        let process = Process::start("weir", &mut command).unwrap();
        let started = |line: &str| line.strip_prefix("serving http://")?.split_once(',')?.0.parse().ok();
        let address = process.wait_for(started).unwrap();
        let has_admin = !arguments.contains(&"off");
        let admin = |line: &str| line.strip_prefix("admin on http://")?.parse().ok();
        let admin = has_admin.then(|| process.wait_for(admin).unwrap());
        Self {
            process,
            address,
            admin,
            client: Client::to(address).unwrap(),
            sent: AtomicU32::new(0),
            _upstream: upstream,
        }
    }

    fn send(&self, path: &str) -> Answer {
        self.client.send(&get(path).key(KEY)).unwrap()
    }

    fn says(&self, text: &str) {
        self.process.wait_for(|line| line.contains(text).then_some(())).unwrap();
    }

    /// Asks until it is a subscriber that asks, and returns the last line.
    fn line_of(&self, subscriber: &str) -> String {
        let asked = || {
            let path = format!(" /{} ", self.sent.fetch_add(1, Ordering::Relaxed));
            assert_eq!(self.send(path.trim()).status(), 200);
            let line = self.process.wait_for(|line| line.contains(&path).then(|| line.to_owned())).unwrap();
            line.contains(&format!(" {subscriber} ")).then_some(line)
        };
        eventually(subscriber, PATIENCE, asked).unwrap()
    }

    fn interrupt(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    fn ends(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

fn folder(configuration: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "limits.json", configuration);
    folder
}

fn write(folder: &tempfile::TempDir, name: &str, text: &Value) {
    fs::write(folder.path().join(name), text.to_string()).unwrap();
}

fn limits(limit: &str) -> Value {
    let subscriber = json!({"id": "acme", "plan": "free", "keys": [hash(KEY)]});
    json!({"plans": {"free": {"standard": [limit]}}, "subscribers": [subscriber], "exempt": [{"path": "/health"}]})
}

/// The columns of the lines that are decisions, without the time.
fn columns(lines: &[String]) -> Vec<Vec<&str>> {
    let columns = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.filter(|columns| columns.get(1) == Some(&"GET")).map(|columns| columns[1..].to_vec()).collect()
}

#[test]
fn each_decision_is_a_line() {
    let folder = folder(&limits("2/hour"));
    let serving = Serving::start(folder.path(), &["--admin", "127.0.0.1:0"]);
    for (path, status) in [("/links?page=1", 200), ("/links", 200), ("/links", 429), ("/health", 200)] {
        assert_eq!(serving.send(path).status(), status, "{path}");
    }
    serving.client.send(&get("/unknown")).unwrap();
    serving.says("/unknown");
    let lines = serving.process.output().lines();
    let expected: [&[&str]; 5] = [
        &["GET", "/links", "200", "acme", "free", "standard", "1/2"],
        &["GET", "/links", "200", "acme", "free", "standard", "0/2"],
        &["GET", "/links", "429", "acme", "free", "standard", "0/2", "limited"],
        &["GET", "/health", "200", "-", "-", "standard", "-", "exempt"],
        &["GET", "/unknown", "200", "-", "-", "standard"],
    ];
    let found = columns(&lines);
    assert_eq!(found.len(), expected.len(), "{lines:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
    assert!(!lines.iter().any(|line| line.contains(KEY)), "{lines:#?}");
    let admin = Client::to(serving.admin.unwrap()).unwrap();
    for path in ["/ready", "/stats", "/requests"] {
        assert_eq!(admin.send(&get(path)).unwrap().status(), 200, "{path}");
    }
}

#[test]
fn the_page_of_requests_has_each_decision_and_is_filtered_by_subscriber_and_outcome() {
    let folder = folder(&limits("2/hour"));
    let serving = Serving::start(folder.path(), &["--admin", "127.0.0.1:0"]);
    for path in ["/a", "/b", "/c"] {
        serving.send(path);
    }
    serving.client.send(&get("/unknown")).unwrap();
    serving.says("/unknown");
    let admin = Client::to(serving.admin.unwrap()).unwrap();
    let page = |query: &str| {
        let answer = admin.send(&get(format!("/requests{query}"))).unwrap();
        String::from_utf8_lossy(answer.body()).into_owned()
    };
    let cells =
        ["acme", "free", "standard", "0/2", "limited"].map(|cell| format!("<em>{cell}</em>")).concat();
    let all = page("");
    assert!(all.contains(&cells) && all.contains("<time>"), "{all}");
    //  query, paths that are shown, the latest first
    let rows: [(&str, &[&str]); 5] = [
        ("", &["/unknown", "/c", "/b", "/a"]),
        ("?subscriber=acme&outcome=", &["/c", "/b", "/a"]),
        ("?subscriber=acme&outcome=limited", &["/c"]),
        ("?outcome=%61llowed", &["/b", "/a"]),
        ("?subscriber=other", &[]),
    ];
    for (query, paths) in rows {
        let page = page(query);
        let shown: Vec<_> =
            page.split("<span>GET ").skip(1).filter_map(|rest| rest.split('<').next()).collect();
        assert_eq!(shown, paths, "{query}");
        assert!(page.contains("<label>subscriber <input name=\"subscriber\""), "{page}");
    }
}

#[test]
fn each_decision_is_an_object_where_that_is_asked_for() {
    let folder = folder(&limits("2/hour"));
    let serving = Serving::start(folder.path(), &["--admin", "off", "--format", "json"]);
    assert_eq!(serving.admin, None);
    serving.send("/links?page=1");
    let object = |line: &str| serde_json::from_str::<Value>(line).ok();
    let line = serving.process.wait_for(object).unwrap();
    for (name, value) in [
        ("method", json!("GET")),
        ("path", json!("/links")),
        ("status", json!(200)),
        ("subscriber", json!("acme")),
        ("outcomes", json!(["allowed"])),
        ("decision", json!("forwarded")),
    ] {
        assert_eq!(line[name], value, "{name} of {line}");
    }
    assert_eq!((&line["quotas"][0]["remaining"], &line["quotas"][0]["limit"]), (&json!(1), &json!(2)));
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
}

#[test]
fn a_changed_configuration_is_loaded_and_one_that_is_refused_is_not() {
    let folder = folder(&limits("2/hour"));
    let serving = Serving::start(folder.path(), &["--admin", "off"]);
    let limit = || serving.line_of("acme").trim_end().split('/').next_back().unwrap().to_owned();
    assert_eq!(limit(), "2");
    write(&folder, "limits.json", &limits("5/hour"));
    serving.says("limits.json reloaded");
    assert_eq!(limit(), "5");
    write(&folder, "limits.json", &limits("5/hours"));
    serving.says(": plans.free.standard[0]: \"5/hours\": unknown unit");
    assert_eq!(limit(), "5");
}

#[test]
fn the_keys_of_a_file_are_those_of_the_directory() {
    let mut configuration = limits("1000000/hour");
    configuration["subscribers"] = json!([]);
    configuration["directory"] = json!({"cluster": "keys", "path": "/all", "bearer": {"env": "KEYS_TOKEN"}, "interval": "1s", "not_ready": "pass"});
    let keys = |subscriber: &str| {
        let hash = hash(KEY);
        let sha256 = hash.strip_prefix("sha256:").unwrap();
        json!({"keys": [{"sha256": sha256, "subscriber": subscriber, "plan": "free"}]})
    };
    let folder = folder(&configuration);
    write(&folder, "keys.json", &keys("first"));
    let serving = Serving::start(folder.path(), &["--admin", "off", "--keys", "keys.json"]);
    serving.says("keys.json: 1 keys, as /all of cluster \"keys\"");
    serving.line_of("first");

    fs::write(folder.path().join("keys.json"), "{}").unwrap();
    serving.says("Reload failed; still using the previous keys: keys.json: answered a malformed document: 2 bytes arrived");
    write(&folder, "keys.json", &keys("second"));
    serving.line_of("second");

    // Another path, another token: both ends know it.
    configuration["directory"]["path"] = json!("/moved");
    configuration["directory"]["bearer"] = json!("another");
    write(&folder, "limits.json", &configuration);
    serving.says("as /moved of cluster");
    write(&folder, "keys.json", &keys("third"));
    serving.line_of("third");
}

#[test]
fn an_interrupt_lets_requests_in_progress_end() {
    let folder = folder(&limits("2/hour"));
    let ((came, arrives), (go_on, waits)) = (mpsc::channel(), mpsc::channel::<()>());
    let (came, waits) = (Mutex::new(came), Arc::new(Mutex::new(waits)));
    let upstream = Server::start(move |_| {
        came.lock().unwrap().send(()).unwrap();
        waits.lock().unwrap().recv().unwrap();
        answer(200)
    });
    let serving = Serving::before(upstream.unwrap(), folder.path(), &["--admin", "off"]);
    let address = serving.address;
    let request = thread::spawn(move || Client::to(address).unwrap().send(&get("/slow").key(KEY)).unwrap());
    arrives.recv_timeout(PATIENCE).unwrap();
    serving.interrupt();
    serving.says("stopping after the requests in progress");
    go_on.send(()).unwrap();
    assert_eq!(request.join().unwrap().status(), 200);
    serving.says(" /slow ");
    assert!(serving.ends().success());
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let folder = folder(&limits("1000000/hour"));
    let upstream = Server::start(|_| answer(200)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "limits.json", "--listen", "127.0.0.1:0", "--admin", "off", "--workers", "1"])
        .args(["--upstream", &format!("http://{}", upstream.address()), "--wasm"])
        .arg(filter_wasm())
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = said.find_map(|line| line.strip_prefix("serving http://")?.split_once(',')?.0.parse().ok());
    let client = Client::to(address.unwrap()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    client.send(&get("/seen").key(KEY)).unwrap();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains(" /seen "), "{line}");
    drop(lines);
    assert_eq!(client.send(&get("/unseen").key(KEY)).unwrap().status(), 200);
    let ended = eventually("its end", PATIENCE, || child.try_wait().unwrap());
    if ended.is_err() {
        child.kill().unwrap();
    }
    assert_eq!((ended.unwrap().code(), said.collect::<Vec<_>>()), (Some(0), Vec::<String>::new()));
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = folder(&limits("2/hour"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let wasm = filter_wasm().to_str().unwrap();
    let taken = taken.to_string();
    //  options, a part of what is said
    let rows: [(&[&str], &str); 7] = [
        (&["--upstream", "https://api.test"], "https://api.test/: expected http://host:port"),
        (&["--upstream", "127.0.0.1:3000"], "127.0.0.1:3000: expected http://host:port"),
        (&["--upstream", "http://127.0.0.1:1", "--listen", &taken], "cannot listen on "),
        (&["--upstream", "http://127.0.0.1:1", "--admin", "on"], "nor \"off\""),
        (&["--upstream", "http://127.0.0.1:1", "--cluster", "backend"], "expected NAME=URL"),
        (
            &["--upstream", "http://127.0.0.1:1", "--keys", "limits.json"],
            "the configuration has no directory",
        ),
        (&[], "--upstream <URL>"),
    ];
    for (options, said) in rows {
        let usual = ["serve", "limits.json", "--wasm", wasm];
        let listen = ["--listen", "127.0.0.1:0"].into_iter().filter(|_| !options.contains(&"--listen"));
        let admin = ["--admin", "off"].into_iter().filter(|_| !options.contains(&"--admin"));
        let arguments: Vec<_> =
            usual.into_iter().chain(options.iter().copied()).chain(listen).chain(admin).collect();
        let (code, out, err) = weir_in(folder.path(), &arguments, "");
        assert_eq!((code, out.as_str()), (2, ""), "{options:?}: {err}");
        assert!(err.contains(said), "{options:?}: {err}");
    }
    drop(holder);
}
