//! What guests do while requests are in progress, for the outcomes of these.

use std::sync::{Mutex, MutexGuard};

use crate::{
    lock::lock,
    shared::log_line::LogLine,
    trace::record::TracedCallback,
    vm_name::VmName,
    wire::{
        callout::CallId,
        message::{ClusterCall, Response},
    },
};

/// What the VMs of a host do while at least one request is in progress; nothing is kept beyond that.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Requests in progress.
    open: usize,
    log: Vec<LogLine>,
    calls: Vec<(VmName, CallId, ClusterCall)>,
    trace: Vec<TracedCallback>,
}

/// How much there was when a request began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    log: usize,
    calls: usize,
    trace: usize,
}

/// What has happened on a worker while a request was in progress.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    pub(crate) log: Vec<LogLine>,
    pub(crate) calls: Vec<ClusterCall>,
    pub(crate) trace: Vec<TracedCallback>,
}

/// Those of `all` from `mark` on that `of` takes.
fn since<T, U>(all: &[T], mark: usize, of: impl Fn(&T) -> Option<U>) -> Vec<U> {
    all.get(mark..).unwrap_or_default().iter().filter_map(of).collect()
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }

    /// What is kept, while a request is in progress.
    fn open(&self) -> Option<MutexGuard<'_, Kept>> {
        Some(self.lock()).filter(|kept| kept.open > 0)
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> Mark {
        let mut kept = self.lock();
        kept.open += 1;
        Mark { log: kept.log.len(), calls: kept.calls.len(), trace: kept.trace.len() }
    }

    /// A request that began at `mark` on this worker is over.
    pub(crate) fn end(&self, mark: Mark, vm: VmName) -> Happened {
        let mut kept = self.lock();
        let happened = Happened {
            log: since(&kept.log, mark.log, |line| (line.vm == vm).then(|| line.clone())),
            calls: since(&kept.calls, mark.calls, |(of, _, call)| (*of == vm).then(|| call.clone())),
            trace: since(&kept.trace, mark.trace, |callback| (callback.vm == vm).then(|| callback.clone())),
        };
        kept.open -= 1;
        if kept.open == 0 {
            *kept = Kept::default();
        }
        happened
    }

    /// A line was written to the log.
    pub(crate) fn line(&self, line: &LogLine) {
        if let Some(mut kept) = self.open() {
            kept.log.push(line.clone());
        }
    }

    /// A callback has ended.
    pub(crate) fn callback(&self, callback: TracedCallback) {
        if let Some(mut kept) = self.open() {
            kept.trace.push(callback);
        }
    }

    /// A guest has called a cluster.
    pub(crate) fn call(&self, vm: VmName, id: CallId, call: ClusterCall) {
        if let Some(mut kept) = self.open() {
            kept.calls.push((vm, id, call));
        }
    }

    /// A cluster has answered a call.
    pub(crate) fn answer(&self, vm: VmName, id: CallId, answer: &Response) {
        if let Some(mut kept) = self.open()
            && let Some((.., call)) = kept.calls.iter_mut().rfind(|(of, known, _)| (*of, *known) == (vm, id))
        {
            call.answer = Some(answer.clone());
        }
    }
}
