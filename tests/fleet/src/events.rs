//! What happens, in the order in which it happens.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::gateway::Place;
use crate::world::Time;

/// What happens. Requests, streams, calls and answers are given by their places in the run, workers by their gateway and their own place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Request(u32),
    /// The client of a stream leaves.
    Leave(u32),
    Settle(u32),
    Tick(Place),
    /// The host keeps a configuration no longer than its streams.
    Drained(Place),
    /// A worker takes up its gateway's configuration.
    Configure(usize, usize),
    /// A client of a gateway and a worker asks where it stands.
    Look(usize, usize),
    /// An operator resets a subject at a gateway and a worker.
    Reset(usize, usize, usize),
    /// A ledger gets a call.
    Receive(u32),
    /// A worker hears that a call has failed, or has waited for it long enough.
    Fail(u32),
    /// Of a call, and what the ledger answered.
    Answer(u32, u32),
    Fault,
    OutageEnds,
    ReplicaReturns,
    /// Until when a worker is stuck from now on.
    Stuck(usize, usize, Time),
    /// The store writes what survives a loss.
    Save,
    /// The store has settled after a loss.
    Settled,
    /// The network is good from now on.
    Calm,
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    at: Time,
    tie: u32,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.tie).cmp(&(other.at, other.tie))
    }
}

/// Events that are to come.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Timed>>,
    pushed: u32,
}

impl Events {
    /// An event at an instant, after those that were put there before.
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.pushed += 1;
        self.push_anywhere(at, self.pushed, event);
    }

    /// An event at an instant, in any order with the others of that instant.
    pub(crate) fn push_anywhere(&mut self, at: Time, tie: u32, event: Event) {
        self.heap.push(Reverse(Timed { at, tie, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|Reverse(Timed { at, event, .. })| (at, event))
    }
}
