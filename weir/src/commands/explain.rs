//! `weir explain`

use std::io;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use host_sim::{Clock, End, LogLevel, Outcome, Request, Response, VmName};
use host_sim_cli::failure::Failure;
use serde_json::{Value, json};
use weir::replay::{Callers, Entry, Fields, Told, since_epoch};

use super::pair;
use crate::decision::Decision;
use crate::filter::{Filter, Ready, fields, not_loaded, said};
use crate::keys::Keys;
use crate::output::{Format, print, say};

/// Time before the request, in which the filter can fetch the keys of its directory.
const BEFORE: Duration = Duration::from_secs(1);

/// What is said of the explanation of a line that has the gateway's own decision.
const ALONE: &str = "The gateway decided what is logged; the rest is this request alone, sent to a filter with empty counters.";

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
    #[arg(long = "header", value_name = "HEADER", value_parser = pair)]
    headers: Vec<(String, String)>,
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

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut ready = self.filter.ready(&self.file, true)?;
        let mut keys = self.filter.keys(&ready.config)?;
        let entry = self.line.as_deref().map(|line| self.entry(line)).transpose()?;
        let (request, status, at) = match &entry {
            Some(entry) => (known(entry, &mut ready, &mut keys), entry.status, since_epoch(entry.time)),
            None => (self.request(), 200, Clock::real().wall()),
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
        let outcome = (1..self.repeat).fold(send(), |_, _| send());
        let mut lines = host.logs().take();
        lines.retain(|line| line.vm == VmName::Worker(0));
        lines.iter().filter(|line| line.by_host || line.level >= LogLevel::Warn).for_each(say);
        if let Some(failure) = host.worker(0).vm_failure() {
            return Err(Failure::Missed(failure.to_string()));
        }
        lines.retain(|line| !line.by_host);
        let decisions: Vec<_> = lines.iter().filter_map(|line| Decision::read(&line.message)).collect();
        if decisions.is_empty() {
            lines.iter().for_each(say);
            let answer = answer(&outcome);
            return Err(Failure::Missed(format!("the filter logs no decision on this request: {answer}")));
        }
        let told = entry.and_then(|entry| entry.told);
        if self.format == Format::Json {
            return print(format_args!("{:#}", as_json(&decisions, &outcome, told.as_ref())));
        }
        if let Some(told) = &told {
            print(format_args!("{:<14}{told}", "logged"))?;
        }
        decisions.iter().try_for_each(print)?;
        print(format_args!("{:<14}{}", "answer", answer(&outcome)))?;
        told.map_or(Ok(()), |_| print(ALONE))
    }

    /// The request that the arguments describe.
    fn request(&self) -> Request {
        let request = Request::new(self.method.clone(), self.path.clone());
        let request = self.source.iter().fold(request, |request, source| request.source(source.clone()));
        self.headers
            .iter()
            .fold(request, |request, (name, value)| request.header(name.clone(), value.clone()))
    }

    /// The request of a line of an access log.
    fn entry(&self, line: &str) -> Result<Entry, Failure> {
        let fields =
            self.headers.iter().fold(Fields::default(), |fields, (name, of)| fields.header(name, of));
        let text = if line == "-" { io::read_to_string(io::stdin())? } else { line.to_owned() };
        fields.read(text.as_bytes()).map_err(|error| Failure::Unusable(format!("--line: {error}")))
    }
}

/// The request of a line, whose caller the filter then knows by what the line has of the key.
fn known(entry: &Entry, ready: &mut Ready, keys: &mut Option<Keys>) -> Request {
    let configuration = fields(&ready.plugin);
    let document = keys.as_ref().map(Keys::value);
    let callers = Callers::new(&ready.config, &configuration, document.as_ref());
    ready.plugin.configuration = Callers::known_in(configuration).to_string().into();
    *keys = keys.take().map(|keys| keys.answering(&Callers::document(keys.value())));
    callers.request_of(entry)
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
