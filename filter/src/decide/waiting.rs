//! A request of a fleet that has waited for the ledger goes on.

use ledger_wire::{Answer as LedgerAnswer, Response};

use super::counting::{Context, DecideError};
use super::decision::{Answer, Awaited, Decided, Scope, Wait};
use super::host::Host;
use super::limiter::{Decider, Limiter};
use super::refusal::Refusal;
use super::view::Known;
use crate::count::counters::Counters;
use crate::fleet::client::{Call, Client, Heard};
use crate::fleet::messages::AnswerError;
use crate::fleet::{Waiting, WaitingRequest};
use crate::request::line::RequestLine;

/// The ledger's response to a call, or why there is none.
pub type Responded = Result<Response, AnswerError>;

impl Limiter {
    /// A tick: states what nobody waits for. Returns the call to be made.
    pub fn tick(&mut self, host: &mut impl Host) -> Option<Call> {
        self.counting().client().filter(|client| client.has_work())?;
        self.client(host, Client::tick)
    }

    /// The call of a tick has ended. Returns the next one.
    pub fn tick_answered(&mut self, host: &mut impl Host, responded: Responded) -> Option<Call> {
        self.client(host, |client, counters, host| client.tick_answered(counters, host, responded))
    }

    /// Whether the next tick is to come soon.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.counting().client().is_some_and(Client::is_busy)
    }

    /// The stream of a request has ended while it waited.
    pub fn ended(&mut self, host: &mut impl Host, waiting: &WaitingRequest) {
        self.client(host, |client, counters, host| {
            client.ended(counters, host, waiting);
            None
        });
    }

    /// Has the client of the ledger take a step, if there is one.
    fn client<H: Host>(
        &mut self,
        host: &mut H,
        step: impl FnOnce(&mut Client, &mut Counters, &mut H) -> Option<Call>,
    ) -> Option<Call> {
        let mut context = self.context(host);
        match context.opened() {
            Ok((counters, client, host)) => step(client?, counters, host),
            Err(error) => {
                context.log_error("the fleet's counters could not be opened", error);
                None
            }
        }
    }

    /// Goes on with a request whose call has ended. It may have to wait again. `headers` is its header map, as in [`Limiter::decide`].
    pub fn go_on(
        &mut self,
        host: &mut impl Host,
        headers: &[u8],
        decided: &mut Decided,
        responded: Responded,
    ) {
        let Some(answer) = decided.answer.take() else { return };
        let Answer::Later(Wait { awaited, waiting, .. }) = *answer else { return };
        let (mut decider, reader) = self.decider(host);
        if awaited == Awaited::Units {
            let meter = decided.charged.as_mut().and_then(|charged| charged.meter.take());
            if let Err(error) = decider.context.go_on(decided, waiting, responded) {
                decider.context.log_error("a request could not be counted", error);
                decided.fail(decider.context.config);
            }
            if let Some(meter) = meter {
                decider.context.measure(decided, &meter);
            }
            return;
        }
        let line = reader.read(headers);
        let gone_on = decider.go_on_with_document(decided, line.as_ref(), (awaited, waiting), responded);
        if let Err(error) = gone_on {
            decider.context.log_error("a caller or an operator could not be answered", error);
            decided.answer = Some(Box::new(Answer::Refused(Refusal::NoCounters)));
        }
    }
}

impl<H: Host> Decider<'_, H> {
    /// Goes on with a request for a document.
    #[cold]
    fn go_on_with_document(
        &mut self,
        decided: &mut Decided,
        line: Option<&RequestLine<'_>>,
        (awaited, waiting): (Awaited, Waiting),
        responded: Responded,
    ) -> Result<(), DecideError> {
        let (counters, client, host) = self.context.opened()?;
        let Some(client) = client else { return Ok(()) };
        let (heard, since) = client.heard(counters, host, waiting, responded)?;
        let answers = match heard {
            Heard::Again(waiting) => {
                decided.answer = Some(Wait::new(awaited, waiting).into());
                return Ok(());
            }
            Heard::Answers(answers) => Some(answers),
            Heard::Nothing => None,
        };
        let waited = host.now()?.duration_since(since).as_millis();
        let may_ask_again = waited < client.sharing().timeout.into();
        let answers = answers.as_deref();
        let are_all = |is: fn(&LedgerAnswer) -> bool| answers.is_some_and(|answers| answers.iter().all(is));
        let is_reset = answers
            .is_some_and(|answers| answers.iter().any(|answer| matches!(answer, LedgerAnswer::Reset(_))));
        let known = match awaited {
            Awaited::Reset(scope) => {
                Some(Known::Reset(scope, are_all(|answer| matches!(answer, LedgerAnswer::Share(_)))))
            }
            // A count that was reset elsewhere has begun anew, and does not know yet what others have used since: the handler asks again.
            Awaited::View | Awaited::Units if is_reset && may_ask_again => None,
            Awaited::View | Awaited::Units => {
                let is_told =
                    are_all(|answer| matches!(answer, LedgerAnswer::Share(share) if !share.settling));
                Some(Known::View(if is_told { Scope::Fleet } else { Scope::Gateway }))
            }
        };
        let Some(operators) = &self.context.config.settings.operators else {
            let scope = known.map(|(Known::View(scope) | Known::Reset(scope, _))| scope);
            return self.go_on_with_usage(decided, line.ok_or(DecideError::NoHeaders)?, scope);
        };
        decided.answer = Some(self.answer_operator(operators, line, known));
        Ok(())
    }
}

impl<H: Host> Context<'_, H> {
    fn go_on(
        &mut self,
        decided: &mut Decided,
        waiting: Waiting,
        responded: Responded,
    ) -> Result<(), DecideError> {
        let Some(charged) = &mut decided.charged else { return Ok(()) };
        let (demand, standings) = (&charged.demand, &mut charged.standings);
        let (counters, client, host) = self.opened()?;
        let Some(client) = client else { return Ok(()) };
        let next = client.answered(counters, host, (demand, standings), waiting, responded)?;
        self.follow(decided, next);
        Ok(())
    }
}
