//! The simulator against a real Envoy: one case, the same guest, the same bytes from the client and from the upstream,
//! and what each gateway makes of them.
//!
//! A case is a scenario of `host-sim/host-sim-cli/tests/cases` with the guest of its name. The simulator runs as it does behind
//! `host-sim serve`, so what is compared is what a client, an upstream and the log see.

mod envoy;
#[path = "../../../host-sim/host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one of them is for random host calls alone")]
mod guests;
mod http2;
mod simulator;
mod upstream;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use host_sim::Plugin;
use host_sim_cli::scenario::{Call, Expect, Lines, Scenario, Step};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;

use self::envoy::Envoy;
use self::simulator::Simulator;
pub use self::upstream::Upstream;
use crate::client::Client;
use crate::exchange::{Answer, Request};
use crate::{artifacts, clock};

/// How long both logs may take to come to say the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands in log lines before something that is another in every run.
const MASKED: [&str; 8] = [
    "seconds ",
    "random bytes ",
    "source\0address ",
    "source\0port ",
    "connection\0id ",
    "connection_id ",
    "x-request-id: ",
    "x-forwarded-for: ",
];

/// Headers of a connection or of the gateway itself, not of the message.
const NOT_COMPARED: [&str; 4] = ["connection", "date", "server", "transfer-encoding"];

/// The headers of a message by name, each with its lines.
type Fields = BTreeMap<String, Vec<String>>;

/// What client and upstream saw of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// 0 when the connection broke off.
    status: u16,
    headers: Fields,
    body: String,
    /// The request's headers and body at the upstream, if it came there.
    forwarded: Option<(Fields, String)>,
}

/// A gateway with a guest, in front of a case's upstream.
trait Contender {
    fn client(&self) -> &Client;

    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// A request comes that its client does not send.
    fn count(&self) {}

    fn upstream(&self) -> &Upstream;

    /// All lines that the guest has logged.
    fn log(&self) -> Vec<String>;

    /// Gives the filter a new configuration; says whether it was taken.
    fn update(&mut self, configuration: String) -> anyhow::Result<bool>;
}

/// The names of all cases.
///
/// # Errors
/// When their folder cannot be read.
pub fn names() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in artifacts::root().join("host-sim/host-sim-cli/tests/cases").read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The headers of which Envoy keeps one entry, of requests and of responses, as it tells when it starts.
///
/// # Errors
/// When it does not start, or does not tell.
pub fn inline_headers() -> anyhow::Result<[Vec<String>; 2]> {
    let lines = Envoy::start(&Case::named("phases")?)?.lines();
    let told = |kind: &str| -> anyhow::Result<Vec<String>> {
        let names = lines.iter().find_map(|line| line.split_once(kind)?.1.split_once(" bytes: "));
        let (_, names) = names.with_context(|| format!("Envoy tells no {kind}"))?;
        Ok(names.split(',').map(str::to_owned).collect())
    };
    Ok([told("request header map: ")?, told("response header map: ")?])
}

/// A scenario from its text.
///
/// # Errors
/// When it is none.
pub fn scenario(text: &str) -> anyhow::Result<Scenario> {
    Ok(serde_saphyr::from_str(text)?)
}

/// A case: a scenario and the guest that it is about.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The plugin's `root_id`.
    pub root_id: String,
    /// The guest's module.
    pub wasm: Vec<u8>,
    /// What happens.
    pub scenario: Scenario,
}

impl Case {
    /// The case of this name. What follows a full stop in it tells apart cases of one guest.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let path = artifacts::root().join("host-sim/host-sim-cli/tests/cases").join(format!("{name}.yaml"));
        let guest = name.split('.').next().unwrap_or(name);
        let (name, root_id) = (name.to_owned(), "root".to_owned());
        Ok(Self { name, root_id, wasm: guests::guest(guest), scenario: Scenario::read(path)? })
    }

    /// The plugins of the chain, all of this guest.
    fn plugins(&self) -> Vec<Plugin> {
        let configured = |given: &Option<Value>| given.as_ref().map(text).unwrap_or_default().into();
        let first = Plugin {
            name: "case".into(),
            root_id: self.root_id.clone(),
            vm_id: "vm".into(),
            configuration: configured(&self.scenario.config),
            allowed_capabilities: self.scenario.allowed_capabilities.clone(),
            failure_policy: self.scenario.failure_policy.unwrap_or_default(),
            ..Plugin::default()
        };
        let rest = self.scenario.then.iter();
        let rest = rest.map(|link| Plugin { configuration: configured(&link.config), ..link.plugin(&first) });
        let mut plugins: Vec<_> = rest.collect();
        plugins.insert(0, first);
        plugins
    }

    /// Runs the case on both gateways.
    ///
    /// # Errors
    /// With every difference between what they did, and everything that Envoy did otherwise than the case expects.
    pub fn compare(&self) -> anyhow::Result<()> {
        let mut simulator = Simulator::start(self).context("the simulator")?;
        let mut envoy = Envoy::start(self).context("Envoy")?;
        let mut differences = String::new();
        let mut marks = (0, 0);
        // Both logs have come to rest when they are alike and all is there that is expected.
        let mut settle = |what: &str,
                          (simulator, envoy): (&Simulator, &Envoy),
                          in_order: bool,
                          awaited: &dyn Fn(&[String]) -> bool| {
            let lines = |contender: &dyn Contender, mark: usize| {
                let mut lines: Vec<_> = contender.log().split_off(mark).into_iter().map(masked).collect();
                if !in_order {
                    lines.sort_unstable();
                }
                lines
            };
            let both = || (lines(simulator, marks.0), lines(envoy, marks.1));
            // Whether they come to agree is the question, not an error of its own.
            let _ = clock::eventually(what, PATIENCE, || {
                let (left, right) = both();
                (left == right && awaited(&right)).then_some(())
            });
            let (left, right) = both();
            marks = (simulator.log().len(), envoy.log().len());
            let differs = (left != right).then(|| difference(what, &left, &right));
            (right, differs)
        };
        let (mut told, differs) = settle("the log of its start", (&simulator, &envoy), false, &|_| true);
        differences.extend(differs);
        for step in &self.scenario.steps {
            let name = step.name.clone().unwrap_or_default();
            let taken = take(step, &mut simulator, &mut envoy).with_context(|| format!("{name:?}"))?;
            // Contexts on several threads are told in any order.
            let in_order = step.request.is_some();
            let awaited = |log: &[String]| missing(&step.expect, &[told.as_slice(), log].concat()).is_empty();
            let (log, differs) = settle("log", (&simulator, &envoy), in_order, &awaited);
            // What takes time by itself may have begun before its step.
            told.extend(log);
            let missing = missing(&step.expect, &told);
            if in_order {
                told.clear();
            }
            for difference in differs.into_iter().chain(taken).chain(missing) {
                let _ = writeln!(differences, "{name}: {difference}");
            }
            if let Some(expected) = &step.expect.details {
                let found = envoy.details()?;
                if found != *expected {
                    let _ = writeln!(differences, "{name}: details {found:?}, expected {expected:?}");
                }
            }
        }
        ensure!(differences.is_empty(), "{}:\n{differences}", self.name);
        Ok(())
    }
}

/// A log line without what is another in every run.
fn masked(mut line: String) -> String {
    if let Some(end) = MASKED.into_iter().find_map(|marker| Some(line.find(marker)? + marker.len())) {
        line.replace_range(end.., "…");
    }
    line
}

/// A configuration as text.
fn text(given: &Value) -> String {
    given.as_str().map_or_else(|| given.to_string(), str::to_owned)
}

/// Takes a step on both, and tells what is not alike, or not as expected of Envoy.
fn take(step: &Step, simulator: &mut Simulator, envoy: &mut Envoy) -> anyhow::Result<Vec<String>> {
    if let Some(call) = &step.request {
        let mut differences = Vec::new();
        for _ in 0..step.repeat.unwrap_or(1) {
            let (left, right) = (send(simulator, call)?, send(envoy, call)?);
            if left != right {
                differences.push(difference("answer", &lines(&left), &lines(&right)));
            }
            differences.extend(unexpected(&step.expect, &right));
        }
        return Ok(differences);
    }
    if let Some(given) = &step.update {
        let (left, right) = (simulator.update(text(given))?, envoy.update(text(given))?);
        let expected = !step.expect.refused.unwrap_or(false);
        let verdicts = [("the simulator", left), ("Envoy", right)].into_iter();
        return Ok(verdicts
            .filter(|(_, taken)| *taken != expected)
            .map(|(who, taken)| format!("the update on {who}: taken is {taken}"))
            .collect());
    }
    if let Some(by) = step.advance {
        clock::pass(Duration::try_from(by)?);
        return Ok(Vec::new());
    }
    bail!("a step that a real gateway cannot take")
}

/// Sends a request and gathers what client and upstream saw.
fn send(contender: &dyn Contender, call: &Call) -> anyhow::Result<Seen> {
    let mut request = Request::new(call.method.parse::<Method>()?, call.path.clone());
    request.headers = header_map(call.headers.iter())?;
    let authority = call.authority.as_deref().unwrap_or("localhost");
    request = request.header("host", authority);
    if !call.body.is_empty() {
        // So that a filter may change its length.
        request = request.header("transfer-encoding", "chunked");
        request.body = call.body.clone().into();
    }
    let answer = if call.http2 {
        contender.count();
        http2::send(contender.address(), request, header_map_of(&call.trailers)?)
    } else {
        contender.client().send(&request)
    };
    let forwarded = contender.upstream().take();
    Ok(match answer {
        Ok(Answer { status, headers, body }) => Seen {
            status: status.as_u16(),
            headers: fields(&headers),
            body: String::from_utf8_lossy(&body).into_owned(),
            forwarded,
        },
        Err(_) => Seen { status: 0, headers: Fields::new(), body: String::new(), forwarded },
    })
}

fn header_map<'a>(headers: impl Iterator<Item = (&'a String, &'a Lines)>) -> anyhow::Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, lines) in headers {
        for line in lines.iter() {
            map.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(line)?);
        }
    }
    Ok(map)
}

fn header_map_of(fields: &BTreeMap<String, String>) -> anyhow::Result<HeaderMap> {
    fields.iter().map(|(name, value)| Ok((name.parse()?, value.parse()?))).collect()
}

/// Headers to compare: those of the message, with what is another in every run masked.
fn fields(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "x-request-id" => "(a random id)".to_owned(),
            // Envoy appends an address of its own for a client on the same machine.
            "x-forwarded-for" => "(the client)".to_owned(),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        fields.entry(name.as_str().to_owned()).or_default().push(value);
    }
    fields
}

fn lines(seen: &Seen) -> Vec<String> {
    let of = |fields: &Fields, whose: &str| -> Vec<String> {
        fields.iter().map(|(name, lines)| format!("{whose} {name}: {}", lines.join(" | "))).collect()
    };
    let mut lines = vec![format!("status {}", seen.status)];
    lines.extend(of(&seen.headers, "answered"));
    lines.push(format!("body {:?}", seen.body));
    match &seen.forwarded {
        Some((fields, body)) => {
            lines.extend(of(fields, "forwarded"));
            lines.push(format!("forwarded body {body:?}"));
        }
        None => lines.push("not forwarded".to_owned()),
    }
    lines
}

/// What only one of them has, line by line.
fn difference(what: &str, simulator: &[String], envoy: &[String]) -> String {
    let (left, right) = (simulator.join("\n"), envoy.join("\n"));
    let diff = similar::TextDiff::from_lines(&left, &right);
    format!("{what} (- the simulator, + Envoy)\n{}", diff.unified_diff().context_radius(1))
}

/// What Envoy did otherwise than expected.
fn unexpected(expect: &Expect, seen: &Seen) -> Vec<String> {
    let mut misses = Vec::new();
    if let Some(status) = expect.status.filter(|status| *status != seen.status) {
        misses.push(format!("status {}, expected {status}", seen.status));
    }
    if let Some(body) = expect.body.as_ref().filter(|body| **body != seen.body) {
        misses.push(format!("body {:?}, expected {body:?}", seen.body));
    }
    let nothing = Fields::new();
    let forwarded = seen.forwarded.as_ref().map_or(&nothing, |(fields, _)| fields);
    for (expected, found) in [(&expect.headers, &seen.headers), (&expect.forwarded_headers, forwarded)] {
        for (name, value) in expected {
            let found = found.get(name).map(|lines| lines.join(","));
            if found != *value {
                misses.push(format!("{name}: {found:?}, expected {value:?}"));
            }
        }
    }
    misses
}

/// Lines that were expected of Envoy and are not there.
fn missing(expect: &Expect, log: &[String]) -> Vec<String> {
    let absent = expect.log.iter().filter(|part| !log.iter().any(|line| line.contains(*part)));
    absent.map(|part| format!("no line {part:?} in Envoy's log")).collect()
}
