//! Requests: how a gateway decides them.

use arrayvec::ArrayVec;
use filter::count::holding::Stated;
use ledger_wire::Answer;

use crate::events::Event;
use crate::gateway::{Count, Steps};
use crate::rules::{Check, Rule};
use crate::run::{Request, Run, Settlement};
use crate::world::{COUNTERS, Fault, MILLI, OnUnavailable, TIMEOUT, Time};

/// Part of a limit, in percent, that `on_unavailable: local` allows.
const LOCAL: u32 = 10;
/// How often a client asks where it stands: sooner than a tick may give back what the count holds.
const LOOKS: Time = 300 * MILLI;
/// Part of the asks after which a worker is stuck, in worlds in which workers are.
const STUCK: f64 = 0.05;

/// As often a request asks while all is well and units are free: again if what it needs of one quota was taken while it waited for another.
const MOST_ASKS: u32 = 2;

/// Counters of a request.
type Counters = ArrayVec<usize, COUNTERS>;

fn quotas(costs: [u32; COUNTERS]) -> Counters {
    (0..COUNTERS).filter(|counter| costs[*counter] > 0).collect()
}

impl Run {
    pub(crate) fn arrive(&mut self, request: u32) {
        let Request { gateway, costs, .. } = self.requests[request as usize];
        self.requests[request as usize].deadline = self.now + Time::from(TIMEOUT) * MILLI;
        let lacking = self.charge(request, &[]);
        if lacking.is_empty() {
            return;
        }
        let (now, steps) = (self.clock(gateway), self.steps);
        for &counter in &lacking {
            let limit = self.limit(gateway, counter);
            if steps.refuses(self.count(gateway, counter), costs[counter], limit, now) {
                return self.refuse(request, counter);
            }
        }
        self.ask(request, &lacking);
        if self.chance(self.world.leave) {
            let after = self.within(2 * self.world.distance);
            self.after(after, Event::Leave(request));
        }
    }

    /// Checks all quotas of a request that has waited for the answers to `statements`, then consumes all. Returns the counters that lack units.
    pub(crate) fn charge(&mut self, request: u32, statements: &[(usize, Stated)]) -> Counters {
        let Request { gateway, costs, .. } = self.requests[request as usize];
        let waiters_first = !self.lacks(Rule::WaitersFirst);
        let mut lacking = Counters::new();
        for counter in quotas(costs) {
            let (limit, now, cost) = (self.limit(gateway, counter), self.now, costs[counter]);
            let Count { holding, touched, .. } = self.count(gateway, counter);
            *touched = now;
            let has_waited = statements.iter().any(|(of, _)| *of == counter);
            let lacks = match waiters_first && !has_waited {
                true => holding.lacks_at_first(cost, limit),
                false => holding.lacks(cost, limit),
            };
            if lacks {
                lacking.push(counter);
            }
        }
        if lacking.is_empty() {
            self.consume(request, &[]);
        }
        lacking
    }

    /// Charges a request: of the counters `beyond`, also what is not there.
    fn consume(&mut self, request: u32, beyond: &[usize]) {
        let Request { gateway, worker, costs, .. } = self.requests[request as usize];
        let now = self.clock(gateway);
        let settles = self.chance(self.world.settle);
        let mut changes = [None; COUNTERS];
        for counter in quotas(costs) {
            let cost = costs[counter];
            let Count { index, holding, .. } = self.count(gateway, counter);
            let excepted = match beyond.contains(&counter) {
                true => holding.missing(cost),
                false => 0,
            };
            match beyond.contains(&counter) {
                true => holding.charge_beyond(cost, now),
                false => holding.charge(cost, now),
            }
            let (key, holding) = ((counter, *index), *holding);
            self.facts.used(key, holding.reset, cost.into(), excepted.into());
            if excepted > 0 {
                // What was free may be so no longer.
                self.facts.taken(key, self.now, 0, 0);
            }
            self.note(key, gateway, || format!("admits {cost}, {excepted} of them excepted: {holding:?}"));
            if settles {
                changes[counter] = Some((holding.generation, self.rng.i32(-(cost as i32)..=3)));
            }
        }
        if settles {
            let life = self.life(gateway, worker);
            self.settlements.push(Settlement { gateway, worker, life, changes });
            let after = self.within(300 * MILLI);
            self.after(after, Event::Settle(self.settlements.len() as u32 - 1));
        }
    }

    /// A request turns out to cost more or less.
    pub(crate) fn settle(&mut self, settlement: u32) {
        let Settlement { gateway, worker, life, changes } = self.settlements[settlement as usize];
        if self.life(gateway, worker) != life {
            return;
        }
        for (counter, change) in changes.into_iter().enumerate() {
            let Some((generation, change)) = change else { continue };
            let now = self.now;
            let Count { index, holding, touched, .. } = self.count(gateway, counter);
            if holding.generation != generation {
                continue;
            }
            *touched = now;
            let before = *holding;
            holding.used = before.used.saturating_add_signed(change);
            let debt = |used: u32| i64::from(used.saturating_sub(before.share));
            let excepted = (debt(holding.used) - debt(before.used)).max(0);
            let (key, used) = ((counter, *index), i64::from(holding.used) - i64::from(before.used));
            self.facts.used(key, before.reset, used, excepted);
            if excepted > 0 {
                // What was free may be so no longer.
                self.facts.taken(key, now, 0, 0);
            }
            self.note(key, gateway, || format!("settles by {used}, {excepted} of them excepted"));
        }
    }

    fn ask(&mut self, request: u32, counters: &[usize]) {
        let Request { gateway, worker, costs, .. } = self.requests[request as usize];
        let (now, terms) = (self.clock(gateway), self.steps.terms);
        self.requests[request as usize].asks += 1;
        let mut statements = ArrayVec::new();
        for &counter in counters {
            let (window, limit) = (self.window(counter), self.limit(gateway, counter));
            let forgets = self.lacks(Rule::NeedOfAll);
            let Count { index, holding, .. } = self.count(gateway, counter);
            if forgets {
                holding.waiting = 0;
            }
            let subject = Steps::subject(counter, window, *index, limit);
            statements.push((counter, holding.ask(costs[counter], &subject, now, terms)));
        }
        if self.chance(self.world.die) {
            return self.worker_dies(gateway, worker);
        }
        let call = self.call(gateway, worker, Some(request), statements);
        self.requests[request as usize].call = Some(call);
        if self.world.has(Fault::WorkerStuck) && self.chance(STUCK) {
            self.worker_is_stuck(gateway, worker);
        }
    }

    /// A client asks where it stands, of all quotas, and again soon.
    pub(crate) fn look(&mut self, gateway: usize, worker: usize) {
        let counters = 0..self.world.windows.len();
        let statements = counters.map(|counter| (counter, self.look_at(gateway, counter))).collect();
        self.call(gateway, worker, None, statements);
        self.after(LOOKS, Event::Look(gateway, worker));
    }

    /// A gateway states something of a counter, only to see what others hold.
    pub(crate) fn look_at(&mut self, gateway: usize, counter: usize) -> Stated {
        let (now, steps) = (self.clock(gateway), self.steps);
        let (window, limit) = (self.window(counter), self.limit(gateway, counter));
        let count = self.count(gateway, counter);
        steps.look(count, &Steps::subject(counter, window, count.index, limit), now)
    }

    pub(crate) fn client_leaves(&mut self, request: u32) {
        if let Some(call) = self.requests[request as usize].call {
            self.close(call);
        }
    }

    /// A request was answered.
    pub(crate) fn go_on(&mut self, request: u32, statements: &[(usize, Stated)], answers: &[Answer]) {
        let Request { gateway, deadline, costs, asks, .. } = self.requests[request as usize];
        let lacking = self.charge(request, statements);
        if lacking.is_empty() {
            return;
        }
        if self.lacks(Rule::OnlyAnswersRefuse) {
            return self.refuse(request, lacking[0]);
        }
        let (now, steps) = (self.clock(gateway), self.steps);
        let mut asks_again = false;
        for &counter in &lacking {
            let of = statements.iter().zip(answers).find(|((of, _), _)| *of == counter);
            if let Some(((_, stated), answer)) = of {
                let limit = self.limit(gateway, counter);
                if steps.is_refused(self.count(gateway, counter), stated, answer, limit, now) {
                    return self.refuse(request, counter);
                }
            }
            // A ledger that cannot decide yet will not be able to at once.
            asks_again |= !of.is_some_and(|(_, answer)| cannot_decide(answer));
        }
        if asks >= MOST_ASKS && self.world.is_reachable() && self.world.is_steady() {
            self.check_free(gateway, &lacking);
        }
        match asks_again && self.now < deadline {
            // What has been taken by others meanwhile, of whatever quota, is not taken a second time.
            true if self.lacks(Rule::AllAgain) => self.ask(request, &lacking),
            true => self.ask(request, &quotas(costs)),
            false => self.decide_alone(request, &lacking, 0),
        }
    }

    /// The ledger's word refuses a request.
    fn refuse(&mut self, request: u32, counter: usize) {
        let Request { gateway, .. } = self.requests[request as usize];
        let Count { index, holding, .. } = *self.count(gateway, counter);
        let key = (counter, index);
        self.note(key, gateway, || format!("refuses: {holding:?}"));
        if self.world.knows_ages() {
            let taken = self.store.shares(key) + self.debts(key);
            self.facts.refused(key, holding.reset, self.now, self.least_limit(counter), taken);
        }
    }

    /// The ledger does not decide, so `on_unavailable` does; `attempts` to reach it have failed.
    pub(crate) fn decide_alone(&mut self, request: u32, lacking: &[usize], attempts: u8) {
        let Request { gateway, costs, .. } = self.requests[request as usize];
        // A silent replica costs half of the time, so that a request that has to ask again may run out of it.
        let is_reachable = self.world.is_reachable() && (attempts == 2 || !self.world.has(Fault::Replica));
        let mut is_allowed = true;
        for &counter in lacking {
            let limit = self.limit(gateway, counter);
            let Count { index, holding, .. } = *self.count(gateway, counter);
            is_allowed &= holding.may_go_beyond(costs[counter], limit, limit * LOCAL / 100);
            self.note((counter, index), gateway, || format!("decides alone: {holding:?}"));
            if is_reachable {
                self.facts.violated(Check::Refused, (counter, index), "decided alone");
            }
        }
        let admits = match self.world.on_unavailable {
            OnUnavailable::Deny => false,
            OnUnavailable::Allow => true,
            OnUnavailable::Local => is_allowed,
        };
        if admits {
            self.consume(request, lacking);
        }
    }
}

fn cannot_decide(answer: &Answer) -> bool {
    match answer {
        Answer::Share(share) => share.settling,
        Answer::Reset(_) => false,
        Answer::Refused(_) => true,
    }
}
