//! The most recent requests of a gateway.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host_sim::{LogLine, TracedCallback, VmName};
use tokio::sync::watch;

use super::record::{Record, text};

/// Number of requests that are kept. Those in progress are kept even if they are more.
const REQUESTS: usize = 100;
/// Maximum number of callbacks that are kept for a request: a body that comes byte by byte causes many.
const CALLBACKS: usize = 500;

/// The most recent requests of a gateway, with what filters did in them. Clones share the same requests.
///
/// Give it to a gateway as [`Options::recent`](crate::gateway::Options::recent), and the admin address shows the requests. For
/// traces, pass it the host's callbacks:
///
/// ```
/// use host_sim::Host;
/// use host_sim_cli::gateway::Recent;
///
/// let recent = Recent::default();
/// let traced = recent.clone();
/// let host = Host::builder().on_trace(move |callback| traced.trace(callback)).build();
/// ```
#[derive(Clone, Default)]
pub struct Recent {
    state: Arc<Mutex<State>>,
    listener: Option<Arc<Listener>>,
    columns: &'static [&'static str],
    cells: Option<Arc<Cells>>,
    /// How many requests have ended, for those who wait for the next.
    ended: watch::Sender<u64>,
}

type Listener = dyn Fn(&Ended) + Send + Sync;
type Cells = dyn Fn(&Ended) -> Vec<String> + Send + Sync;

/// A request that has ended, for [`Recent::on_end`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ended {
    /// When the request arrived, as time since the Unix epoch.
    pub started: Duration,
    /// The method.
    pub method: String,
    /// The path as the client sent it, with its query.
    pub path: String,
    /// The status that the client got; 0 without an answer.
    pub status: u16,
    /// The lines that [`Recent::log`] was given in the request.
    pub log: Vec<LogLine>,
}

/// A request's number, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) struct RequestId(u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Number of requests so far.
    pub(super) begun: u64,
    /// Number of those that have ended.
    pub(super) ended: u64,
    /// The request that each VM is running a callback for.
    steps: BTreeMap<VmName, RequestId>,
    /// The requests, the oldest first.
    pub(super) requests: VecDeque<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: RequestId,
    log: Vec<LogLine>,
    pub(super) trace: Vec<TracedCallback>,
    /// Number of callbacks that were not kept.
    pub(super) untraced: usize,
    /// `None` while the request is in progress.
    pub(super) record: Option<Record>,
    /// The request's place among those that have ended, from 1.
    pub(super) ended: u64,
    /// What the page shows of it in its columns.
    pub(super) cells: Vec<String>,
}

impl Recent {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the default, and calls `listener` with each request when it has ended, on the thread of its worker.
    pub fn on_end(listener: impl Fn(&Ended) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..Self::default() }
    }

    /// With columns on the page, by which it can be filtered: `cells` has a text for each, of a request that has ended.
    #[must_use]
    pub fn columns(
        self,
        names: &'static [&'static str],
        cells: impl Fn(&Ended) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self { columns: names, cells: Some(Arc::new(cells)), ..self }
    }

    pub(super) fn names(&self) -> &'static [&'static str] {
        self.columns
    }

    /// How many requests have ended, now and whenever it changes.
    pub(in crate::gateway) fn watch(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Adds a line of a filter's log to the request that its VM is running a callback for.
    pub fn log(&self, line: &LogLine) {
        let mut state = self.lock();
        let Some(id) = state.steps.get(&line.vm).copied() else { return };
        if let Some(entry) = state.entry(id) {
            entry.log.push(line.clone());
        }
    }

    /// Adds a callback of a filter to the request that its VM is running it for.
    pub fn trace(&self, callback: &TracedCallback) {
        let mut state = self.lock();
        let Some(id) = state.steps.get(&callback.vm).copied() else { return };
        let Some(entry) = state.entry(id) else { return };
        if entry.trace.len() < CALLBACKS {
            entry.trace.push(callback.clone());
        } else {
            entry.untraced += 1;
        }
    }

    pub(in crate::gateway) fn begin(&self) -> RequestId {
        let mut state = self.lock();
        state.begun += 1;
        let id = RequestId(state.begun);
        while state.requests.len() >= REQUESTS {
            let Some(oldest) = state.requests.iter().position(|entry| entry.record.is_some()) else { break };
            state.requests.remove(oldest);
        }
        state.requests.push_back(Entry {
            id,
            log: Vec::new(),
            trace: Vec::new(),
            untraced: 0,
            record: None,
            ended: 0,
            cells: Vec::new(),
        });
        id
    }

    /// Marks that a VM runs a callback for a request, until the returned [`Step`] is dropped.
    pub(in crate::gateway) fn step(&self, vm: VmName, request: RequestId) -> Step<'_> {
        self.lock().steps.insert(vm, request);
        Step { recent: self, vm }
    }

    pub(in crate::gateway) fn end(&self, id: RequestId, record: Record) {
        let mut state = self.lock();
        state.ended += 1;
        let number = state.ended;
        let Some(entry) = state.entry(id) else { return };
        let log = std::mem::take(&mut entry.log);
        let told = (self.listener.is_some() || self.cells.is_some()).then(|| Ended::of(&record, log));
        if let (Some(cells), Some(told)) = (&self.cells, &told) {
            entry.cells = cells(told);
        }
        (entry.record, entry.ended) = (Some(record), number);
        drop(state);
        self.ended.send_replace(number);
        if let (Some(listener), Some(told)) = (&self.listener, told) {
            listener(&told);
        }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}

impl Ended {
    fn of(record: &Record, log: Vec<LogLine>) -> Self {
        let header = |name| text(&record.request.headers, name).unwrap_or_default();
        let (method, path) = (header(":method"), header(":path"));
        Self { started: record.started, method, path, status: record.status(), log }
    }
}

impl State {
    fn entry(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.requests.iter_mut().rev().find(|entry| entry.id == id)
    }
}

/// The time in which a VM runs a callback for a request.
#[derive(Debug)]
pub(in crate::gateway) struct Step<'a> {
    recent: &'a Recent,
    vm: VmName,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.recent.lock().steps.remove(&self.vm);
    }
}
