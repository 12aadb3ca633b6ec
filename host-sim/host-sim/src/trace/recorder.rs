//! Takes a VM's trace down as it runs.

use std::time::Duration;

use crate::{
    abi::Status,
    clock::Clock,
    parameter::Raw,
    trace::{
        arguments,
        callbacks::Shape,
        record::{CallAnswer, TracedCall, TracedCallback},
    },
    vm_name::VmName,
};

/// The trace of the callback that runs in a VM. Guests nest no deeper than the allocator within a host call.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    callback: Option<Open<TracedCallback>>,
    /// Host calls in progress, the innermost last.
    calls: Vec<(OpenCall, Vec<Raw>)>,
}

/// A host call that has begun.
pub(crate) type OpenCall = Open<TracedCall>;

/// Something that has begun.
#[derive(Debug)]
pub(crate) struct Open<T> {
    pub(crate) what: T,
    began: Duration,
    /// Bytes of the guest's memory at that time.
    memory: u64,
}

/// What a module runs before any callback.
pub(crate) const START: Shape = Shape { name: "start", parameters: &[], answers: &[] };

/// How a callback has ended.
pub(crate) struct Ending {
    pub(crate) returned: Option<String>,
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
        shape: &'static Shape,
        numbers: &[u32],
        memory: usize,
    ) {
        let what = TracedCallback {
            vm,
            callback: shape.name,
            depth,
            arguments: shape.given(numbers),
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
        what.returned = ending.returned;
        what.trapped = ending.trapped;
        what.instructions = ending.instructions;
        // Most modules have no start, and then there is nothing to be told.
        let is_empty = what.callback == START.name && what.calls.is_empty() && what.trapped.is_none();
        Some(what).filter(|_| !is_empty)
    }

    /// The host asks the guest's allocator for memory.
    pub(crate) fn allocate(&mut self, bytes: u32) {
        if let Some(open) = &mut self.callback {
            open.what.host_memory += u64::from(bytes);
        }
    }

    /// The callback that runs.
    pub(crate) fn callback(&self) -> &'static str {
        self.callback.as_ref().map_or(START.name, |open| open.what.callback)
    }

    /// A host call begins.
    pub(crate) fn call(&mut self, call: &'static str, raw: Vec<Raw>, memory: &[u8]) {
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

    /// The host call that was begun last.
    pub(crate) fn take_call(&mut self) -> Option<(OpenCall, Vec<Raw>)> {
        self.calls.pop()
    }

    /// A host call has ended: it becomes part of what it was made in.
    pub(crate) fn put(
        &mut self,
        open: OpenCall,
        raw: &[Raw],
        answer: CallAnswer,
        memory: &[u8],
        grown: usize,
    ) {
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
