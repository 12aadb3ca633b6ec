//! The host: workers over one shared store, and the clock that a test holds.

use std::{
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

mod load;
mod loaded;
pub(crate) mod stream;
pub(crate) mod worker;

use self::loaded::Loaded;
use crate::{
    abi::Status,
    clock::Clock,
    clusters::Clusters,
    driver::Driver,
    host::stream::Stream,
    hostcalls::is_host_function,
    lock::lock,
    outcome::Outcome,
    shared::{
        Shared,
        data::SharedData,
        faults::{Fault, UnknownHostCall},
        logs::Logs,
        metrics::Metrics,
        turns::Turns,
    },
    vm_name::VmName,
    wire::message::{Request, Response},
    worker::SharedWorker,
};

/// VMs that put something in each other's queues in every callback would never come to an end.
const MAX_QUEUE_ROUNDS: usize = 1000;

/// The most lines that are shown of what was logged after the last request.
const LAST_LINES: usize = 50;

/// The note that takes the place of a trace where tracing is off.
const NO_TRACE: &str = "  (Host::builder().trace() shows each callback and host call here)\n";

/// A gateway process, simulated: a filter, or several in a chain, in a main VM and a VM per worker, over one shared store.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    workers: usize,
    clusters: Arc<Clusters>,
    loaded: Option<Loaded>,
    /// Whether a driver takes the work that guests leave.
    driven: bool,
}

/// What threads come to, in their order. A panic goes on here.
fn joined<T>(threads: Vec<ScopedJoinHandle<'_, T>>) -> impl Iterator<Item = T> {
    threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

impl Drop for Host {
    /// When a test panics, prints the last request of its host.
    #[expect(
        clippy::print_stderr,
        reason = "libtest keeps what is printed like this, and shows it of a test that fails"
    )]
    fn drop(&mut self) {
        if thread::panicking() {
            eprint!("{}", self.last_words());
        }
    }
}

impl Host {
    /// What became of the last request, and the newest lines that were logged since.
    fn last_words(&self) -> String {
        let (last, mark) = self.clusters.last().unzip();
        let lines = self.shared.logs.since(mark.unwrap_or(0));
        let newest = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
        let last = last.map(|outcome| {
            let hint = if outcome.trace().is_empty() { NO_TRACE } else { "" };
            format!("host-sim, the last request: {outcome:?}\n{hint}")
        });
        let newest: String = newest.iter().map(|line| format!("  {line}\n")).collect();
        let title = match &last {
            _ if newest.is_empty() => "",
            None => "host-sim, the log:\n",
            Some(_) => "host-sim, logged since then:\n",
        };
        format!("{}{title}{newest}", last.unwrap_or_default())
    }

    pub(crate) fn new(shared: Arc<Shared>, workers: usize, clusters: Clusters) -> Self {
        Self { shared, workers, clusters: Arc::new(clusters), loaded: None, driven: false }
    }

    fn all_workers(&self) -> Vec<SharedWorker> {
        let drivers = self.loaded.iter().map(|loaded| &loaded.driver);
        drivers.flat_map(|driver| std::iter::once(&driver.main).chain(&driver.workers)).cloned().collect()
    }

    fn shared_worker(&self, index: usize) -> &SharedWorker {
        let loaded = self.loaded.as_ref().expect("a filter is loaded before requests are sent");
        loaded
            .driver
            .workers
            .get(index)
            .unwrap_or_else(|| panic!("worker {index} of {}: workers are counted from 0", self.workers))
    }

    /// Has a gateway drive the workers itself: from now on, what guests ask for while filters are loaded, replaced or updated is
    /// its [`Work`](crate::driver::Work). Guests may call its clusters, beside those of the [`Builder`](crate::Builder).
    pub fn drive(&mut self, clusters: impl IntoIterator<Item = String>) {
        lock(&self.shared.clusters).extend(clusters);
        self.driven = true;
    }

    /// The workers, for whoever drives them; none when no filter is loaded.
    pub fn driver(&self) -> Option<Driver> {
        Some(self.loaded.as_ref()?.driver.clone())
    }

    fn serve_callouts(&self) {
        for worker in self.all_workers() {
            self.clusters.serve(&mut worker.lock());
        }
        self.tell_ready_queues();
    }

    /// Lets VMs hear of queues that other VMs have put something in. One that is busy hears of them when it is done.
    fn tell_ready_queues(&self) {
        for _ in 0..MAX_QUEUE_ROUNDS {
            let awaited = self.shared.shared_queues.awaited();
            let Some(loaded) = self.loaded.as_ref().filter(|_| !awaited.is_empty()) else { return };
            for name in awaited {
                let worker = match name {
                    VmName::Main => Some(&loaded.driver.main),
                    VmName::Worker(index) => loaded.driver.workers.get(index),
                    VmName::Base | VmName::Canary => None,
                };
                match worker.map(SharedWorker::try_lock) {
                    Some(Some(mut worker)) => self.clusters.serve(&mut worker),
                    Some(None) => {}
                    // Nobody is left to be told: the canary registered and is gone.
                    None => drop(self.shared.shared_queues.take_ready(name)),
                }
            }
        }
    }

    /// Sends requests to several workers at the same time. At every host call a generator, seeded with `seed`, decides
    /// which VM goes on, so the same seed gives the same run. Requests to one worker follow each other. Outcomes come
    /// in the order of the jobs.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn interleave(
        &self,
        seed: u64,
        jobs: impl IntoIterator<Item = (usize, Request)>,
        upstream: impl Fn(&Request) -> Response + Sync,
    ) -> Vec<Outcome> {
        let mut queues: Vec<(usize, Vec<(usize, Request)>)> = Vec::new();
        for (job, (worker, request)) in jobs.into_iter().enumerate() {
            match queues.iter_mut().find(|(of, _)| *of == worker) {
                Some((_, queue)) => queue.push((job, request)),
                None => queues.push((worker, vec![(job, request)])),
            }
        }
        let seats = Turns::seats(seed, queues.len());
        let mut outcomes = thread::scope(|scope| {
            let handles: Vec<_> = queues
                .into_iter()
                .zip(seats)
                .map(|((worker, queue), turns)| {
                    let (worker, upstream) = (self.shared_worker(worker), &upstream);
                    scope.spawn(move || {
                        turns.take(|| {
                            let turn = |turns: Option<&Turns>| {
                                worker.lock().vms().for_each(|vm| vm.state().turns = turns.cloned());
                            };
                            turn(Some(&turns));
                            let outcomes: Vec<_> = queue
                                .into_iter()
                                .map(|(job, request)| {
                                    (job, Stream::exchange(worker, &self.clusters, request, upstream))
                                })
                                .collect();
                            turn(None);
                            outcomes
                        })
                    })
                })
                .collect();
            joined(handles).flatten().collect::<Vec<_>>()
        });
        self.tell_ready_queues();
        outcomes.sort_by_key(|(job, _)| *job);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Runs `work` on a thread of its own for each worker, in parallel, and gives it the worker's number.
    pub fn threads<T: Send>(&self, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let handles: Vec<_> = (0..self.workers).map(|worker| scope.spawn(move || work(worker))).collect();
            joined(handles).collect()
        })
    }

    /// The host's clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Fires the timers that are due, each once, on the main VM and every worker; as in Envoy each is armed again from
    /// now. Callouts that have timed out are answered.
    pub fn tick(&self) {
        for worker in self.all_workers() {
            worker.lock().tick();
            self.clusters.serve(&mut worker.lock());
        }
        self.tell_ready_queues();
    }

    /// Lets time pass and fires each timer whenever it is due on the way.
    pub fn advance(&self, by: Duration) {
        let end = self.shared.clock.monotonic() + by;
        loop {
            let now = self.shared.clock.monotonic();
            let next = self.all_workers().iter().filter_map(|worker| worker.lock().next_event()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.shared.clock.advance(end.saturating_sub(now));
                return;
            };
            self.shared.clock.advance(next.saturating_sub(now));
            self.tick();
        }
    }

    /// The data that the VMs share.
    pub fn shared_data(&self) -> &SharedData {
        &self.shared.shared_data
    }

    /// The metrics that filters have defined.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The log.
    pub fn logs(&self) -> &Logs {
        &self.shared.logs
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many host calls the guests of all workers have made.
    pub fn host_calls(&self) -> u64 {
        self.all_workers()
            .iter()
            .map(|worker| worker.lock().vms().map(|vm| vm.state().host_calls).sum::<u64>())
            .sum()
    }

    /// The largest memory of a worker's guest, in bytes.
    pub fn guest_memory(&self) -> usize {
        self.all_workers()
            .iter()
            .flat_map(|worker| worker.lock().vms().map(|vm| vm.memory_size()).max())
            .max()
            .unwrap_or(0)
    }

    /// How many contexts the guests of all workers have, roots and streams.
    pub fn contexts(&self) -> usize {
        self.all_workers()
            .iter()
            .map(|worker| worker.lock().vms().map(|vm| vm.state().contexts.len()).sum::<usize>())
            .sum()
    }

    /// Makes the next call of this name answer `status`.
    ///
    /// # Errors
    /// When no host call has this name.
    pub fn fail_next(&self, call: impl Into<String>, status: Status) -> Result<(), UnknownHostCall> {
        self.inject(Fault::new(call, status))
    }

    /// Makes calls fail as `fault` says.
    ///
    /// # Errors
    /// When no host call has the fault's name.
    pub fn inject(&self, fault: Fault) -> Result<(), UnknownHostCall> {
        if !is_host_function(&fault.call) {
            return Err(UnknownHostCall { name: fault.call });
        }
        self.shared.faults.plan(fault);
        Ok(())
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }
}
