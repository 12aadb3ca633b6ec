//! A scenario in host-sim and in a real Envoy: the same module, the same requests and the same answers of upstreams, over sockets and
//! on the real clock.
//!
//! host-sim runs as behind `host-sim serve`, so what is compared is what a client, an upstream, a cluster and the log see. Steps that
//! Envoy cannot take are named, each with its reason; nothing after such a step is compared.

mod bootstrap;
mod client;
mod comparable;
mod envoy;
mod error;
mod pieces;
mod program;
mod seen;
mod simulator;
mod upstream;
mod wait;

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use host_sim::{Module, Plugin};
use serde_json::Value;

use self::{
    comparable::obstacle,
    seen::{Seen, called, send},
    wait::until,
};
pub use self::{
    envoy::Envoy, error::AgainstError, program::Program, simulator::Simulator, upstream::Upstream,
};
use crate::scenario::{self, Call, Check, Expect, Masks, Miss, Scenario, Step};

/// How long both gateways may take to come to the same log, calls and counters.
const SETTLING: Duration = Duration::from_secs(5);

/// How long a client waits for an answer beyond the time that the upstream may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// The least and the greatest time that an upstream may take; the greatest is Envoy's default.
const RESPONSE_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));

/// Properties of the gateways' configuration, which is the same in both.
const CONFIGURED: [(&str, &str); 2] = [("cluster_name", "upstream"), ("virtual_host_name", "all")];

/// A filter of the chain.
#[derive(Debug, Clone)]
pub struct ChainedFilter {
    /// Its module, as Envoy loads it.
    pub wasm: Vec<u8>,
    /// Its module, as host-sim loads it.
    pub module: Module,
    /// How it is configured.
    pub plugin: Plugin,
    /// The message that Envoy gets as its configuration, in place of the plugin's bytes.
    pub any: Option<Value>,
}

/// What a scenario does not say.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The folder that paths in the scenario are seen from.
    pub base: &'a Path,
    /// Texts in log lines, header lines (`name: value`) and bodies that are followed by a value that differs in every run, beside
    /// those of Envoy's own headers. A `*` stands for the value; without it, the value ends with its line.
    pub masked: &'a [&'a str],
}

/// What became of a step.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// What Envoy did otherwise than host-sim (as expected), or otherwise than the scenario expects.
    pub differences: Vec<Miss>,
    /// What could not be compared, and why.
    pub not_comparable: Vec<String>,
}

/// What became of a scenario.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Differences between the logs of the start.
    pub start: Vec<Miss>,
    /// The steps, in order.
    pub steps: Vec<Compared>,
}

/// A gateway with a filter, in front of a scenario's upstream.
pub trait Contender {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// A request is about to be sent.
    fn count(&self) {}

    /// The server that requests are forwarded to.
    fn upstream(&self) -> &Upstream;

    /// The servers that the filters can call, by name.
    fn clusters(&self) -> &BTreeMap<String, Upstream>;

    /// All lines that the filters have logged.
    fn log(&self) -> Vec<String>;

    /// Shuts the gateway down, and returns all lines that the filters have logged by then.
    ///
    /// # Errors
    /// When it does not end.
    fn end(self) -> Result<Vec<String>, AgainstError>
    where
        Self: Sized;

    /// The value of a counter or a gauge.
    fn metric(&self, name: &str) -> Option<u64>;

    /// Gives the first filter a new configuration; says whether it was taken.
    ///
    /// # Errors
    /// When the gateway does not say so in time.
    fn update(&mut self, configuration: &[u8]) -> Result<bool, AgainstError>;
}

/// Sends a request to a gateway, and reads as much of the answer as comes within `patience`.
///
/// # Errors
/// When the gateway cannot be reached, or HTTP cannot carry the request.
pub fn ask(gateway: &impl Contender, call: &Call, patience: Duration) -> Result<(), AgainstError> {
    client::send(gateway.address(), call, patience).map(|_| ())
}

/// How long the upstream may take: longer than its slowest answer, as far as Envoy's default allows.
fn response_timeout(scenario: &Scenario) -> Duration {
    let own = scenario.steps.iter().filter_map(|step| step.upstream.as_ref());
    let answers = own.chain([&scenario.upstream]).flat_map(scenario::Answer::in_order);
    let slowest = answers.filter_map(|answer| Some(answer.after?.unsigned_abs())).max().unwrap_or_default();
    let (least, greatest) = RESPONSE_TIMEOUTS;
    // Envoy takes whole seconds.
    Duration::from_secs((least + slowest).as_secs()).min(greatest)
}

/// Runs a scenario in host-sim and in Envoy, and compares what they do.
///
/// # Errors
/// When a gateway does not start, or HTTP cannot carry a message of the scenario. Differences are not errors.
pub fn compare(
    scenario: &Scenario,
    filters: &[ChainedFilter],
    program: &Program,
    settings: Settings<'_>,
) -> Result<Comparison, AgainstError> {
    let mut comparison = Comparison { start: Vec::new(), steps: Vec::new() };
    if scenario.since > program.version() {
        let why = format!("the scenario is about Envoy {} and later", scenario.since);
        let not_comparable = Compared { not_comparable: vec![why], ..Compared::default() };
        comparison.steps = vec![not_comparable; scenario.steps.len()];
        return Ok(comparison);
    }
    let masks = Masks::new(settings.masked);
    let mut pair = Pair {
        simulator: Simulator::start(scenario, filters, program.version())?,
        envoy: Envoy::start(scenario, filters, program)?,
        base: settings.base,
        masks: &masks,
        patience: response_timeout(scenario) + PATIENCE,
        marks: (0, 0),
        told: (Vec::new(), Vec::new()),
    };
    comparison.start = pair.settle("log of the start", false, &Expect::default()).into_iter().collect();
    let mut stopped = None;
    for (index, step) in scenario.steps.iter().enumerate() {
        let mut compared = Compared::default();
        if let Some(stopped) = stopped {
            let why = format!("Envoy has not taken step {stopped}, which comes before this one");
            compared.not_comparable.push(why);
        } else if let Some(why) = obstacle(step) {
            compared.not_comparable.push(why);
            stopped = Some(index + 1);
        } else {
            pair.take(step, &mut compared)?;
        }
        comparison.steps.push(compared);
    }
    Ok(comparison)
}

/// Both gateways.
struct Pair<'a> {
    simulator: Simulator,
    envoy: Envoy,
    base: &'a Path,
    masks: &'a Masks<'a>,
    patience: Duration,
    /// Lines of each log that were compared.
    marks: (usize, usize),
    /// Lines of each log since the last request: what takes time by itself may have begun before its step.
    told: (Vec<String>, Vec<String>),
}

impl<'a> Pair<'a> {
    fn take(&mut self, step: &Step, compared: &mut Compared) -> Result<(), AgainstError> {
        let expect = &step.expect;
        if step.upstream.is_some() {
            self.simulator.upstream().answer(step.upstream.as_ref())?;
            self.envoy.upstream().answer(step.upstream.as_ref())?;
        }
        let (mut left, mut right) = (Check::new(self.masks), Check::new(self.masks));
        if step.request.is_some() {
            let mut asked = (Vec::new(), Vec::new());
            for time in 1..=step.repeat.unwrap_or(1) {
                let seen = self.ask(step)?;
                let (here, there) = (seen.0.lines(self.masks), seen.1.lines(self.masks));
                if here != there {
                    compared.differ(&format!("request {time}"), &here, &there);
                }
                left.seen(expect, &seen.0.checked());
                right.seen(expect, &seen.1.checked());
                asked.0.extend(seen.0.asked);
                asked.1.extend(seen.1.asked);
                self.details(expect, &mut right)?;
            }
            if let Some(expected) = &expect.callouts {
                left.callouts(expected, &called(&asked.0));
                right.callouts(expected, &called(&asked.1));
            }
        }
        if let Some(given) = &step.update {
            let configuration = scenario::configured(given, self.base)?.configuration;
            let expected = expect.refused.unwrap_or(false);
            let word = |taken| if taken { "taken" } else { "refused" };
            for (misses, taken) in [
                (&mut left, self.simulator.update(&configuration)?),
                (&mut right, self.envoy.update(&configuration)?),
            ] {
                if taken == expected {
                    misses.miss("update", word(!expected), word(taken));
                }
            }
        }
        if let Some(by) = step.advance {
            wait::pass(by.unsigned_abs())?;
        }
        self.simulator.upstream().answer(None)?;
        self.envoy.upstream().answer(None)?;
        // Contexts on several threads log in any order.
        let in_order = step.request.is_some();
        compared.differences.extend(self.settle("log", in_order, expect));
        left.log(expect, &lines(&self.told.0));
        right.log(expect, &lines(&self.told.1));
        if in_order {
            self.told = (Vec::new(), Vec::new());
        }
        self.metrics(expect, &mut left, &mut right);
        if expect.shared_data_entries_at_most.is_some() {
            let why = "shared_data_entries_at_most: Envoy does not show its shared data";
            compared.not_comparable.push(why.to_owned());
        }
        compared.judge(&left, &right);
        Ok(())
    }

    /// Sends a step's request to both.
    fn ask(&self, step: &Step) -> Result<(Seen, Seen), AgainstError> {
        let Some(call) = &step.request else {
            return Err(AgainstError::message("a step without a request"));
        };
        let ends = step.expect.ends.unwrap_or(true);
        let mut left = send(&self.simulator, call, ends, self.patience)?;
        let mut right = send(&self.envoy, call, ends, self.patience)?;
        // A call may outlive the request that it was made for. Whether both make the same calls is the question.
        let _ = until("the calls", SETTLING, || {
            left.hear(&self.simulator);
            right.hear(&self.envoy);
            left.has_the_calls_of(&right, self.masks).then_some(())
        });
        Ok((left, right))
    }

    /// Looks at what only Envoy's access log says.
    fn details(&self, expect: &Expect, check: &mut Check<'_>) -> Result<(), AgainstError> {
        const FROM_UPSTREAM: &str = "via_upstream";
        if expect.details.is_none() && expect.local_reply.is_none() {
            return Ok(());
        }
        let found = self.envoy.details()?;
        check.compare("local_reply", expect.local_reply, found != FROM_UPSTREAM);
        check.compare("details", expect.details.as_ref(), &found);
        Ok(())
    }

    fn metrics(&self, expect: &Expect, left: &mut Check<'a>, right: &mut Check<'a>) {
        let contenders: [(&dyn Contender, _); 2] = [(&self.simulator, left), (&self.envoy, right)];
        for (contender, check) in contenders {
            for (name, expected) in &expect.metrics {
                // What is found at the end counts.
                let _ =
                    until("a metric", SETTLING, || (contender.metric(name) == Some(*expected)).then_some(()));
                let found = contender.metric(name);
                let found = found.map_or_else(|| "no such metric".to_owned(), |found| found.to_string());
                check.compare(&format!("metrics.{name}"), Some(expected.to_string()), found);
            }
        }
    }

    /// Waits until both logs are alike and have all that is expected, and returns how they differ after that.
    fn settle(&mut self, what: &str, in_order: bool, expect: &Expect) -> Option<Miss> {
        let fresh = |contender: &dyn Contender, mark: usize| {
            let mut log = contender.log();
            log.split_off(mark.min(log.len()))
        };
        let both = || (fresh(&self.simulator, self.marks.0), fresh(&self.envoy, self.marks.1));
        let masks = self.masks;
        let shown = |log: &[String]| {
            let mut lines: Vec<_> = log.iter().map(|line| masks.hide(line)).collect();
            if !in_order {
                lines.sort_unstable();
            }
            lines
        };
        // Whether they come to agree is the question.
        let _ = until("the logs", SETTLING, || {
            let (left, right) = both();
            let mut check = Check::new(masks);
            check.log(expect, &lines(self.told.1.iter().chain(&right)));
            (shown(&left) == shown(&right) && check.misses.is_empty()).then_some(())
        });
        let (left, right) = both();
        self.marks = (self.marks.0 + left.len(), self.marks.1 + right.len());
        let mut compared = Compared::default();
        let (here, there) = (shown(&left), shown(&right));
        if here != there {
            compared.differ(what, &here, &there);
        }
        self.told.0.extend(left);
        self.told.1.extend(right);
        compared.differences.pop()
    }
}

fn lines<'l>(log: impl IntoIterator<Item = &'l String>) -> Vec<&'l str> {
    log.into_iter().map(String::as_str).collect()
}

impl Compared {
    fn differ(&mut self, what: &str, left: &[String], right: &[String]) {
        let what = format!("{what}: - host-sim, + Envoy");
        self.differences.push(Miss { what, expected: left.join("\n"), found: right.join("\n") });
    }

    /// Adds what Envoy missed. What host-sim missed in the same way says nothing about a difference between them.
    fn judge(&mut self, left: &Check<'_>, right: &Check<'_>) {
        for miss in &right.misses {
            let Miss { what, expected, found } = miss;
            if left.misses.contains(miss) {
                let why = format!(
                    "{what}: expected {expected:?}; over sockets and on the real clock, host-sim and Envoy both have {found:?}"
                );
                if !self.not_comparable.contains(&why) {
                    self.not_comparable.push(why);
                }
                continue;
            }
            let miss = Miss { what: format!("{what} in Envoy"), ..miss.clone() };
            if !self.differences.contains(&miss) {
                self.differences.push(miss);
            }
        }
    }
}
