//! `host-sim explain`

mod decision;

use std::{
    fs,
    io::Read as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use clap::{Args, ValueEnum};
use host_sim::{Clock, Host, LogLevel, LogLine, Outcome, Request, Response, VmName};
use host_sim_cli::replay::Fields;

use self::decision::Decision;
use super::{Error, Filter, load, print, print_beside};

/// Time before the request, in which the filter can call clusters, for example for a list of keys.
const BEFORE: Duration = Duration::from_secs(1);

/// Explains why the filter decides a request as it does
///
/// Sends one request through the filter and prints the decision that the filter itself logs at debug level: for Weir the
/// source of the key, the subscriber, the plan, the class, each quota and the answer, and never the key. --method, --path
/// and --header describe the request, or --line reads it from an access log. Counters start empty: --repeat sends the
/// request several times and explains the last one. A configuration that is an object with the field plans, as Weir's is,
/// gets "log_decisions": true, because Weir logs no decisions without it. Exit code 0 if the decision is explained, 1 if the
/// filter fails or logs no decision, 2 if the filter or the request cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim explain --wasm filter.wasm --config envoy.yaml --path /links --header 'authorization: Bearer k'
  host-sim explain --wasm filter.wasm --config wasmplugin.yaml --path /links --repeat 61 --source 192.0.2.1
  host-sim explain --wasm filter.wasm --config envoy.yaml --path /links --cluster backend-internal=keys.json
  tail -1 access.log | host-sim explain --wasm filter.wasm --config envoy.yaml --line - --header authorization=authorization

Another filter is explained as well if it logs, at debug level, the word decision and a JSON object.")]
pub(super) struct Explain {
    #[command(flatten)]
    filter: Filter,
    /// The request's method
    #[arg(long, default_value = "GET", conflicts_with = "line")]
    method: String,
    /// The request's path, with its query
    #[arg(long, default_value = "/", conflicts_with = "line")]
    path: String,
    /// A header of the request, NAME:VALUE; with --line a header and the field that it was logged as, NAME=FIELD; may be
    /// repeated
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "line")]
    source: Option<String>,
    /// A line of Envoy's JSON access log, in place of method, path and address; - reads it from standard input
    #[arg(long, value_name = "JSON")]
    line: Option<String>,
    /// Number of times that the request is sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// What a cluster answers to the filter's calls: the body, in a file; may be repeated
    #[arg(long = "cluster", value_name = "NAME=FILE", value_parser = cluster)]
    clusters: Vec<(String, PathBuf)>,
    /// The form of the explanation
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The form of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object: what the filter logs, and the answer
    Json,
}

fn cluster(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE, as in backend=keys.json")?;
    Ok((name.to_owned(), file.into()))
}

/// The name and the value of `--header`, or the name and the field of the access log that has the value.
fn split<'h>(header: &'h str, at: char, expected: &str) -> Result<(&'h str, &'h str), Error> {
    let parts = header.split_once(at).map(|(name, value)| (name.trim(), value.trim()));
    parts.ok_or_else(|| Error::Failed(format!("--header {header:?}: expected {expected}")))
}

impl Explain {
    pub(super) fn run(self) -> Result<(), Error> {
        let mut chain = self.filter.chain()?;
        for (_, plugin) in &mut chain {
            if let Some(configuration) = logging_decisions(&plugin.configuration) {
                plugin.configuration = configuration.into();
            }
        }
        let (request, status, at) = self.request()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (host, sink) = (self.host(at)?, Arc::clone(&lines));
        let mut host = host.on_log(move |line| keep(&sink, line)).build();
        load(&mut host, &chain).map_err(|error| Error::Missed(error.to_string()))?;
        // A filter may call clusters from its timer.
        host.advance(BEFORE);
        lines_of(&lines).iter().filter(|line| line.level >= LogLevel::Warn).for_each(print_beside);
        let mut outcome = None;
        for _ in 0..self.repeat {
            lines_of(&lines).clear();
            let sent = host.send_and_wait(request.clone(), |_| Response::new(status));
            outcome = Some(sent);
        }
        let Some(outcome) = outcome else { return Err(Error::Failed("no request was sent".to_owned())) };
        let lines = lines_of(&lines).clone();
        self.explain(&host, &lines, &outcome)
    }

    /// The request, the status that the upstream answers, and the wall-clock time of the request: that of `--line`, or the present.
    fn request(&self) -> Result<(Request, u16, Duration), Error> {
        let Some(line) = &self.line else {
            let mut request = Request::new(self.method.clone(), self.path.clone());
            if let Some(source) = &self.source {
                request = request.source(source.clone());
            }
            for header in &self.headers {
                let (name, value) = split(header, ':', "NAME:VALUE, as in 'authorization: Bearer k'")?;
                request = request.header(name.to_owned(), value.to_owned());
            }
            return Ok((request, 200, Clock::real().wall()));
        };
        let mut fields = Fields::default();
        for header in &self.headers {
            let (name, field) = split(header, '=', "NAME=FIELD, as in authorization=authorization")?;
            fields = fields.header(name, field);
        }
        let mut text = line.clone();
        if line == "-" {
            text.clear();
            std::io::stdin().read_to_string(&mut text).map_err(|error| Error::failed(&error))?;
        }
        let entry = fields.read(text.as_bytes()).map_err(|error| Error::failed(&error).about("--line"))?;
        let time = Duration::try_from(entry.time.duration_since(jiff::Timestamp::UNIX_EPOCH));
        let time = time.map_err(|_| Error::Failed(format!("--line: {} is before 1970", entry.time)))?;
        Ok((entry.request, entry.status, time))
    }

    fn host(&self, at: Duration) -> Result<host_sim::Builder, Error> {
        let clock = Clock::at(UNIX_EPOCH + at.saturating_sub(BEFORE));
        let mut builder = self.filter.builder()?.clock(clock).log_level(LogLevel::Debug);
        for (name, path) in &self.clusters {
            let body =
                fs::read(path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
            let answer = Response::ok().body(body);
            builder = builder.cluster(name.clone(), move |_| answer.clone());
        }
        Ok(builder)
    }

    fn explain(&self, host: &Host, lines: &[LogLine], outcome: &Outcome) -> Result<(), Error> {
        let guest: Vec<_> = lines.iter().filter(|line| !line.by_host).collect();
        let decisions: Vec<_> = guest.iter().filter_map(|line| Decision::read(&line.message)).collect();
        lines.iter().filter(|line| line.by_host || line.level >= LogLevel::Warn).for_each(print_beside);
        if let Some(failure) = host.worker(0).vm_failure() {
            return Err(Error::Missed(failure.to_string()));
        }
        if decisions.is_empty() {
            guest.iter().for_each(print_beside);
            let answer = decision::answer(outcome);
            return Err(Error::Missed(format!("the filter logs no decision on this request: {answer}")));
        }
        match self.format {
            Format::Json => print(format_args!("{:#}", decision::json(&decisions, outcome))),
            Format::Text => {
                decisions.iter().for_each(print);
                print(format_args!("{:<14}{}", "answer", decision::answer(outcome)));
            }
        }
        Ok(())
    }
}

/// A configuration of Weir with `"log_decisions": true`; `None` for another filter's.
fn logging_decisions(configuration: &[u8]) -> Option<String> {
    let mut fields: serde_json::Map<_, _> = serde_json::from_slice(configuration).ok()?;
    fields.contains_key("plans").then(|| {
        fields.insert("log_decisions".to_owned(), true.into());
        serde_json::Value::Object(fields).to_string()
    })
}

/// Keeps a log line of the VM that serves the request.
fn keep(lines: &Mutex<Vec<LogLine>>, line: &LogLine) {
    if line.vm == VmName::Worker(0) {
        lines_of(lines).push(line.clone());
    }
}

fn lines_of(lines: &Mutex<Vec<LogLine>>) -> MutexGuard<'_, Vec<LogLine>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
