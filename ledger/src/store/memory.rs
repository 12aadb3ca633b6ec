//! The store of a single ledger: the machine over a map.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ledger_wire::{Answer, Hex128};

use super::{Epoch, HolderShare, Holders, Order, Place, Reset, Standing};
use crate::share::{Counter, Holder, Stated, state};

/// Number of counters from which expired ones are looked for. Each look waits for as many new ones as it left, so that looking is at
/// most two steps for each new counter.
const SWEEP: usize = 1_024;

/// Counters in this process, which are lost with it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(super) epoch: Epoch,
    counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    kept: HashMap<String, Kept>,
    /// Size at which expired ones are looked for.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Kept {
    counter: Counter,
    /// By gateway and generation.
    holders: HashMap<(Hex128, u32), Holder>,
    /// In milliseconds since 1970.
    expires: u64,
}

impl Counters {
    fn at(&mut self, place: &Place, now: u64) -> &mut Kept {
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|_, kept| kept.expires > now);
            self.sweep_at = SWEEP.max(2 * self.kept.len());
        }
        let kept = self.kept.entry(place.name.clone()).or_default();
        if kept.expires <= now {
            *kept = Kept { expires: now + 1_000 * place.seconds, ..Kept::default() };
        }
        kept
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { epoch: Epoch::begin(Hex128(rand::random())), counters: Mutex::default() }
    }

    pub(super) fn state(&self, order: &Order, now: u64) -> Answer {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = counters.at(&order.place, now);
        let name = (order.gateway, order.statement.generation);
        let holder = kept.holders.get(&name).copied().unwrap_or_default();
        let Stated { counter, holder, answer } = state(kept.counter, holder, &order.statement, order.terms);
        if counter.reset != kept.counter.reset {
            kept.holders.clear();
        }
        kept.counter = counter;
        if holder != Holder::default() {
            kept.holders.insert(name, holder);
        }
        answer
    }

    pub(super) fn reset(&self, reset: &Reset, now: u64) -> Standing {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = counters.at(&reset.place, now);
        if reset.reset > kept.counter.reset {
            kept.counter = Counter { reset: reset.reset, shares: 0 };
            kept.holders.clear();
        }
        Standing { reset: kept.counter.reset }
    }

    pub(super) fn read(&self, name: &str, now: u64) -> Holders {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = counters.kept.get(name).filter(|kept| kept.expires > now) else {
            return Holders::default();
        };
        let holders = kept.holders.iter();
        let share = |(name, holder): (&(Hex128, u32), &Holder)| HolderShare {
            gateway: name.0,
            generation: name.1,
            share: holder.share,
        };
        Holders { reset: kept.counter.reset, holders: holders.map(share).collect() }
    }
}

#[cfg(test)]
mod tests {
    use ledger_wire::{Says, Share, Statement};

    use super::*;
    use crate::share::Terms;

    fn order(counter: u128, ends: u64, now: u64) -> Order {
        let says = Says::Ask { need: 1, cost: 1, hold: 1 };
        let statement = Statement {
            counter: Hex128(counter),
            window: 1,
            begins: ends - 60,
            ends,
            limit: 10,
            generation: 1,
            seq: 1,
            used: 0,
            reset: 0,
            says,
        };
        let place = Place::new(statement.counter, 1, ends, now);
        Order { place, gateway: Hex128(1), statement, terms: Terms { settling: false, gateways: 1 } }
    }

    #[test]
    fn a_counter_is_forgotten_180_seconds_after_its_window_whatever_later_statements_say_of_it() {
        let memory = Memory::new();
        memory.state(&order(1, 100, 60_000), 60_000);
        memory.state(&order(1, 500, 70_000), 70_000);
        //  time, how many hold something
        for (now, holders) in [(100_000, 1), (279_999, 1), (280_000, 0)] {
            assert_eq!(memory.read(&Place::name(Hex128(1), 1), now).holders.len(), holders, "{now}");
        }
        let answer = memory.state(&order(1, 500, 280_000), 280_000);
        assert_eq!(answer, Answer::Share(Share { share: 1, others: 0, reset: 0, settling: false }));
    }

    #[test]
    fn what_has_expired_takes_no_memory() {
        let memory = Memory::new();
        for number in 0..10 * SWEEP as u64 {
            let now = number * 10_000;
            memory.state(&order(number.into(), now / 1_000 + 60, now), now);
        }
        assert!(memory.counters.lock().unwrap().kept.len() <= 2 * SWEEP);
    }
}
