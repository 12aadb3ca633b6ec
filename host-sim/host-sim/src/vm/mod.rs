//! One VM: an instance of the module, its contexts, and the calls into it.

pub(crate) mod callouts;
pub(crate) mod deferred;
mod error;
pub(crate) mod exports;
mod grpc;
pub(crate) mod memory;
pub(crate) mod module;
mod name;
pub(crate) mod random;
mod roots;
pub(crate) mod state;
mod streams;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use envoy_config::Plugin;
use wasmtime::{InstancePre, Store, StoreLimitsBuilder, TypedFunc, WasmParams, WasmResults};

use self::{
    callouts::Callouts,
    deferred::{MAX_DEPTH, STACK_OVERFLOW},
    exports::Exports,
    module::{Module, ticks},
    random::Randomness,
    state::{Context, Restriction, VmState},
};
pub use self::{error::VmError, name::VmName};
use crate::{
    abi::LogLevel,
    shared::{Shared, metrics::MetricIds},
};

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
            contexts: BTreeMap::new(),
            next_context: 0,
            current: 0,
            effective: 0,
            stop_iteration: false,
            deferred: VecDeque::new(),
            metric_ids: MetricIds::new(shared.metrics.clone()),
            callouts: Callouts::default(),
            rng: Randomness::new(shared.seed, name, generation),
            turns: None,
            host_calls: 0,
            timers_changed: false,
            ready: VecDeque::new(),
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
        state.shared.logs.tell(LogLevel::Critical, state.name, failure.to_string());
        // What the guest has asked for dies with it.
        state.deferred.clear();
        self.failure = Some(failure);
    }

    /// Bytes of the guest's memory.
    pub(crate) fn memory_size(&mut self) -> usize {
        self.store.data().memory.map_or(0, |memory| memory.data_size(&self.store))
    }

    /// Whether a stream is still in progress.
    pub(crate) fn has_streams(&self) -> bool {
        self.store.data().contexts.values().any(|context| matches!(context, Context::Stream(_)))
    }
}
