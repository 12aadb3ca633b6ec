//! The simulator against a real Envoy: one case, the same guest, the same bytes from the client and from the upstream,
//! and what each gateway makes of them.
//!
//! A case is a scenario of `host-sim/host-sim-cli/tests/cases` with the guest of its name. The simulator runs as it does behind
//! `host-sim serve`, so what is compared is what a client, an upstream and the log see.

mod client;
mod envoy;
#[path = "../../../host-sim/host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one of them is for random host calls alone")]
mod guests;
mod seen;
mod simulator;
mod upstream;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use host_sim::{EnvoyVersion, Plugin};
use host_sim_cli::scenario::{Expect, Scenario, Step};
use serde_json::Value;

use self::envoy::Envoy;
use self::seen::{lines, send, unexpected};
use self::simulator::Simulator;
pub use self::upstream::Upstream;
use crate::{artifacts, clock};

/// How long both logs may take to come to say the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long either gateway waits for its upstream's answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What stands in log lines before something that is another in every run.
const MASKED: [&str; 9] = [
    "seconds ",
    "random bytes ",
    "source\0address ",
    "source\0port ",
    "connection\0id ",
    "connection_id ",
    "x-request-id: ",
    "x-forwarded-for: ",
    // Addresses in a guest's memory.
    "0x",
];

/// The Envoys that the simulator is compared with: the newest that it follows, and the oldest that its package has.
pub const VERSIONS: [EnvoyVersion; 2] = [EnvoyVersion::V1_36, EnvoyVersion::V1_40];

/// A gateway with a guest, in front of a case's upstream.
trait Contender {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// A request comes.
    fn count(&self) {}

    fn upstream(&self) -> &Upstream;

    fn clusters(&self) -> &BTreeMap<String, Upstream>;

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
    let lines = Envoy::start(&Case::named("phases")?, EnvoyVersion::V1_40)?.lines();
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
    /// The plugin's configuration, where it is no text: an `Any` as Envoy takes it.
    pub message: Option<Value>,
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
        Ok(Self { name, root_id, wasm: guests::guest(guest), message: None, scenario: Scenario::read(path)? })
    }

    /// A guest with a configuration that is no text, which has one request.
    ///
    /// # Errors
    /// Never, but by a mistake in the scenario's text.
    pub fn configured(guest: &str, message: Value) -> anyhow::Result<Self> {
        let scenario = scenario("steps: [{request: {path: /}, expect: {status: 200}}]")?;
        let name = format!("{guest} configured with {message}");
        let wasm = guests::guest(guest);
        Ok(Self { name, root_id: "root".to_owned(), wasm, message: Some(message), scenario })
    }

    /// The plugins of the chain, all of this guest.
    fn plugins(&self) -> anyhow::Result<Vec<Plugin>> {
        let configured = |given: &Option<Value>| given.as_ref().map(text).unwrap_or_default().into();
        let configuration = match &self.message {
            Some(message) => {
                let document = serde_json::json!({"vm_config": {}, "configuration": message}).to_string();
                host_sim::configuration::parse(document.as_bytes(), None)?.configuration
            }
            None => configured(&self.scenario.config),
        };
        let first = Plugin {
            name: "case".into(),
            root_id: self.root_id.clone(),
            vm_id: "vm".into(),
            configuration,
            allowed_capabilities: self.scenario.allowed_capabilities.clone(),
            allow_on_headers_stop_iteration: self.scenario.allow_on_headers_stop_iteration,
            failure_policy: self.scenario.failure_policy.unwrap_or_default(),
            ..Plugin::default()
        };
        let rest = self.scenario.then.iter();
        let rest = rest.map(|link| Plugin { configuration: configured(&link.config), ..link.plugin(&first) });
        let mut plugins: Vec<_> = rest.collect();
        plugins.insert(0, first);
        Ok(plugins)
    }

    /// Runs the case on both gateways, with each Envoy of [`VERSIONS`] that it is about.
    ///
    /// # Errors
    /// As [`compare_with`](Self::compare_with).
    pub fn compare(&self) -> anyhow::Result<()> {
        for version in VERSIONS.into_iter().filter(|version| *version >= self.scenario.since) {
            self.compare_with(version).with_context(|| format!("beside Envoy {version}"))?;
        }
        Ok(())
    }

    /// Runs the case on both gateways.
    ///
    /// # Errors
    /// With every difference between what they did, and everything that Envoy did otherwise than the case expects.
    pub fn compare_with(&self, version: EnvoyVersion) -> anyhow::Result<()> {
        let mut simulator = Simulator::start(self, version).context("the simulator")?;
        let mut envoy = Envoy::start(self, version).context("Envoy")?;
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

/// The status that each gateway gives to requests that are written byte by byte, or what it says instead.
///
/// # Errors
/// When a gateway does not start.
pub fn statuses(requests: &[(&str, &[u8])]) -> anyhow::Result<Vec<[String; 2]>> {
    let version = EnvoyVersion::V1_40;
    let mut case = Case::named("phases")?;
    case.scenario.upstream.status = 204;
    let (simulator, envoy) = (Simulator::start(&case, version)?, Envoy::start(&case, version)?);
    requests
        .iter()
        .map(|(_, bytes)| {
            Ok([client::status(simulator.address(), bytes)?, client::status(envoy.address(), bytes)?])
        })
        .collect()
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
            let ends = step.expect.ends.unwrap_or(true);
            let (mut left, mut right) = (send(simulator, call, ends)?, send(envoy, call, ends)?);
            // A call may outlive the request that it was made for. Whether they come to agree is the question.
            let _ = clock::eventually("the calls", PATIENCE, || {
                left.hear(simulator);
                right.hear(envoy);
                (left.asked == right.asked).then_some(())
            });
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

/// What only one of them has, line by line.
fn difference(what: &str, simulator: &[String], envoy: &[String]) -> String {
    let (left, right) = (simulator.join("\n"), envoy.join("\n"));
    let diff = similar::TextDiff::from_lines(&left, &right);
    format!("{what} (- the simulator, + Envoy)\n{}", diff.unified_diff().context_radius(1))
}

/// Lines that were expected of Envoy and are not there.
fn missing(expect: &Expect, log: &[String]) -> Vec<String> {
    let absent = expect.log.iter().filter(|part| !log.iter().any(|line| line.contains(*part)));
    absent.map(|part| format!("no line {part:?} in Envoy's log")).collect()
}
