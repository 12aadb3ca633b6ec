//! Runs a scenario against a filter.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use host_sim::{
    Builder, Clock, ConfigurationError, End, Fault, Headers, Host, LogLevel, MetricValue, Module, Outcome,
    Plugin, Request, Response, Status, Value, configuration, property_path,
};
use serde_json::Value as Json;

use super::{
    error::ScenarioError,
    file::{Call, Expect, FaultStep, Scenario, Step},
    report::{Miss, Report, StepReport},
};

impl Scenario {
    /// Reads a scenario from a file of YAML or JSON.
    ///
    /// # Errors
    /// When the file cannot be read or holds no scenario.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, ScenarioError> {
        let path = path.into();
        match fs::read(&path) {
            Ok(bytes) => serde_saphyr::from_slice(&bytes)
                .map_err(|error| ScenarioError::Syntax { path, problem: error.to_string() }),
            Err(source) => Err(ScenarioError::Read { path, source }),
        }
    }
}

/// A configuration that a scenario gives: a path, seen from `base`, or the thing itself.
fn configured(given: &Json, base: &Path) -> Result<Plugin, ConfigurationError> {
    match given {
        Json::String(path) if base.join(path).is_file() => configuration::read(base.join(path), None),
        Json::String(text) => configuration::parse(text.as_bytes(), None),
        other => configuration::parse(other.to_string().as_bytes(), None),
    }
}

fn compiled(path: &Path) -> Result<Module, ScenarioError> {
    let wasm = fs::read(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
    Module::compile(wasm).map_err(|source| ScenarioError::Module { path: path.to_owned(), source })
}

/// Runs a scenario: loads the filter into a new host, made as `builder` and the scenario say, and takes the steps. `plugin` is how the filter is configured where
/// the scenario does not say; paths in the scenario are seen from `base`.
///
/// # Errors
/// When the filter does not load, or a step makes no sense. What is not as expected is no error but in the report.
pub fn run(
    scenario: &Scenario,
    builder: Builder,
    module: &Module,
    plugin: &Plugin,
    base: &Path,
) -> Result<Report, ScenarioError> {
    let mut plugin = plugin.clone();
    if let Some(given) = &scenario.config {
        plugin.configuration = configured(given, base)?.configuration;
    }
    plugin.failure_policy = scenario.failure_policy.unwrap_or(plugin.failure_policy);
    plugin.allow_on_headers_stop_iteration |= scenario.allow_on_headers_stop_iteration;
    plugin.allowed_capabilities.extend(scenario.allowed_capabilities.iter().cloned());
    let mut builder = builder.workers(scenario.workers).framing(scenario.framing);
    if let Some(clock) = scenario.clock {
        builder = builder.clock(Clock::at(SystemTime::from(clock)));
    }
    if let Some(bytes) = scenario.buffer_limit {
        builder = builder.buffer_limit(bytes);
    }
    for (name, answer) in &scenario.clusters {
        let response = answer.response();
        builder = builder.cluster(name.clone(), move |_| response.clone());
    }
    let mut host = builder.build();
    let first = plugin.clone();
    let mut modules = vec![module.clone()];
    let mut plugins = vec![plugin];
    for link in &scenario.then {
        modules
            .push(link.wasm.as_ref().map_or_else(|| Ok(module.clone()), |path| compiled(&base.join(path)))?);
        let mut plugin = link.plugin(&first);
        if let Some(given) = &link.config {
            plugin.configuration = configured(given, base)?.configuration;
        }
        plugins.push(plugin);
    }
    host.load_chain(modules.iter().zip(plugins))?;
    host.logs().take();

    let upstream = scenario.upstream.response();
    let mut steps = Vec::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        let number = index + 1;
        let mut runner = Runner {
            host: &mut host,
            upstream: &upstream,
            base,
            number,
            misses: Vec::new(),
            warnings: Vec::new(),
        };
        let done = runner.take(step)?;
        runner.look(&step.expect);
        let Runner { misses, warnings, .. } = runner;
        steps.push(StepReport { name: step.name.clone().unwrap_or(done), misses, warnings });
    }
    Ok(Report { steps })
}

fn request(call: &Call) -> Request {
    let mut request = Request::new(call.method.clone(), call.path.clone()).body(call.body.clone());
    if let Some(authority) = &call.authority {
        request = request.authority(authority.clone());
    }
    if let Some(source) = &call.source {
        request = request.source(source.clone());
    }
    for (name, lines) in &call.headers {
        for line in lines.iter() {
            request = request.header(name.clone(), line.clone());
        }
    }
    for (name, value) in &call.trailers {
        request = request.trailer(name.clone(), value.clone());
    }
    if call.http2 {
        request = request.http2();
    }
    if call.chunked {
        request = request.chunked();
    }
    for (path, value) in &call.properties {
        request = request.property(property_path(path), Value::from(value.clone()));
    }
    request
}

/// A header's lines as one, for comparison and for the eye.
fn joined(headers: &Headers, name: &str) -> Option<String> {
    let lines: Vec<_> =
        headers.get_all(name).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

struct Runner<'a> {
    host: &'a mut Host,
    upstream: &'a Response,
    base: &'a Path,
    number: usize,
    misses: Vec<Miss>,
    warnings: Vec<String>,
}

impl Runner<'_> {
    fn miss(&mut self, what: impl Into<String>, expected: impl fmt::Display, found: impl fmt::Display) {
        let miss = Miss { what: what.into(), expected: expected.to_string(), found: found.to_string() };
        // A repeated request misses the same way many times over.
        if !self.misses.contains(&miss) {
            self.misses.push(miss);
        }
    }

    fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, expected: Option<T>, found: &T) {
        if let Some(expected) = expected.filter(|expected| expected != found) {
            self.miss(what, expected, found);
        }
    }

    /// Takes a step, and tells what it was.
    fn take(&mut self, step: &Step) -> Result<String, ScenarioError> {
        let number = self.number;
        match step {
            Step { request: Some(call), .. } if step.is_one() => {
                self.check_worker(call.worker)?;
                for _ in 0..step.repeat.unwrap_or(1) {
                    let outcome = self.host.send(call.worker, request(call), |_| self.upstream.clone());
                    self.check(&step.expect, &outcome);
                }
                Ok(format!("{} {}", call.method, call.path))
            }
            Step { interleave: Some(interleave), .. } if step.is_one() => {
                for call in &interleave.requests {
                    self.check_worker(call.worker)?;
                }
                let jobs = interleave.requests.iter().map(|call| (call.worker, request(call)));
                let outcomes = self.host.interleave(interleave.seed, jobs, |_| self.upstream.clone());
                let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
                for outcome in &outcomes {
                    *statuses.entry(outcome.status()).or_default() += 1;
                    self.check(&step.expect, outcome);
                }
                if let Some(expected) =
                    step.expect.statuses.as_ref().filter(|expected| **expected != statuses)
                {
                    self.miss("statuses", format!("{expected:?}"), format!("{statuses:?}"));
                }
                Ok(format!("{} requests at once, seed {}", outcomes.len(), interleave.seed))
            }
            Step { advance: Some(by), .. } if step.is_one() => {
                let by = Duration::try_from(*by).map_err(|_| ScenarioError::Advance { step: number })?;
                self.host.advance(by);
                Ok(format!("{by:?} go by"))
            }
            Step { wall: Some(wall), .. } if step.is_one() => {
                self.host.clock().set_wall(SystemTime::from(*wall));
                Ok(format!("the wall says {wall}"))
            }
            Step { fault: Some(fault), .. } if step.is_one() => self.plan(fault),
            Step { clear_faults: Some(true), .. } if step.is_one() => {
                self.host.clear_faults();
                Ok("faults end".to_owned())
            }
            Step { update: Some(given), .. } if step.is_one() => {
                let configuration = configured(given, self.base)?.configuration;
                let refused = self.host.update(configuration).err();
                if let Some(expected) = step.expect.refused.or(Some(false))
                    && expected != refused.is_some()
                {
                    let word = |refused| if refused { "refused" } else { "taken" };
                    let found = refused.as_ref().map_or_else(|| word(false).to_owned(), ToString::to_string);
                    self.miss("update", word(expected), found);
                }
                Ok("a new configuration".to_owned())
            }
            _ => Err(ScenarioError::Step { step: number }),
        }
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

    /// Compares a request's outcome with what is expected.
    fn check(&mut self, expect: &Expect, outcome: &Outcome) {
        self.compare("status", expect.status, &outcome.status());
        self.compare("ends", expect.ends, &(outcome.end() != End::Paused));
        self.compare("reset", expect.reset, &(outcome.end() == End::Reset));
        self.compare("local_reply", expect.local_reply, &outcome.is_local_reply());
        self.compare("details", expect.details.as_deref(), &outcome.details());
        self.compare("body", expect.body.as_deref(), &outcome.text().as_str());
        if let Some(part) = expect.body_contains.as_ref().filter(|part| !outcome.text().contains(*part)) {
            self.miss("body_contains", part, outcome.text());
        }
        self.check_headers("headers", &expect.headers, outcome.headers());
        match outcome.forwarded() {
            Some(forwarded) => {
                self.check_headers("forwarded_headers", &expect.forwarded_headers, forwarded.headers());
            }
            None if !expect.forwarded_headers.is_empty() => {
                self.miss("forwarded_headers", "a forwarded request", "none");
            }
            None => {}
        }
    }

    fn check_headers(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, found: &Headers) {
        const ABSENT: &str = "(absent)";
        for (name, expected) in expected {
            let found = joined(found, name);
            if *expected != found {
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| ABSENT.to_owned());
                self.miss(format!("{what}.{name}"), text(expected), text(&found));
            }
        }
    }

    /// Looks at what the host shows after a step.
    fn look(&mut self, expect: &Expect) {
        let lines = self.host.logs().take();
        let own = lines.iter().filter(|line| line.by_host && line.level == LogLevel::Warn);
        self.warnings.extend(own.map(|line| line.message.clone()));
        let log: Vec<_> = lines.into_iter().map(|line| line.message).collect();
        for part in &expect.log {
            if !log.iter().any(|line| line.contains(part)) {
                self.miss("log", part, log.join("\n"));
            }
        }
        let metrics: BTreeMap<_, _> = self.host.metrics().all().into_iter().collect();
        for (name, expected) in &expect.metrics {
            match metrics.get(name) {
                Some(MetricValue::Counter(found) | MetricValue::Gauge(found)) if found == expected => {}
                Some(MetricValue::Counter(found) | MetricValue::Gauge(found)) => {
                    self.miss(format!("metrics.{name}"), expected, found);
                }
                Some(MetricValue::Histogram(_)) => {
                    self.miss(format!("metrics.{name}"), expected, "a histogram");
                }
                None => self.miss(format!("metrics.{name}"), expected, "no such metric"),
            }
        }
        let entries = self.host.shared_data().entries();
        if let Some(most) = expect.shared_data_entries_at_most.filter(|most| entries > *most) {
            self.miss("shared_data_entries_at_most", most, entries);
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
