//! Calls: statements on their way to the ledger, and answers on their way back.

use filter::fleet::client;
use filter::fleet::messages::AnswerError;
use ledger_wire::{Hex128, Response, Statement};

use crate::events::Event;
use crate::gateway::{Place, Version};
use crate::run::Run;
use crate::world::{MILLI, SECOND, Time};

/// How long a tick waits for the next.
const TICK: Time = 250 * MILLI;
/// The same while much is to be stated.
const BUSY_TICK: Time = 10 * MILLI;

/// Who waits for a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    Stream(u32),
    Tick,
}

/// Statements on their way to the ledger.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) place: Place,
    caller: Caller,
    gateway: Hex128,
    statements: Vec<Statement>,
    /// Which of two replicas it is sent to.
    replica: usize,
    /// Whether somebody waits for it.
    pub(crate) is_open: bool,
}

impl Run {
    /// Sends a call. Returns its place.
    pub(crate) fn call(&mut self, place: Place, caller: Caller, call: client::Call, replica: usize) -> u32 {
        let client::Call { gateway, statements, timeout, .. } = call;
        for statement in &statements {
            let Statement { window, generation, seq, used, reset, says, .. } = *statement;
            if let Some(subject) = self.subject(statement) {
                self.note((subject, window), place.gateway, || {
                    format!(
                        "states, in generation {generation}: seq {seq}, used {used}, reset {reset}, {says:?}"
                    )
                });
            }
        }
        self.gateways[place.gateway].workers[place.worker].called_at = self.now;
        self.facts.tally.statements += statements.len();
        let number = self.calls.len() as u32;
        self.calls.push(Call { place, caller, gateway, statements, replica: replica % 2, is_open: true });
        self.after(Time::from(timeout) * MILLI, Event::Fail(number));
        let times = if self.chance(self.world.repeats) { 2 } else { 1 };
        for _ in 0..times {
            self.transmit(Event::Receive(number));
        }
        number
    }

    /// The subject of a statement.
    fn subject(&self, statement: &Statement) -> Option<usize> {
        self.world.subjects.iter().position(|subject| subject.name == statement.counter)
    }

    /// A message leaves, and arrives unless it is lost.
    fn transmit(&mut self, arrival: Event) {
        let straight = self.world.distance / 2;
        if self.is_calm {
            return self.after(straight, arrival);
        }
        if self.chance(self.world.loss) {
            return;
        }
        let after = match self.chance(self.world.late) {
            true => self.within(2 * SECOND),
            false => straight + (straight as f64 * self.world.jitter * self.rng.f64()) as Time,
        };
        self.after(after, arrival);
    }

    /// A ledger takes a call.
    pub(crate) fn receive(&mut self, call: u32) {
        let Call { place, gateway, ref mut statements, replica, .. } = self.calls[call as usize];
        if self.is_away || self.replica_away == Some(replica) {
            // Its host says so, or nobody does.
            if self.rng.bool() {
                self.transmit(Event::Fail(call));
            }
            return;
        }
        let statements = std::mem::take(statements);
        let (now, heard) = (self.micros() / MILLI, self.world.gateways as u32);
        let mut items = Vec::with_capacity(statements.len());
        for statement in &statements {
            let Some(subject) = self.subject(statement) else { continue };
            let (key, name) = ((subject, statement.window), (gateway, statement.generation));
            let answer = self.store.state((replica, now), key, name, statement, heard, self.without);
            self.note(key, place.gateway, || format!("was heard, with seq {}: {answer:?}", statement.seq));
            let shares = self.store.shares(key);
            self.facts.taken(key, self.now, self.least_limit(subject), shares);
            items.push(answer);
        }
        // It may come twice.
        self.calls[call as usize].statements = statements;
        self.answers.push(Response { epoch: Hex128(self.store.epoch.into()), now, items });
        self.transmit(Event::Answer(call, self.answers.len() as u32 - 1));
    }

    /// A worker gets what was answered to a call.
    pub(crate) fn answer(&mut self, call: u32, answer: u32) {
        let response = self.answers[answer as usize].clone();
        self.call_ends(call, Ok(response));
    }

    /// A call has failed, or was not answered in time.
    pub(crate) fn fail(&mut self, call: u32) {
        self.call_ends(call, Err(AnswerError::None));
    }

    fn call_ends(&mut self, call: u32, response: Result<Response, AnswerError>) {
        let Call { place, caller, ref mut is_open, .. } = self.calls[call as usize];
        if !std::mem::replace(is_open, false) {
            return;
        }
        match caller {
            Caller::Stream(stream) => self.hears(stream, response),
            Caller::Tick => {
                let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
                let next = client.tick_answered(counters, &mut host, response);
                self.call_of_tick(place, next);
            }
        }
    }

    /// A worker states what nobody waits for.
    pub(crate) fn tick(&mut self, place: Place) {
        self.check_idle(place);
        let Some((Version { client, counters, .. }, mut host)) = self.version(place) else { return };
        // Like the plugin, which asks a client only then.
        let call = if client.has_work() { client.tick(counters, &mut host) } else { None };
        let after = if client.is_busy() { BUSY_TICK } else { TICK };
        self.call_of_tick(place, call);
        self.after(after, Event::Tick(place));
    }

    fn call_of_tick(&mut self, place: Place, call: Option<client::Call>) {
        if let Some(call) = call {
            self.call(place, Caller::Tick, call, self.calls.len());
        }
    }
}
