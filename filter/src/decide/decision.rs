//! The one decision on a request.

use std::sync::Arc;

use serde::Serialize;

use super::counting::Charged;
use super::json;
use super::outcome::{Outcome, Outcomes};
use super::refusal::Refusal;
use crate::config::{Config, OnError};
use crate::fleet::Waiting;
use crate::quota::Mode;

/// An answer of the filter, as data: its text is written where it is sent.
#[derive(Debug)]
pub enum Answer {
    /// The request is refused.
    Refused(Refusal),
    /// What a caller or an operator asked the filter for.
    Document {
        /// The response-code details.
        details: &'static str,
        /// JSON.
        json: String,
    },
    /// Not yet: the ledger's answer comes first.
    Later(Wait),
}

/// Whose use a document of a gateway in a fleet counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scope {
    /// All gateways'.
    Fleet,
    /// This gateway's, and what the ledger has said of the others before: it does not answer now.
    Gateway,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Units of its quotas.
    Units,
    /// What other gateways hold, for a document.
    View,
    /// That the ledger takes up a reset. The view before had this scope.
    Reset(Scope),
}

/// A request that waits for the ledger.
#[derive(Debug)]
pub struct Wait {
    pub(super) awaited: Awaited,
    /// What it has asked, and the call to be made.
    pub waiting: Waiting,
    /// The number of the call that it waits for, once it is made.
    pub call: Option<u32>,
}

impl Wait {
    pub(super) fn new(awaited: Awaited, waiting: Waiting) -> Self {
        Self { awaited, waiting, call: None }
    }
}

impl From<Wait> for Box<Answer> {
    fn from(wait: Wait) -> Self {
        Self::new(Answer::Later(wait))
    }
}

impl Answer {
    /// A document that a caller or an operator asked for.
    pub(super) fn document(details: &'static str, document: &impl Serialize) -> Box<Self> {
        Box::new(Self::Document { details, json: json(document) })
    }
}

/// A decision, and what metrics, the log and the response need to know of the request.
///
/// The default is the initial state: the request passes, and its caller is unknown.
#[derive(Debug, Default)]
pub struct Decided {
    /// What the filter answers; `None` if the request goes on.
    pub answer: Option<Box<Answer>>,
    /// The subscriber's plan, as an index into [`crate::config::Catalog::plans`]; `None` for a stranger.
    pub plan: Option<usize>,
    /// The subscriber's id, where access logs say it.
    pub subscriber: Option<Arc<str>>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// What to count in metrics.
    pub outcomes: Outcomes,
    /// The charge, whether the quotas had room for it or not.
    pub charged: Option<Charged>,
    /// Whether this is a gRPC request.
    pub is_grpc: bool,
    /// Whether the request has an `Origin`.
    pub has_origin: bool,
    /// Whether the request is refused, or would be if nothing were in shadow mode.
    pub is_refused: bool,
}

impl Decided {
    /// The request passes with this outcome.
    pub(super) fn pass(&mut self, outcome: Outcome) {
        self.outcomes.add(outcome);
    }

    /// Refuses the request, unless the whole filter is in shadow mode.
    #[cold]
    pub(super) fn refuse(&mut self, config: &Config, outcome: Outcome, refusal: Refusal) {
        self.outcomes.add(outcome);
        self.is_refused = true;
        if config.settings.enforcement == Mode::Enforced {
            self.answer = Some(Box::new(Answer::Refused(refusal)));
        }
    }

    /// Decides by `on_error` on a request that could not be counted.
    pub(super) fn fail(&mut self, config: &Config) {
        match config.settings.on_error {
            OnError::Allow => self.pass(Outcome::Error),
            OnError::Deny => self.refuse(config, Outcome::Error, Refusal::CountFailed),
        }
    }
}
