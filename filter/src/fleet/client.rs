//! The ledger's client of one worker: it charges requests by what the gateway holds, asks for what they lack, and states what nobody waits for.
//!
//! What happens comes as calls of these methods: a request comes, a call of it has ended, its stream has ended, a charge was settled, a tick. What
//! follows is in what they return: a decision, or a [`Call`] to be sent.

use core::time::Duration;

use ledger_wire::{Answer, Hex128, ItemError, Response, Statement};

use super::breaker::Breaker;
use super::messages::{AnswerError, gateway};
use super::unsettled::Unsettled;
use super::waiting::{Places, Waiting, WaitingRequest};
use crate::count::charge::{Admission, By, Lack, SharedName, Standings, Statements, attend, state, take_up};
use crate::count::counters::{Counted, Counters};
use crate::count::entry::{MAX_QUOTAS, Record};
use crate::count::holding::Sharing;
use crate::count::levels::{Asked, Demand, Outcome, Turn};
use crate::count::swap::{CountError, CounterHost, LogLevel, Step, Taken};
use crate::count::table::Counter;
use crate::event::{Event, EventSums};
use crate::log_limiter::LogLimiter;
use crate::quota::Quota;
use crate::rules::{Rule, without};
use crate::time::Timestamp;

/// Most statements in a call.
pub const MOST_STATEMENTS: usize = 1_000;
/// How long a tick looks through the table, and how long it states counters.
const SLICE: Duration = Duration::from_millis(5);
/// Calls of a request at most, if they fail. When a replica dies, calls that are made at the same time may be led there again until Envoy's workers
/// know.
const MOST_CALLS: u32 = 4;
/// Entries or counters between two looks at the clock.
const BETWEEN_LOOKS: usize = 64;

/// A call to be sent to the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of this process among the gateways of its fleet.
    pub gateway: Hex128,
    /// The gateway's clock.
    pub now: Timestamp,
    /// What is stated. Nothing only asks for the epoch.
    pub statements: Vec<Statement>,
    /// How long it may take, in milliseconds; at least 1.
    pub timeout: u32,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Next {
    /// It is decided.
    Counted(Counted),
    /// It waits for the answer to a call.
    Waits(Waiting),
}

/// What becomes of somebody who asks what others hold.
#[derive(Debug)]
pub enum Looked {
    /// There is nothing to ask, or the ledger has just said it.
    Known,
    /// The ledger is away.
    Away,
    /// Too many wait.
    Full,
    /// It waits for the answer to a call.
    Waits(Waiting),
}

/// What has come of a call that somebody waits for.
#[derive(Debug)]
pub enum Heard {
    /// The answers, in the order of the statements.
    Answers(Vec<Answer>),
    /// None.
    Nothing,
    /// It is made again.
    Again(Waiting),
}

/// Answers, in the order of their statements, and the store's epoch.
type Answers = (Vec<Answer>, u32);

/// The call of a tick.
#[derive(Debug)]
struct Batch {
    asked: Vec<Asked>,
    called: (Timestamp, u32),
}

/// A worker's client of the ledger, for one configuration.
#[derive(Debug)]
pub struct Client {
    sharing: Sharing,
    breaker: Breaker,
    places: Places,
    unsettled: Unsettled,
    /// The entry of the table that is looked at next: a worker that starts, or that sees another epoch, looks for what others have left unsettled.
    walk: Option<u32>,
    /// How many counters are to be looked at soon, because a walk has begun.
    urgent: usize,
    /// Whether the last tick had to leave some for later.
    is_part: bool,
    /// The store's last epoch, in part, if it is known.
    epoch: Option<u32>,
    in_flight: Option<Batch>,
    /// When the ledger answered last.
    heard_at: Timestamp,
    /// Whether another configuration follows, whose client states what this one leaves; but not what its streams still use.
    is_retired: bool,
    errors: LogLimiter<String>,
    refused: LogLimiter<String, 60>,
    /// What has happened.
    pub events: EventSums,
}

impl Client {
    /// The client of a worker that starts, or whose configuration follows another.
    #[must_use]
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            breaker: Breaker::default(),
            places: Places::default(),
            unsettled: Unsettled::default(),
            walk: (!without(Rule::StartWalks)).then_some(0),
            urgent: 0,
            is_part: false,
            epoch: None,
            in_flight: None,
            heard_at: Timestamp::default(),
            is_retired: false,
            errors: LogLimiter::default(),
            refused: LogLimiter::default(),
            events: EventSums::default(),
        }
    }

    /// How quotas are shared.
    #[must_use]
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// A request has come: it is charged to all of its quotas or none, or asks for what it lacks. `standings` receives where the client stands.
    ///
    /// # Errors
    /// If the request was not counted.
    pub fn charge(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        demand: &Demand,
        standings: &mut Standings,
    ) -> Result<Next, CountError> {
        let lack = match self.may_call(host)? {
            false => Lack::Decided,
            true if self.places.has_one(demand.levels.own.fingerprint()) => Lack::Asks,
            true => Lack::Full,
        };
        let turn = Turn { sharing: &self.sharing, lack, waited: None, answers: None };
        let outcome = counters.charge_levels(host, demand, Some(turn), standings)?;
        Ok(self.go_on(counters, demand, outcome, None))
    }

    /// The call of a request has ended: with the answer it is decided, or asks again.
    ///
    /// # Errors
    /// If the request was not counted.
    pub fn answered(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        (demand, standings): (&Demand, &mut Standings),
        waiting: Waiting,
        response: Result<Response, AnswerError>,
    ) -> Result<Next, CountError> {
        let (waiting, answers) = match self.hear(host, counters, waiting, response)? {
            (waiting, Some(answers)) => (waiting, Some(answers)),
            (waiting, None) if waiting.call.is_some() => return Ok(Next::Waits(waiting)),
            (waiting, None) => (waiting, None),
        };
        let turn = Turn {
            sharing: &self.sharing,
            lack: Lack::Asks,
            waited: Some((waiting.since, &waiting.asked)),
            answers: answers.as_ref().map(|(answers, epoch)| (answers.as_slice(), *epoch)),
        };
        let outcome = counters.charge_levels(host, demand, Some(turn), standings)?;
        Ok(self.go_on(counters, demand, outcome, Some(waiting)))
    }

    /// What follows from how a request was counted.
    fn go_on(
        &mut self,
        counters: &Counters,
        demand: &Demand,
        Outcome { counted, asked }: Outcome,
        waited: Option<Waiting>,
    ) -> Next {
        if counted.admission != Admission::Lacking {
            let event = match (counted.admission, counted.by) {
                (Admission::Full, _) => Event::FleetPlacesFull,
                (_, By::Share) => Event::FleetDecidedByShare,
                (_, By::Ledger) => Event::FleetDecidedByLedger,
                (_, By::Beyond) => Event::FleetDecidedByPolicy,
            };
            self.events.add(event, 1);
            if counted.by == By::Beyond {
                self.unsettled.add(demand.levels.counters());
            }
            return Next::Counted(counted);
        }
        let waiting = match waited {
            Some(mut waiting) => {
                waiting.asked = asked;
                waiting
            }
            None => self.waiting(demand.levels.own, counted.at, asked),
        };
        Next::Waits(self.call(counters, waiting, counted.at))
    }

    /// Asks what others hold of these counters.
    ///
    /// # Errors
    /// If it could not be noted what is asked.
    pub fn look(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        of: &[(Counter, SharedName, &[Quota])],
    ) -> Result<Looked, CountError> {
        let Some((first, ..)) = of.first() else { return Ok(Looked::Known) };
        if !self.may_call(host)? {
            return Ok(Looked::Away);
        }
        if !self.has_place(*first) {
            return Ok(Looked::Full);
        }
        let mut asked = Vec::new();
        for (counter, name, quotas) in of {
            let sharing = self.sharing;
            let look = |record: &mut Record| {
                Step::Store(state(record, *name, quotas, |count, name, at| count.look(name, at, sharing)))
            };
            let statements = counters.take(host, counter, quotas, look)?.result;
            if !statements.is_empty() {
                asked.push(Asked { counter: *counter, statements });
            }
        }
        if asked.is_empty() {
            return Ok(Looked::Known);
        }
        let now = host.now()?;
        let waiting = self.waiting(*first, now, asked);
        Ok(Looked::Waits(self.call(counters, waiting, now)))
    }

    /// A quota was reset, and somebody waits until the ledger knows.
    ///
    /// # Errors
    /// If the clock fails.
    pub fn reset(
        &mut self,
        counters: &Counters,
        host: &mut impl CounterHost,
        counter: Counter,
        statements: Statements,
    ) -> Result<Waiting, CountError> {
        let now = host.now()?;
        let waiting = self.waiting(counter, now, vec![Asked { counter, statements }]);
        Ok(self.call(counters, waiting, now))
    }

    /// Whether one more may wait for this counter.
    pub fn has_place(&mut self, counter: Counter) -> bool {
        let has_place = self.places.has_one(counter.fingerprint());
        if !has_place {
            self.events.add(Event::FleetPlacesFull, 1);
        }
        has_place
    }

    /// The call of somebody has ended who asks what others hold, or waits until a reset is known.
    ///
    /// # Errors
    /// If the answers could not be taken up.
    pub fn heard(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        waiting: Waiting,
        response: Result<Response, AnswerError>,
    ) -> Result<(Heard, Timestamp), CountError> {
        let since = waiting.since;
        let (waiting, answers) = self.hear(host, counters, waiting, response)?;
        if waiting.call.is_some() {
            return Ok((Heard::Again(waiting), since));
        }
        self.take_up(counters, host, &waiting.asked, answers.as_ref());
        Ok((answers.map_or(Heard::Nothing, |(answers, _)| Heard::Answers(answers)), since))
    }

    /// The stream of a request has ended while it waited.
    pub fn ended(&mut self, counters: &mut Counters, host: &mut impl CounterHost, waiting: &WaitingRequest) {
        self.breaker.abandoned(waiting.called.0);
        self.take_up(counters, host, &waiting.asked, None);
    }

    /// A charge was settled, which the ledger does not know.
    pub fn settled(&mut self, demand: &Demand) {
        self.unsettled.add(demand.levels.counters());
    }

    /// States what nobody waits for.
    pub fn tick(&mut self, counters: &mut Counters, host: &mut impl CounterHost) -> Option<Call> {
        let now = host.now().ok()?;
        if self.in_flight.is_some() || !self.breaker.is_due(now) {
            return None;
        }
        self.walk(counters, host, now);
        let asked = self.state(counters, host);
        // Once in a term, so that a gateway without requests sees a new epoch in time.
        let since = now.duration_since(self.heard_at).as_millis();
        let is_quiet = now < self.heard_at || since >= u128::from(self.sharing.term);
        if asked.is_empty() && (!is_quiet || self.sharing.in_shadow || self.is_retired) {
            return None;
        }
        let call = self.call_of(counters, &asked, now, self.sharing.timeout / 2);
        self.in_flight = Some(Batch { asked, called: (now, call.timeout) });
        Some(call)
    }

    /// The call of a tick has ended. What is left is stated at once.
    pub fn tick_answered(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        response: Result<Response, AnswerError>,
    ) -> Option<Call> {
        let Batch { asked, called } = self.in_flight.take()?;
        match self.response(host, &asked, response) {
            Ok(answers) => {
                self.take_up(counters, host, &asked, Some(&answers));
                if self.is_part || self.is_busy() { self.tick(counters, host) } else { None }
            }
            Err(error) => {
                self.failed(host, &error, called, (1, false));
                None
            }
        }
    }

    /// Another configuration follows.
    pub fn retire(&mut self) {
        (self.is_retired, self.walk, self.urgent) = (true, None, 0);
    }

    /// Takes over what a configuration that ends has not stated yet.
    pub fn take_over(&mut self, ended: &mut Self) {
        self.unsettled.add(core::iter::from_fn(|| ended.unsettled.take()));
    }

    /// Whether a tick may have something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.is_retired || self.unsettled.len() > 0
    }

    /// Whether the next tick is to come soon: the worker has started or the store has another epoch, and not all is stated yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.walk.is_some() || self.urgent > 0
    }

    fn may_call(&self, host: &mut impl CounterHost) -> Result<bool, CountError> {
        Ok(!self.breaker.is_open() || self.breaker.is_due(host.now()?))
    }

    fn waiting(&mut self, counter: Counter, since: Timestamp, asked: Vec<Asked>) -> Waiting {
        let _place = self.places.take(counter.fingerprint());
        Box::new(WaitingRequest { since, asked, failed: 0, called: (since, 0), call: None, _place })
    }

    /// Makes the call of a request that waits, `now`. It ends when the request's time does.
    fn call(&mut self, counters: &Counters, mut waiting: Waiting, now: Timestamp) -> Waiting {
        self.unsettled.add(waiting.asked.iter().map(|asked| asked.counter));
        // A call that fails has time for a second one.
        let half = self.sharing.timeout / 2;
        let timeout = if without(Rule::CallsEndInTime) { half } else { half.min(self.left(&waiting, now)) };
        let call = self.call_of(counters, &waiting.asked, now, timeout);
        waiting.called = (now, call.timeout);
        waiting.call = Some(call);
        waiting
    }

    /// Milliseconds that a request may still wait.
    fn left(&self, waiting: &WaitingRequest, now: Timestamp) -> u32 {
        let waited = u32::try_from(now.duration_since(waiting.since).as_millis()).unwrap_or(u32::MAX);
        self.sharing.timeout.saturating_sub(waited)
    }

    fn call_of(&mut self, counters: &Counters, asked: &[Asked], now: Timestamp, timeout: u32) -> Call {
        self.breaker.called(now);
        let statements = asked.iter().flat_map(|asked| &asked.statements).map(|stated| stated.statement);
        Call {
            gateway: gateway(counters.salt()),
            now,
            statements: statements.collect(),
            timeout: timeout.max(1),
        }
    }

    /// What has come of the call of somebody who waits: the answers, or none. Without them its call is made again while there is time.
    fn hear(
        &mut self,
        host: &mut impl CounterHost,
        counters: &Counters,
        mut waiting: Waiting,
        response: Result<Response, AnswerError>,
    ) -> Result<(Waiting, Option<Answers>), CountError> {
        match self.response(host, &waiting.asked, response) {
            Ok(answers) => Ok((waiting, Some(answers))),
            Err(error) => {
                let now = host.now()?;
                waiting.failed += 1;
                let is_made_again = waiting.failed < MOST_CALLS && self.left(&waiting, now) > 0;
                self.failed(host, &error, waiting.called, (waiting.failed, is_made_again));
                match is_made_again && self.breaker.is_due(now) {
                    true => Ok((self.call(counters, waiting, now), None)),
                    false => Ok((waiting, None)),
                }
            }
        }
    }

    /// The answers of a response, as many as statements.
    fn response(
        &mut self,
        host: &mut impl CounterHost,
        asked: &[Asked],
        response: Result<Response, AnswerError>,
    ) -> Result<Answers, AnswerError> {
        let sent = asked.iter().map(|asked| asked.statements.len()).sum();
        let checked = response.and_then(|response| match response.items.len() {
            count if count == sent => Ok(response),
            count => Err(AnswerError::Count(count, sent)),
        });
        let Response { epoch, now, items } =
            checked.inspect_err(|_| self.events.add(Event::FleetStatementUnanswered, sent as u32))?;
        self.breaker.succeeded();
        self.events.add(Event::FleetCallAnswered, 1);
        let epoch = epoch.0 as u32;
        if self.epoch.replace(epoch) != Some(epoch) {
            (self.walk, self.urgent) = ((!self.is_retired).then_some(0), self.unsettled.len());
        }
        self.heard_at = host.now().unwrap_or(self.heard_at);
        // An answer that takes that long is not waited for.
        if self.heard_at.millis().abs_diff(now) > self.sharing.timeout.into() {
            self.events.add(Event::FleetClock, 1);
        }
        for answer in &items {
            self.note(host, answer);
        }
        Ok((items, epoch))
    }

    /// Counts an answer to a statement, and logs why one was refused.
    fn note(&mut self, host: &mut impl CounterHost, answer: &Answer) {
        let event = match answer {
            Answer::Share(share) if share.settling => Event::FleetStatementSettling,
            Answer::Share(_) => Event::FleetStatementAnswered,
            Answer::Reset(_) => Event::FleetStatementReset,
            Answer::Refused(_) => Event::FleetStatementRefused,
        };
        self.events.add(event, 1);
        if let Answer::Refused(ItemError { code, field, message }) = answer {
            let cause = format!("{code} {}", field.as_deref().unwrap_or_default());
            if let Some(left_out) = self.refused.admit(cause, Some(self.heard_at)) {
                let field = field.as_deref().map(|field| format!(", field {field}")).unwrap_or_default();
                let line =
                    format_args!("weir: ledger: refused a statement: {code}{field}: {message}{left_out}");
                host.log(LogLevel::Error, line);
            }
        }
    }

    #[cold]
    fn failed(
        &mut self,
        host: &mut impl CounterHost,
        error: &AnswerError,
        (called_at, timeout): (Timestamp, u32),
        (failed, is_made_again): (u32, bool),
    ) {
        let now = host.now().unwrap_or(called_at);
        // A call that had less time than others says nothing when it runs out, unless one before it has failed: what follows a call that ran out
        // always has less.
        let has_run_out = now.duration_since(called_at).as_millis() >= u128::from(timeout);
        if timeout >= self.sharing.timeout / 2 || !has_run_out || failed > 1 {
            self.breaker.failed(now, is_made_again);
        }
        self.events.add(Event::FleetCallFailed, 1);
        if let Some(left_out) = self.errors.admit(error.to_string(), Some(now)) {
            host.log(LogLevel::Error, format_args!("weir: ledger: {error}{left_out}"));
        }
    }

    /// Takes up the answers to what was stated; without answers, forgets that somebody waits for them.
    fn take_up(
        &mut self,
        counters: &mut Counters,
        host: &mut impl CounterHost,
        asked: &[Asked],
        answers: Option<&Answers>,
    ) {
        let mut rest = answers.map(|(answers, epoch)| (answers.as_slice(), *epoch));
        for Asked { counter, statements } in asked {
            let of_counter = rest.map(|(answers, epoch)| {
                let (of_counter, others) =
                    answers.split_at_checked(statements.len()).unwrap_or((answers, &[]));
                rest = Some((others, epoch));
                (of_counter, epoch)
            });
            let step = |record: &mut Record| {
                take_up(record, statements, of_counter, &self.sharing);
                Step::Store(())
            };
            if let Err(error) = counters.take(host, counter, &[], step) {
                self.could_not(host, "an answer of the ledger could not be taken up", error);
            }
        }
    }

    /// Looks through a part of the table for counters that the fleet shares.
    fn walk(&mut self, counters: &mut Counters, host: &mut impl CounterHost, began: Timestamp) {
        let mut looked_at = 0_usize;
        while let Some(number) = self.walk {
            match counters.shared_in(host, number) {
                Ok(Some(shared)) => {
                    self.urgent += shared.len();
                    self.unsettled.add(shared);
                }
                Ok(None) => {
                    self.walk = None;
                    return;
                }
                // None are in an entry that could not be read.
                Err(error) => self.could_not(host, "the counters could not be read", error.into()),
            }
            self.walk = Some(number + 1);
            looked_at += 1;
            if is_over(host, looked_at, began) {
                return;
            }
        }
    }

    /// States unsettled counters, as many as one call or one tick takes.
    fn state(&mut self, counters: &mut Counters, host: &mut impl CounterHost) -> Vec<Asked> {
        let Ok(began) = host.now() else { return Vec::new() };
        let (mut all, mut statements_made) = (Vec::new(), 0);
        self.is_part = false;
        for looked_at in 1..=self.unsettled.len() {
            let Some(counter) = self.unsettled.take() else { break };
            self.urgent = self.urgent.saturating_sub(1);
            let step = |record: &mut Record| attend(record, self.epoch, &self.sharing);
            match counters.take(host, &counter, &[], step) {
                Ok(Taken { result: attended, .. }) => {
                    if !attended.is_settled || !attended.statements.is_empty() {
                        self.unsettled.add([counter]);
                    }
                    statements_made += attended.statements.len();
                    if !attended.statements.is_empty() {
                        all.push(Asked { counter, statements: attended.statements });
                    }
                }
                Err(error) => {
                    self.unsettled.add([counter]);
                    self.could_not(host, "a counter could not be stated", error);
                }
            }
            if statements_made + 2 * MAX_QUOTAS > MOST_STATEMENTS || is_over(host, looked_at, began) {
                self.is_part = true;
                return all;
            }
        }
        self.urgent = 0;
        all
    }

    #[cold]
    fn could_not(&mut self, host: &mut impl CounterHost, what: &str, error: CountError) {
        let now = host.now().ok();
        if let Some(left_out) = self.errors.admit(format!("{what}: {error}"), now) {
            host.log(LogLevel::Error, format_args!("weir: {what}: {error}{left_out}"));
        }
    }
}

fn is_over(host: &mut impl CounterHost, looked_at: usize, began: Timestamp) -> bool {
    looked_at.is_multiple_of(BETWEEN_LOOKS) && host.now().is_ok_and(|now| now.duration_since(began) >= SLICE)
}

#[cfg(test)]
mod tests;
