//! Turns of VMs that run at the same time: at every host call a seed decides who goes on.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::lock::lock;

/// One VM's seat at the table. The others wait while it runs.
#[derive(Clone)]
pub(crate) struct Turns {
    seat: usize,
    table: Arc<Table>,
}

struct Table {
    state: Mutex<State>,
    changed: Vec<Condvar>,
}

struct State {
    rng: fastrand::Rng,
    /// Seats whose VM has work left.
    running: Vec<usize>,
    turn: usize,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("seat", &self.seat).finish_non_exhaustive()
    }
}

impl State {
    fn choose(&mut self) {
        if !self.running.is_empty() {
            self.turn = self.running[self.rng.usize(..self.running.len())];
        }
    }
}

impl Turns {
    /// Seats for `count` VMs. The same seed gives the same order of turns.
    pub(crate) fn seats(seed: u64, count: usize) -> Vec<Self> {
        let mut state = State { rng: fastrand::Rng::with_seed(seed), running: (0..count).collect(), turn: 0 };
        state.choose();
        let table = Table { state: Mutex::new(state), changed: (0..count).map(|_| Condvar::new()).collect() };
        let table = Arc::new(table);
        (0..count).map(|seat| Self { seat, table: Arc::clone(&table) }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.table.state)
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) {
        while state.turn != self.seat {
            state = self.table.changed[self.seat].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the first turn.
    pub(crate) fn begin(&self) {
        self.wait(self.lock());
    }

    /// Lets another VM go on, or goes on itself, as the seed says.
    pub(crate) fn offer(&self) {
        let mut state = self.lock();
        state.choose();
        if state.turn != self.seat {
            self.table.changed[state.turn].notify_one();
            self.wait(state);
        }
    }

    /// Gives the turn up for good.
    fn end(&self) {
        let mut state = self.lock();
        state.running.retain(|seat| *seat != self.seat);
        state.choose();
        if let Some(changed) = self.table.changed.get(state.turn) {
            changed.notify_one();
        }
    }

    /// Runs `work` in turns with the other seats. Gives the turn up even when `work` panics.
    pub(crate) fn take<T>(&self, work: impl FnOnce() -> T) -> T {
        struct End<'a>(&'a Turns);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.end();
            }
        }
        self.begin();
        let _end = End(self);
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The order in which three threads with four offers each go on.
    fn order(seed: u64) -> Vec<usize> {
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for turns in Turns::seats(seed, 3) {
                let order = &order;
                scope.spawn(move || {
                    turns.take(|| {
                        for _ in 0..4 {
                            turns.offer();
                            order.lock().unwrap().push(turns.seat);
                        }
                    });
                });
            }
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn a_seed_gives_one_order_and_seeds_give_many() {
        let orders: std::collections::BTreeSet<_> = (0..20).map(order).collect();
        assert!(orders.len() > 10, "{} orders of 20 seeds", orders.len());
        for seed in 0..20 {
            assert_eq!(order(seed), order(seed), "seed {seed}");
        }
    }
}
