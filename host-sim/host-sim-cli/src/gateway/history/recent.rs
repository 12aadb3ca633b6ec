//! The requests that the gateway served last.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host_sim::{Framing, Response, TracedCallback, VmName};

use super::{
    page,
    record::{Message, Record},
    scenario,
};

/// How many requests are kept.
const REQUESTS: usize = 100;
/// How many answers of clusters are kept.
const ANSWERS: usize = 1000;
/// How many callbacks of a request are kept: a body that comes byte by byte has many.
const CALLBACKS: usize = 500;

/// The requests that a gateway served last, with what filters did in them. Clones are the same.
///
/// [`Options::recent`](crate::gateway::Options::recent) takes it, and the admin address shows it. It has traces if it is told
/// of callbacks:
///
/// ```
/// use host_sim::Host;
/// use host_sim_cli::gateway::Recent;
///
/// let recent = Recent::default();
/// let traced = recent.clone();
/// let host = Host::builder().on_trace(move |callback| traced.trace(callback)).build();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Recent(Arc<Mutex<State>>);

/// A request's number, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::gateway) struct RequestId(u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a gateway is made of, as far as a scenario says it.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Setup {
    pub(in crate::gateway) workers: usize,
    pub(in crate::gateway) filters: usize,
    pub(in crate::gateway) framing: Framing,
    pub(in crate::gateway) clusters: Vec<String>,
    /// When the filters were loaded, in time since 1970.
    pub(in crate::gateway) loaded: Duration,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// How many requests there were.
    pub(super) begun: u64,
    /// Whose step each VM takes.
    steps: BTreeMap<VmName, RequestId>,
    /// In the order in which they came.
    pub(super) requests: VecDeque<Entry>,
    /// What clusters answered since the filters were loaded.
    pub(super) answers: VecDeque<Answer>,
    pub(super) setup: Setup,
    /// Whether a filter has called a cluster by gRPC since it was loaded.
    pub(super) called_grpc: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: RequestId,
    pub(super) trace: Vec<TracedCallback>,
    /// How many callbacks were not kept.
    pub(super) untraced: usize,
    /// None while it is in progress.
    pub(super) record: Option<Record>,
}

/// An answer of a cluster to a filter.
#[derive(Debug)]
pub(super) struct Answer {
    /// The request that it was asked for, if it was for one.
    pub(super) request: Option<RequestId>,
    pub(super) cluster: String,
    pub(super) message: Message,
}

/// What the admin address answers.
#[derive(Debug)]
pub(in crate::gateway) enum Shown {
    Page(String),
    /// A scenario, and the name of its file.
    Scenario {
        name: String,
        text: String,
    },
}

impl Recent {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a callback of a filter, which belongs to the request that its VM takes a step for.
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

    /// Filters were loaded: scenarios begin here.
    pub(in crate::gateway) fn loaded(&self, setup: Setup) {
        let mut state = self.lock();
        state.answers.clear();
        state.called_grpc = false;
        state.setup = setup;
    }

    /// Filters were loaded in the place of those before.
    pub(in crate::gateway) fn reloaded(&self, filters: usize, loaded: Duration) {
        let setup = Setup { filters, loaded, ..self.lock().setup.clone() };
        self.loaded(setup);
    }

    pub(in crate::gateway) fn begin(&self) -> RequestId {
        let mut state = self.lock();
        state.begun += 1;
        let id = RequestId(state.begun);
        if state.requests.len() == REQUESTS {
            state.requests.pop_front();
        }
        state.requests.push_back(Entry { id, trace: Vec::new(), untraced: 0, record: None });
        id
    }

    /// A VM takes a step for a request, until what this gives is dropped.
    pub(in crate::gateway) fn step(&self, vm: VmName, request: RequestId) -> Step<'_> {
        self.lock().steps.insert(vm, request);
        Step { recent: self, vm }
    }

    pub(in crate::gateway) fn end(&self, id: RequestId, record: Record) {
        // One that so many others came after is not kept.
        if let Some(entry) = self.lock().entry(id) {
            entry.record = Some(record);
        }
    }

    /// A cluster has answered a filter.
    pub(in crate::gateway) fn answered(
        &self,
        request: Option<RequestId>,
        cluster: &str,
        response: &Response,
    ) {
        let mut state = self.lock();
        if state.answers.len() == ANSWERS {
            state.answers.pop_front();
        }
        let mut message = Message::new(response.headers().clone());
        message.add(response.body_bytes());
        if let Some(trailers) = response.trailers() {
            message.end(trailers.clone());
        }
        state.answers.push_back(Answer { request, cluster: cluster.to_owned(), message });
    }

    /// A filter has called a cluster by gRPC.
    pub(in crate::gateway) fn called_grpc(&self) {
        self.lock().called_grpc = true;
    }

    /// What there is at a path of the admin address.
    pub(in crate::gateway) fn at(&self, path: &str) -> Option<Shown> {
        let rest = path.strip_prefix("/requests")?;
        let state = self.lock();
        if rest.is_empty() {
            return Some(Shown::Page(page::page(&state)));
        }
        let (id, form) = rest.strip_prefix('/')?.split_once('/')?;
        let id = RequestId(id.parse().ok()?);
        let (alone, kind) = match form {
            "scenario.json" => (false, "scenario"),
            "alone.json" => (true, "alone"),
            _ => return None,
        };
        let scenario = scenario::of(&state, id, alone).ok()?;
        Some(Shown::Scenario { name: format!("request-{id}-{kind}.json"), text: format!("{scenario:#}\n") })
    }
}

impl State {
    fn entry(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.requests.iter_mut().rev().find(|entry| entry.id == id)
    }
}

impl Entry {
    /// The record, once the request is over.
    pub(super) fn over(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

/// A step that a VM takes for a request.
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
