//! Counters of which something may be left to state.

use std::collections::{HashSet, VecDeque};

use crate::count::table::Counter;

/// Counters, each once. The one that was looked at longest ago comes first.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    queue: VecDeque<Counter>,
    queued: HashSet<Counter>,
}

impl Unsettled {
    pub(super) fn add(&mut self, counters: impl IntoIterator<Item = Counter>) {
        let Self { queue, queued } = self;
        queue.extend(counters.into_iter().filter(|counter| queued.insert(*counter)));
    }

    pub(super) fn take(&mut self) -> Option<Counter> {
        let counter = self.queue.pop_front()?;
        self.queued.remove(&counter);
        Some(counter)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
