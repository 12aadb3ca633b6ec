//! What happens, in the order in which it happens.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::world::Time;

/// What happens. Requests, settlements, calls and answers are given by their places in the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Request(u32),
    /// The client of a request leaves.
    Leave(u32),
    Settle(u32),
    /// Of a gateway and a worker.
    Tick(usize, usize),
    /// A worker that has seen another epoch goes through its gateway's table.
    Restate(usize, usize),
    /// A client of a gateway and a worker asks where it stands.
    Look(usize, usize),
    /// Of a call and an attempt.
    Send(u32, u8),
    Receive(u32, u8),
    Fail(u32, u8),
    /// Of a call, an attempt and what the ledger answered.
    Answer(u32, u8, u32),
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
