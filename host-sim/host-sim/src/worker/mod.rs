//! One thread of the gateway: its filters, their VMs, and what happens when one fails.

pub(crate) mod chain;
mod close;
pub(crate) mod filter;
mod manager;
mod places;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    abi::LogLevel,
    edge,
    lock::lock,
    shared::{Shared, reloads::ReloadStats},
    stream::filter_vm::FilterVm,
    vm::error::VmError,
    vm_name::VmName,
    wire::{
        callout::{CallId, Callout, GrpcOrder},
        framing::Framing,
        grpc::GrpcEvent,
        message::{Failure, Request, Response},
    },
    worker::{
        chain::{Chain, StreamId},
        filter::{Filter, Place},
    },
};

/// A worker that its holder has to itself: a thread of the gateway.
#[derive(Debug)]
pub struct Worker {
    pub(crate) name: VmName,
    pub(crate) shared: Arc<Shared>,
    places: Vec<Place>,
    /// VMs by generation. A failed one is kept until its streams are gone.
    vms: BTreeMap<u64, FilterVm>,
    next_generation: u64,
    chains: BTreeMap<u64, Chain>,
    next_chain: u64,
    /// Streams that have something for their driver.
    ready: BTreeSet<u64>,
    jitter: fastrand::Rng,
    /// Of the requests' ids.
    ids: fastrand::Rng,
    reloads: ReloadStats,
    /// Streams of gRPC that clusters in memory answer.
    pub(crate) simulated_streams: BTreeMap<CallId, SimulatedStream>,
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

/// A worker of a host, which whoever takes a step has to itself.
#[derive(Debug, Clone)]
pub struct SharedWorker(Arc<Mutex<Worker>>);

impl SharedWorker {
    pub(crate) fn new(worker: Worker) -> Self {
        Self(Arc::new(Mutex::new(worker)))
    }

    /// Takes the worker for a step; whoever else wants it waits, methods of the [`Host`](crate::Host) among them.
    pub fn lock(&self) -> MutexGuard<'_, Worker> {
        // A step that panicked has left its VM as a trap would.
        lock(&self.0)
    }

    /// Takes the worker where nobody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Worker>> {
        self.0.try_lock().ok()
    }
}

/// What guests have left to do.
#[derive(Debug, Default)]
pub struct Work {
    /// Calls to make; their answers go to [`finish_callout`](Worker::finish_callout).
    pub callouts: Vec<Callout>,
    /// Steps to take on streams of gRPC, in order; what comes of them goes to [`grpc_event`](Worker::grpc_event).
    pub grpc_orders: Vec<GrpcOrder>,
    /// Streams that have [`outputs`](Worker::outputs).
    pub ready: Vec<StreamId>,
    /// Timers were set: [`next_event`](Worker::next_event) may be another.
    pub timers_changed: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.vms().for_each(|vm| vm.root_ids().into_iter().for_each(|root| vm.retire_root(root)));
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

    /// The names of the filters' plugins, in the chain's order.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| place.filter.plugin.name.as_str())
    }

    /// How many filters the chain has.
    pub(crate) fn filters(&self) -> usize {
        self.places.len()
    }

    /// Makes of a request what the gateway makes of it before the filters see it.
    pub(crate) fn admit(&mut self, request: &mut Request) {
        let source = request.peer.source.as_ref();
        let client = source.rsplit_once(':').map_or(source, |(host, _)| host);
        let client = client.trim_start_matches('[').trim_end_matches(']');
        edge::admit(&mut request.headers, client, self.ids.u128(..));
    }

    /// In which pieces bodies are to be fed.
    pub fn framing(&self) -> Framing {
        self.shared.framing
    }

    /// Writes a line of the driver's own to the host's log.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.shared.logs.tell(level, self.name, message.to_owned());
    }

    pub(crate) fn vms(&mut self) -> impl Iterator<Item = &mut FilterVm> {
        self.vms.values_mut()
    }

    /// Why a VM of the worker's filters has failed, if one has.
    pub(crate) fn failure(&self) -> Option<VmError> {
        (0..self.places.len()).find_map(|index| self.failure_of(index)).cloned()
    }

    pub(crate) fn reloads(&self) -> ReloadStats {
        self.reloads
    }

    /// Fires the timers that are due.
    pub fn tick(&mut self) {
        let now = self.shared.clock.monotonic();
        let (mut due, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open_callouts)
            .into_iter()
            .partition(|open| open.due.is_some_and(|due| due <= now));
        self.open_callouts = open;
        due.sort_by_key(|open| open.due);
        for OpenCallout { call, response, .. } in due {
            self.finish_callout(call, response);
        }
        let roots = |(generation, vm): (&u64, &mut FilterVm)| (*generation, vm.root_ids());
        for (generation, roots) in self.vms.iter_mut().map(roots).collect::<Vec<_>>() {
            for root in roots {
                self.ask(generation, |vm| vm.tick(root));
            }
        }
    }

    /// When the next timer is due, on the host's monotonic clock; never while none is set.
    pub fn next_event(&mut self) -> Option<Duration> {
        let timers = self.vms().filter_map(FilterVm::next_timer).min();
        [self.next_answer(), timers].into_iter().flatten().min()
    }

    /// When the next answer to a callout is due, or its time is up.
    pub(crate) fn next_answer(&self) -> Option<Duration> {
        self.open_callouts.iter().filter_map(|open| open.due).min()
    }

    /// Tells guests of queues that have something for them.
    pub fn tell_ready_queues(&mut self) {
        for (listener, token) in self.shared.shared_queues.take_ready(self.name) {
            let told = |vm: &mut FilterVm| vm.state().number == listener.number && vm.failure().is_none();
            // The newest of them.
            let newest =
                self.vms.iter_mut().rev().find_map(|(generation, vm)| told(vm).then_some(*generation));
            if let Some(generation) = newest {
                self.ask(generation, |vm| vm.tell_ready_queue(listener.root, token));
            }
        }
    }

    /// Takes what guests have left to do since the last time.
    pub fn take_work(&mut self) -> Work {
        let mut timers_changed = false;
        self.vms().for_each(|vm| timers_changed |= std::mem::take(&mut vm.state().timers_changed));
        Work {
            callouts: self.take_callouts(),
            grpc_orders: self.take_grpc_orders(),
            ready: std::mem::take(&mut self.ready).into_iter().map(StreamId).collect(),
            timers_changed,
        }
    }

    /// Callouts that guests have made since the last time.
    pub(crate) fn take_callouts(&mut self) -> Vec<Callout> {
        self.vms().flat_map(|vm| std::mem::take(&mut vm.state().callouts.started)).collect()
    }

    /// What guests did with their gRPC streams since the last time.
    pub(crate) fn take_grpc_orders(&mut self) -> Vec<GrpcOrder> {
        self.vms().flat_map(|vm| std::mem::take(&mut vm.state().callouts.grpc_orders)).collect()
    }

    /// Tells a guest what came of its stream of gRPC. A guest that is gone, or has reset the stream, hears nothing.
    pub fn grpc_event(&mut self, call: CallId, event: GrpcEvent) {
        self.ask(call.generation, |vm| vm.grpc_stream_event(call.token, event));
    }

    /// Hands a guest the answer to its callout. A guest that is gone, or has cancelled the call, hears nothing.
    pub fn finish_callout(&mut self, call: CallId, response: Response) {
        self.shared.record.answer(self.name, call, &response);
        self.ask(call.generation, |vm| vm.finish_callout(call.token, response));
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
