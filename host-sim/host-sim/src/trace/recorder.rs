//! Takes a VM's trace down as it runs.

use std::time::Duration;

use wasmtime::{Caller, Extern};

use super::{
    CallAnswer, TracedCall, TracedCallback,
    arguments::{self, Raw},
    callbacks, causes,
};
use crate::{
    abi::Status,
    shared::clock::Clock,
    vm::{GuestBacktrace, VmName, state::VmState},
};

/// The trace of the callback that runs in a VM. Guests nest no deeper than the allocator within a host call.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    callback: Option<Open<TracedCallback>>,
    /// Host calls in progress, the innermost last.
    calls: Vec<(Open<TracedCall>, Vec<Raw>)>,
}

/// Something that has begun.
#[derive(Debug)]
struct Open<T> {
    what: T,
    began: Duration,
    /// Bytes of the guest's memory at that time.
    memory: u64,
}

/// What a module runs before any callback.
pub(crate) const START: &str = "start";

/// How a callback has ended.
pub(crate) struct Ending {
    pub(crate) returned: Option<u32>,
    pub(crate) trapped: Option<String>,
    pub(crate) instructions: Option<u64>,
}

fn size(memory: usize) -> u64 {
    u64::try_from(memory).unwrap_or(u64::MAX)
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::real(), callback: None, calls: Vec::new() }
    }

    /// A callback begins; `memory` is the size of the guest's.
    pub(crate) fn enter(
        &mut self,
        (vm, depth): (VmName, u32),
        callback: &'static str,
        numbers: &[u32],
        memory: usize,
    ) {
        let what = TracedCallback {
            vm,
            callback,
            depth,
            arguments: callbacks::given(callback, numbers),
            returned: None,
            trapped: None,
            took: Duration::ZERO,
            memory_growth: 0,
            host_memory: 0,
            instructions: None,
            calls: Vec::new(),
        };
        self.callback = Some(Open { what, began: self.clock.monotonic(), memory: size(memory) });
    }

    /// The callback has ended.
    pub(crate) fn leave(&mut self, ending: Ending, memory: usize) -> Option<TracedCallback> {
        // Those that are still open are where the guest trapped.
        while let Some((open, raw)) = self.calls.pop() {
            self.put(open, &raw, CallAnswer::Trapped, &[], memory);
        }
        let Open { mut what, began, memory: before } = self.callback.take()?;
        what.took = self.clock.monotonic().saturating_sub(began);
        what.memory_growth = size(memory).saturating_sub(before);
        what.returned = ending.returned.map(|number| callbacks::returned(what.callback, number));
        what.trapped = ending.trapped;
        what.instructions = ending.instructions;
        // Most modules have no start, and then there is nothing to be told.
        let is_empty = what.callback == START && what.calls.is_empty() && what.trapped.is_none();
        Some(what).filter(|_| !is_empty)
    }

    /// The host asks the guest's allocator for memory.
    pub(crate) fn allocate(&mut self, bytes: u32) {
        if let Some(open) = &mut self.callback {
            open.what.host_memory += u64::from(bytes);
        }
    }

    /// The callback that runs.
    pub(super) fn callback(&self) -> &'static str {
        self.callback.as_ref().map_or(START, |open| open.what.callback)
    }

    fn call(&mut self, call: &'static str, raw: Vec<Raw>, memory: &[u8]) {
        let what = TracedCall {
            call,
            arguments: arguments::given(&raw, memory),
            answer: CallAnswer::Trapped,
            results: Vec::new(),
            why: None,
            at: None,
            took: Duration::ZERO,
            memory_growth: 0,
            calls: Vec::new(),
        };
        let open = Open { what, began: self.clock.monotonic(), memory: size(memory.len()) };
        self.calls.push((open, raw));
    }

    /// A host call has ended: it becomes part of what it was made in.
    fn put(&mut self, open: Open<TracedCall>, raw: &[Raw], answer: CallAnswer, memory: &[u8], grown: usize) {
        let Open { mut what, began, memory: before } = open;
        what.took = self.clock.monotonic().saturating_sub(began);
        what.memory_growth = size(grown).saturating_sub(before);
        what.answer = answer;
        if matches!(answer, CallAnswer::Status(Status::Ok) | CallAnswer::Errno(0)) {
            what.results = arguments::written(raw, memory);
        }
        match (self.calls.last_mut(), &mut self.callback) {
            (Some((outer, _)), _) => outer.what.calls.push(what),
            (None, Some(callback)) => callback.what.calls.push(what),
            (None, None) => {}
        }
    }
}

/// The guest's memory, and the state of its VM.
fn split<'c>(caller: &'c mut Caller<'_, VmState>) -> Option<(&'c [u8], &'c mut VmState)> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => caller.get_export("memory").and_then(Extern::into_memory)?,
    };
    let (memory, state) = memory.data_and_store_mut(caller);
    Some((memory, state))
}

/// A guest makes a host call. Says whether it is traced: then it is to be [ended](end), but where the guest traps.
pub(crate) fn begin(
    caller: &mut Caller<'_, VmState>,
    call: &'static str,
    raw: impl FnOnce() -> Vec<Raw>,
) -> bool {
    if caller.data().trace.is_none() {
        return false;
    }
    if let Some((memory, state)) = split(caller)
        && let Some(recorder) = &mut state.trace
    {
        recorder.call(call, raw(), memory);
    }
    true
}

/// The host call that was begun last has this answer. `why` is the cause where the call itself has not run.
pub(crate) fn end(caller: &mut Caller<'_, VmState>, answer: CallAnswer, why: Option<&str>) {
    let Some(mut recorder) = caller.data_mut().trace.take() else { return };
    let Some((mut open, raw)) = recorder.calls.pop() else {
        caller.data_mut().trace = Some(recorder);
        return;
    };
    if let Some((memory, state)) = split(caller) {
        open.what.why = match why {
            Some(why) => Some(why.to_owned()),
            None => causes::why(open.what.call, &raw, (memory, state), recorder.callback(), answer),
        };
    }
    if open.what.why.is_some() && causes::deserves_a_look(answer) {
        open.what.at = GuestBacktrace::of_caller(&*caller).place().cloned();
    }
    if let Some((memory, _)) = split(caller) {
        recorder.put(open, &raw, answer, memory, memory.len());
    }
    caller.data_mut().trace = Some(recorder);
}
