//! One thread of the gateway: its VM, what happens when that fails, and the streams that it serves.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use wasmtime::InstancePre;

use crate::{
    abi::LogLevel,
    grpc::GrpcEvent,
    headers::Headers,
    message::{Peer, Request, Response},
    plugin::{FailurePolicy, Plugin},
    state::{Callout, Direction, LocalReply, Output, Shared, StreamOrder, VmState},
    vm::{Vm, VmError, VmName},
};

/// The least time between two starts of a failed VM (`reload_config.backoff`, Envoy's default).
const RELOAD_BACKOFF: Duration = Duration::from_secs(1);

/// Counters of `wasm.<plugin>.vm_reload_*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReloadStats {
    /// Streams that met a failed VM before its backoff was over.
    pub backoff: u64,
    /// New VMs that run.
    pub success: u64,
    /// New VMs that do not.
    pub failure: u64,
}

/// The same over all workers of a host.
#[derive(Debug, Default)]
pub(crate) struct ReloadTotals {
    pub(crate) backoff: AtomicU64,
    pub(crate) success: AtomicU64,
    pub(crate) failure: AtomicU64,
}

/// A thread of the gateway.
#[derive(Debug)]
pub(crate) struct Worker {
    name: VmName,
    module: InstancePreDebug,
    shared: Arc<Shared>,
    plugin: Arc<Plugin>,
    /// VMs by generation. A failed one is kept until its streams are gone.
    vms: BTreeMap<u64, Vm>,
    /// The VM for new streams, and its root context; none when the filter could not be started here.
    current: Option<(u64, u32)>,
    loaded_at: Duration,
    backoff: Duration,
    jitter: fastrand::Rng,
    reloads: ReloadStats,
    simulated_streams: BTreeMap<(u64, u32), SimulatedStream>,
    /// Callouts that nobody answers: generation and token, and when they time out.
    silent: Vec<(u64, u32, Option<Duration>)>,
}

/// A stream of gRPC to a cluster in memory.
#[derive(Debug)]
pub(crate) struct SimulatedStream {
    pub(crate) cluster: String,
    pub(crate) request: Request,
    /// The guest has seen its initial metadata.
    pub(crate) answered: bool,
}

/// `InstancePre` says nothing of itself.
#[derive(Clone)]
struct InstancePreDebug(InstancePre<VmState>);

impl std::fmt::Debug for InstancePreDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InstancePre")
    }
}

impl StreamSlot {
    /// The stream's name on its worker; none for one that passes the filter by.
    pub(crate) fn key(&self) -> Option<(u64, u32)> {
        self.filtered
    }
}

/// A stream on its worker: one of the filter's, or one that passes it by.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    filtered: Option<(u64, u32)>,
    passed: VecDeque<Output>,
    details: Option<String>,
}

impl Worker {
    /// Starts a VM. When that fails, the worker serves without the filter, as Envoy does when the canary had passed.
    pub(crate) fn start(
        module: &InstancePre<VmState>,
        shared: &Arc<Shared>,
        plugin: &Arc<Plugin>,
        name: VmName,
    ) -> (Self, Result<(), VmError>) {
        let seed = match name {
            VmName::Worker(index) => u64::try_from(index).unwrap_or(u64::MAX),
            VmName::Base | VmName::Canary | VmName::Main => u64::MAX,
        };
        let mut worker = Self {
            name,
            module: InstancePreDebug(module.clone()),
            shared: Arc::clone(shared),
            plugin: Arc::clone(plugin),
            vms: BTreeMap::new(),
            current: None,
            loaded_at: shared.clock.monotonic(),
            backoff: RELOAD_BACKOFF,
            jitter: fastrand::Rng::with_seed(
                shared.seed.unwrap_or_else(|| fastrand::u64(..)).wrapping_add(seed),
            ),
            reloads: ReloadStats::default(),
            simulated_streams: BTreeMap::new(),
            silent: Vec::new(),
        };
        let started = worker.start_vm();
        (worker, started)
    }

    fn start_vm(&mut self) -> Result<(), VmError> {
        self.loaded_at = self.shared.clock.monotonic();
        let longest = RELOAD_BACKOFF.as_micros() / 2;
        let jitter = self.jitter.u64(..=u64::try_from(longest).unwrap_or(0));
        self.backoff = RELOAD_BACKOFF + Duration::from_micros(jitter);
        let mut vm = Vm::new(&self.module.0, &self.shared, &self.plugin, self.name)?;
        let root = vm.start_root(&self.plugin);
        let generation = self.vms.keys().next_back().map_or(0, |last| last + 1);
        let root = match root {
            Ok(root) => root,
            Err(error) => {
                let message = format!("the filter is absent on {}: {error}", self.name);
                self.shared.logs.write(LogLevel::Error, self.name, message.as_bytes());
                return Err(error);
            }
        };
        self.vms.insert(generation, vm);
        self.current = Some((generation, root));
        Ok(())
    }

    /// The VM for new streams.
    pub(crate) fn vm(&mut self) -> Option<&mut Vm> {
        self.vms.get_mut(&self.current?.0)
    }

    pub(crate) fn vms(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.vms.values_mut()
    }

    /// Why the worker's VM has failed, if it has.
    pub(crate) fn failure(&mut self) -> Option<VmError> {
        self.vm().and_then(|vm| vm.failure().cloned())
    }

    pub(crate) fn reloads(&self) -> ReloadStats {
        self.reloads
    }

    /// Puts `plugin` in the place of the one before, in the same VM: a new root context, while the old one drains.
    pub(crate) fn update(&mut self, plugin: &Arc<Plugin>) -> Result<(), VmError> {
        self.plugin = Arc::clone(plugin);
        let usable =
            self.current.filter(|(generation, _)| self.vms.get(generation).is_some_and(|vm| !vm.is_failed()));
        let Some((generation, old)) = usable else { return self.start_vm() };
        let Some(vm) = self.vms.get_mut(&generation) else { return self.start_vm() };
        let root = vm.start_root(plugin)?;
        self.current = Some((generation, root));
        vm.retire_root(old);
        Ok(())
    }

    /// Begins a stream, by the failure policy where the VM has failed.
    pub(crate) fn open(&mut self, peer: Peer) -> StreamSlot {
        let failed = self.vm().is_some_and(|vm| vm.is_failed());
        if failed && self.plugin.failure_policy == FailurePolicy::FailReload {
            self.reload();
        }
        let failed = self.vm().is_some_and(|vm| vm.is_failed());
        let passes = failed
            && matches!(
                self.plugin.failure_policy,
                FailurePolicy::FailOpen | FailurePolicy::DeprecatedFailOpen
            );
        let filtered = self.current.filter(|_| !passes).and_then(|(generation, root)| {
            let vm = self.vms.get_mut(&generation)?;
            Some((generation, vm.open_stream(root, peer)))
        });
        StreamSlot { filtered, passed: VecDeque::new(), details: None }
    }

    /// Only a VM that trapped is started anew, and not before its backoff is over.
    fn reload(&mut self) {
        if !matches!(self.failure(), Some(VmError::Trapped { .. })) {
            return;
        }
        if self.shared.clock.monotonic().saturating_sub(self.loaded_at) < self.backoff {
            self.reloads.backoff += 1;
            self.shared.reloads.backoff.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.start_vm() {
            Ok(()) => {
                self.reloads.success += 1;
                self.shared.reloads.success.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                self.reloads.failure += 1;
                self.shared.reloads.failure.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.drop_drained();
    }

    /// Failed VMs go with their last stream.
    fn drop_drained(&mut self) {
        let current = self.current.map(|(generation, _)| generation);
        self.vms.retain(|generation, vm| Some(*generation) == current || vm.has_streams());
    }

    fn on(&mut self, slot: &StreamSlot) -> Option<(&mut Vm, u32)> {
        let (generation, id) = slot.filtered?;
        Some((self.vms.get_mut(&generation)?, id))
    }

    pub(crate) fn headers(
        &mut self,
        slot: &mut StreamSlot,
        direction: Direction,
        headers: Headers,
        end: bool,
    ) {
        match self.on(slot) {
            Some((vm, id)) => vm.headers(id, direction, headers, end),
            None => slot.passed.push_back(match direction {
                Direction::Request => Output::RequestHeaders { headers, end },
                Direction::Response => Output::ResponseHeaders { headers, end },
            }),
        }
    }

    pub(crate) fn data(&mut self, slot: &mut StreamSlot, direction: Direction, data: Bytes, end: bool) {
        match self.on(slot) {
            Some((vm, id)) => vm.data(id, direction, data, end),
            None => slot.passed.push_back(match direction {
                Direction::Request => Output::RequestBody { data, end },
                Direction::Response => Output::ResponseBody { data, end },
            }),
        }
    }

    pub(crate) fn trailers(&mut self, slot: &mut StreamSlot, direction: Direction, trailers: Headers) {
        match self.on(slot) {
            Some((vm, id)) => vm.trailers(id, direction, trailers),
            None => slot.passed.push_back(match direction {
                Direction::Request => Output::RequestTrailers(trailers),
                Direction::Response => Output::ResponseTrailers(trailers),
            }),
        }
    }

    /// Sends a reply of the router's, which passes through the filter as a response.
    pub(crate) fn reply(&mut self, slot: &mut StreamSlot, status: u32, body: &'static str, details: &str) {
        let reply = LocalReply {
            status,
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
            grpc_status: None,
            details: details.to_owned(),
        };
        match self.on(slot) {
            Some((vm, id)) => vm.reply_locally(id, reply),
            None => {
                slot.details = Some(details.to_owned());
                let headers = Response::new(u16::try_from(status).unwrap_or(500)).headers;
                slot.passed.push_back(Output::ResponseHeaders { headers, end: false });
                slot.passed.push_back(Output::ResponseBody { data: body.into(), end: true });
            }
        }
    }

    /// Whether a reply has been made in the upstream's place.
    pub(crate) fn is_local_reply(&mut self, slot: &StreamSlot) -> bool {
        let bypassed = slot.details.is_some();
        self.on(slot)
            .and_then(|(vm, id)| vm.state().stream(id).map(|stream| stream.local_reply))
            .unwrap_or(bypassed)
    }

    pub(crate) fn details(&mut self, slot: &StreamSlot) -> Option<String> {
        match self.on(slot) {
            Some((vm, id)) => vm.state().stream(id).and_then(|stream| stream.details.clone()),
            None => slot.details.clone(),
        }
    }

    pub(crate) fn outputs(&mut self, slot: &mut StreamSlot) -> VecDeque<Output> {
        match self.on(slot) {
            Some((vm, id)) => vm.take_outputs(id),
            None => std::mem::take(&mut slot.passed),
        }
    }

    /// Ends a stream: log, done, delete.
    pub(crate) fn close(&mut self, slot: &StreamSlot) {
        if let Some((vm, id)) = self.on(slot) {
            vm.end_stream(id);
            if vm.is_failed() {
                self.drop_drained();
            }
        }
    }

    /// Fires due timers, and times out callouts that nobody answers.
    pub(crate) fn tick(&mut self) {
        let now = self.shared.clock.monotonic();
        let (due, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.silent)
            .into_iter()
            .partition(|(_, _, deadline)| deadline.is_some_and(|deadline| deadline <= now));
        self.silent = open;
        for (generation, token, _) in due {
            self.finish_callout(generation, token, timed_out());
        }
        for vm in self.vms() {
            vm.tick();
        }
    }

    /// When the next timer or time-out is due, on the monotonic clock.
    pub(crate) fn next_event(&mut self) -> Option<Duration> {
        let timeouts = self.silent.iter().filter_map(|(_, _, deadline)| *deadline).min();
        let timers = self.vms().filter_map(Vm::next_timer).min();
        [timeouts, timers].into_iter().flatten().min()
    }

    /// Tells the guest of queues that have something for it.
    pub(crate) fn tell_ready_queues(&mut self) {
        if let Some(vm) = self.vm() {
            vm.tell_ready_queues();
        }
    }

    /// Whether a guest has set a timer since the last time this was asked.
    pub(crate) fn timers_changed(&mut self) -> bool {
        self.vms().map(|vm| std::mem::take(&mut vm.state().timers_changed)).filter(|changed| *changed).count()
            > 0
    }

    /// Streams that have something for their driver.
    pub(crate) fn take_ready(&mut self) -> Vec<(u64, u32)> {
        let of = |(generation, vm): (&u64, &mut Vm)| {
            let generation = *generation;
            std::mem::take(&mut vm.state().ready).into_iter().map(move |id| (generation, id))
        };
        self.vms.iter_mut().flat_map(of).collect()
    }

    /// Bytes of a direction that the filter holds, and whether it asked to see all of them at once.
    pub(crate) fn held(&mut self, slot: &StreamSlot, direction: Direction) -> (usize, bool) {
        self.on(slot)
            .and_then(|(vm, id)| {
                let half = vm.state().stream(id)?.half(direction);
                Some((half.held.len(), half.sees_held))
            })
            .unwrap_or_default()
    }

    /// Callouts that the guest has made since the last time, with the generation to answer to.
    pub(crate) fn take_callouts(&mut self) -> Vec<(u64, Callout)> {
        let of = |(generation, vm): (&u64, &mut Vm)| {
            let generation = *generation;
            vm.take_callouts().into_iter().map(move |callout| (generation, callout)).collect::<Vec<_>>()
        };
        self.vms.iter_mut().flat_map(of).collect()
    }

    /// What the guest did with its gRPC streams since the last time.
    pub(crate) fn take_stream_orders(&mut self) -> Vec<(u64, StreamOrder)> {
        let of = |(generation, vm): (&u64, &mut Vm)| {
            let generation = *generation;
            vm.take_stream_orders().into_iter().map(move |order| (generation, order)).collect::<Vec<_>>()
        };
        self.vms.iter_mut().flat_map(of).collect()
    }

    pub(crate) fn grpc_stream_event(&mut self, generation: u64, token: u32, event: GrpcEvent) {
        if let Some(vm) = self.vms.get_mut(&generation) {
            vm.grpc_stream_event(token, event);
        }
    }

    /// Streams of gRPC that a cluster in memory answers: the request they were opened with, and whether it was answered.
    pub(crate) fn simulated_streams(&mut self) -> &mut BTreeMap<(u64, u32), SimulatedStream> {
        &mut self.simulated_streams
    }

    pub(crate) fn finish_callout(&mut self, generation: u64, token: u32, response: Response) {
        if let Some(vm) = self.vms.get_mut(&generation) {
            vm.finish_callout(token, response);
        }
    }

    /// Keeps a callout that nobody answers until it times out.
    pub(crate) fn keep_silent(&mut self, generation: u64, callout: &Callout) {
        let deadline = callout.timeout.map(|timeout| self.shared.clock.monotonic() + timeout);
        self.silent.push((generation, callout.token, deadline));
    }
}

/// What a guest sees of a callout whose time is up: a response of the gateway's.
pub(crate) fn timed_out() -> Response {
    const BODY: &str = "upstream request timeout";
    Response::new(504)
        .header("content-length", BODY.len().to_string())
        .header("content-type", "text/plain")
        .body(BODY)
}
