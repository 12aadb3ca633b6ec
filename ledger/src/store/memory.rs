//! The store of a single ledger: the machine over a map.

use std::collections::HashMap;

use ledger_wire::{Answer, Hex128};

use super::Call;
use crate::share::{Counter, Holder, Stated, state};

/// Number of counters from which expired ones are looked for. Each look waits for as many new ones as it left, so that looking is at
/// most two steps for each new counter.
const SWEEP: usize = 1_024;

/// Counters in this process, which are lost with it.
#[derive(Debug, Default)]
pub(super) struct Memory {
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

impl Memory {
    pub(super) fn call(&mut self, call: &Call, now: u64) -> Answer {
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|_, kept| kept.expires > now);
            self.sweep_at = SWEEP.max(2 * self.kept.len());
        }
        let kept = self.kept.entry(call.name.clone()).or_default();
        if kept.expires <= now {
            *kept = Kept { expires: now + 1_000 * call.seconds, ..Kept::default() };
        }
        let name = (call.gateway, call.statement.generation);
        let holder = kept.holders.get(&name).copied().unwrap_or_default();
        let Stated { counter, holder, answer } = state(kept.counter, holder, &call.statement, call.terms);
        if counter.reset != kept.counter.reset {
            kept.holders.clear();
        }
        kept.counter = counter;
        if holder != Holder::default() {
            kept.holders.insert(name, holder);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use ledger_wire::{Says, Share, Statement};

    use super::*;
    use crate::share::Terms;

    fn ask(counter: u128, ends: u64, now: u64) -> Call {
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
        let terms = Terms { settling: false, gateways: 1 };
        Call::new(Hex128(1), statement, terms, now)
    }

    #[test]
    fn a_counter_is_forgotten_180_seconds_after_its_window_whatever_later_statements_say_of_it() {
        let mut memory = Memory::default();
        memory.call(&ask(1, 100, 60_000), 60_000);
        memory.call(&ask(1, 500, 70_000), 70_000);
        //  time, what others hold by the answer to another gateway
        for (now, others) in [(100_000, 1), (279_999, 1), (280_000, 0)] {
            let another = Call { gateway: Hex128(2), ..ask(1, 500, now) };
            let expected = Share { share: 1, others, reset: 0, settling: false };
            assert_eq!(memory.call(&another, now), Answer::Share(expected), "{now}");
        }
    }

    #[test]
    fn what_has_expired_takes_no_memory() {
        let mut memory = Memory::default();
        for number in 0..10 * SWEEP as u64 {
            let now = number * 10_000;
            memory.call(&ask(number.into(), now / 1_000 + 60, now), now);
        }
        assert!(memory.kept.len() <= 2 * SWEEP);
    }
}
