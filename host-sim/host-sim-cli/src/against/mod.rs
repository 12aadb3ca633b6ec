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
mod running;
mod simulator;
mod upstream;
mod wait;

use std::{collections::BTreeMap, net::SocketAddr, path::Path, time::Duration};

use host_sim::{Module, Plugin};
use serde_json::Value;

use self::{
    comparable::obstacle,
    running::{Running, settle},
};
pub use self::{
    envoy::Envoy, error::AgainstError, program::Program, simulator::Simulator, upstream::Upstream,
};
use crate::scenario::{Answers, Call, Masks, Report, Scenario, Step, StepReport, Taking};

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

/// A gateway with a filter, in front of a scenario's upstream.
pub trait Contender {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

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

    /// The response-code details of the request that was sent as this one, counted from 1; none where they are not told.
    ///
    /// # Errors
    /// When the gateway does not say so in time.
    fn details(&self, _request: usize) -> Result<Option<String>, AgainstError> {
        Ok(None)
    }

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
    let answers = own.chain([&scenario.upstream]).flat_map(Answers::iter);
    let slowest = answers.filter_map(|answer| Some(answer.after?.unsigned_abs())).max().unwrap_or_default();
    let (least, greatest) = RESPONSE_TIMEOUTS;
    // Envoy takes whole seconds.
    Duration::from_secs((least + slowest).as_secs()).min(greatest)
}

/// Runs a scenario in host-sim and in Envoy, and reports what Envoy does otherwise: how it differs from host-sim, and from what is
/// expected. A difference at the start is a step of its own, after the scenario's.
///
/// # Errors
/// When a gateway does not start, or HTTP cannot carry a message of the scenario. Differences are not errors.
pub fn compare(
    scenario: &Scenario,
    filters: &[ChainedFilter],
    program: &Program,
    settings: Settings<'_>,
) -> Result<Report, AgainstError> {
    let left_out = |why: String| StepReport { not_comparable: vec![why], ..StepReport::default() };
    let mut report = Report::default();
    if scenario.since > program.version() {
        let why = format!("the scenario is about Envoy {} and later", scenario.since);
        report.steps = scenario.steps.iter().map(|_| left_out(why.clone())).collect();
        return Ok(report);
    }
    if scenario.refused.is_some() {
        // What Envoy says of it is another text.
        return match Envoy::start(scenario, filters, program) {
            Ok(_) => Ok(Report::of_refusal("Envoy does not start with this filter", None)),
            Err(AgainstError::Start { .. }) => Ok(Report::of_refusal("", Some(""))),
            Err(error) => Err(error),
        };
    }
    let masks = Masks::new(settings.masked);
    let mut simulator = Simulator::start(scenario, filters, program.version())?;
    let mut envoy = Envoy::start(scenario, filters, program)?;
    let patience = response_timeout(scenario) + PATIENCE;
    let mut both =
        [Running::new(&mut simulator, &masks, patience), Running::new(&mut envoy, &masks, patience)];
    let start = Step { name: Some("the start of the filters".to_owned()), ..Step::default() };
    let taken = both.each_ref().map(|_| Taking::new(0, &masks));
    let start = finish(&mut both, taken, &start, &masks)?;
    let mut stopped = None;
    for (index, step) in scenario.steps.iter().enumerate() {
        report.steps.push(if let Some(stopped) = stopped {
            left_out(format!("Envoy has not taken step {stopped}, which comes before this one"))
        } else if let Some(why) = obstacle(step) {
            stopped = Some(index + 1);
            left_out(why)
        } else {
            let mut taken = both.each_ref().map(|_| Taking::new(index + 1, &masks));
            for (running, taking) in both.iter_mut().zip(&mut taken) {
                taking.act(running, step, settings.base)?;
            }
            finish(&mut both, taken, step, &masks)?
        });
    }
    report.steps.extend(Some(start).filter(|start| !start.misses.is_empty()));
    Ok(report)
}

/// Ends a step in both, once they have come to the same or do not, and reports how they differ.
fn finish(
    both: &mut [Running<'_>; 2],
    [here, there]: [Taking<'_>; 2],
    step: &Step,
    masks: &Masks<'_>,
) -> Result<StepReport, AgainstError> {
    settle(both, step, masks);
    let [simulator, envoy] = both;
    let here = here.finish(simulator, step)?;
    Ok(here.against(there.finish(envoy, step)?, step.request.is_some(), masks))
}
