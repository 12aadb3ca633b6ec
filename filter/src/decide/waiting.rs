//! A request of a fleet that waits for the ledger: it asks for what it lacks, and goes on with the answer.

use std::sync::Arc;

use ledger_wire::Answer as LedgerAnswer;

use super::charging::conclude;
use super::counting::{Asked, DecideError};
use super::decision::{Answer, Awaited, Decided, Scope, Wait};
use super::host::Host;
use super::limiter::Limiter;
use super::outcome::Outcome;
use super::refusal::Refusal;
use super::view::Heard;
use crate::config::{Config, OnUnavailable};
use crate::count::charge::{Admission, Turn};
use crate::count::fingerprint::Salt;
use crate::count::holding::Terms;
use crate::count::sharing::Attended;
use crate::count::swap::Place;
use crate::event::Event;
use crate::request::header_pairs::HeaderPairs;

/// The ledger's answers to what was stated, in that order, and its store's epoch.
pub type Answers<'a> = (&'a [LedgerAnswer], u32);

impl Limiter {
    /// The salt of this process's counters, if a request has opened them.
    pub fn salt(&self) -> Option<&Salt> {
        Some(self.counting.opened()?.salt())
    }

    /// States what nobody waits for of a counter. `epoch` is the store's last one, if it is known.
    pub fn attend(&mut self, host: &mut impl Host, place: Place, epoch: Option<u32>) -> Option<Attended> {
        let (config, terms) = self.fleet()?;
        let opened = self.counting.open(host, &config);
        let attended = opened.and_then(|counters| Ok(counters.attend(host, place, epoch, terms)?));
        attended.map_err(|error| self.counting.log_error(host, "a counter could not be stated", error)).ok()
    }

    /// The counters in the entry with this number, from 0, that a fleet shares; `None` after the last entry. None are in an entry that could not
    /// be read.
    pub fn shared_in(&mut self, host: &mut impl Host, number: u32) -> Option<Vec<Place>> {
        let (config, _) = self.fleet()?;
        let opened = self.counting.open(host, &config);
        let shared = opened.and_then(|counters| Ok(counters.shared_in(host, number)?));
        shared.unwrap_or_else(|error| {
            self.counting.log_error(host, "the counters could not be read", error);
            Some(Vec::new())
        })
    }

    /// Takes up the answers to what was stated, in that order.
    pub fn take_up(&mut self, host: &mut impl Host, asked: &[Asked], answers: Option<Answers<'_>>) {
        let Some((config, terms)) = self.fleet() else { return };
        if let Err(error) = self.counting.take_up(host, &config, asked, answers, terms) {
            self.counting.log_error(host, "an answer of the ledger could not be taken up", error);
        }
    }

    /// Goes on with a request that has waited for `answers`; `None` if the ledger has given none. It may have to wait again. `headers` is its
    /// header map, as in [`Limiter::decide`].
    pub fn go_on(
        &mut self,
        host: &mut impl Host,
        headers: &[u8],
        decided: &mut Decided,
        answers: Option<Answers<'_>>,
    ) {
        let (Some((config, terms)), Some(answer)) = (self.fleet(), decided.answer.take()) else { return };
        let Answer::Later(wait) = *answer else { return };
        if wait.awaited != Awaited::Units {
            return self.go_on_with_document(host, &config, headers, decided, (wait, answers));
        }
        if let Err(error) = self.try_to_go_on(host, &config, decided, (wait, answers), terms) {
            self.counting.log_error(host, "a request could not be counted", error);
            decided.fail(&config);
        }
    }

    fn try_to_go_on(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
        (mut wait, answers): (Box<Wait>, Option<Answers<'_>>),
        terms: Terms,
    ) -> Result<(), DecideError> {
        let answered = self.counting.take_up(host, config, &wait.asked, answers, terms)?;
        let Some(charged) = &mut decided.charged else { return Ok(()) };
        let turn = Turn::Waited { refused: answered.is_refused };
        let counted = self.counting.charge_in_turn(host, config, charged, Some(turn))?;
        if counted.admission != Admission::Lacking {
            self.counting.events.add(Event::FleetDecidedByLedger, 1);
            conclude(config, decided, counted, Some(decided.class));
            return Ok(());
        }
        // Others have taken what was granted, or the answer was void.
        let waited = counted.at.duration_since(wait.since).as_millis();
        if answered.is_decided && waited < u128::from(terms.timeout) {
            wait.asked = self.counting.ask(host, config, charged, true, terms)?;
            decided.answer = Some(Box::new(Answer::Later(wait)));
            return Ok(());
        }
        self.decide_alone(host, config, decided)
    }

    /// Decides a request without the ledger, as `on_unavailable` says.
    fn decide_alone(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        decided: &mut Decided,
    ) -> Result<(), DecideError> {
        self.counting.events.add(Event::FleetDecidedByPolicy, 1);
        let policy = config.settings.fleet.as_ref().map_or(OnUnavailable::Deny, |fleet| fleet.on_unavailable);
        let percent = match policy {
            OnUnavailable::Local(percent) => Some(percent),
            OnUnavailable::Allow => None,
            OnUnavailable::Deny => {
                decided.charged = None;
                decided.refuse(config, Outcome::Error, Refusal::NoLedger);
                return Ok(());
            }
        };
        let Some(charged) = &mut decided.charged else { return Ok(()) };
        let turn = Turn::Unavailable(percent);
        let counted = self.counting.charge_in_turn(host, config, charged, Some(turn))?;
        conclude(config, decided, counted, Some(decided.class));
        Ok(())
    }

    /// Goes on with a request for a document that has waited for `answers`.
    #[cold]
    fn go_on_with_document(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        headers: &[u8],
        decided: &mut Decided,
        waited: (Box<Wait>, Option<Answers<'_>>),
    ) {
        if let Err(error) = self.try_to_go_on_with_document(host, config, headers, decided, waited) {
            self.counting.log_error(host, "a caller or an operator could not be answered", error);
            decided.answer = Some(Box::new(Answer::Refused(Refusal::NoCounters)));
        }
    }

    fn try_to_go_on_with_document(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        headers: &[u8],
        decided: &mut Decided,
        (wait, answers): (Box<Wait>, Option<Answers<'_>>),
    ) -> Result<(), DecideError> {
        let Some(terms) = config.fleet else { return Ok(()) };
        self.counting.take_up(host, config, &wait.asked, answers, terms)?;
        let answers = answers.map(|(answers, _)| answers);
        let are_all = |is: fn(&LedgerAnswer) -> bool| answers.is_some_and(|answers| answers.iter().all(is));
        let waited = host.now()?.duration_since(wait.since).as_millis();
        let is_reset = answers
            .is_some_and(|answers| answers.iter().any(|answer| matches!(answer, LedgerAnswer::Reset(_))));
        let heard = match wait.awaited {
            Awaited::Reset(scope) => {
                Some(Heard::Reset(scope, are_all(|answer| matches!(answer, LedgerAnswer::Share(_)))))
            }
            // A count that was reset elsewhere has begun anew, and does not know yet what others have used since: the handler asks again.
            Awaited::View | Awaited::Units if is_reset && waited < terms.timeout.into() => None,
            Awaited::View | Awaited::Units => {
                let is_told =
                    are_all(|answer| matches!(answer, LedgerAnswer::Share(share) if !share.settling));
                Some(Heard::View(if is_told { Scope::Fleet } else { Scope::Gateway }))
            }
        };
        // Its place is free for what is asked next.
        drop(wait);
        let scope = heard.map(|(Heard::View(scope) | Heard::Reset(scope, _))| scope);
        let Some(operators) = &config.settings.operators else {
            return self.go_on_with_usage(host, config, headers, decided, scope);
        };
        let headers = HeaderPairs::parse(headers);
        decided.answer = Some(Box::new(self.answer_operator(host, config, operators, headers, heard)));
        Ok(())
    }

    fn fleet(&self) -> Option<(Arc<Config>, Terms)> {
        Some((Arc::clone(&self.config), self.config.fleet?))
    }
}
