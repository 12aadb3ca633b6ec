//! The host: workers over one shared store, and the clock that a test holds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use envoy_config::Plugin;

use crate::{
    abi::Status,
    builder::Builder,
    clock::Clock,
    driver::{self, Driver},
    exchange::{self, Clusters},
    faults::{Fault, UnknownHostCall},
    flavour::EnvoyVersion,
    load_error::LoadError,
    logs::Logs,
    message::{Outcome, Request, Response},
    metrics::Metrics,
    module::Module,
    schedule::Turns,
    shared_data::SharedData,
    state::Shared,
    stream::Stream,
    vm::{Vm, VmError, VmName},
    worker::{Filter, ReloadStats, Worker},
};

/// VMs that put something in each other's queues whenever they are told would never come to an end.
const MAX_QUEUE_ROUNDS: usize = 1000;

/// A gateway process, simulated: a filter, or several in a chain, in a main VM and a VM per worker, over one shared store.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    version: EnvoyVersion,
    workers: usize,
    clusters: Arc<Clusters>,
    loaded: Option<Loaded>,
}

/// A worker is one thread's at a time, and a host's tests may be on several.
type SharedWorker = Arc<Mutex<Worker>>;

struct Loaded {
    filters: Vec<Filter>,
    verdicts: Vec<Verdict>,
    main: SharedWorker,
    workers: Vec<SharedWorker>,
}

/// What the canary has made of a plugin, which it runs once; Envoy keeps that as long as the base VM (`wasm.cc`).
struct Verdict {
    vm: usize,
    plugin: Arc<Plugin>,
    refusal: Option<VmError>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("filters", &self.filters)
            .field("workers", &self.workers.len())
            .finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    pub(crate) fn new(
        shared: Arc<Shared>,
        version: EnvoyVersion,
        workers: usize,
        clusters: Clusters,
    ) -> Self {
        Self { shared, version, workers, clusters: Arc::new(clusters), loaded: None }
    }

    /// A host to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Loads a filter as Envoy does: a base VM, a canary that is configured and thrown away, then the main VM and the
    /// workers'. Filters that were loaded before go; shared data, metrics and the log stay.
    ///
    /// A worker whose VM fails where the canary's did not serves without the filter, as in Envoy, and the log tells why.
    ///
    /// # Errors
    /// When the module does not fit, or the filter traps or refuses its configuration in the base VM or the canary.
    pub fn load(&mut self, module: &Module, plugin: Plugin) -> Result<(), LoadError> {
        self.load_chain([(module, plugin)])
    }

    /// Loads filters that a request passes in this order, and its response in reverse. Filters of the same module,
    /// `vm_id`, VM configuration, environment and capabilities share their VMs, with a root context each; filters that
    /// are alike in everything share that too.
    ///
    /// # Errors
    /// As [`load`](Self::load), for any of them; then none is loaded.
    pub fn load_chain<'a>(
        &mut self,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
    ) -> Result<(), LoadError> {
        let mut loaded: Vec<(&Module, Filter)> = Vec::new();
        for (module, plugin) in filters {
            let shared = loaded
                .iter()
                .find(|(other, filter)| other.is(module) && filter.plugin.shares_vm_with(&plugin));
            let vm = shared.map_or(loaded.len(), |(_, filter)| filter.vm);
            let linked = module.link(self.version, self.shared.shared_data.flavour())?;
            loaded.push((module, Filter { module: linked, plugin: Arc::new(plugin), vm }));
        }
        let filters: Vec<Filter> = loaded.into_iter().map(|(_, filter)| filter).collect();
        let mut verdicts = Vec::new();
        let several = filters.len() > 1;
        for (index, filter) in filters.iter().enumerate() {
            if filter.vm == index {
                let mark = self.log_mark();
                Vm::new(&filter.module, &self.shared, &filter.plugin, VmName::Base, 0)
                    .map_err(|reason| self.refused(filter, several, VmName::Base, reason, mark))?;
            }
            self.try_canary(filter, several, &mut verdicts)?;
        }

        self.loaded = None;
        let start = |name| Arc::new(Mutex::new(Worker::start(&filters, &self.shared, name)));
        let main = start(VmName::Main);
        let workers = (0..self.workers).map(|index| start(VmName::Worker(index))).collect();
        self.loaded = Some(Loaded { filters, verdicts, main, workers });
        self.serve_callouts();
        Ok(())
    }

    /// Gives the filter, the first where there are several, a new configuration in the VMs that it has, as an update
    /// over ECDS does: each gets a new root context, and the old one ends with its last stream. A configuration that the
    /// canary refuses changes nothing.
    ///
    /// # Errors
    /// When nothing is loaded, or the filter traps or refuses the configuration in the canary.
    pub fn update(&mut self, configuration: impl Into<Bytes>) -> Result<(), LoadError> {
        self.update_filter(0, configuration)
    }

    /// As [`update`](Self::update), for a filter of the chain, counted from 0.
    ///
    /// # Errors
    /// As [`update`](Self::update), and when there is no such filter.
    pub fn update_filter(&mut self, filter: usize, configuration: impl Into<Bytes>) -> Result<(), LoadError> {
        let Some(loaded) = &mut self.loaded else { return Err(LoadError::NothingLoaded) };
        let filters = loaded.filters.len();
        let Some(before) = loaded.filters.get(filter) else {
            return Err(LoadError::NoSuchFilter { filter, filters });
        };
        let plugin = Plugin { configuration: configuration.into(), ..Plugin::clone(&before.plugin) };
        let updated = Filter { plugin: Arc::new(plugin), ..before.clone() };
        let mut verdicts = std::mem::take(&mut loaded.verdicts);
        let tried = self.try_canary(&updated, filters > 1, &mut verdicts);
        if let Some(loaded) = &mut self.loaded {
            loaded.verdicts = verdicts;
        }
        tried?;
        for worker in self.all_workers() {
            // Where the canary passed and a worker fails, Envoy goes on without the filter there; the worker has
            // logged it.
            let _ = lock(&worker).update(filter, &updated.plugin);
        }
        if let Some(place) = self.loaded.as_mut().and_then(|loaded| loaded.filters.get_mut(filter)) {
            *place = updated;
        }
        self.serve_callouts();
        Ok(())
    }

    fn try_canary(
        &self,
        filter: &Filter,
        several: bool,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), LoadError> {
        let mark = self.log_mark();
        let known = verdicts.iter().find(|known| known.vm == filter.vm && known.plugin == filter.plugin);
        let refusal = match known {
            Some(known) => known.refusal.clone(),
            None => {
                let refusal = self.run_canary(filter).err();
                // One that did not come as far as its configuration is tried again.
                if matches!(
                    refusal,
                    None | Some(
                        VmError::ConfigureRefused | VmError::Trapped { callback: "proxy_on_configure", .. }
                    )
                ) {
                    let (vm, plugin) = (filter.vm, Arc::clone(&filter.plugin));
                    verdicts.push(Verdict { vm, plugin, refusal: refusal.clone() });
                }
                refusal
            }
        };
        match refusal {
            None => Ok(()),
            Some(reason) => Err(self.refused(filter, several, VmName::Canary, reason, mark)),
        }
    }

    fn run_canary(&self, filter: &Filter) -> Result<u32, VmError> {
        Vm::new(&filter.module, &self.shared, &filter.plugin, VmName::Canary, 0)?.start_root(&filter.plugin)
    }

    /// How many lines the log has seen.
    fn log_mark(&self) -> u64 {
        self.shared.logs.written()
    }

    fn refused(&self, filter: &Filter, several: bool, vm: VmName, reason: VmError, mark: u64) -> LoadError {
        let log = self.shared.logs.since(mark).into_iter().filter(|line| line.vm == vm).collect();
        LoadError::Refused { plugin: several.then(|| filter.plugin.name.clone()), vm, reason, log }
    }

    fn all_workers(&self) -> Vec<SharedWorker> {
        let loaded = self.loaded.iter();
        loaded.flat_map(|loaded| std::iter::once(&loaded.main).chain(&loaded.workers)).cloned().collect()
    }

    fn worker(&self, index: usize) -> SharedWorker {
        let loaded = self.loaded.as_ref().expect("a filter is loaded before requests are sent");
        Arc::clone(loaded.workers.get(index).unwrap_or_else(|| {
            panic!("worker {index} of {}: workers are counted from 0", loaded.workers.len())
        }))
    }

    /// The workers, for a gateway that drives them itself; none when no filter is loaded.
    pub fn driver(&self) -> Option<Driver> {
        let loaded = self.loaded.as_ref()?;
        let worker = |worker: &SharedWorker| driver::Worker(Arc::clone(worker));
        Some(Driver {
            shared: Arc::clone(&self.shared),
            plugins: loaded.filters.iter().map(|filter| filter.plugin.name.clone()).collect(),
            main: worker(&loaded.main),
            workers: loaded.workers.iter().map(worker).collect(),
        })
    }

    fn serve_callouts(&self) {
        for worker in self.all_workers() {
            self.clusters.serve(&mut lock(&worker));
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
                    VmName::Main => Some(&loaded.main),
                    VmName::Worker(index) => loaded.workers.get(index),
                    VmName::Base | VmName::Canary => None,
                };
                match worker.map(|worker| worker.try_lock()) {
                    Some(Ok(mut worker)) => self.clusters.serve(&mut worker),
                    Some(Err(_)) => {}
                    // Nobody is left to be told: the canary registered and is gone.
                    None => drop(self.shared.shared_queues.take_ready(name)),
                }
            }
        }
    }

    /// Sends a request through a worker's filter to `upstream`, which is called when the filter lets the whole request
    /// go on. Callouts are answered at once by the clusters of the builder.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn send(
        &self,
        worker: usize,
        request: Request,
        mut upstream: impl FnMut(&Request) -> Response,
    ) -> Outcome {
        let outcome = exchange::send(&mut lock(&self.worker(worker)), &self.clusters, request, &mut upstream);
        self.tell_ready_queues();
        outcome
    }

    /// Begins a stream whose every step the caller takes: the headers are sent, body and trailers are not.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn stream(&self, worker: usize, request: &Request, end_of_stream: bool) -> Stream {
        Stream::open(self.worker(worker), Arc::clone(&self.clusters), request, end_of_stream)
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
                    let (worker, upstream) = (self.worker(worker), &upstream);
                    scope.spawn(move || {
                        turns.take(|| {
                            let mut worker = lock(&worker);
                            worker.vms().for_each(|vm| vm.state().turns = Some(turns.clone()));
                            let mut outcomes = Vec::new();
                            for (job, request) in queue {
                                let mut forward = |request: &Request| upstream(request);
                                outcomes.push((
                                    job,
                                    exchange::send(&mut worker, &self.clusters, request, &mut forward),
                                ));
                            }
                            worker.vms().for_each(|vm| vm.state().turns = None);
                            outcomes
                        })
                    })
                })
                .collect();
            let joined = handles.into_iter().map(|handle| match handle.join() {
                Ok(outcomes) => outcomes,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.flatten().collect::<Vec<_>>()
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
            let joined = handles.into_iter().map(|handle| match handle.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
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
            lock(&worker).tick();
            self.clusters.serve(&mut lock(&worker));
        }
        self.tell_ready_queues();
    }

    /// Lets time pass and fires each timer whenever it is due on the way.
    pub fn advance(&self, by: Duration) {
        let end = self.shared.clock.monotonic() + by;
        loop {
            let now = self.shared.clock.monotonic();
            let next = self.all_workers().iter().filter_map(|worker| lock(worker).next_event()).min();
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

    /// Why a worker's VM has failed, or `None` while it runs.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn vm_failure(&self, worker: usize) -> Option<VmError> {
        lock(&self.worker(worker)).failure()
    }

    /// How many VMs a worker's filters run in, those among them that have failed and still have streams.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn vms(&self, worker: usize) -> usize {
        lock(&self.worker(worker)).vms().count()
    }

    /// How often a filter of a worker got a new VM.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn reloads(&self, worker: usize) -> ReloadStats {
        lock(&self.worker(worker)).reloads()
    }

    /// How many host calls the guests of all workers have made.
    pub fn host_calls(&self) -> u64 {
        self.all_workers()
            .iter()
            .map(|worker| lock(worker).vms().map(|vm| vm.state().host_calls).sum::<u64>())
            .sum()
    }

    /// The largest memory of a worker's guest, in bytes.
    pub fn guest_memory(&self) -> usize {
        self.all_workers()
            .iter()
            .flat_map(|worker| lock(worker).vms().map(Vm::memory_size).max())
            .max()
            .unwrap_or(0)
    }

    /// How many contexts the guests of all workers have, roots and streams.
    pub fn contexts(&self) -> usize {
        self.all_workers()
            .iter()
            .map(|worker| lock(worker).vms().map(|vm| vm.state().contexts.len()).sum::<usize>())
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
        self.shared.faults.plan(fault)
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }
}
