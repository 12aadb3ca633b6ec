//! What filters do during a step, taken down for the case that the step misses.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use host_sim::{Builder, Request, TracedCallback};

use super::usage::{Usage, Usages};

/// The most callbacks that are kept of a step, the newest.
const MAX_CALLBACKS: usize = 2_000;

/// A call of a filter to a cluster.
#[derive(Debug, Clone)]
pub(super) struct MadeCall {
    pub(super) cluster: String,
    pub(super) request: Request,
}

#[derive(Debug, Default)]
struct Seen {
    callbacks: VecDeque<TracedCallback>,
    calls: Vec<MadeCall>,
    /// Of all callbacks since the host was made.
    usages: Usages,
}

/// What a host's filters have done since the last time. Clones see the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host that is watched.
    pub(super) fn over(&self, builder: Builder) -> Builder {
        let watch = self.clone();
        builder.on_trace(move |callback| {
            let Seen { callbacks, usages, .. } = &mut *watch.lock();
            usages.entry(callback.callback.to_owned()).or_default().widen(Usage::of(callback));
            if callbacks.len() == MAX_CALLBACKS {
                callbacks.pop_front();
            }
            callbacks.push_back(callback.clone());
        })
    }

    /// A cluster was called.
    pub(super) fn called(&self, cluster: &str, request: &Request) {
        self.lock().calls.push(MadeCall { cluster: cluster.to_owned(), request: request.clone() });
    }

    /// The callbacks since the last time, oldest first.
    pub(super) fn take_callbacks(&self) -> Vec<TracedCallback> {
        mem::take(&mut self.lock().callbacks).into()
    }

    /// What callbacks have taken since the host was made.
    pub(super) fn usages(&self) -> Usages {
        self.lock().usages.clone()
    }

    /// The calls to clusters since the last time, in order.
    pub(super) fn take_calls(&self) -> Vec<MadeCall> {
        mem::take(&mut self.lock().calls)
    }
}
