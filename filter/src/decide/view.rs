//! What all gateways of a fleet have used, for the documents that callers and operators ask for.
//!
//! The handler of a document asks the ledger what others hold, and is run again with the answer. To reset a quota, it states the reset in
//! between, and waits for the ledger once more.

use super::counting::{Asked, Counting, DecideError};
use super::decision::{Answer, Awaited, Scope, Wait};
use super::host::Host;
use super::refusal::Refusal;
use super::usage::Subscriber;
use crate::config::Config;
use crate::count::sharing::{Ask, SharedName, statements};
use crate::fleet::messages::MOST_STATEMENTS;

/// What the handler of a document has heard when it is run again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    /// What others hold, if the scope is the fleet.
    View(Scope),
    /// Whether the ledger knows of the reset. What others held before, the scope says as above.
    Reset(Scope, bool),
}

/// What a handler finds when it looks at what others hold.
pub(super) enum Looked {
    /// There is nothing to wait for. The scope is `None` in no fleet.
    Already(Option<Scope>),
    /// Its answer, for now.
    Not(Answer),
}

impl Counting {
    /// Asks the ledger what others hold of all quotas of these callers.
    #[cold]
    pub(super) fn look(
        &mut self,
        host: &mut impl Host,
        config: &Config,
        of: &[Subscriber<'_>],
    ) -> Result<Looked, DecideError> {
        let Some(terms) = config.fleet else {
            // In shadow mode, each gateway of a fleet counts by itself.
            return Ok(Looked::Already(config.settings.fleet.is_some().then_some(Scope::Gateway)));
        };
        if of.iter().map(|of| of.statements(config)).sum::<usize>() > MOST_STATEMENTS {
            return Ok(Looked::Already(Some(Scope::Gateway)));
        }
        let (mut place, mut asked) = (None, Vec::new());
        let counters = of.iter().flat_map(|of| of.counters(config));
        for (who, class, quotas) in counters.filter(|(.., quotas)| statements(quotas) > 0) {
            let counter = self.open(host, config)?.place(who, class);
            if place.is_none() {
                place = self.take_place(counter);
                if place.is_none() {
                    return Ok(Looked::Not(Answer::Refused(Refusal::NoPlace)));
                }
            }
            let name = SharedName::new(&config.settings.namespace, who, class);
            let ask = Ask { quotas, cost: 0, again: true };
            let statements = self.open(host, config)?.ask(host, counter, name, ask, terms)?;
            if !statements.is_empty() {
                asked.push(Asked { place: counter, statements });
            }
        }
        let Some(place) = place.filter(|_| !asked.is_empty()) else {
            return Ok(Looked::Already(Some(Scope::Fleet)));
        };
        Ok(Looked::Not(Answer::Later(Wait::new(Awaited::View, host.now()?, asked, place))))
    }
}
