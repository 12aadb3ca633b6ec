//! What all gateways of a fleet have used, for the documents that callers and operators ask for.
//!
//! The handler of a document asks the ledger what others hold, and is run again with the answer. To reset a quota, it states the reset in
//! between, and waits for the ledger once more.

use super::counting::{Context, DecideError};
use super::decision::{Answer, Awaited, Scope, Wait};
use super::host::Host;
use super::refusal::Refusal;
use super::usage::Subscriber;
use crate::count::charge::{SharedName, most_statements};
use crate::fleet::client::{Looked, MOST_STATEMENTS};

/// What the handler of a document knows when it is run again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// What others hold, if the scope is the fleet.
    View(Scope),
    /// Whether the ledger knows of the reset. What others held before, the scope says as above.
    Reset(Scope, bool),
}

/// Why a document is not written, or not yet.
pub(super) enum Stop {
    /// This is answered in its place.
    Answer(Box<Answer>),
    Error(DecideError),
}

impl Stop {
    pub(super) fn answer(self) -> Result<Box<Answer>, DecideError> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Error(error) => Err(error),
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Answer(Box::new(Answer::Refused(refusal)))
    }
}

impl<E: Into<DecideError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl<H: Host> Context<'_, H> {
    /// Asks the ledger what others hold of all quotas of these callers. Returns whose use can be told; `None` in no fleet.
    #[cold]
    pub(super) fn look(&mut self, of: &[Subscriber<'_>]) -> Result<Option<Scope>, Stop> {
        let config = self.config;
        if !self.is_shared() {
            // In shadow mode, each gateway of a fleet counts by itself.
            return Ok(config.fleet.is_some().then_some(Scope::Gateway));
        }
        if of.iter().map(|of| of.statements(config)).sum::<usize>() > MOST_STATEMENTS {
            return Ok(Some(Scope::Gateway));
        }
        let (counters, client, host) = self.opened()?;
        let Some(client) = client else { return Ok(None) };
        let all = of.iter().flat_map(|of| of.counters(config));
        let shared = all.filter(|(.., quotas)| most_statements(quotas) > 0).map(|(who, class, quotas)| {
            let name = SharedName::new(&config.settings.namespace, who, class);
            (counters.counter(who, class), name, quotas)
        });
        let shared: Vec<_> = shared.collect();
        match client.look(counters, host, &shared)? {
            Looked::Known => Ok(Some(Scope::Fleet)),
            Looked::Away => Ok(Some(Scope::Gateway)),
            Looked::Full => Err(Refusal::NoPlace.into()),
            Looked::Waits(waiting) => Err(Stop::Answer(Wait::new(Awaited::View, waiting).into())),
        }
    }
}
