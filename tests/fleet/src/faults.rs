//! What goes wrong.

use crate::events::Event;
use crate::gateway::{Count, Gateway};
use crate::run::Run;
use crate::store;
use crate::world::{Fault, MILLI, SECOND, UNTIL, pick};

/// How far all clocks but one jump, in milliseconds.
const FAR: u64 = 250_000;

impl Run {
    /// Something goes wrong, and something else later.
    pub(crate) fn fault(&mut self) {
        if self.now > UNTIL - SECOND {
            return;
        }
        let fault = pick(&mut self.rng, self.world.faults);
        let gateway = self.rng.usize(..self.world.gateways);
        let worker = self.rng.usize(..self.world.workers);
        let counter = self.rng.usize(..self.world.windows.len());
        let millis = self.millis();
        self.facts.note(None, || {
            format!("{millis} {fault:?}, of gateway {gateway}, its worker {worker} or counter {counter}")
        });
        self.happen(fault, gateway, worker, counter);
        // A store that loses something again and again does nothing but settle.
        let is_loss = matches!(fault, Fault::LosesAll | Fault::LosesSecond);
        let after = self.within(if is_loss { 10 } else { 2 } * SECOND);
        self.after(after, Event::Fault);
    }

    fn happen(&mut self, fault: Fault, gateway: usize, worker: usize, counter: usize) {
        match fault {
            Fault::Clock => {
                let step = pick(&mut self.rng, &[100, 1_000, 3_000, 7_000]);
                let goes_back = self.rng.bool();
                self.gateways[gateway].clock += if goes_back { -step } else { step };
            }
            Fault::FarClock => {
                self.jumped += FAR;
                self.gateways[gateway].clock -= FAR as i64;
                self.store.expire(self.millis());
            }
            Fault::Outage => {
                self.is_away = true;
                let after = 100 * MILLI + self.within(1_400 * MILLI);
                self.after(after, Event::OutageEnds);
            }
            Fault::Replica => {
                self.replica_away = Some(0);
                let after = self.within(2 * SECOND);
                self.after(after, Event::ReplicaReturns);
            }
            Fault::Plan => {
                let limit = self.world.limits[counter];
                self.gateways[gateway].limits[counter] = pick(&mut self.rng, &[limit, limit / 2]);
                for window in &self.store.windows {
                    let (key, shares) = (window.key, window.counter.shares);
                    self.facts.taken(key, self.now, self.least_limit(key.0), shares);
                }
            }
            Fault::Reset => {
                self.reset(gateway, worker, counter);
                for count in self.gateways.iter_mut().filter_map(|gateway| gateway.counts[counter].as_mut()) {
                    count.touched = self.now;
                }
            }
            Fault::LosesAll => self.lose(Vec::new(), false),
            Fault::LosesSecond => {
                if let Some(saved) = self.saved.take() {
                    self.lose(saved, true);
                }
            }
            Fault::Evicts => self.gateways[gateway].counts[counter] = None,
            Fault::GatewayDies => {
                for worker in 0..self.world.workers {
                    self.worker_dies(gateway, worker);
                }
                let id = self.next_id;
                self.next_id += 1;
                let Gateway { clock, limits, workers, .. } = self.gateways[gateway].clone();
                self.gateways[gateway] = Gateway { clock, workers, ..Gateway::new(id, limits, 0) };
            }
            Fault::WorkerDies => self.worker_dies(gateway, worker),
            Fault::WorkerStuck => self.worker_is_stuck(gateway, worker),
        }
    }

    /// A gateway begins a count anew, and states it.
    fn reset(&mut self, gateway: usize, worker: usize, counter: usize) {
        let (now, generation) = (self.clock(gateway), self.gateways[gateway].next_generation());
        let count = self.count(gateway, counter);
        count.begin(count.holding.reset(generation, now));
        let key = (counter, count.index);
        self.note(key, gateway, || "begins anew by a reset".to_owned());
        let stated = self.look_at(gateway, counter);
        self.call(gateway, worker, None, [(counter, stated)].into_iter().collect());
    }

    /// What waits in the worker waits for ever.
    pub(crate) fn worker_dies(&mut self, gateway: usize, worker: usize) {
        self.gateways[gateway].workers[worker].life += 1;
        for request in &mut self.requests {
            if (request.gateway, request.worker) == (gateway, worker) {
                request.call = None;
            }
        }
    }

    pub(crate) fn worker_is_stuck(&mut self, gateway: usize, worker: usize) {
        if self.now <= UNTIL - SECOND {
            let until = self.now + self.within(3 * SECOND);
            // It still sends what it has just said.
            self.after(1, Event::Stuck(gateway, worker, until));
        }
    }

    /// The store loses all but `saved`, and an epoch begins. What was granted in a second that it loses is excepted.
    fn lose(&mut self, saved: Vec<store::Window>, is_excepted: bool) {
        let lost = std::mem::replace(&mut self.store.windows, saved);
        self.store.epoch += 1;
        for window in lost.iter().filter(|_| is_excepted) {
            let units = window.holders.iter().map(|(name, holder)| {
                let share = self.store.share(window.key, *name);
                i64::from(holder.share.saturating_sub(share))
            });
            let units = units.sum();
            self.facts.used(window.key, window.counter.reset, 0, units);
        }
        if !self.world.restates_in_time() {
            self.after(ledger::share::SETTLING * MILLI, Event::Settled);
        }
    }

    /// The store has settled. What was used and what gateways hold that they could not state till now is excepted.
    pub(crate) fn except_unstated(&mut self) {
        for (key, reset, used) in self.facts.all() {
            let (mut live, mut held) = (0, 0);
            for gateway in &self.gateways {
                if let Some(Count { index, holding, .. }) = &gateway.counts[key.0]
                    && (*index, holding.reset) == (key.1, reset)
                {
                    live += i64::from(holding.used);
                    held += i64::from(holding.used.max(holding.share));
                }
            }
            let counter = self.store.window(key).map(|window| window.counter);
            let stated = counter.filter(|counter| counter.reset == reset).map_or(0, |counter| counter.shares);
            let dead = (used - live).max(0);
            self.facts.used(key, reset, 0, (dead + held - stated as i64).max(0));
        }
    }
}
