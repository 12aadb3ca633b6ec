//! One VM: an instance of the module, its contexts, and the calls into it.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use envoy_config::Plugin;
use wasmtime::{InstancePre, Store, StoreLimitsBuilder, TypedFunc, WasmParams, WasmResults};

use crate::{
    abi::{LogLevel, Status},
    exports::{Callback, Exports},
    flavour::StreamEnd,
    headers::Headers,
    hostcalls::ngx,
    message::Response,
    metrics::MetricIds,
    module::{Module, ticks},
    random::Randomness,
    state::{
        CallId, CallKind, Callout, Callouts, Context, Deferred, Direction, GrpcOrder, GrpcStep, OpenCall,
        Output, Restriction, RootContext, RootLife, Shared, VmState,
    },
};

/// How many actions of one guest call may come back to the guest, one inside the other. Measured in Envoy 1.40: with 256
/// local replies the guest's stack holds, with 400 it overflows and the VM is dead, with 2,000 Envoy crashes.
const MAX_DEPTH: u32 = 256;

const STACK_OVERFLOW: &str = "Maximum call stack size exceeded: one callback asked for more than 256 replies or resumes that \
                              come back to the guest, each inside the one before";

/// Which VM of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VmName {
    /// Loads the module and never runs a filter.
    Base,
    /// Runs a new configuration once, before any other VM, and is thrown away.
    Canary,
    /// Envoy's main thread: timers, no streams.
    Main,
    /// A worker, counted from 0.
    Worker(usize),
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Canary => f.write_str("canary"),
            Self::Main => f.write_str("main"),
            Self::Worker(index) => write!(f, "worker {index}"),
        }
    }
}

/// Why a VM does not run a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// It cannot be instantiated: an export has the wrong type, its memory is beyond the limit, its start trapped.
    #[error("the module does not start: {reason}")]
    Instantiate {
        /// What went wrong.
        reason: String,
    },
    /// `proxy_on_vm_start` answered false.
    #[error("the filter refused to start (proxy_on_vm_start answered false)")]
    StartRefused,
    /// `proxy_on_configure` answered false.
    #[error("the filter refused its configuration (proxy_on_configure answered false)")]
    ConfigureRefused,
    /// A callback trapped.
    #[error("{callback} trapped: {reason}")]
    Trapped {
        /// The callback.
        callback: &'static str,
        /// The trap.
        reason: String,
    },
}

pub(crate) struct Vm {
    pub(crate) store: Store<VmState>,
    pub(crate) exports: Exports,
    /// Why the VM runs nothing any more.
    failure: Option<VmError>,
}

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm").field("name", &self.store.data().name).field("failure", &self.failure).finish()
    }
}

/// A trap's own words, without the frames.
fn reason(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

impl Vm {
    /// Makes an instance and runs its start: `_initialize` and `main`, or `_start`.
    pub(crate) fn new(
        module: &InstancePre<VmState>,
        shared: &Arc<Shared>,
        plugin: &Arc<Plugin>,
        name: VmName,
        generation: u64,
    ) -> Result<Self, VmError> {
        let state = VmState {
            shared: Arc::clone(shared),
            name,
            generation,
            plugin: Arc::clone(plugin),
            namespace: shared.shared_data.namespace(&plugin.vm_id),
            memory: None,
            allocator: None,
            limits: StoreLimitsBuilder::new().memory_size(shared.memory_limit).build(),
            restriction: Restriction::Initializing,
            contexts: std::collections::BTreeMap::new(),
            next_context: 0,
            current: 0,
            effective: 0,
            stop_iteration: false,
            deferred: std::collections::VecDeque::new(),
            metric_ids: MetricIds::new(shared.metrics.clone()),
            callouts: Callouts::default(),
            rng: Randomness::new(shared.seed, name, generation),
            turns: None,
            host_calls: 0,
            timers_changed: false,
            ready: std::collections::VecDeque::new(),
            depth: 0,
            calls: 0,
        };
        let mut store = Store::new(Module::engine(), state);
        store.limiter(|state| &mut state.limits);
        store.set_epoch_deadline(ticks(shared.callback_limit));

        let refused = |error: wasmtime::Error| VmError::Instantiate { reason: reason(&error) };
        let instance = module.instantiate(&mut store).map_err(refused)?;
        let (exports, start) = Exports::of(&instance, &mut store)?;
        let memory = instance.get_memory(&mut store, "memory");
        store.data_mut().memory = memory;
        store.data_mut().allocator = start.allocator.clone();
        start.run(&mut store).map_err(refused)?;
        store.data_mut().restriction = Restriction::None;
        Ok(Self { store, exports, failure: None })
    }

    pub(crate) fn state(&mut self) -> &mut VmState {
        self.store.data_mut()
    }

    pub(crate) fn failure(&self) -> Option<&VmError> {
        self.failure.as_ref()
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Calls the guest on behalf of a context. `None` when the VM has failed, now or before.
    pub(crate) fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        callback: &'static str,
        context: u32,
        function: &TypedFunc<P, R>,
        arguments: P,
    ) -> Option<R> {
        if self.is_failed() {
            return None;
        }
        let state = self.store.data_mut();
        if state.depth > MAX_DEPTH {
            self.fail(callback, STACK_OVERFLOW.to_owned());
            return None;
        }
        state.calls += 1;
        state.current = context;
        state.effective = 0;
        state.stop_iteration = false;
        let deadline = ticks(state.shared.callback_limit);
        self.store.set_epoch_deadline(deadline);
        let result = function.call(&mut self.store, arguments);
        let state = self.store.data_mut();
        state.effective = 0;
        state.current = 0;
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                let limit = state.shared.callback_limit;
                let reason = match error.downcast_ref::<wasmtime::Trap>() {
                    Some(wasmtime::Trap::Interrupt) => format!("it ran for more than {limit:?}"),
                    _ => reason(&error),
                };
                self.fail(callback, reason);
                None
            }
        }
    }

    fn fail(&mut self, callback: &'static str, reason: String) {
        let failure = VmError::Trapped { callback, reason };
        let state = self.store.data_mut();
        state.shared.logs.write(LogLevel::Critical, state.name, failure.to_string().as_bytes());
        // What the guest has asked for dies with it.
        state.deferred.clear();
        self.failure = Some(failure);
    }

    /// Makes a root context for `plugin` and configures it.
    pub(crate) fn start_root(&mut self, plugin: &Arc<Plugin>) -> Result<u32, VmError> {
        let id = self.state().allocate_context_id();
        let root = RootContext {
            plugin: Arc::clone(plugin),
            timer: None,
            status: (0, Bytes::new()),
            callout_response: None,
            grpc_initial_metadata: None,
            grpc_message: None,
            grpc_trailing_metadata: None,
            declared_properties: std::collections::BTreeMap::new(),
            #[cfg(feature = "expressions")]
            expressions: crate::hostcalls::expressions::Expressions::default(),
            configuring: false,
            life: RootLife::Running,
        };
        self.state().contexts.insert(id, Context::Root(Box::new(root)));

        if let Some(create) = self.exports.on_context_create.clone() {
            self.call("proxy_on_context_create", id, &create, (id, 0));
        }
        let size = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(start) = self.exports.on_vm_start.clone() {
            let vm_size = size(&self.state().plugin.vm_configuration);
            let started = self.call("proxy_on_vm_start", id, &start, (id, vm_size));
            self.run_deferred();
            if started == Some(0) {
                return Err(self.refused(id, VmError::StartRefused));
            }
        }
        if let Some(configure) = self.exports.on_configure.clone() {
            self.set_configuring(id, true);
            let configured =
                self.call("proxy_on_configure", id, &configure, (id, size(&plugin.configuration)));
            self.set_configuring(id, false);
            self.run_deferred();
            if configured == Some(0) {
                return Err(self.refused(id, VmError::ConfigureRefused));
            }
        }
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(id),
        }
    }

    /// A root context that does not come to run does nothing more. The VM goes on with those that it has.
    fn refused(&mut self, root: u32, why: VmError) -> VmError {
        self.state().contexts.remove(&root);
        self.failure.clone().unwrap_or(why)
    }

    fn set_configuring(&mut self, root: u32, configuring: bool) {
        if let Some(root) = self.state().root(root) {
            root.configuring = configuring;
        }
    }

    /// Fires the timers that are due, each once, and arms them again from now.
    pub(crate) fn tick(&mut self) {
        let now = self.state().shared.clock.monotonic();
        for root in self.root_ids() {
            let due =
                self.state().root(root).and_then(|root| root.timer).is_some_and(|timer| timer.due <= now);
            let Some(on_tick) = self.exports.on_tick.clone().filter(|_| due && !self.is_failed()) else {
                continue;
            };
            self.call("proxy_on_tick", root, &on_tick, root);
            let now = self.state().shared.clock.monotonic();
            if let Some(timer) = self.state().root(root).and_then(|root| root.timer.as_mut())
                && timer.due <= now
            {
                timer.due = now + timer.period;
            }
            self.run_deferred();
        }
    }

    /// When the next timer is due, on the monotonic clock.
    pub(crate) fn next_timer(&mut self) -> Option<std::time::Duration> {
        if self.is_failed() || self.exports.on_tick.is_none() {
            return None;
        }
        let roots = self.root_ids();
        roots.into_iter().filter_map(|root| Some(self.state().root(root)?.timer?.due)).min()
    }

    fn root_ids(&mut self) -> Vec<u32> {
        let contexts = &self.state().contexts;
        contexts
            .iter()
            .filter(|(_, context)| matches!(context, Context::Root(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Tells a root context that a queue has something for it.
    pub(crate) fn tell_ready_queue(&mut self, root: u32, token: u32) {
        let there = self.state().root(root).is_some();
        if let Some(on_ready) = self.exports.on_queue_ready.clone().filter(|_| there) {
            self.call("proxy_on_queue_ready", root, &on_ready, (root, token));
            self.run_deferred();
        }
    }

    /// Callouts that the guest has made since the last time.
    pub(crate) fn take_callouts(&mut self) -> Vec<Callout> {
        self.state().callouts.started.drain(..).collect()
    }

    /// What the guest did with its gRPC streams since the last time.
    pub(crate) fn take_grpc_orders(&mut self) -> Vec<GrpcOrder> {
        self.state().callouts.grpc_orders.drain(..).collect()
    }

    /// Hands the answer of a callout to the guest. An answer for a root that is gone is dropped.
    pub(crate) fn finish_callout(&mut self, token: u32, response: Response) {
        let Some(OpenCall { root: root_id, kind }) = self.state().callouts.open.remove(&token) else {
            return;
        };
        if kind == CallKind::Grpc {
            self.finish_grpc_call(root_id, token, response);
            return;
        }
        let Some(root) = self.state().root(root_id) else { return };
        let (headers, body, trailers) = if response.failure.is_some() {
            root.status = (Status::BrokenConnection.code(), Bytes::from_static(b"reset"));
            (0, 0, 0)
        } else {
            let counts = (
                response.headers.len(),
                response.body.len(),
                response.trailers.as_ref().map_or(0, Headers::len),
            );
            root.callout_response = Some(response);
            counts
        };
        if let Some(on_response) = self.exports.on_http_call_response.clone() {
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let arguments = (root_id, token, count(headers), count(body), count(trailers));
            self.call("proxy_on_http_call_response", root_id, &on_response, arguments);
        }
        if let Some(root) = self.state().root(root_id) {
            root.callout_response = None;
            root.status.1 = Bytes::new();
        }
        self.run_deferred();
    }

    /// Runs what the guest asked for while its callback ran, in that order. In Envoy an action that comes back to the guest
    /// runs the next one before it returns, so it and all that follow are one deeper on the guest's stack.
    pub(crate) fn run_deferred(&mut self) {
        self.state().stop_iteration = false;
        let outermost = self.state().depth;
        while let Some(action) = self.state().deferred.pop_front() {
            let (depth, calls) = (self.state().depth + 1, self.state().calls);
            self.state().depth = depth;
            let returns = match action {
                Deferred::LocalReply { stream, reply } => self.reply_locally(stream, reply, depth),
                Deferred::Continue { stream, direction } => {
                    self.continue_stream(stream, direction);
                    self.state().calls > calls
                }
                Deferred::Reset { stream } => {
                    self.pass(stream, Output::Reset);
                    false
                }
                Deferred::DeleteRoot { root } => {
                    self.delete_root(root);
                    self.state().calls > calls
                }
            };
            if !returns {
                self.state().depth -= 1;
            }
        }
        self.state().depth = outermost;
    }

    /// Ends a root context whose configuration was replaced, once its streams are gone.
    pub(crate) fn retire_root(&mut self, root: u32) {
        if let Some(context) = self.state().root(root) {
            context.life = RootLife::Retiring;
        }
        self.end_root_if_drained(root);
    }

    /// A root context of `plugin` that has not been told that it ends; it serves again.
    pub(crate) fn live_root(&mut self, plugin: &Plugin) -> Option<u32> {
        self.state().contexts.iter_mut().find_map(|(id, context)| match context {
            Context::Root(root) if *root.plugin == *plugin && root.life != RootLife::PendingDone => {
                root.life = RootLife::Running;
                Some(*id)
            }
            _ => None,
        })
    }

    fn end_root_if_drained(&mut self, root: u32) {
        let state = self.state();
        let retiring = state.root(root).is_some_and(|context| context.life == RootLife::Retiring);
        let serves = |context: &Context| matches!(context, Context::Stream(stream) if stream.root == root);
        if !retiring || state.contexts.values().any(serves) || self.is_failed() {
            return;
        }
        let done = match self.of_a_root(self.exports.on_done.clone()) {
            Some(on_done) => self.call("proxy_on_done", root, &on_done, root) != Some(0),
            None => true,
        };
        if done {
            self.delete_root(root);
        } else if let Some(context) = self.state().root(root) {
            context.life = RootLife::PendingDone;
        }
        self.run_deferred();
    }

    /// A last callback, where the gateway calls it for a root context: nginx does for streams alone.
    fn of_a_root<P, R>(&self, callback: Callback<P, R>) -> Callback<P, R> {
        callback.filter(|_| !ngx::is_ngx(self.store.data()))
    }

    fn delete_root(&mut self, root: u32) {
        if self.state().root(root).is_none() {
            return;
        }
        if let Some(on_delete) = self.of_a_root(self.exports.on_delete.clone()) {
            self.call("proxy_on_delete", root, &on_delete, root);
        }
        // Calls of a root end with it.
        let state = self.state();
        state.contexts.remove(&root);
        state.callouts.open.retain(|_, call| call.root != root);
        let (ended, kept) = std::mem::take(&mut state.callouts.streams)
            .into_iter()
            .partition(|(_, stream)| stream.root == root);
        state.callouts.streams = kept;
        let ended: std::collections::BTreeMap<u32, _> = ended;
        let generation = state.generation;
        let resets = ended.into_keys().map(|token| CallId { generation, token });
        state.callouts.grpc_orders.extend(resets.map(|call| GrpcOrder { call, step: GrpcStep::Reset }));
    }

    /// Tells the guest of a stream that it begins. Called late, for a stream whose request never reached the filter.
    pub(crate) fn create_in_guest(&mut self, id: u32) {
        let Some(stream) = self.state().stream(id).filter(|stream| !stream.created) else { return };
        let root = stream.root;
        stream.created = true;
        if let Some(create) = self.exports.on_context_create.clone() {
            self.call("proxy_on_context_create", id, &create, (id, root));
            self.run_deferred();
        }
    }

    /// Has the guest log a stream that ends, where streams begin their end with that.
    pub(crate) fn log_stream(&mut self, id: u32) {
        if self.state().stream(id).is_none() || self.is_failed() {
            return;
        }
        self.create_in_guest(id);
        if self.state().shared.stream_end == StreamEnd::LogDoneDelete {
            self.call_on_log(id);
        }
    }

    /// Ends a stream with its last callbacks.
    pub(crate) fn end_stream(&mut self, id: u32) {
        if self.state().stream(id).is_none() {
            return;
        }
        if !self.is_failed() {
            if let Some(on_done) = self.exports.on_done.clone() {
                self.call("proxy_on_done", id, &on_done, id);
                self.run_deferred();
            }
            if self.state().shared.stream_end == StreamEnd::DoneLogDelete {
                self.call_on_log(id);
            }
            if let Some(on_delete) = self.exports.on_delete.clone() {
                self.call("proxy_on_delete", id, &on_delete, id);
                self.run_deferred();
            }
        }
        let root = match self.state().contexts.remove(&id) {
            Some(Context::Stream(stream)) => stream.root,
            _ => return,
        };
        self.state().ready.retain(|ready| *ready != id);
        self.end_root_if_drained(root);
    }

    fn call_on_log(&mut self, id: u32) {
        let Some(on_log) = self.exports.on_log.clone() else { return };
        self.set_logging(id, true);
        self.call("proxy_on_log", id, &on_log, id);
        self.run_deferred();
        self.set_logging(id, false);
    }

    fn set_logging(&mut self, id: u32, logging: bool) {
        if let Some(stream) = self.state().stream(id) {
            stream.logging = logging;
        }
    }

    /// Bytes of the guest's memory.
    pub(crate) fn memory_size(&mut self) -> usize {
        self.store.data().memory.map_or(0, |memory| memory.data_size(&self.store))
    }

    /// Whether a stream is still in progress.
    pub(crate) fn has_streams(&self) -> bool {
        self.store.data().contexts.values().any(|context| matches!(context, Context::Stream(_)))
    }

    pub(crate) fn export_index(direction: Direction) -> usize {
        match direction {
            Direction::Request => 0,
            Direction::Response => 1,
        }
    }
}
