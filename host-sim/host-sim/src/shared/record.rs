//! What guests do while requests are in progress, for the outcomes of these.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use crate::{
    lock::lock,
    shared::logs::LogLine,
    trace::record::TracedCallback,
    vm_name::VmName,
    wire::{
        callout::CallId,
        message::{ClusterCall, Response},
    },
};

/// The most of each kind that is kept, the newest: requests of which one is always in progress never come to an end.
const KEPT: usize = 10_000;

/// What the VMs of a host do while at least one request is in progress; nothing is kept beyond that.
#[derive(Debug, Default)]
pub(crate) struct Record {
    kept: Mutex<Kept>,
    /// Nothing is kept at all.
    off: bool,
}

#[derive(Debug, Default)]
struct Kept {
    /// Requests in progress.
    open: usize,
    log: Newest<LogLine>,
    calls: Newest<(VmName, CallId, ClusterCall)>,
    trace: Newest<TracedCallback>,
}

/// The newest of many.
#[derive(Debug)]
struct Newest<T> {
    items: VecDeque<T>,
    /// How many came before them.
    before: usize,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), before: 0 }
    }
}

impl<T> Newest<T> {
    fn push(&mut self, item: T) {
        if self.items.len() == KEPT {
            self.items.pop_front();
            self.before += 1;
        }
        self.items.push_back(item);
    }

    /// How many there ever were.
    fn count(&self) -> usize {
        self.before + self.items.len()
    }

    /// Those from `mark` on that are kept and that `of` takes.
    fn since<U>(&self, mark: usize, of: impl Fn(&T) -> Option<U>) -> Vec<U> {
        self.items.iter().skip(mark.saturating_sub(self.before)).filter_map(of).collect()
    }
}

/// How much there was when a request began.
#[derive(Debug, Default, Clone, Copy)]
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

impl Record {
    /// One that keeps nothing.
    pub(crate) fn off() -> Self {
        Self { off: true, ..Self::default() }
    }

    /// Whether it keeps nothing.
    pub(crate) fn is_off(&self) -> bool {
        self.off
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// What is kept, while a request is in progress.
    fn open(&self) -> Option<MutexGuard<'_, Kept>> {
        (!self.off).then(|| self.lock()).filter(|kept| kept.open > 0)
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> Mark {
        if self.off {
            return Mark::default();
        }
        let mut kept = self.lock();
        kept.open += 1;
        Mark { log: kept.log.count(), calls: kept.calls.count(), trace: kept.trace.count() }
    }

    /// A request that began at `mark` on this worker is over.
    pub(crate) fn end(&self, mark: Mark, vm: VmName) -> Happened {
        if self.off {
            return Happened::default();
        }
        let mut kept = self.lock();
        let happened = Happened {
            log: kept.log.since(mark.log, |line| (line.vm == vm).then(|| line.clone())),
            calls: kept.calls.since(mark.calls, |(of, _, call)| (*of == vm).then(|| call.clone())),
            trace: kept.trace.since(mark.trace, |callback| (callback.vm == vm).then(|| callback.clone())),
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
            && let Some((.., call)) =
                kept.calls.items.iter_mut().rfind(|(of, known, _)| (*of, *known) == (vm, id))
        {
            call.answer = Some(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::LogLevel;

    #[test]
    fn the_newest_are_kept_while_one_request_follows_the_other_without_an_end() {
        let record = Record::default();
        let line = |number: usize| {
            let message = number.to_string();
            record.line(&LogLine { level: LogLevel::Info, vm: VmName::Main, by_host: false, message });
        };
        let first = record.begin();
        (0..KEPT + 5).for_each(line);
        let last = record.begin();
        line(KEPT + 5);
        let lines = |mark| {
            let lines = record.end(mark, VmName::Main).log;
            (lines.len(), lines.first().map(|line| line.message.clone()))
        };
        assert_eq!(lines(first), (KEPT, Some("6".to_owned())));
        assert_eq!(lines(last), (1, Some((KEPT + 5).to_string())));
    }
}
