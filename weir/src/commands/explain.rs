//! `weir explain`

use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use host_sim::{Clock, End, Host, LogLevel, LogLine, Outcome, Request, Response, VmName};
use host_sim_cli::failure::Failure;
use serde_json::{Value, json};
use weir::replay::{Callers, Entry, Fields, Seen, Told, since_epoch};

use crate::decision::Decision;
use crate::filter::{Filter, Ready, not_loaded, said};
use crate::keys::Keys;
use crate::output::{Format, print, say};

/// Time before the request, in which the filter can fetch the keys of its directory.
const BEFORE: Duration = Duration::from_secs(1);

/// Explains why the filter decides a request as it does
///
/// Sends one request through the filter and prints its decision: the source of the key, the subscriber, the plan, the class,
/// each quota and the answer, and never the key. --method, --path and --header describe the request, or --line reads it from
/// an access log. Counters start empty: --repeat sends the request several times and explains the last one. Exit code 0 if the
/// decision is explained, 1 if the filter refuses the configuration or fails, 2 if a file or the request cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir explain limits.json --path /links --header 'authorization: Bearer k'
  weir explain wasmplugin.yaml --path /links --repeat 61 --source 192.0.2.1
  weir explain envoy.yaml --path /links --header 'authorization: Bearer k' --keys keys.json
  tail -1 access.log | weir explain envoy.yaml --line - --header authorization=authorization")]
pub(crate) struct Explain {
    /// The configuration: JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway
    file: PathBuf,
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
    /// A line of an access log, in place of method, path and address; - reads it from standard input
    #[arg(long, value_name = "LINE")]
    line: Option<String>,
    /// Number of times that the request is sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The form of the explanation
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The name and the value of `--header`, or the name and the field of the access log that has the value.
fn split<'h>(header: &'h str, at: char, expected: &str) -> Result<(&'h str, &'h str), Failure> {
    let parts = header.split_once(at).map(|(name, value)| (name.trim(), value.trim()));
    parts.ok_or_else(|| Failure::Unusable(format!("--header {header:?}: expected {expected}")))
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut ready = self.filter.ready(&self.file, true)?;
        let mut keys = self.filter.keys(&ready.config)?;
        let entry = self.line.as_deref().map(|line| self.entry(line)).transpose()?;
        let (request, status, at) = match &entry {
            Some(entry) => (known(entry, &mut ready, &mut keys), entry.status, since_epoch(entry.time)),
            None => (self.request()?, 200, Clock::real().wall()),
        };
        let mut host = self
            .filter
            .builder(&ready, keys.as_ref())
            .clock(Clock::at(UNIX_EPOCH + at.saturating_sub(BEFORE)))
            .log_level(LogLevel::Debug)
            .build();
        host.load(&ready.module, ready.plugin).map_err(not_loaded)?;
        // The filter polls its directory from its timer.
        host.advance(BEFORE);
        said(&host).iter().filter(|line| line.level >= LogLevel::Warn).for_each(say);
        let send = || {
            host.logs().take();
            host.send_and_wait(request.clone(), |_| Response::new(status))
        };
        for _ in 1..self.repeat {
            send();
        }
        let outcome = send();
        let told = entry.and_then(|entry| entry.told);
        self.explain(&host, &logged(&host), &outcome, told.as_ref())
    }

    /// The request that the arguments describe.
    fn request(&self) -> Result<Request, Failure> {
        let mut request = Request::new(self.method.clone(), self.path.clone());
        if let Some(source) = &self.source {
            request = request.source(source.clone());
        }
        for header in &self.headers {
            let (name, value) = split(header, ':', "NAME:VALUE, as in 'authorization: Bearer k'")?;
            request = request.header(name.to_owned(), value.to_owned());
        }
        Ok(request)
    }

    /// The request of a line of an access log.
    fn entry(&self, line: &str) -> Result<Entry, Failure> {
        let mut fields = Fields::default();
        for header in &self.headers {
            let (name, field) = split(header, '=', "NAME=FIELD, as in authorization=authorization")?;
            fields = fields.header(name, field);
        }
        let mut text = line.to_owned();
        if line == "-" {
            text.clear();
            std::io::stdin().read_to_string(&mut text)?;
        }
        fields.read(text.as_bytes()).map_err(|error| Failure::Unusable(format!("--line: {error}")))
    }

    fn explain(
        &self,
        host: &Host,
        lines: &[LogLine],
        outcome: &Outcome,
        told: Option<&Told>,
    ) -> Result<(), Failure> {
        let guest: Vec<_> = lines.iter().filter(|line| !line.by_host).collect();
        let decisions: Vec<_> = guest.iter().filter_map(|line| Decision::read(&line.message)).collect();
        lines.iter().filter(|line| line.by_host || line.level >= LogLevel::Warn).for_each(say);
        if let Some(failure) = host.worker(0).vm_failure() {
            return Err(Failure::Missed(failure.to_string()));
        }
        if decisions.is_empty() {
            guest.iter().for_each(say);
            let answer = answer(outcome);
            return Err(Failure::Missed(format!("the filter logs no decision on this request: {answer}")));
        }
        match self.format {
            Format::Json => print(format_args!("{:#}", as_json(&decisions, outcome, told))),
            Format::Text => {
                if let Some(told) = told {
                    print(format_args!("{:<14}{told}", "logged"))?;
                }
                decisions.iter().try_for_each(print)?;
                print(format_args!("{:<14}{}", "answer", answer(outcome)))?;
                match told {
                    Some(_) => print(
                        "The gateway decided what is logged; the rest is this request alone, sent to a filter with empty counters.",
                    ),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The request of a line, whose caller the filter then knows by what the line has of the key.
fn known(entry: &Entry, ready: &mut Ready, keys: &mut Option<Keys>) -> Request {
    // The filter takes it, so it is JSON.
    let configuration: Value = serde_json::from_slice(&ready.plugin.configuration).unwrap_or_default();
    let document = keys.as_ref().map(Keys::value);
    let callers = Callers::new(&ready.config, &configuration, document.as_ref());
    let seen = Seen::of(&callers, entry);
    ready.plugin.configuration = callers.known_in(configuration, &seen).to_string().into();
    *keys = keys.take().map(|keys| keys.answering(&Callers::document(keys.value(), &seen)));
    callers.request(entry, false)
}

/// What became of the request.
fn answer(outcome: &Outcome) -> String {
    match outcome.end() {
        End::Forwarded => format!("{} from the upstream", outcome.status()),
        End::LocalReply => format!("{} from the gateway, {}", outcome.status(), outcome.details()),
        End::Reset => format!("none: the connection is closed, {}", outcome.details()),
        End::Paused => "none: the filter holds the request".to_owned(),
    }
}

/// The explanation as one object.
fn as_json(decisions: &[Decision], outcome: &Outcome, told: Option<&Told>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = outcome.headers().iter();
    let headers: Vec<_> = headers.map(|(name, value)| json!([text(name), text(value)])).collect();
    json!({
        "logged": told.map(ToString::to_string),
        "decisions": decisions.iter().map(Decision::fields).collect::<Vec<_>>(),
        "answer": {
            "status": outcome.status(),
            "local_reply": outcome.is_local_reply(),
            "details": outcome.details(),
            "headers": headers,
        },
    })
}

/// Takes the log lines of the VM that serves the request.
fn logged(host: &Host) -> Vec<LogLine> {
    host.logs().take().into_iter().filter(|line| line.vm == VmName::Worker(0)).collect()
}
