//! What must be kept.

use crate::gateway::Count;
use crate::rules::Check;
use crate::run::Run;
use crate::store::Key;
use crate::world::{LONG, MILLI, TERM, Time};

impl Run {
    /// Units of a window that were used beyond what the ledger knows.
    pub(crate) fn debts(&self, key: Key) -> u64 {
        let debts = self.gateways.iter().map(|gateway| match &gateway.counts[key.0] {
            Some(Count { index, holding, .. }) if *index == key.1 => {
                let share = self.store.share(key, (gateway.id, holding.generation));
                u64::from(holding.used.saturating_sub(share))
            }
            _ => 0,
        });
        debts.sum()
    }

    /// In a world where nothing keeps it, a count that has been idle for two terms holds nothing.
    pub(crate) fn check_idle(&mut self, gateway: usize, counter: usize) {
        let (now, is_prompt) = (self.now, self.world.is_prompt());
        if is_prompt && now > self.count(gateway, counter).touched + 2 * Time::from(TERM) * MILLI {
            self.check_kept(gateway, counter, "idle for two terms");
        }
    }

    /// A request has asked as often as it should have to: what it lacks must be used up.
    pub(crate) fn check_free(&mut self, gateway: usize, lacking: &[usize]) {
        for &counter in lacking {
            let key = (counter, self.count(gateway, counter).index);
            let taken = self.store.shares(key) + u64::from(self.facts.most);
            if taken <= self.least_limit(counter).into() {
                self.facts.violated(Check::Refused, key, "asked again and again");
            }
        }
    }

    /// All is idle.
    pub(crate) fn check_end(&mut self) {
        for gateway in 0..self.world.gateways {
            for counter in 0..self.world.windows.len() {
                if self.world.windows[counter] == LONG && self.gateways[gateway].counts[counter].is_some() {
                    self.check_kept(gateway, counter, "idle");
                }
            }
        }
        for window in &self.store.windows {
            if window.holders.iter().map(|(_, holder)| u64::from(holder.share)).sum::<u64>()
                != window.counter.shares
            {
                self.facts.violated(Check::Kept, window.key, "the sum of the shares");
            }
        }
        self.facts.check_over(&self.world.limits);
    }

    fn check_kept(&mut self, gateway: usize, counter: usize, when: &'static str) {
        let now = self.clock(gateway);
        let Count { index, holding, .. } = *self.count(gateway, counter);
        if holding.used_at.until(now) < 2 * TERM {
            // By a clock that has stepped back, it is not idle.
            return;
        }
        let key = (counter, index);
        let share = self.store.share(key, (self.gateways[gateway].id, holding.generation));
        let reset = self.store.window(key).map_or(0, |window| window.counter.reset);
        // Of a reset, a gateway hears with its next statement.
        let is_known = match holding.seq {
            0 => true,
            _ => reset > holding.reset || reset == holding.reset && holding.used == share,
        };
        if holding.used != holding.share || !is_known {
            self.note(key, gateway, || {
                format!("holds {holding:?}, by the ledger {share} under reset {reset}")
            });
            self.facts.violated(Check::Kept, key, when);
        }
    }
}
