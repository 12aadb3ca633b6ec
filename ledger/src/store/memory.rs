//! The store of a single ledger: the machine over a map.

use std::collections::HashMap;

use ledger_wire::{Answer, Hex128, ItemError};

use super::Call;
use crate::share::{Counter, Holder, Stated, state};

/// Number of counters from which expired ones are looked for. Each look waits for as many new ones as it left, so that looking is at
/// most two steps for each new counter.
const SWEEP: usize = 1_024;

/// Counters in this process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    kept: HashMap<String, Kept>,
    /// Size at which expired ones are looked for.
    sweep_at: usize,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    counter: Counter,
    /// By gateway and generation.
    holders: HashMap<(Hex128, u32), Holder>,
    /// In milliseconds since 1970.
    expires: u64,
}

/// A holder as a file has it: when its counter expires, the counter's name, gateway and generation, number and share, and the counter's
/// reset number. A counter is what the rows of its highest reset number say.
pub(super) type Row = (u64, String, String, u32, u32, u32, u64);

impl Memory {
    /// Takes up a row.
    ///
    /// # Errors
    /// If its gateway is none.
    pub(super) fn restore(&mut self, row: Row) -> Result<(), &'static str> {
        let (expires, name, gateway, generation, seq, share, reset) = row;
        let kept = self.kept.entry(name).or_default();
        if reset > kept.counter.reset {
            *kept = Kept { counter: Counter { reset, shares: 0 }, ..Kept::default() };
        }
        if reset == kept.counter.reset {
            kept.expires = expires;
            kept.counter.shares += u64::from(share);
            kept.holders.insert((Hex128::try_from(gateway)?, generation), Holder { seq, share });
        }
        Ok(())
    }

    /// The row of the holder who made a call, if the counter knows one.
    pub(super) fn row(&self, call: &Call) -> Option<Row> {
        let Kept { counter, holders, expires } = self.kept.get(&call.name)?;
        let (gateway, generation) = (call.gateway, call.statement.generation);
        let Holder { seq, share } = *holders.get(&(gateway, generation))?;
        Some((*expires, call.name.clone(), gateway.to_string(), generation, seq, share, counter.reset))
    }

    /// A copy of the counters of these calls.
    pub(super) fn draft<'a>(&self, calls: impl Iterator<Item = &'a Call>) -> Self {
        let kept = calls.filter_map(|call| Some((call.name.clone(), self.kept.get(&call.name)?.clone())));
        Self { kept: kept.collect(), sweep_at: 0 }
    }

    /// Takes up what calls have made of a draft.
    pub(super) fn accept(&mut self, draft: Self, now: u64) {
        self.kept.extend(draft.kept);
        self.sweep(now);
    }

    fn sweep(&mut self, now: u64) {
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|_, kept| kept.expires > now);
            self.sweep_at = SWEEP.max(2 * self.kept.len());
        }
    }

    /// The answer to each call, in their order. A call that is an error is answered with it.
    pub(super) fn call_all(&mut self, calls: &[Result<Call, ItemError>], now: u64) -> Vec<Answer> {
        let answer = |call: &Result<Call, ItemError>| match call {
            Ok(call) => self.call(call, now),
            Err(error) => Answer::Refused(error.clone()),
        };
        calls.iter().map(answer).collect()
    }

    pub(super) fn call(&mut self, call: &Call, now: u64) -> Answer {
        self.sweep(now);
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

    impl Memory {
        /// What has not expired, in an order of its own.
        pub(in crate::store) fn live(&self, now: u64) -> Vec<String> {
            let live = self.kept.iter().filter(|(_, kept)| kept.expires > now);
            let mut live: Vec<String> = live
                .map(|(name, Kept { counter, holders, expires })| {
                    let mut holders: Vec<_> = holders.iter().collect();
                    holders.sort_by_key(|(name, _)| **name);
                    format!("{name} {expires} {counter:?} {holders:?}")
                })
                .collect();
            live.sort();
            live
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
