//! Runs a scenario against a filter.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use host_sim::{
    Builder, Clock, Compiler, ConfigurationError, End, Fault, Framing, Host, LogLevel, Module, Outcome,
    Plugin, Request, Status, configuration,
};
use serde_json::Value as Json;

use super::{
    answer::Sequence,
    check::{Check, Found, Seen},
    error::ScenarioError,
    expect::Expect,
    file::{FaultStep, Scenario, Step},
    mask::Masks,
    report::{Report, StepReport},
    watch::Watch,
};

impl Scenario {
    /// Reads a scenario from a file of YAML or JSON that holds one.
    ///
    /// # Errors
    /// When the file cannot be read, holds no scenario, or holds several.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, ScenarioError> {
        let path = path.into();
        let mut scenarios = Self::read_all(&path)?;
        match (scenarios.pop(), scenarios.len()) {
            (Some(scenario), 0) => Ok(scenario),
            (_, more) => {
                let problem = format!("expected one scenario, found {}", more + 1);
                Err(ScenarioError::Syntax { path, problem })
            }
        }
    }

    /// Reads the scenarios of a file: one for each document of YAML.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else or nothing.
    pub fn read_all(path: impl Into<PathBuf>) -> Result<Vec<Self>, ScenarioError> {
        let path = path.into();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(ScenarioError::Read { path, source }),
        };
        let scenarios: Vec<Self> = match serde_saphyr::from_slice_multiple(&bytes) {
            Ok(scenarios) => scenarios,
            Err(error) => return Err(ScenarioError::Syntax { path, problem: error.to_string() }),
        };
        if scenarios.is_empty() {
            return Err(ScenarioError::Syntax { path, problem: "no scenario in it".to_owned() });
        }
        Ok(scenarios)
    }
}

/// Whether a text is the path of a configuration, there or not.
fn is_path(text: &str) -> bool {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    !text.contains(['\n', '{']) && matches!(extension, Some("json" | "yaml" | "yml"))
}

/// A configuration that a scenario gives: a path, seen from `base`, or the thing itself.
pub(crate) fn configured(given: &Json, base: &Path) -> Result<Plugin, ConfigurationError> {
    match given {
        Json::String(path) if is_path(path) || base.join(path).is_file() => {
            configuration::read(base.join(path), None)
        }
        Json::String(text) => configuration::parse(text.as_bytes(), None),
        other => configuration::parse(other.to_string().as_bytes(), None),
    }
}

fn compiled(path: &Path, compiler: Compiler) -> Result<Module, ScenarioError> {
    let wasm = fs::read(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
    Module::compile_with(wasm, compiler)
        .map_err(|source| ScenarioError::Module { path: path.to_owned(), source })
}

/// How a scenario is run, beside what it says itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// In which pieces bodies come to the filters, in place of the scenario's framing.
    pub framing: Option<Framing>,
    /// Keeps the log and the trace of every step, not just of those that miss.
    pub keep_all: bool,
}

/// Runs a scenario: loads the filter into a new host, made as `builder` and the scenario say, and takes the steps. `plugin` is how
/// the filter is configured where the scenario does not say; paths in the scenario are seen from `base`.
///
/// # Errors
/// When the filter does not load, or a step makes no sense. What is not as expected is no error but in the report.
pub fn run(
    scenario: &Scenario,
    builder: Builder,
    module: &Module,
    plugin: &Plugin,
    base: &Path,
    options: Options,
) -> Result<Report, ScenarioError> {
    let watch = Watch::default();
    let mut host = started(scenario, watch.over(builder), module, plugin, base, (&watch, options))?;
    host.logs().take();
    watch.take_callbacks();
    watch.take_calls();

    let (upstream, masks) = (Sequence::of(&scenario.upstream), Masks::default());
    let mut steps = Vec::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        let own = step.upstream.as_ref().map(Sequence::of);
        let runner = Runner {
            host: &mut host,
            upstream: own.as_ref().unwrap_or(&upstream),
            watch: &watch,
            base,
            number: index + 1,
            check: Check::new(&masks),
            missed_log: None,
            report: StepReport::default(),
        };
        steps.push(runner.take(step, options)?);
    }
    Ok(Report { steps, usages: watch.usages() })
}

/// The filters of a scenario in their order, `module` with `plugin` first. The path is that of the module, where the scenario names
/// it.
///
/// # Errors
/// When a module or a configuration that the scenario names cannot be read.
pub fn chain(
    scenario: &Scenario,
    module: &Module,
    plugin: &Plugin,
    base: &Path,
) -> Result<Vec<(Option<PathBuf>, Module, Plugin)>, ScenarioError> {
    let mut first = plugin.clone();
    if let Some(given) = &scenario.config {
        first.configuration = configured(given, base)?.configuration;
    }
    first.failure_policy = scenario.failure_policy.unwrap_or(first.failure_policy);
    first.allow_on_headers_stop_iteration |= scenario.allow_on_headers_stop_iteration;
    first.allowed_capabilities.extend(scenario.allowed_capabilities.iter().cloned());
    let mut chain = vec![(None, module.clone(), first.clone())];
    for link in &scenario.then {
        let path = link.wasm.as_ref().map(|path| base.join(path));
        let module =
            path.as_ref().map_or_else(|| Ok(module.clone()), |path| compiled(path, module.compiler()))?;
        let mut plugin = link.plugin(&first);
        if let Some(given) = &link.config {
            plugin.configuration = configured(given, base)?.configuration;
        }
        chain.push((path, module, plugin));
    }
    Ok(chain)
}

/// A host that has loaded the filters of a scenario.
fn started(
    scenario: &Scenario,
    builder: Builder,
    module: &Module,
    plugin: &Plugin,
    base: &Path,
    (watch, options): (&Watch, Options),
) -> Result<Host, ScenarioError> {
    let mut builder = builder.workers(scenario.workers).framing(options.framing.unwrap_or(scenario.framing));
    if let Some(clock) = scenario.clock {
        builder = builder.clock(Clock::at(SystemTime::from(clock)));
    }
    if let Some(bytes) = scenario.buffer_limit {
        builder = builder.buffer_limit(bytes);
    }
    for (name, answer) in &scenario.clusters {
        let (answers, watch, cluster) = (Sequence::of(answer), watch.clone(), name.clone());
        builder = builder.cluster(name.clone(), move |request| {
            watch.called(&cluster, request);
            answers.next_response()
        });
    }
    let mut host = builder.build();
    let chain = chain(scenario, module, plugin, base)?;
    host.load_chain(chain.iter().map(|(_, module, plugin)| (module, plugin.clone())))?;
    Ok(host)
}

/// What became of a request, in all that client and upstream see of it.
fn shown(outcome: &Outcome) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = |headers: Option<&host_sim::Headers>| -> Vec<String> {
        let headers = headers.into_iter().flat_map(host_sim::Headers::iter);
        headers.map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    };
    let mut shown = vec![format!("{:?} {}", outcome.end(), outcome.details())];
    shown.extend(lines(Some(outcome.headers())));
    shown.push(outcome.text());
    shown.extend(lines(outcome.response().trailers()));
    if let Some(forwarded) = outcome.forwarded() {
        shown.push("forwarded:".to_owned());
        shown.extend(lines(Some(forwarded.headers())));
        shown.push(text(forwarded.body_bytes()));
        shown.extend(lines(forwarded.trailers()));
    }
    shown.join("\n")
}

/// A request as its receiver has it.
fn found(request: &Request) -> Found<'_> {
    let body = String::from_utf8_lossy(request.body_bytes()).into_owned();
    Found { headers: request.headers(), body, trailers: request.trailers().map(|trailers| trailers as _) }
}

struct Runner<'a> {
    host: &'a mut Host,
    upstream: &'a Sequence,
    watch: &'a Watch,
    base: &'a Path,
    /// The step's, counted from 1.
    number: usize,
    check: Check<'a>,
    /// The lines of the log that the first request wrote which missed.
    missed_log: Option<Range<usize>>,
    report: StepReport,
}

impl Runner<'_> {
    /// Takes a step and reports how it went.
    fn take(mut self, step: &Step, options: Options) -> Result<StepReport, ScenarioError> {
        let done = self.step(step, options)?;
        self.gather(true);
        let calls = self.watch.take_calls();
        let lines: Vec<_> = self.report.log.iter().map(|line| line.message.as_str()).collect();
        self.check.log(&step.expect, &lines);
        self.check.host(&step.expect, self.host);
        if let Some(expected) = &step.expect.callouts {
            let calls: Vec<_> = calls.iter().map(|call| (&call.cluster, found(&call.request))).collect();
            self.check.callouts(expected, &calls);
        }
        let mut report = self.report;
        report.name = step.name.clone().unwrap_or(done);
        report.misses = self.check.misses;
        let own = report.log.iter().filter(|line| line.by_host && line.level == LogLevel::Warn);
        report.warnings = own.map(|line| line.message.clone()).collect();
        if !report.misses.is_empty() {
            if let Some(range) = self.missed_log {
                report.log = report.log.drain(range).collect();
            }
            report.causes = host_sim::causes(&report.trace);
            if report.causes.is_empty() {
                let failed =
                    (0..self.host.workers()).filter_map(|worker| self.host.worker(worker).vm_failure());
                report
                    .causes
                    .extend(failed.map(|failure| format!("the VM has failed before this step: {failure}")));
            }
        } else if !options.keep_all {
            report.trace.clear();
            report.log.clear();
        }
        Ok(report)
    }

    /// Takes in what was logged and traced since the last time; the trace only where it is wanted.
    fn gather(&mut self, traced: bool) {
        self.report.log.extend(self.host.logs().take());
        let callbacks = self.watch.take_callbacks();
        if traced {
            self.report.trace.extend(callbacks);
        }
    }

    fn step(&mut self, step: &Step, options: Options) -> Result<String, ScenarioError> {
        let number = self.number;
        if !step.is_one() {
            return Err(ScenarioError::Step { step: number });
        }
        match step {
            Step { request: Some(call), .. } => {
                self.check_worker(call.worker)?;
                let times = step.repeat.unwrap_or(1);
                for time in 1..=times {
                    let before = self.check.misses.len();
                    let outcome = self
                        .host
                        .worker(call.worker)
                        .send_and_wait(call.request(), |_| self.upstream.next_response());
                    self.outcome(&step.expect, &outcome);
                    self.report.outcomes.push(shown(&outcome));
                    // Of many requests, those that miss are worth being shown, and else the last.
                    let missed = self.check.misses.len() > before;
                    let last = time == times && self.report.trace.is_empty();
                    let begin = self.report.log.len();
                    self.gather(missed || last || options.keep_all);
                    if missed && self.missed_log.is_none() {
                        self.missed_log = Some(begin..self.report.log.len());
                    }
                }
                Ok(format!("{} {}", call.method, call.path))
            }
            Step { interleave: Some(interleave), .. } => {
                for call in &interleave.requests {
                    self.check_worker(call.worker)?;
                }
                let jobs = interleave.requests.iter().map(|call| (call.worker, call.request()));
                let outcomes = self.host.interleave(interleave.seed, jobs, |_| self.upstream.next_response());
                let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
                for outcome in &outcomes {
                    *statuses.entry(outcome.status()).or_default() += 1;
                    self.outcome(&step.expect, outcome);
                    self.report.outcomes.push(shown(outcome));
                }
                let expected = step.expect.statuses.as_ref().map(|expected| format!("{expected:?}"));
                self.check.compare("statuses", expected, format!("{statuses:?}"));
                Ok(format!("{} requests at once, seed {}", outcomes.len(), interleave.seed))
            }
            Step { advance: Some(by), .. } => {
                let by = Duration::try_from(*by).map_err(|_| ScenarioError::Advance { step: number })?;
                self.host.advance(by);
                Ok(format!("{by:?} go by"))
            }
            Step { wall: Some(wall), .. } => {
                self.host.clock().set_wall(SystemTime::from(*wall));
                Ok(format!("the wall says {wall}"))
            }
            Step { fault: Some(fault), .. } => self.plan(fault),
            Step { clear_faults: Some(true), .. } => {
                self.host.clear_faults();
                Ok("faults end".to_owned())
            }
            Step { update: Some(given), .. } => {
                let configuration = configured(given, self.base)?.configuration;
                let refused = self.host.update(configuration).err();
                if let Some(expected) = step.expect.refused.or(Some(false))
                    && expected != refused.is_some()
                {
                    let word = |refused| if refused { "refused" } else { "taken" };
                    let found = refused.as_ref().map_or_else(|| word(false).to_owned(), ToString::to_string);
                    self.check.miss("update", word(expected), found);
                }
                Ok("a new configuration".to_owned())
            }
            _ => Err(ScenarioError::Step { step: number }),
        }
    }

    /// Looks at a request's outcome.
    fn outcome(&mut self, expect: &Expect, outcome: &Outcome) {
        self.check.compare("local_reply", expect.local_reply, outcome.is_local_reply());
        self.check.compare("details", expect.details.as_deref(), outcome.details());
        let trailers = outcome.response().trailers().map(|trailers| trailers as _);
        let answer = Found { headers: outcome.headers(), body: outcome.text(), trailers };
        let seen = Seen {
            status: outcome.status(),
            ends: outcome.end() != End::Paused,
            reset: outcome.end() == End::Reset,
            answer,
            forwarded: outcome.forwarded().map(found),
        };
        self.check.seen(expect, &seen);
    }

    fn check_worker(&self, worker: usize) -> Result<(), ScenarioError> {
        let workers = self.host.workers();
        if worker < workers {
            return Ok(());
        }
        Err(ScenarioError::Worker { step: self.number, worker, workers })
    }

    fn plan(&mut self, given: &FaultStep) -> Result<String, ScenarioError> {
        let step = self.number;
        let status = Status::ALL.into_iter().find(|status| status.name() == given.status);
        let status = status.ok_or_else(|| ScenarioError::Status { step, status: given.status.clone() })?;
        let mut fault = Fault::new(given.call.clone(), status).times(given.times.unwrap_or(1));
        if given.every {
            fault = fault.every();
        }
        if let Some(nth) = given.nth {
            fault = fault.nth(nth);
        }
        if let Some(worker) = given.worker {
            fault = fault.on_worker(worker);
        }
        self.host.inject(fault).map_err(|source| ScenarioError::Fault { step, source })?;
        Ok(format!("{} answers {status}", given.call))
    }
}

impl Step {
    /// Whether the step says exactly one thing to do.
    fn is_one(&self) -> bool {
        let kinds = [
            self.request.is_some(),
            self.interleave.is_some(),
            self.advance.is_some(),
            self.wall.is_some(),
            self.fault.is_some(),
            self.clear_faults.is_some(),
            self.update.is_some(),
        ];
        kinds.into_iter().filter(|given| *given).count() == 1
    }
}
