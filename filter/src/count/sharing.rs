//! The steps of a counter that the gateways of a fleet share: asking for units, stating what has become of them, taking up answers.

use ledger_wire::{Answer, Hex128};
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::charge::is_first_enforced;
use super::entry::{Count, Held, Record};
use super::fingerprint::Who;
use super::holding::{Stated, Subject, Terms};
use super::swap::Step;
use crate::quota::Quota;
use crate::window::Window;

/// The name of a counter, the same at every gateway of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedName(pub u128);

impl SharedName {
    /// The name of the counter of `who` in `class`. Strangers have none.
    #[must_use]
    pub fn new(namespace: &str, who: Who<'_>, class: &str) -> Self {
        let (kind, id) = match who {
            Who::Key(digest) => (b'k', digest.as_slice()),
            Who::Subscriber(id) => (b's', id.as_bytes()),
            Who::Organisation(id) => (b'o', id.as_bytes()),
            Who::Address(_) => (b'a', &[][..]),
        };
        let mut hash = Sha256::new();
        // With their lengths, so that no two lists of parts are the same bytes.
        for part in [namespace.as_bytes(), &[kind], id, class.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        Self(hash.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes)))
    }

    /// The name of the counter's count of `window`.
    fn of(self, window: Window) -> Hex128 {
        Hex128(self.0 ^ u128::from(window.code()))
    }
}

/// A statement, and the window of the count that it is about.
pub type OfWindow = (Window, Stated);

/// The statements about one counter.
pub type Statements = SmallVec<[OfWindow; 1]>;

/// Most statements that an [`Ask`] makes of these quotas.
#[must_use]
pub fn statements(quotas: &[Quota]) -> usize {
    (0..quotas.len()).filter(|place| is_first_enforced(quotas, *place)).count()
}

/// A request that asks.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The quotas of the counter.
    pub quotas: &'a [Quota],
    /// Units that it needs of each; 0 to see what others hold, where the ledger has not just said it.
    pub cost: u32,
    /// Whether it has asked before. It then asks for all quotas, because what it lacked not may have been taken meanwhile.
    pub again: bool,
}

/// Asks for what a request lacks. `name` is the counter's.
pub(super) fn ask(
    record: &mut Record,
    name: SharedName,
    Ask { quotas, cost, again }: Ask<'_>,
    terms: Terms,
) -> Step<Statements> {
    let (at, mut statements) = (record.at, Statements::new());
    record.name = name.0;
    for (place, quota) in quotas.iter().enumerate().filter(|(place, _)| is_first_enforced(quotas, *place)) {
        let of_window =
            quotas.iter().enumerate().filter(|(other, _)| *other >= place).map(|(_, quota)| quota);
        let limits = of_window.filter(|other| (other.window, other.mode) == (quota.window, quota.mode));
        let Some(limit) = limits.map(|quota| quota.limit.get()).min() else { continue };
        let Some((count, Some(held))) = record.count_and_held(quota.window) else { continue };
        held.limit = limit;
        if again || held.holding.lacks_at_first(cost, limit) {
            let subject = subject(name, count, held);
            let stated = match cost {
                0 if held.holding.is_fresh(at, terms) => continue,
                0 => held.holding.look(&subject, at, terms),
                _ => held.holding.ask(cost, &subject, at, terms),
            };
            statements.push((quota.window, stated));
        }
    }
    Step::Store(statements)
}

/// Resets the count of these quotas, whose window is the same, and states it. Returns the units that were used, those that others hold
/// included. `name` is the counter's.
pub(super) fn reset(
    record: &mut Record,
    name: SharedName,
    quotas: &[Quota],
    terms: Terms,
) -> Step<(u32, Statements)> {
    let used = quotas.first().map_or(0, |quota| {
        let others = record.count_and_held(quota.window).and_then(|(_, held)| Some(held?.holding.others));
        record.begin_again(quota.window).saturating_add(others.unwrap_or(0))
    });
    let (Step::Keep(statements) | Step::Store(statements)) =
        ask(record, name, Ask { quotas, cost: 0, again: true }, terms);
    Step::Store((used, statements))
}

/// What a tick states of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attended {
    /// The statements.
    pub statements: Statements,
    /// Whether the ledger knows all that was used, and nothing else is held: nothing is left to state.
    pub is_settled: bool,
}

/// States what nobody waits for, of all windows of a counter. `epoch` is the store's last one, if it is known.
pub(super) fn attend(record: &mut Record, epoch: Option<u32>, terms: Terms) -> Step<Attended> {
    let (at, name, mut attended) =
        (record.at, SharedName(record.name), Attended { is_settled: true, ..Attended::default() });
    for (count, held) in record.held().filter(|(_, held)| held.limit > 0) {
        let subject = subject(name, count, held);
        if let Some(stated) = held.holding.attend(&subject, epoch, at, terms) {
            attended.statements.push((count.window, stated));
        }
        attended.is_settled &= held.holding.is_settled();
    }
    if attended.statements.is_empty() { Step::Keep(attended) } else { Step::Store(attended) }
}

/// What an answer makes of the request that asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Whether too little is left of a quota.
    pub is_refused: bool,
    /// Whether the ledger could decide all of them. One that cannot decide yet will not be able to at once.
    pub is_decided: bool,
}

/// Takes up the answers to `stated`. Those who waited for them wait no longer. `epoch` is the store's.
pub(super) fn take_up(
    record: &mut Record,
    stated: &[OfWindow],
    answers: &[Answer],
    epoch: u32,
    terms: Terms,
) -> Step<Answered> {
    let (now, generation, mut answered) =
        (record.at, record.generation(), Answered { is_refused: false, is_decided: true });
    for ((window, stated), answer) in stated.iter().zip(answers) {
        let Some((count, Some(held))) = record.count_and_held(*window) else { continue };
        let Held { limit, holding } = held;
        holding.leave(stated);
        answered.is_refused |= holding.is_refused(stated, answer, *limit, now, terms);
        answered.is_decided &= match answer {
            Answer::Share(share) => !share.settling,
            Answer::Refused(_) => false,
            Answer::Reset(_) => true,
        };
        holding.answered(stated, answer, epoch, generation, terms);
        (count.used, count.generation) = (holding.used, holding.generation);
    }
    Step::Store(answered)
}

/// Forgets a request that waited for the answers to `stated`, and got none.
pub(super) fn leave(record: &mut Record, stated: &[OfWindow]) -> Step<()> {
    for (window, stated) in stated {
        if let Some((_, Some(held))) = record.count_and_held(*window) {
            held.holding.leave(stated);
        }
    }
    Step::Store(())
}

fn subject(name: SharedName, count: &Count, held: &Held) -> Subject {
    Subject { counter: name.of(count.window), period: count.window.period(count.index), limit: held.limit }
}
