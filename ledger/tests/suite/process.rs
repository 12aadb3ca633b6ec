//! A `weir-ledger` process, and a client for it.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::store::until;

/// The process; killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    address: String,
    metrics: Option<String>,
    client: Client<HttpConnector, Full<Bytes>>,
    log: NamedTempFile,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Process {
    /// One that is ready.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let process = Self::start_unready(options);
        until("the ledger is ready", async || process.get("/readyz").await.status == StatusCode::OK).await;
        process
    }

    pub(crate) fn start_unready(options: &[&str]) -> Self {
        Self::start_with(options, |_| {})
    }

    /// One that is not ready yet, whose command is prepared.
    pub(crate) fn start_with(options: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let (mut process, stdout) = Self::spawn(options, prepare);
        let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
        lines.next().unwrap().strip_prefix("listening on ").unwrap().clone_into(&mut process.address);
        if options.contains(&"--metrics-listen") {
            process.metrics = Some(lines.next().unwrap().strip_prefix("metrics on ").unwrap().to_owned());
        }
        process
    }

    /// One that ends by itself, and what it logged.
    pub(crate) async fn fail(options: &[&str]) -> (ExitStatus, String) {
        let (mut process, _stdout) = Self::spawn(options, |_| {});
        (process.ended().await, process.log())
    }

    fn spawn(options: &[&str], prepare: impl FnOnce(&mut Command)) -> (Self, ChildStdout) {
        let log = NamedTempFile::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-ledger"));
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .env("RUST_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        // The service closes connections that are idle for longer.
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(10))
            .build_http();
        (Self { child, address: String::new(), metrics: None, client, log }, stdout)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", &format!("{}{path}", self.address), &[], "").await
    }

    pub(crate) async fn get_metrics(&self) -> Answer {
        let address = self.metrics.as_ref().unwrap_or(&self.address);
        self.ask("GET", &format!("{address}/metrics"), &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], &body.to_string()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.ask(method, &format!("{}{path}", self.address), headers, body).await
    }

    async fn ask(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.try_ask(method, url, headers, body).await.unwrap()
    }

    /// The answer to statements, or nothing if the ledger has gone.
    pub(crate) async fn try_post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.try_ask("POST", &format!("{}{path}", self.address), &[], &body.to_string()).await.ok()
    }

    async fn try_ask(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, Box<dyn Error>> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        self.address.strip_prefix("http://").unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
    }

    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        until("the ledger has ended", async || {
            status = child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
