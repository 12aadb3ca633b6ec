//! Calls: statements on their way to the ledger, and answers on their way back.

use arrayvec::ArrayVec;
use filter::count::holding::Stated;
use ledger_wire::Statement;

use crate::events::Event;
use crate::gateway::{Gateway, Steps};
use crate::run::{Call, Run, Statements};
use crate::world::{MILLI, SECOND, TIMEOUT, Time};

impl Run {
    /// Makes a call. Returns its place.
    pub(crate) fn call(
        &mut self,
        gateway: usize,
        worker: usize,
        request: Option<u32>,
        statements: Statements,
    ) -> u32 {
        for &(counter, Stated { statement, .. }) in &statements {
            let Statement { window, generation, seq, used, reset, says, .. } = statement;
            self.note((counter, window), gateway, || {
                format!("states, in generation {generation}: seq {seq}, used {used}, reset {reset}, {says:?}")
            });
        }
        let Gateway { id, ref workers, .. } = self.gateways[gateway];
        let life = workers[worker].life;
        let (attempt, open) = (0, true);
        let call = self.calls.len() as u32;
        self.calls.push(Call { gateway, worker, id, life, request, statements, attempt, open });
        self.after(0, Event::Send(call, 0));
        call
    }

    /// Whether somebody waits for this attempt of a call.
    fn is_waited_for(&self, call: u32, attempt: u8) -> bool {
        let call = &self.calls[call as usize];
        call.open && call.attempt == attempt && self.life(call.gateway, call.worker) == call.life
    }

    pub(crate) fn send(&mut self, call: u32, attempt: u8) {
        if !self.is_waited_for(call, attempt) {
            return;
        }
        self.after(Time::from(TIMEOUT) * MILLI / 2, Event::Fail(call, attempt));
        let times = if self.chance(self.world.repeats) { 2 } else { 1 };
        for _ in 0..times {
            self.transmit(Event::Receive(call, attempt));
        }
    }

    /// A message leaves, and arrives unless it is lost.
    fn transmit(&mut self, arrival: Event) {
        if self.is_calm {
            return self.after(self.world.distance / 2, arrival);
        }
        if self.chance(self.world.loss) {
            return;
        }
        let straight = self.world.distance / 2;
        let after = match self.chance(self.world.late) {
            true => self.within(2 * SECOND),
            false => straight + (straight as f64 * self.world.jitter * self.rng.f64()) as Time,
        };
        self.after(after, arrival);
    }

    /// A ledger takes a call.
    pub(crate) fn receive(&mut self, call: u32, attempt: u8) {
        let replica = (call as usize + usize::from(attempt)) % 2;
        if self.is_away || self.replica_away == Some(replica) {
            // Its host says so, or nobody does.
            if self.rng.bool() {
                self.transmit(Event::Fail(call, attempt));
            }
            return;
        }
        let (millis, heard) = (self.millis(), self.world.gateways as u32);
        let mut answers = ArrayVec::new();
        let Call { gateway, id, ref statements, .. } = self.calls[call as usize];
        for (counter, Stated { statement, .. }) in statements.clone() {
            let (key, seq) = ((counter, statement.window), statement.seq);
            let name = (id, statement.generation);
            let answer =
                self.store.state((replica, millis), counter, name, &statement, heard, self.steps.without);
            self.note(key, gateway, || format!("was heard, as {name:?} with seq {seq}: {answer:?}"));
            let shares = self.store.shares(key);
            self.facts.taken(key, self.now, self.least_limit(counter), shares);
            answers.push(answer);
        }
        self.answers.push((self.store.epoch, answers));
        self.transmit(Event::Answer(call, attempt, self.answers.len() as u32 - 1));
    }

    /// A call ends, and nobody waits for it any more.
    pub(crate) fn close(&mut self, call: u32) {
        let Call { gateway, request, ref mut open, ref statements, .. } = self.calls[call as usize];
        if !std::mem::replace(open, false) {
            return;
        }
        if let Some(request) = request {
            self.requests[request as usize].call = None;
        }
        for (counter, stated) in statements {
            if let Some(count) = &mut self.gateways[gateway].counts[*counter] {
                count.holding.leave(stated);
            }
        }
    }

    /// A worker takes up what was answered to an attempt of its call.
    pub(crate) fn answer(&mut self, call: u32, attempt: u8, answers: u32) {
        if !self.is_waited_for(call, attempt) {
            return;
        }
        self.close(call);
        let Call { gateway, worker, request, ref statements, .. } = self.calls[call as usize];
        let statements = statements.clone();
        let (epoch, answers) = self.answers[answers as usize].clone();
        let (now, steps) = (self.clock(gateway), self.steps);
        for ((counter, stated), answer) in statements.iter().zip(&answers) {
            let fresh = self.gateways[gateway].next_generation();
            let count = self.count(gateway, *counter);
            steps.answered(count, stated, answer, (epoch, fresh), now);
            let (key, seq, holding) = ((*counter, count.index), stated.statement.seq, count.holding);
            self.note(key, gateway, || format!("takes up the answer to seq {seq}: {holding:?}"));
        }
        if let Some(request) = request {
            self.go_on(request, &statements, &answers);
        }
        if self.gateways[gateway].epoch != epoch {
            let after = self.within(SECOND);
            let restates_at = self.now + after;
            self.gateways[gateway] = Gateway { epoch, restates_at, ..self.gateways[gateway].clone() };
            self.after(after, Event::Restate(gateway, worker));
        }
    }

    /// An attempt has failed, or was not answered in time.
    pub(crate) fn fail(&mut self, call: u32, attempt: u8) {
        if !self.is_waited_for(call, attempt) {
            return;
        }
        let Call { request, ref statements, .. } = self.calls[call as usize];
        let statements = statements.clone();
        let is_late = request.is_some_and(|request| self.now >= self.requests[request as usize].deadline);
        if attempt == 0 && !is_late {
            self.calls[call as usize].attempt = 1;
            return self.after(0, Event::Send(call, 1));
        }
        self.close(call);
        if let Some(request) = request {
            let lacking = self.charge(request, &statements);
            if !lacking.is_empty() {
                self.decide_alone(request, &lacking, attempt + 1);
            }
        }
    }

    pub(crate) fn tick(&mut self, gateway: usize, worker: usize) {
        self.attend(gateway, worker, worker == 0);
        self.after(SECOND / 2, Event::Tick(gateway, worker));
    }

    /// States what nobody waits for. If there is nothing, asks for the epoch if `always`.
    pub(crate) fn attend(&mut self, gateway: usize, worker: usize, always: bool) {
        let (now, steps) = (self.clock(gateway), self.steps);
        let mut statements = ArrayVec::new();
        for counter in 0..self.world.windows.len() {
            if self.gateways[gateway].counts[counter].is_none() {
                continue;
            }
            self.check_idle(gateway, counter);
            let (window, limit) = (self.window(counter), self.limit(gateway, counter));
            let Gateway { epoch, restates_at, .. } = self.gateways[gateway];
            let is_due = self.now >= restates_at;
            let count = self.count(gateway, counter);
            let epoch = is_due.then_some(epoch);
            let subject = Steps::subject(counter, window, count.index, limit);
            if let Some(stated) = steps.attend(count, &subject, epoch, now) {
                statements.push((counter, stated));
            }
        }
        if always || !statements.is_empty() {
            self.call(gateway, worker, None, statements);
        }
    }
}
