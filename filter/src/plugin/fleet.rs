//! Calls of the ledger: those that requests wait for, and those of ticks.

use core::time::Duration;
use std::collections::{HashSet, VecDeque};

use ledger_wire::{Answer, Hex128, Statement};

use super::log::logged;
use crate::config::FleetSettings;
use crate::count::entry::MAX_QUOTAS;
use crate::count::shared_data::HostError;
use crate::count::swap::{CounterHost as _, Place};
use crate::decide::counting::{Asked, Charged};
use crate::decide::decision::Wait;
use crate::decide::host::{Host as _, LogLevel};
use crate::decide::limiter::Limiter;
use crate::decide::log_limiter::LogLimiter;
use crate::event::Event;
use crate::fleet::breaker::Breaker;
use crate::fleet::messages::{self, AnswerError, Heard, MOST_STATEMENTS};
use crate::host::{self, Gateway};
use crate::request::header_pairs::HeaderPairs;
use crate::time::Timestamp;

/// How long a tick looks through the table, and how long it states counters.
const SLICE: Duration = Duration::from_millis(5);
/// Calls of a request at most, if they fail. When a replica dies, calls that are made at the same time may be led there again until Envoy's workers
/// know.
const MOST_CALLS: u32 = 4;
/// Entries or counters between two looks at the clock.
const BETWEEN_LOOKS: usize = 64;

/// The fleet of a configuration, as one VM reaches it.
#[derive(Default)]
pub(super) struct Fleet {
    breaker: Breaker,
    unsettled: Unsettled,
    /// The entry of the table that is looked at next: a VM that starts, or that sees another epoch, looks for what others have left unsettled.
    walk: Option<u32>,
    /// The store's last epoch, in part, if it is known.
    epoch: Option<u32>,
    /// The call of a tick.
    in_flight: Option<InFlight>,
    /// When the ledger answered last.
    heard_at: Timestamp,
    errors: LogLimiter<String>,
}

/// The call of a tick.
struct InFlight {
    call: u32,
    /// What it states.
    asked: Vec<Asked>,
    /// Whether there is more to state than one call or one tick takes.
    is_part: bool,
}

/// Counters of which something may be left to state, each once. The one that was looked at longest ago comes first.
#[derive(Default)]
struct Unsettled {
    queue: VecDeque<Place>,
    queued: HashSet<Place>,
}

impl Unsettled {
    fn add(&mut self, places: impl IntoIterator<Item = Place>) {
        let Self { queue, queued } = self;
        queue.extend(places.into_iter().filter(|place| queued.insert(*place)));
    }

    fn take(&mut self) -> Option<Place> {
        let place = self.queue.pop_front()?;
        self.queued.remove(&place);
        Some(place)
    }
}

impl Fleet {
    /// Calls the ledger for a request that waits. `false` if no call can be made.
    pub(super) fn call(&mut self, limiter: &mut Limiter, wait: &mut Wait) -> bool {
        self.unsettled.add(wait.asked.iter().map(|asked| asked.place));
        wait.call = self.send(limiter, &wait.asked);
        wait.call.is_some()
    }

    /// Makes the call of a request again if it has failed: the host picks another replica.
    pub(super) fn call_again(&mut self, limiter: &mut Limiter, wait: &mut Wait) -> bool {
        let is_made_again = is_made_again(limiter, wait);
        wait.failed += 1;
        is_made_again && self.call(limiter, wait)
    }

    /// A charge was settled, which the ledger does not know.
    pub(super) fn settled(&mut self, charged: &Charged) {
        self.unsettled.add(charged.all_places());
    }

    /// States what nobody waits for. Within a callback of the root context.
    pub(super) fn tick(&mut self, limiter: &mut Limiter) {
        let (Ok(now), Some(terms)) = (Gateway.now(), limiter.config().fleet) else { return };
        if self.in_flight.is_some() || limiter.salt().is_none() {
            return;
        }
        self.walk(limiter, now);
        let (asked, is_part) = self.state(limiter);
        // Twice within a term, so that a gateway without requests sees a new epoch in time.
        let is_quiet = now.duration_since(self.heard_at).as_millis() >= u128::from(terms.term / 2);
        if !asked.is_empty() || is_quiet {
            let is_part = is_part || self.walk.is_some();
            self.in_flight = self.send(limiter, &asked).map(|call| InFlight { call, asked, is_part });
        }
    }

    /// Looks through a part of the table for counters that the fleet shares.
    fn walk(&mut self, limiter: &mut Limiter, began: Timestamp) {
        let mut looked_at = 0_usize;
        while let Some(number) = self.walk {
            match limiter.shared_in(&mut Gateway, number) {
                Some(places) => self.unsettled.add(places),
                None => {
                    self.walk = None;
                    return;
                }
            }
            self.walk = Some(number + 1);
            looked_at += 1;
            if is_over(looked_at, began) {
                return;
            }
        }
    }

    /// States unsettled counters. Returns the statements, and whether there are more counters to look at.
    fn state(&mut self, limiter: &mut Limiter) -> (Vec<Asked>, bool) {
        let (began, epoch) = (logged(Gateway.now()), self.epoch);
        let (mut all, mut statements_made) = (Vec::new(), 0);
        for looked_at in 1..=self.unsettled.queue.len() {
            let Some(place) = self.unsettled.take() else { break };
            let Some(attended) = limiter.attend(&mut Gateway, place, epoch) else {
                self.unsettled.add([place]);
                continue;
            };
            if !attended.is_settled || !attended.statements.is_empty() {
                self.unsettled.add([place]);
            }
            statements_made += attended.statements.len();
            if !attended.statements.is_empty() {
                all.push(Asked { place, statements: attended.statements });
            }
            if statements_made + MAX_QUOTAS > MOST_STATEMENTS || is_over(looked_at, began) {
                return (all, true);
            }
        }
        (all, false)
    }

    /// Takes the answer to the call of a tick.
    pub(super) fn answer(&mut self, limiter: &mut Limiter, call: u32, answered: bool, body_size: usize) {
        let Some(InFlight { asked, is_part, .. }) =
            self.in_flight.take_if(|in_flight| in_flight.call == call)
        else {
            return;
        };
        if let Some((answers, epoch)) = self.heard(limiter, &asked, (answered, body_size), false) {
            limiter.take_up(&mut Gateway, &asked, Some((&answers, epoch)));
            if is_part {
                self.tick(limiter);
            }
        }
    }

    /// The ledger's answer to the call of a request; `None` if it gave none.
    pub(super) fn heard_by_request(
        &mut self,
        limiter: &mut Limiter,
        wait: &Wait,
        answered: bool,
        body_size: usize,
    ) -> Option<(Vec<Answer>, u32)> {
        self.heard(limiter, &wait.asked, (answered, body_size), is_made_again(limiter, wait))
    }

    /// The ledger's answer to a call that has ended; `None` if it gave none.
    fn heard(
        &mut self,
        limiter: &mut Limiter,
        asked: &[Asked],
        (answered, body_size): (bool, usize),
        is_made_again: bool,
    ) -> Option<(Vec<Answer>, u32)> {
        let (head, body) = logged(host::call_answer(answered, body_size));
        let head = HeaderPairs::parse(head.as_ref());
        let status = head.as_ref().and_then(|head| head.get(":status"));
        let sent = asked.iter().map(|asked| asked.statements.len()).sum();
        match messages::response(status, body.as_ref(), sent) {
            Ok(Heard { answers, epoch, now }) => {
                self.breaker.succeeded();
                limiter.count(Event::FleetCallAnswered, 1);
                for answer in &answers {
                    count_answer(limiter, answer);
                }
                if self.epoch.replace(epoch) != Some(epoch) {
                    self.walk = Some(0);
                }
                self.heard_at = logged(Gateway.now());
                // An answer that takes that long is not waited for.
                let differs = self.heard_at.millis().abs_diff(now);
                if limiter.config().fleet.is_some_and(|terms| differs > terms.timeout.into()) {
                    limiter.count(Event::FleetClock, 1);
                }
                Some((answers, epoch))
            }
            Err(error) => {
                limiter.count(Event::FleetStatementUnanswered, sent);
                self.failed(limiter, &error, is_made_again);
                None
            }
        }
    }

    fn send(&mut self, limiter: &mut Limiter, asked: &[Asked]) -> Option<u32> {
        let now = logged(Gateway.now());
        if !self.breaker.admits(now) {
            return None;
        }
        let config = limiter.config();
        let (settings, terms) = (config.settings.fleet.as_ref()?, config.fleet?);
        let gateway = messages::gateway(limiter.salt()?);
        let statements = asked.iter().flat_map(|asked| &asked.statements).map(|(_, stated)| stated.statement);
        // A call that fails has time for a second one.
        match send(settings, gateway, now, statements.collect(), terms.timeout / 2) {
            Ok(call) => Some(call),
            Err(error) => {
                let cluster = settings.cluster.to_string();
                self.failed(limiter, &AnswerError::NotSent { cluster, error }, false);
                None
            }
        }
    }

    #[cold]
    fn failed(&mut self, limiter: &mut Limiter, error: &AnswerError, is_made_again: bool) {
        let now = logged(Gateway.now());
        self.breaker.failed(now, is_made_again);
        limiter.count(Event::FleetCallFailed, 1);
        if let Some(left_out) = self.errors.admit(error.to_string(), Some(now)) {
            Gateway.log(LogLevel::Error, format_args!("weir: ledger: {error}{left_out}"));
        }
    }
}

/// Whether the call of a request is made again if it has failed.
fn is_made_again(limiter: &Limiter, wait: &Wait) -> bool {
    let waited = logged(Gateway.now()).duration_since(wait.since).as_millis();
    wait.failed + 1 < MOST_CALLS
        && limiter.config().fleet.is_some_and(|terms| waited < u128::from(terms.timeout))
}

fn is_over(looked_at: usize, began: Timestamp) -> bool {
    looked_at.is_multiple_of(BETWEEN_LOOKS) && logged(Gateway.now()).duration_since(began) >= SLICE
}

fn count_answer(limiter: &mut Limiter, answer: &Answer) {
    let event = match answer {
        Answer::Share(share) if share.settling => Event::FleetStatementSettling,
        Answer::Share(_) => Event::FleetStatementAnswered,
        Answer::Reset(_) => Event::FleetStatementReset,
        Answer::Refused(_) => Event::FleetStatementRefused,
    };
    limiter.count(event, 1);
}

fn send(
    settings: &FleetSettings,
    gateway: Hex128,
    now: Timestamp,
    statements: Vec<Statement>,
    timeout: u32,
) -> Result<u32, HostError> {
    let authorization = settings.bearer.as_ref().map(|bearer| format!("Bearer {}", bearer.expose()));
    let mut headers = vec![
        (":method", "POST"),
        (":path", "/v1/shares"),
        (":authority", settings.authority()),
        ("content-type", "application/json"),
    ];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    let body = messages::request(gateway, now, statements);
    host::http_call(&settings.cluster, headers, Some(&body), timeout.max(1))
}
