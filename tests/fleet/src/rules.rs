//! The protocol's rules, each of which the simulation can do without. The product cannot: what a rule does is undone around it.

/// A rule of the protocol.
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
}

impl Rule {
    /// All rules, each with the check that misses it.
    pub const ALL: [(Self, Check); 23] = [
        (Self::AskNeverLowers, Check::Over),
        (Self::OlderIsIgnored, Check::Over),
        (Self::AnotherHolder, Check::Over),
        (Self::ResetStands, Check::Over),
        (Self::Settling, Check::Over),
        (Self::Timely, Check::Over),
        (Self::AnswerIsForAsker, Check::Over),
        (Self::ReturnVoids, Check::Over),
        (Self::AnswerVoids, Check::Kept),
        (Self::ReturnLowersFirst, Check::Over),
        (Self::AnswerSets, Check::Kept),
        (Self::OnlyAnswersRefuse, Check::Refused),
        (Self::WaitersFirst, Check::Refused),
        (Self::NeedOfAll, Check::Refused),
        (Self::AllAgain, Check::Refused),
        (Self::PausesEnd, Check::Refused),
        (Self::AgeFromAsk, Check::Refused),
        (Self::UnansweredIsRestated, Check::Kept),
        (Self::DebtIsStated, Check::Kept),
        (Self::IdleReturns, Check::Kept),
        (Self::EpochRestates, Check::Over),
        (Self::ResetIsStated, Check::Kept),
        (Self::LookReturns, Check::Kept),
    ];
}

/// What must hold in every world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// In each window and under each reset number, the use is at most the limit, beside what the promises except.
    Over,
    /// Nobody is refused while units are free for longer than two terms, and nobody without the ledger's word while all is well.
    Refused,
    /// Once a count is idle, its share is its use, at the gateway and at the ledger.
    Kept,
}
