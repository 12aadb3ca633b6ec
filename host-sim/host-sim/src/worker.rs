//! One thread of the gateway: its filters, their VMs, and what happens when one fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use envoy_config::{FailurePolicy, Plugin};
use wasmtime::InstancePre;

use crate::{
    abi::LogLevel,
    edge,
    shared::{
        Shared,
        record::{Happened, Mark},
        reloads::ReloadStats,
    },
    stream::manager::Chain,
    vm::{
        Vm, VmError, VmName,
        callouts::{CallId, Callout, GrpcOrder},
        module::Module,
        state::VmState,
    },
    wire::{
        grpc::GrpcEvent,
        message::{ClusterCall, Failure, Request, Response},
    },
};

/// The least time between two starts of a failed VM (`reload_config.backoff`, Envoy's default).
const RELOAD_BACKOFF: Duration = Duration::from_secs(1);

/// A filter of the chain as a worker is given it.
#[derive(Clone)]
pub(crate) struct Filter {
    /// What it was loaded from.
    pub(crate) source: Module,
    /// The same, linked to the host's calls.
    pub(crate) module: InstancePre<VmState>,
    pub(crate) plugin: Arc<Plugin>,
    /// Which VM it runs in: filters of one number share it, those among them that it takes the place of.
    pub(crate) vm: usize,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("plugin", &self.plugin.name).field("vm", &self.vm).finish()
    }
}

/// A filter's place in the chain of a worker.
#[derive(Debug)]
struct Place {
    filter: Filter,
    /// The generation of its VM, and its root context there; none when the filter could not be started here.
    current: Option<(u64, u32)>,
    loaded_at: Duration,
    backoff: Duration,
}

/// A thread of the gateway.
#[derive(Debug)]
pub(crate) struct Worker {
    name: VmName,
    pub(crate) shared: Arc<Shared>,
    places: Vec<Place>,
    /// VMs by generation. A failed one is kept until its streams are gone.
    pub(crate) vms: BTreeMap<u64, Vm>,
    next_generation: u64,
    pub(crate) chains: BTreeMap<u64, Chain>,
    pub(crate) next_chain: u64,
    /// Streams that have something for their driver.
    pub(crate) ready: BTreeSet<u64>,
    jitter: fastrand::Rng,
    /// Of the requests' ids.
    ids: fastrand::Rng,
    reloads: ReloadStats,
    simulated_streams: BTreeMap<CallId, SimulatedStream>,
    open_callouts: Vec<OpenCallout>,
}

/// A callout that is not answered yet.
#[derive(Debug)]
struct OpenCallout {
    call: CallId,
    /// When the answer comes or the callout times out, on the monotonic clock; never, if it does neither.
    due: Option<Duration>,
    response: Response,
}

/// A stream of gRPC to a cluster in memory.
#[derive(Debug)]
pub(crate) struct SimulatedStream {
    pub(crate) cluster: String,
    pub(crate) request: Request,
    /// The guest has seen its initial metadata.
    pub(crate) answered: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.vms().for_each(Vm::retire_roots);
    }
}

impl Worker {
    /// Starts the filters. Where that fails for one, the worker serves without it, as Envoy does when the canary had
    /// passed, and the log tells why.
    pub(crate) fn start(filters: &[Filter], shared: &Arc<Shared>, name: VmName) -> Self {
        let seed = match name {
            VmName::Worker(index) => u64::try_from(index).unwrap_or(u64::MAX),
            VmName::Base | VmName::Canary | VmName::Main => u64::MAX,
        };
        let seed = shared.seed.unwrap_or_else(|| fastrand::u64(..)).wrapping_add(seed);
        let mut worker = Self {
            name,
            shared: Arc::clone(shared),
            places: Vec::new(),
            vms: BTreeMap::new(),
            next_generation: 0,
            chains: BTreeMap::new(),
            next_chain: 0,
            ready: BTreeSet::new(),
            jitter: fastrand::Rng::with_seed(seed),
            ids: fastrand::Rng::with_seed(!seed),
            reloads: ReloadStats::default(),
            simulated_streams: BTreeMap::new(),
            open_callouts: Vec::new(),
        };
        worker.replace(filters);
        worker
    }

    /// Puts filters in the place of those before. A filter keeps the VM of one before that it may share it with, and its root
    /// context where nothing about it has changed. Streams in progress stay with the filters that they began with.
    pub(crate) fn replace(&mut self, filters: &[Filter]) {
        let before = self.places.len();
        self.places.extend(filters.iter().map(|filter| Place {
            filter: filter.clone(),
            current: None,
            loaded_at: Duration::ZERO,
            backoff: RELOAD_BACKOFF,
        }));
        for place in before..self.places.len() {
            // The log has it.
            let _ = self.start_filter(place, self.running(place));
        }
        let old: Vec<Place> = self.places.drain(..before).collect();
        for (generation, root) in old.iter().filter_map(|place| place.current) {
            let used = self.places.iter().any(|place| place.current == Some((generation, root)));
            if let Some(vm) = self.vms.get_mut(&generation).filter(|_| !used) {
                vm.retire_root(root);
            }
        }
        self.drop_drained();
        self.route();
    }

    /// The names of the filters' plugins, in the chain's order.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| place.filter.plugin.name.as_str())
    }

    /// How many filters the chain has.
    pub(crate) fn filters(&self) -> usize {
        self.places.len()
    }

    /// Gives a filter a root context: in the VM that runs for it already, if there is one, or in a new one. Filters that
    /// are alike in everything have one root context, and one whose streams still keep it is used again as it is.
    fn start_filter(&mut self, index: usize, running: Option<u64>) -> Result<(), VmError> {
        let longest = RELOAD_BACKOFF.as_micros() / 2;
        let jitter = self.jitter.u64(..=u64::try_from(longest).unwrap_or(0));
        let now = self.shared.clock.monotonic();
        let Some(place) = self.places.get_mut(index) else { return Ok(()) };
        place.loaded_at = now;
        place.backoff = RELOAD_BACKOFF + Duration::from_micros(jitter);
        place.current = None;
        let filter = place.filter.clone();
        let alike = self.places.iter().filter(|other| other.filter.plugin == filter.plugin);
        let mut roots = alike.filter_map(|other| other.current);
        if let Some(current) = roots.find(|(generation, _)| Some(*generation) == running) {
            self.set_current(index, current);
            return Ok(());
        }
        if let Some(generation) = running
            && let Some(root) = self.vms.get_mut(&generation).and_then(|vm| vm.live_root(&filter.plugin))
        {
            self.set_current(index, (generation, root));
            return Ok(());
        }
        let started = self.start_root(&filter, running);
        match started {
            Ok(current) => self.set_current(index, current),
            Err(ref error) => {
                let message = format!("the filter is absent on {}: {error}", self.name);
                self.log(LogLevel::Error, &message);
            }
        }
        started.map(|_| ())
    }

    fn start_root(&mut self, filter: &Filter, running: Option<u64>) -> Result<(u64, u32), VmError> {
        if let Some((generation, vm)) =
            running.and_then(|generation| Some((generation, self.vms.get_mut(&generation)?)))
        {
            return Ok((generation, vm.start_root(&filter.plugin)?));
        }
        let generation = self.next_generation;
        let mut vm = Vm::new(&filter.module, &self.shared, &filter.plugin, self.name, generation, filter.vm)?;
        let root = vm.start_root(&filter.plugin)?;
        self.next_generation += 1;
        self.vms.insert(generation, vm);
        Ok((generation, root))
    }

    fn set_current(&mut self, index: usize, current: (u64, u32)) {
        if let Some(place) = self.places.get_mut(index) {
            place.current = Some(current);
        }
    }

    /// The generation of the VM that runs for a filter, its own or of filters that share it.
    fn running(&self, index: usize) -> Option<u64> {
        let vm = self.places.get(index)?.filter.vm;
        let sharing = self.places.iter().filter(|place| place.filter.vm == vm);
        let mut generations = sharing.filter_map(|place| Some(place.current?.0));
        generations.find(|generation| self.vms.get(generation).is_some_and(|vm| !vm.is_failed()))
    }

    /// Makes of a request what the gateway makes of it before the filters see it.
    pub(crate) fn admit(&mut self, request: &mut Request) {
        let source = request.peer.source.as_ref();
        let client = source.rsplit_once(':').map_or(source, |(host, _)| host);
        let client = client.trim_start_matches('[').trim_end_matches(']');
        edge::admit(&mut request.headers, client, self.ids.u128(..));
    }

    /// Writes a line of the host's own to the log.
    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        self.shared.logs.tell(level, self.name, message.to_owned());
    }

    pub(crate) fn vms(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.vms.values_mut()
    }

    /// The failure of a filter's VM, if it has failed.
    fn failure_of(&self, index: usize) -> Option<&VmError> {
        let (generation, _) = self.places.get(index)?.current?;
        self.vms.get(&generation)?.failure()
    }

    /// Why a VM of the worker's filters has failed, if one has.
    pub(crate) fn failure(&self) -> Option<VmError> {
        (0..self.places.len()).find_map(|index| self.failure_of(index)).cloned()
    }

    pub(crate) fn reloads(&self) -> ReloadStats {
        self.reloads
    }

    /// The generation of the VM and the root context where a new stream of the filter begins, by the failure policy
    /// where the VM has failed; none where it passes the filter by.
    pub(crate) fn ready_filter(&mut self, index: usize) -> Option<(u64, u32)> {
        let policy = self.places.get(index)?.filter.plugin.failure_policy;
        if policy == FailurePolicy::FailReload {
            self.reload(index);
        }
        let opens = matches!(policy, FailurePolicy::FailOpen | FailurePolicy::DeprecatedFailOpen);
        let passes = opens && self.failure_of(index).is_some();
        self.places.get(index)?.current.filter(|_| !passes)
    }

    /// Only a VM that trapped is started anew, and not before the filter's backoff is over.
    fn reload(&mut self, index: usize) {
        if !matches!(self.failure_of(index), Some(VmError::Trapped { .. })) {
            return;
        }
        let Some(place) = self.places.get(index) else { return };
        let (total, name) = (Arc::clone(&self.shared), place.filter.plugin.name.clone());
        if self.shared.clock.monotonic().saturating_sub(place.loaded_at) < place.backoff {
            self.reloads.backoff += 1;
            total.count_reload(&name, |reloads| reloads.backoff += 1);
            return;
        }
        let failed = place.current;
        match self.start_filter(index, self.running(index)) {
            Ok(()) => {
                self.reloads.success += 1;
                total.count_reload(&name, |reloads| reloads.success += 1);
            }
            Err(_) => {
                self.reloads.failure += 1;
                total.count_reload(&name, |reloads| reloads.failure += 1);
                // The one that failed goes on to answer for the filter.
                if let Some(place) = self.places.get_mut(index) {
                    place.current = failed;
                }
            }
        }
        self.drop_drained();
    }

    /// VMs that no filter uses go: failed ones with their last stream, others with their last context.
    pub(crate) fn drop_drained(&mut self) {
        let used: BTreeSet<u64> = self.places.iter().filter_map(|place| Some(place.current?.0)).collect();
        self.vms.retain(|generation, vm| {
            used.contains(generation) || if vm.is_failed() { vm.has_streams() } else { !vm.is_drained() }
        });
    }

    /// Fires due timers, and times out callouts that nobody answers.
    pub(crate) fn tick(&mut self) {
        let now = self.shared.clock.monotonic();
        let (mut due, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open_callouts)
            .into_iter()
            .partition(|open| open.due.is_some_and(|due| due <= now));
        self.open_callouts = open;
        due.sort_by_key(|open| open.due);
        for OpenCallout { call, response, .. } in due {
            self.finish_callout(call, response);
        }
        for vm in self.vms() {
            vm.tick();
        }
        self.route();
    }

    /// When the next timer or time-out is due, on the monotonic clock.
    pub(crate) fn next_event(&mut self) -> Option<Duration> {
        let timers = self.vms().filter_map(Vm::next_timer).min();
        [self.next_answer(), timers].into_iter().flatten().min()
    }

    /// When the next answer to a callout is due, or its time is up.
    pub(crate) fn next_answer(&self) -> Option<Duration> {
        self.open_callouts.iter().filter_map(|open| open.due).min()
    }

    /// Tells guests of queues that have something for them.
    pub(crate) fn tell_ready_queues(&mut self) {
        for (listener, token) in self.shared.shared_queues.take_ready(self.name) {
            let told = |vm: &&mut Vm| vm.number() == listener.number && !vm.is_failed();
            // The newest of them.
            if let Some(vm) = self.vms.values_mut().rev().find(told) {
                vm.tell_ready_queue(listener.root, token);
            }
        }
        self.route();
    }

    /// Whether a guest has set a timer since the last time this was asked.
    pub(crate) fn timers_changed(&mut self) -> bool {
        self.vms().map(|vm| std::mem::take(&mut vm.state().timers_changed)).filter(|changed| *changed).count()
            > 0
    }

    /// Callouts that guests have made since the last time.
    pub(crate) fn take_callouts(&mut self) -> Vec<Callout> {
        self.vms().flat_map(Vm::take_callouts).collect()
    }

    /// What guests did with their gRPC streams since the last time.
    pub(crate) fn take_grpc_orders(&mut self) -> Vec<GrpcOrder> {
        self.vms().flat_map(Vm::take_grpc_orders).collect()
    }

    /// Tells a guest what came of its stream of gRPC.
    pub(crate) fn grpc_event(&mut self, call: CallId, event: GrpcEvent) {
        if let Some(vm) = self.vms.get_mut(&call.generation) {
            vm.grpc_stream_event(call.token, event);
        }
        self.route();
    }

    /// Streams of gRPC that a cluster in memory answers: the request they were opened with, and whether it was answered.
    pub(crate) fn simulated_streams(&mut self) -> &mut BTreeMap<CallId, SimulatedStream> {
        &mut self.simulated_streams
    }

    /// Hands a guest the answer to its callout.
    pub(crate) fn finish_callout(&mut self, call: CallId, response: Response) {
        self.shared.record.answer(self.name, call, &response);
        if let Some(vm) = self.vms.get_mut(&call.generation) {
            vm.finish_callout(call.token, response);
        }
        self.route();
    }

    /// A guest has called a cluster.
    pub(crate) fn record_call(&self, id: CallId, call: ClusterCall) {
        self.shared.record.call(self.name, id, call);
    }

    /// What has happened here since a request began, which is over.
    pub(crate) fn happened_since(&self, mark: Mark) -> Happened {
        self.shared.record.end(mark, self.name)
    }

    /// Keeps a callout until its answer comes or its time is up.
    pub(crate) fn keep_open(&mut self, callout: &Callout, response: Response) {
        let now = self.shared.clock.monotonic();
        let answer = (response.failure != Some(Failure::Silence)).then(|| now + response.delay);
        let deadline = callout.timeout.map(|timeout| now + timeout);
        let (due, response) = match (answer, deadline) {
            (Some(answer), None) => (Some(answer), response),
            (Some(answer), Some(deadline)) if answer < deadline => (Some(answer), response),
            (_, deadline) => (deadline, Callout::timed_out()),
        };
        self.open_callouts.push(OpenCallout { call: callout.call, due, response });
    }
}
