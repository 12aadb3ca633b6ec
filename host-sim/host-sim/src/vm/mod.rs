//! One VM: an instance of the module, and the calls into its guest.

pub(crate) mod code_cache;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod exports;
pub(crate) mod module;

use std::{fmt, sync::Arc};

use wasmtime::{InstancePre, Store};

use crate::{
    abi::LogLevel,
    state::{Restriction, VmState, allowance},
    trace::{
        backtrace::GuestBacktrace,
        callbacks::{Parameters, Returned, Shape},
        recorder::{Ending, START},
    },
    vm::{
        error::VmError,
        exports::{Callback, Exports},
    },
};

/// How many actions of one guest call may come back to the guest, one inside the other. Measured in Envoy 1.40: with 256
/// local replies the guest's stack holds, with 400 it overflows and the VM is dead, with 2,000 Envoy crashes.
const MAX_DEPTH: u32 = 256;

const STACK_OVERFLOW: &str = "Maximum call stack size exceeded: one callback asked for more than 256 replies or resumes that \
                              come back to the guest, each inside the one before";

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

/// What a guest said of its panic comes before the trap that it ended with.
fn after_panic(panic: Option<String>, trap: String) -> String {
    match panic {
        Some(panic) => format!("{panic} ({trap})"),
        None => trap,
    }
}

/// Why an instance could not be made or did not start.
fn not_started(store: &mut Store<VmState>, error: &wasmtime::Error) -> VmError {
    let reason = after_panic(store.data_mut().panic.take(), reason(error));
    VmError::Instantiate { reason, backtrace: GuestBacktrace::of(error) }
}

/// Instructions that a guest may run in one callback where they are counted: the time is what limits it.
const ENOUGH_FUEL: u64 = u64::MAX;

/// A callback begins in a VM that is traced.
fn enter(store: &mut Store<VmState>, shape: &'static Shape, arguments: &[u32]) {
    // Guests of other engines count nothing.
    let _ = store.set_fuel(ENOUGH_FUEL);
    let memory = store.data().memory.map_or(0, |memory| memory.data_size(&*store));
    let state = store.data_mut();
    let place = (state.name, state.depth);
    if let Some(trace) = &mut state.trace {
        trace.enter(place, shape, arguments, memory);
    }
}

/// The callback that was entered last has ended.
fn leave(store: &mut Store<VmState>, returned: Option<String>, trapped: Option<String>) {
    let instructions = store.get_fuel().ok().map(|left| ENOUGH_FUEL - left);
    let memory = store.data().memory.map_or(0, |memory| memory.data_size(&*store));
    let state = store.data_mut();
    let ending = Ending { returned, trapped, instructions };
    let callback = state.trace.as_mut().and_then(|trace| trace.leave(ending, memory));
    if let (Some(callback), Some(sink)) = (callback, &state.shared.trace) {
        sink.tell(&callback);
        state.shared.record.callback(callback);
    }
}

impl Vm {
    /// Makes an instance and runs its start: `_initialize` and `main`, or `_start`.
    pub(crate) fn new(module: &InstancePre<VmState>, state: VmState) -> Result<Self, VmError> {
        let mut store = Store::new(module.module().engine(), state);
        store.limiter(|state| &mut state.limits);
        allowance::grant(&mut store);

        enter(&mut store, &START, &[]);
        let started = Self::start(module, &mut store);
        let trapped = started.as_ref().err().map(ToString::to_string);
        leave(&mut store, None, trapped);
        let exports = started?;
        store.data_mut().restriction = Restriction::None;
        Ok(Self { store, exports, failure: None })
    }

    fn start(module: &InstancePre<VmState>, store: &mut Store<VmState>) -> Result<Exports, VmError> {
        let instance = module.instantiate(&mut *store).map_err(|error| not_started(store, &error))?;
        let (exports, start) = Exports::of(&instance, store)?;
        let memory = instance.get_memory(&mut *store, "memory");
        store.data_mut().memory = memory;
        store.data_mut().allocator = start.allocator.clone().map(Arc::new);
        start.run(store).map_err(|error| not_started(store, &error))?;
        Ok(exports)
    }

    pub(crate) fn failure(&self) -> Option<&VmError> {
        self.failure.as_ref()
    }

    /// Calls the guest on behalf of a context. `None` when it lacks the callback, or the VM has failed, now or before.
    pub(crate) fn call<P: Parameters, R: Returned>(
        &mut self,
        callback: impl FnOnce(&Exports) -> &Callback<P, R>,
        context: u32,
        arguments: P,
    ) -> Option<R> {
        let callback = callback(&self.exports);
        let (shape, function) = (callback.shape, callback.function.as_ref());
        let function = function.filter(|_| self.failure.is_none())?;
        let state = self.store.data_mut();
        if state.depth > MAX_DEPTH {
            self.fail(shape.name, STACK_OVERFLOW.to_owned(), GuestBacktrace::default());
            return None;
        }
        state.calls += 1;
        state.panic = None;
        state.current = context;
        state.effective = 0;
        state.stop_iteration = false;
        let traced = state.trace.is_some();
        allowance::grant(&mut self.store);
        if traced {
            enter(&mut self.store, shape, &arguments.numbers());
        }
        let result = function.call(&mut self.store, arguments);
        let state = self.store.data_mut();
        state.effective = 0;
        state.current = 0;
        match result {
            Ok(result) => {
                if traced {
                    let answer = result.number().map(|number| shape.returned(number));
                    leave(&mut self.store, answer, None);
                }
                Some(result)
            }
            Err(error) => {
                let limit = state.shared.callback_limit;
                let trap = match error.downcast_ref::<wasmtime::Trap>() {
                    Some(wasmtime::Trap::Interrupt) => format!("it ran for more than {limit:?}"),
                    _ => reason(&error),
                };
                let reason = after_panic(state.panic.take(), trap);
                self.fail(shape.name, reason, GuestBacktrace::of(&error));
                let trapped = self.failure.as_ref().map(ToString::to_string);
                leave(&mut self.store, None, trapped);
                None
            }
        }
    }

    fn fail(&mut self, callback: &'static str, reason: String, backtrace: GuestBacktrace) {
        let failure = VmError::Trapped { callback, reason, backtrace };
        let state = self.store.data_mut();
        state.shared.logs.tell(LogLevel::Critical, state.name, failure.explained());
        // What the guest has asked for dies with it.
        state.deferred.clear();
        self.failure = Some(failure);
    }

    /// Bytes of the guest's memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.store.data().memory.map_or(0, |memory| memory.data_size(&self.store))
    }
}
