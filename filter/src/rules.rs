//! The rules that a fleet's promises rest on. The product always keeps them; the simulation of fleets takes away one at a time, to show that
//! its worlds miss it.

/// A rule of what gateways and the ledger do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An ask never lowers a share.
    AskNeverLowers,
    /// The ledger ignores a statement that is not newer than its holder's newest.
    OlderIsIgnored,
    /// A count that begins again is another holder.
    AnotherHolder,
    /// A statement under a lower reset number is answered with the number alone.
    ResetStands,
    /// Nothing is granted in windows that may have lost shares.
    Settling,
    /// A statement far outside its window is refused.
    Timely,
    /// An answer is for the count that asked.
    AnswerIsForAsker,
    /// Answers to statements before a return are void.
    ReturnVoids,
    /// Answers to statements before an answered one are void.
    AnswerVoids,
    /// A return lowers the gateway's share before it is sent.
    ReturnLowersFirst,
    /// An answer sets the share, also to less.
    AnswerSets,
    /// Only an answer that says so refuses.
    OnlyAnswersRefuse,
    /// The answer about one quota refuses that quota alone.
    EachQuotasAnswer,
    /// What requests wait for is not taken by those that come later.
    WaitersFirst,
    /// An ask states what all requests wait for.
    NeedOfAll,
    /// A request that asks again asks for all of its quotas.
    AllAgain,
    /// After a pause, one of those that are refused asks.
    PausesEnd,
    /// The age of what a refusal rests on is counted from the ask, not from the answer.
    AgeFromAsk,
    /// What was not answered is stated again.
    UnansweredIsRestated,
    /// A use that grew beyond the share is stated.
    DebtIsStated,
    /// An idle count gives back what it holds.
    IdleReturns,
    /// In a new epoch, everything is stated again.
    EpochRestates,
    /// A reset is stated until it is answered.
    ResetIsStated,
    /// Who only looks gives back what an idle count holds.
    LookReturns,
    /// A call that tries the ledger again is due at an instant, whatever becomes of the call before.
    TrialsAreInstants,
    /// A call ends when the request's time does.
    CallsEndInTime,
    /// What a gateway holds survives configurations without a fleet or in shadow mode.
    HeldSurvives,
    /// A worker that starts looks through the table.
    StartWalks,
}

#[cfg(feature = "rules")]
mod taken_away {
    use core::cell::Cell;

    use super::Rule;

    thread_local! {
        static TAKEN_AWAY: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Takes a rule away from what this thread does from now on, or gives it back.
    pub fn take_away(rule: Option<Rule>) {
        TAKEN_AWAY.set(rule);
    }

    /// Whether this thread does without a rule.
    pub fn without(rule: Rule) -> bool {
        TAKEN_AWAY.get() == Some(rule)
    }
}

#[cfg(feature = "rules")]
pub use taken_away::{take_away, without};

/// Whether a rule is missing, which it never is.
#[cfg(not(feature = "rules"))]
pub(crate) const fn without(_: Rule) -> bool {
    false
}
