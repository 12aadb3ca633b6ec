//! A backend in a process of its own, and a client of it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;

/// Much more than a process takes until it listens.
const TO_LISTEN: Duration = Duration::from_secs(120);

/// A visitor that counts.
pub(crate) const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

/// The process; killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    address: String,
    internal: String,
    /// Where the click log is with PostgreSQL, if no option says so. It is gone with the process.
    _click_log: TempDir,
}

impl Process {
    pub(crate) fn start(database: &str) -> Self {
        Self::start_with(database, &[])
    }

    pub(crate) fn start_with(database: &str, options: &[&str]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_backend")), database, options)
    }

    /// Starts one in an environment that `prepare` sets.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_prepared(database: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backend"));
        prepare(&mut command);
        Self::run(command, database, &[])
    }

    /// Starts one by a command whose last argument is the program.
    pub(crate) fn run(mut command: Command, database: &str, options: &[&str]) -> Self {
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"])
            .args(["--allow-private-webhooks", "--database", database])
            .args(options)
            // Only errors are written, but requests cost what they do with the default setting.
            .env("RUST_LOG", "error,backend::http::scope=info");
        Self::start_as_it_is(command)
    }

    /// Starts one by a whole command.
    pub(crate) fn start_as_it_is(mut command: Command) -> Self {
        let click_log = TempDir::new().unwrap();
        let is_given = |argument: &OsStr| {
            argument == "--click-log" || argument.as_encoded_bytes().starts_with(b"sqlite:")
        };
        if !command.get_args().any(is_given) {
            command.arg("--click-log").arg(click_log.path().join("clicks"));
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process =
            Self { child, address: String::new(), internal: String::new(), _click_log: click_log };
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let address = |prefix: &str| {
            let line = lines.recv_timeout(TO_LISTEN).expect("the process listens");
            line.strip_prefix(prefix).unwrap().to_owned()
        };
        process.address = address("listening on ");
        process.internal = address("internal on ");
        process
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
    }

    /// The exit code, once the process has ended by itself. None if it was killed.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// An address of the operators' listener.
    pub(crate) fn internal_url(&self, path: &str) -> String {
        format!("{}{path}", self.internal)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Memory of its own, in bytes: without what of the database's file is mapped, which is the system's to take back.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory(&self) -> u64 {
        self.number("status", "RssAnon:") * 1024
    }

    /// The most memory that it ever had, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn peak_memory(&self) -> u64 {
        self.number("status", "VmHWM:") * 1024
    }

    /// What it has written to files and connections, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn written(&self) -> u64 {
        self.number("io", "wchar:")
    }

    /// A number that the system has of it.
    #[cfg(target_os = "linux")]
    fn number(&self, file: &str, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The database in a folder.
pub(crate) fn database_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("test.db").display())
}

/// Creates the tables of an empty database.
pub(crate) fn migrate(database: &str) {
    let arguments = ["migrate", "--database", database];
    assert!(Command::new(env!("CARGO_BIN_EXE_backend")).args(arguments).status().unwrap().success());
}

/// Makes a key of a new workspace.
pub(crate) fn make_key(database: &str) -> String {
    migrate(database);
    let made = Command::new(env!("CARGO_BIN_EXE_backend"))
        .args(["keys", "create", "--plan", "pro", "--json", "--database", database])
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

/// Requests with a key, over connections that are kept.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client<HttpConnector, Full<Bytes>>,
    key: String,
}

impl Caller {
    pub(crate) fn new(key: String) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), key }
    }

    /// The status and the JSON of an answer; None if the process was gone before it had answered.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: String,
        body: &Value,
    ) -> Option<(StatusCode, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(method, url, body.into()).await?;
        let status = response.status();
        let bytes = Body::new(response.into_body()).collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    /// The status of an answer that is read to its end and thrown away; None if it broke off.
    pub(crate) async fn status(&self, method: Method, url: String, body: Bytes) -> Option<StatusCode> {
        let response = self.send(method, url, body).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.ok()?;
        }
        Some(status)
    }

    /// The answer, whose body is read later; None if the process was gone before it had answered.
    pub(crate) async fn send(&self, method: Method, url: String, body: Bytes) -> Option<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("authorization", format!("Bearer {}", self.key))
            .header("user-agent", BROWSER);
        self.client.request(request.body(Full::from(body)).unwrap()).await.ok()
    }

    /// Follows a short link by way of proxies that wrote `X-Forwarded-For`. None if the process was gone before it had answered.
    pub(crate) async fn visit(&self, url: String, forwarded: Option<&str>) -> Option<StatusCode> {
        let mut request = Request::get(url).header("user-agent", BROWSER);
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        Some(self.client.request(request.body(Full::default()).unwrap()).await.ok()?.status())
    }

    /// The text of an answer; None if the process was gone before it had answered.
    pub(crate) async fn text(&self, url: String) -> Option<String> {
        let request = Request::get(url).body(Full::default()).unwrap();
        let response = self.client.request(request).await.ok()?;
        let bytes = Body::new(response.into_body()).collect().await.ok()?.to_bytes();
        Some(String::from_utf8(bytes.into()).unwrap())
    }

    /// The JSON of a successful answer; None if the process was gone before it had answered.
    pub(crate) async fn json(&self, method: Method, url: String, body: &Value) -> Option<Value> {
        let (status, body) = self.call(method, url, body).await?;
        assert!(status.is_success(), "{status} {body}");
        Some(body)
    }
}

/// Returns once exactly this number of clicks is counted. Until then, the database may be away.
pub(crate) async fn counted(caller: &Caller, process: &Process, clicks: u64) {
    let counted = async || {
        caller.call(Method::GET, process.url("/analytics"), &Value::Null).await.unwrap().1["clicks"].as_u64()
    };
    let all = async {
        while counted().await != Some(clicks) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("all clicks are counted");
}
