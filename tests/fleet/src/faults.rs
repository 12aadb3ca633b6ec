//! What goes wrong.

use crate::events::Event;
use crate::run::Run;
use crate::store;
use crate::world::{Fault, MILLI, SECOND, Time, pick};

/// How far all clocks but one jump.
const FAR: Time = 250 * SECOND;
/// Within this time, all workers of a gateway have taken up a configuration.
const TAKES: Time = 20 * MILLI;

impl Run {
    /// Something goes wrong, and something else later.
    pub(crate) fn fault(&mut self) {
        if self.now > self.world.until - SECOND {
            return;
        }
        let fault = pick(&mut self.rng, self.world.faults);
        let gateway = self.rng.usize(..self.world.gateways);
        let worker = self.rng.usize(..self.world.workers);
        let subject = self.rng.usize(..self.world.subjects.len());
        let millis = self.micros() / MILLI;
        self.facts.note(None, || {
            format!("{millis} {fault:?}, of gateway {gateway}, its worker {worker} or subject {subject}")
        });
        self.happen(fault, gateway, worker, subject);
        // A store that loses something again and again does nothing but settle.
        let is_loss = matches!(fault, Fault::LosesAll | Fault::LosesSecond);
        let after = self.within(if is_loss { 10 } else { 2 } * SECOND);
        self.after(after, Event::Fault);
    }

    fn happen(&mut self, fault: Fault, gateway: usize, worker: usize, subject: usize) {
        match fault {
            Fault::Clock => {
                let step = pick(&mut self.rng, &[100, 1_000, 3_000, 7_000]) * MILLI as i64;
                let goes_back = self.rng.bool();
                // No clock shows the same instant twice.
                let step = step + self.rng.i64(1..MILLI as i64);
                self.gateways[gateway].clock += if goes_back { -step } else { step };
                self.gateways[gateway].stepped_at = self.now;
            }
            Fault::FarClock => {
                self.jumped += FAR;
                self.gateways[gateway].clock -= FAR as i64;
                for gateway in &mut self.gateways {
                    gateway.stepped_at = self.now;
                }
                self.store.expire(self.micros() / MILLI);
            }
            Fault::Outage => {
                (self.is_away, self.returned_at) = (true, None);
                let longest = pick(&mut self.rng, &[1_500, 4_000]) * MILLI;
                let after = 100 * MILLI + self.within(longest);
                self.after(after.min(self.world.until - self.now), Event::OutageEnds);
            }
            Fault::Replica => {
                self.replica_away = Some(0);
                let after = self.within(2 * SECOND);
                self.after(after, Event::ReplicaReturns);
            }
            Fault::Plan => {
                let limit = self.world.limit(subject);
                let limit = pick(&mut self.rng, &[limit, limit / 2]);
                let place = self.world.subjects[subject].place;
                self.gateways[gateway].change_limit(&self.world, place, limit);
                for window in &self.store.windows {
                    let (key, shares) = (window.key, window.counter.shares);
                    self.facts.taken(key, self.now, self.least_limit(key.0), shares);
                }
            }
            Fault::Reset => self.after(0, Event::Reset(gateway, worker, subject)),
            Fault::LosesAll => self.lose(Vec::new(), false),
            Fault::LosesSecond => {
                if let Some(saved) = self.saved.take() {
                    self.lose(saved, true);
                }
            }
            Fault::Evicts => {
                let place = self.rng.usize(..4);
                self.gateways[gateway].evict(place);
            }
            Fault::GatewayDies => self.gateway_dies(gateway),
            Fault::WorkerDies => self.worker_dies(gateway, worker),
            Fault::WorkerStuck => self.worker_is_stuck(gateway, worker),
            Fault::Push => self.push(gateway),
            Fault::Mode => {
                self.gateways[gateway].sharing.in_shadow ^= true;
                self.push(gateway);
            }
        }
    }

    /// The workers of a gateway get a configuration, each at its time.
    fn push(&mut self, gateway: usize) {
        for worker in 0..self.world.workers {
            let after = self.within(TAKES);
            self.after(after, Event::Configure(gateway, worker));
        }
    }

    pub(crate) fn worker_is_stuck(&mut self, gateway: usize, worker: usize) {
        if self.now <= self.world.until - SECOND {
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
            let counts = (0..self.world.gateways).filter_map(|gateway| self.count(gateway, key.0));
            for count in counts.filter(|count| (count.index, count.held.reset) == (key.1, reset)) {
                live += i64::from(count.used);
                held += i64::from(count.used.max(count.held.share));
            }
            let counter = self.store.window(key).map(|window| window.counter);
            let stated = counter.filter(|counter| counter.reset == reset).map_or(0, |counter| counter.shares);
            let dead = (used - live).max(0);
            self.facts.used(key, reset, 0, (dead + held - stated as i64).max(0));
        }
    }
}
