//! The simulator as the place where a scenario is run.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use host_sim::{Builder, Clock, Fault, Host, MetricValue, Module, Plugin, Status, TracedCallback};

use super::{
    answer::{Answers, Sequence},
    error::ScenarioError,
    file::{Call, FaultStep, Scenario, Step},
    report::StepReport,
    run::{Options, Taking, Target},
    seen::{Called, Seen},
};

/// The most callbacks that are kept of a step, the newest.
const MAX_CALLBACKS: usize = 2_000;

/// What filters have done since the last time.
#[derive(Debug, Default)]
struct Done {
    callbacks: VecDeque<TracedCallback>,
    calls: Vec<Called>,
}

fn lock(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host that has loaded the filters of a scenario, and is watched.
pub(super) struct Simulator {
    host: Host,
    done: Arc<Mutex<Done>>,
    upstream: Sequence,
    /// The answers of a step, in place of the others.
    of_step: Option<Sequence>,
    keep_all: bool,
}

impl Simulator {
    pub(super) fn start<'a>(
        scenario: &Scenario,
        builder: Builder,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
        options: Options,
    ) -> Result<Self, ScenarioError> {
        let done = Arc::<Mutex<Done>>::default();
        let watched = Arc::clone(&done);
        let mut builder = builder.on_trace(move |callback| {
            let callbacks = &mut lock(&watched).callbacks;
            if callbacks.len() == MAX_CALLBACKS {
                callbacks.pop_front();
            }
            callbacks.push_back(callback.clone());
        });
        builder = builder.workers(scenario.workers).framing(options.framing.unwrap_or(scenario.framing));
        if let Some(clock) = scenario.clock {
            builder = builder.clock(Clock::at(SystemTime::from(clock)));
        }
        if let Some(bytes) = scenario.buffer_limit {
            builder = builder.buffer_limit(bytes);
        }
        for (name, answer) in &scenario.clusters {
            let (answers, called, cluster) = (Sequence::of(answer), Arc::clone(&done), name.clone());
            builder = builder.cluster(name.clone(), move |request| {
                lock(&called).calls.push(Called { cluster: cluster.clone(), message: request.into() });
                answers.next_response()
            });
        }
        let mut host = builder.build();
        host.load_chain(filters)?;
        host.logs().take();
        {
            let mut done = lock(&done);
            done.callbacks.clear();
            done.calls.clear();
        }
        let upstream = Sequence::of(&scenario.upstream);
        Ok(Self { host, done, upstream, of_step: None, keep_all: options.keep_all })
    }

    fn check_worker(&self, step: usize, worker: usize) -> Result<(), ScenarioError> {
        let workers = self.host.workers();
        if worker < workers { Ok(()) } else { Err(ScenarioError::Worker { step, worker, workers }) }
    }

    fn plan(&self, step: usize, given: &FaultStep) -> Result<String, ScenarioError> {
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

impl Target for Simulator {
    type Error = ScenarioError;

    fn answer(&mut self, answers: Option<&Answers>) -> Result<(), ScenarioError> {
        self.of_step = answers.map(Sequence::of);
        Ok(())
    }

    fn send(&mut self, number: usize, call: &Call, _: &Step) -> Result<Seen, ScenarioError> {
        self.check_worker(number, call.worker)?;
        let answers = self.of_step.as_ref().unwrap_or(&self.upstream);
        let worker = self.host.worker(call.worker);
        Ok(Seen::from(&worker.send_and_wait(call.request(), |_| answers.next_response())))
    }

    fn update(&mut self, configuration: Bytes) -> Result<Option<String>, ScenarioError> {
        Ok(self.host.update(configuration).err().map(|refusal| refusal.to_string()))
    }

    fn advance(&mut self, by: Duration) -> Result<(), ScenarioError> {
        self.host.advance(by);
        Ok(())
    }

    fn control(&mut self, step: &Step, taking: &mut Taking<'_>) -> Result<String, ScenarioError> {
        match step {
            Step { interleave: Some(interleave), .. } => {
                for call in &interleave.requests {
                    self.check_worker(taking.number, call.worker)?;
                }
                let jobs = interleave.requests.iter().map(|call| (call.worker, call.request()));
                let answers = self.of_step.as_ref().unwrap_or(&self.upstream);
                let outcomes = self.host.interleave(interleave.seed, jobs, |_| answers.next_response());
                let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
                for outcome in &outcomes {
                    *statuses.entry(outcome.status()).or_default() += 1;
                    taking.see(step, &outcome.into());
                }
                let expected = step.expect.statuses.as_ref().map(|expected| format!("{expected:?}"));
                taking.check.compare("statuses", expected, format!("{statuses:?}"));
                Ok(format!("{} requests at once, seed {}", outcomes.len(), interleave.seed))
            }
            Step { wall: Some(wall), .. } => {
                self.host.clock().set_wall(SystemTime::from(*wall));
                Ok(format!("the wall says {wall}"))
            }
            Step { fault: Some(fault), .. } => self.plan(taking.number, fault),
            Step { clear_faults: Some(true), .. } => {
                self.host.clear_faults();
                Ok("faults end".to_owned())
            }
            _ => Err(ScenarioError::Step { step: taking.number }),
        }
    }

    fn gather(&mut self, report: &mut StepReport, traced: bool) {
        report.log.extend(self.host.logs().take());
        let callbacks = mem::take(&mut lock(&self.done).callbacks);
        if traced {
            report.trace.extend(callbacks);
        }
    }

    fn settle(&mut self, step: &Step, taking: &mut Taking<'_>) -> Result<Vec<Called>, ScenarioError> {
        self.gather(&mut taking.report, true);
        let entries = self.host.shared_data().entries();
        if let Some(most) = step.expect.shared_data_entries_at_most.filter(|most| entries > *most) {
            taking.check.miss("shared_data_entries_at_most", most, entries);
        }
        Ok(mem::take(&mut lock(&self.done).calls))
    }

    fn metric(&self, name: &str, _: u64) -> String {
        let metrics = self.host.metrics().all();
        match metrics.into_iter().find(|(found, _)| found == name) {
            Some((_, MetricValue::Counter(found) | MetricValue::Gauge(found))) => found.to_string(),
            Some((_, MetricValue::Histogram(_))) => "a histogram".to_owned(),
            None => "no such metric".to_owned(),
        }
    }

    fn failures(&self) -> Vec<String> {
        let workers = (0..self.host.workers()).map(|worker| self.host.worker(worker));
        workers.filter_map(|worker| Some(worker.vm_failure()?.to_string())).collect()
    }

    fn keeps_all(&self) -> bool {
        self.keep_all
    }
}
