//! Takes the steps of a scenario, in the simulator or in a gateway.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use host_sim::{
    Builder, Compiler, ConfigurationError, Framing, LoadError, LogLevel, LogLine, Module, Plugin,
    configuration,
};
use serde_json::Value as Json;

use super::{
    answer::Answers,
    check::Check,
    error::ScenarioError,
    file::{Call, Scenario, Step},
    mask::Masks,
    report::{Report, StepReport},
    seen::{Called, Seen, lines_of_calls},
    simulator::Simulator,
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
        let problem = if scenarios.is_empty() {
            "no scenario in it"
        } else if scenarios.iter().any(|scenario| scenario.steps.is_empty() == scenario.refused.is_none()) {
            "a scenario has either steps or refused"
        } else {
            return Ok(scenarios);
        };
        Err(ScenarioError::Syntax { path, problem: problem.to_owned() })
    }
}

/// Whether a text is the path of a configuration, there or not.
fn is_path(text: &str) -> bool {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    !text.contains(['\n', '{']) && matches!(extension, Some("json" | "yaml" | "yml"))
}

/// A configuration that a scenario gives: a path, seen from `base`, or the thing itself.
fn configured(given: &Json, base: &Path) -> Result<Plugin, ConfigurationError> {
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
    let chain = chain(scenario, module, plugin, base)?;
    let filters = chain.iter().map(|(_, module, plugin)| (module, plugin.clone()));
    let started = Simulator::start(scenario, builder, filters, options);
    if let Some(expected) = &scenario.refused {
        return match started {
            Ok(_) => Ok(Report::of_refusal(expected, None)),
            Err(ScenarioError::Load(refusal @ LoadError::Refused { .. })) => {
                Ok(Report::of_refusal(expected, Some(&refusal.to_string())))
            }
            Err(error) => Err(error),
        };
    }
    let mut simulator = started?;
    take_all(&mut simulator, scenario, base, &Masks::default())
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

/// Where the steps of a scenario are taken: filters behind something that requests are sent to.
pub(crate) trait Target {
    type Error: From<ScenarioError>;

    /// What the upstream answers in a step, in place of the scenario's answers; `None` ends that.
    fn answer(&mut self, answers: Option<&Answers>) -> Result<(), Self::Error>;

    /// Sends the request of a step, which has this number.
    fn send(&mut self, number: usize, call: &Call, step: &Step) -> Result<Seen, Self::Error>;

    /// Gives the first filter a new configuration, and says why it was refused, if it was.
    fn update(&mut self, configuration: Bytes) -> Result<Option<String>, Self::Error>;

    /// Lets time pass.
    fn advance(&mut self, by: Duration) -> Result<(), Self::Error>;

    /// Takes a step of any other kind, and says what it does.
    fn control(&mut self, step: &Step, taking: &mut Taking<'_>) -> Result<String, Self::Error>;

    /// Takes in what was logged and traced since the last time; the trace only where it is wanted.
    fn gather(&mut self, report: &mut StepReport, traced: bool);

    /// Takes in the rest of a step, looks at what only this target can show, and says which calls filters have made.
    fn settle(&mut self, step: &Step, taking: &mut Taking<'_>) -> Result<Vec<Called>, Self::Error>;

    /// The value of a counter or a gauge, or what there is in its place; `expected` may still come.
    fn metric(&self, name: &str, expected: u64) -> String;

    /// Why VMs have failed.
    fn failures(&self) -> Vec<String>;

    /// Whether the log and the trace of every step are kept, not just of those that miss.
    fn keeps_all(&self) -> bool;
}

/// A step that is being taken.
pub(crate) struct Taking<'a> {
    /// The step's number, counted from 1.
    pub(crate) number: usize,
    pub(crate) check: Check<'a>,
    pub(crate) masks: &'a Masks<'a>,
    pub(crate) report: StepReport,
    /// Lines that were logged before this step, and count in it.
    pub(crate) before: Vec<LogLine>,
    /// The lines of the log that the first request wrote which missed.
    missed_log: Option<Range<usize>>,
}

impl<'a> Taking<'a> {
    pub(crate) fn new(number: usize, masks: &'a Masks<'a>) -> Self {
        let (check, report) = (Check::new(masks), StepReport::default());
        Self { number, check, masks, report, before: Vec::new(), missed_log: None }
    }

    /// Looks at what became of a request.
    pub(crate) fn see(&mut self, step: &Step, seen: &Seen) {
        self.check.seen(&step.expect, seen);
        self.report.seen.push(seen.lines(self.masks).join("\n"));
    }
}

/// Takes all steps of a scenario.
fn take_all<T: Target>(
    target: &mut T,
    scenario: &Scenario,
    base: &Path,
    masks: &Masks<'_>,
) -> Result<Report, T::Error> {
    let mut report = Report::default();
    for (index, step) in scenario.steps.iter().enumerate() {
        let mut taking = Taking::new(index + 1, masks);
        taking.act(target, step, base)?;
        report.steps.push(taking.finish(target, step)?);
    }
    Ok(report)
}

impl Taking<'_> {
    /// Does what a step says.
    pub(crate) fn act<T: Target>(
        &mut self,
        target: &mut T,
        step: &Step,
        base: &Path,
    ) -> Result<(), T::Error> {
        target.answer(step.upstream.as_ref())?;
        self.report.name = self.take(target, step, base)?;
        target.answer(None)
    }

    /// Ends a step and reports how it went.
    pub(crate) fn finish<T: Target>(mut self, target: &mut T, step: &Step) -> Result<StepReport, T::Error> {
        let expect = &step.expect;
        let calls = target.settle(step, &mut self)?;
        if !self.report.seen.is_empty() {
            self.report.calls = lines_of_calls(&calls, self.masks).join("\n");
        }
        let lines: Vec<_> =
            self.before.iter().chain(&self.report.log).map(|line| line.message.as_str()).collect();
        self.check.log(expect, &lines);
        for (name, expected) in &expect.metrics {
            let found = target.metric(name, *expected);
            self.check.compare(&format!("metrics.{name}"), Some(expected.to_string()), found);
        }
        if let Some(expected) = &expect.callouts {
            self.check.callouts(expected, &calls);
        }
        let mut report = self.report;
        report.name = step.name.clone().unwrap_or(report.name);
        report.misses = self.check.misses;
        let own = report.log.iter().filter(|line| line.by_host && line.level == LogLevel::Warn);
        report.warnings = own.map(|line| line.message.clone()).collect();
        if !report.misses.is_empty() {
            if let Some(range) = self.missed_log.filter(|range| !range.is_empty()) {
                report.log = report.log.drain(range).collect();
            }
            report.causes = host_sim::causes(&report.trace);
            if report.causes.is_empty() {
                let failed = target.failures().into_iter();
                report
                    .causes
                    .extend(failed.map(|failure| format!("the VM has failed before this step: {failure}")));
            }
        } else if !target.keeps_all() {
            report.trace.clear();
            report.log.clear();
        }
        Ok(report)
    }

    /// Does what a step says, and says what that is.
    fn take<T: Target>(&mut self, target: &mut T, step: &Step, base: &Path) -> Result<String, T::Error> {
        let number = self.number;
        if !step.is_one() {
            return Err(ScenarioError::Step { step: number }.into());
        }
        match step {
            Step { request: Some(call), .. } => {
                let times = step.repeat.unwrap_or(1);
                for time in 1..=times {
                    let before = self.check.misses.len();
                    let seen = target.send(number, call, step)?;
                    self.see(step, &seen);
                    // Of many requests, those that miss are worth being shown, and else the last.
                    let missed = self.check.misses.len() > before;
                    let last = time == times && self.report.trace.is_empty();
                    let begin = self.report.log.len();
                    target.gather(&mut self.report, missed || last || target.keeps_all());
                    if missed && self.missed_log.is_none() {
                        self.missed_log = Some(begin..self.report.log.len());
                    }
                }
                Ok(format!("{} {}", call.method, call.path))
            }
            Step { advance: Some(by), .. } => {
                let by = Duration::try_from(*by).map_err(|_| ScenarioError::Advance { step: number })?;
                target.advance(by)?;
                Ok(format!("{by:?} go by"))
            }
            Step { update: Some(given), .. } => {
                let configuration = configured(given, base).map_err(ScenarioError::from)?.configuration;
                let refused = target.update(configuration)?;
                let expected = step.expect.refused.unwrap_or(false);
                if expected != refused.is_some() {
                    let word = |refused| if refused { "refused" } else { "taken" };
                    let found = refused.unwrap_or_else(|| word(false).to_owned());
                    self.check.miss("update", word(expected), found);
                }
                Ok("a new configuration".to_owned())
            }
            other => target.control(other, self),
        }
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
