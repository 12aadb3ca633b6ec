//! What a gateway of a fleet holds of one counter in one window.
//!
//! Each function takes one step on the record, which the caller stores in the compare-and-swap in which it read it. Requests, workers and
//! messages may therefore come in any order, be late, be lost, or come twice.
//!
//! What keeps the sum of all use within the limit is that the ledger never believes a gateway to hold less than it does: the record's share
//! is at most the holder's. It rises only by an answer, and falls before the statement to the ledger. An answer that was given before is void
//! ([`Held::void_until`]), and an answer is for the count that asked, which its generation tells.

use ledger_wire::{Answer, Hex128, Says, Statement};

use super::entry::Count;
use super::pace::{Millis, rate, used_in};
use super::rate::Flow;
use crate::rules::{Rule, without};
use crate::time::Timestamp;
use crate::window::Window;

/// How the gateways of a fleet share quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// How long a request waits for the ledger, in milliseconds.
    pub timeout: u32,
    /// In milliseconds: what a count holds and does not use is available to others after twice this time at the latest. It is also the longest time between two
    /// asks of a count that has nothing left. Not less than `timeout`.
    pub term: u32,
    /// How much use is held in advance, in milliseconds; 0 for none.
    pub ahead: u32,
    /// What may be used beyond the share while the ledger does not decide.
    pub beyond: Beyond,
    /// Whether nothing is refused: then nothing is held, and what is held is given back.
    pub in_shadow: bool,
}

impl Sharing {
    /// How long a count is unused before it gives back what it holds: half a term is left for a tick and a call.
    fn idle(self) -> u32 {
        self.term.saturating_add(self.term / 2)
    }
}

/// What requests may use beyond the gateway's share while the ledger does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// This percentage of the limit in the whole window, but one request at least, and never beyond the limit.
    Percent(u8),
    /// What they need.
    All,
    /// Nothing: they are told that the ledger cannot be reached.
    Nothing,
}

/// Part of a limit that one gateway holds in advance at most.
const MOST_AHEAD: u32 = 20;
/// Limits below this hold nothing in advance in windows of a day or longer: a gateway that crashes leaves what it holds until the window
/// ends.
const LEAST_OF_A_DAY: u32 = 1_000;
/// At most this part of what is held in advance is left when it is asked for again.
const ASKED_AT: u32 = 4;
/// The first pause, as a part of a term, is doubled until it is a term.
const PAUSES: u8 = 3;

/// A statement about a count, kept until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// The kind of window of the count.
    pub window: Window,
    /// What is sent.
    pub statement: Statement,
    /// When it was made.
    pub at: Timestamp,
}

/// What a gateway holds of a count. No field can be derived from the others. The default holds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The quota's limit, as a request has last seen it: ticks state counts, and know no quotas. 0 before the first request of a fleet.
    pub limit: u32,
    /// Units that may be used, in all.
    pub share: u32,
    /// The number of the newest statement. The ledger ignores statements that were overtaken by their numbers.
    pub seq: u32,
    /// Answers to statements up to this number are void: they tell an earlier state than an answer that was applied, or than a return,
    /// after which the ledger may give to others what they tell. While it is below `seq`, the newest statement has no answer, unless that is a
    /// return.
    pub void_until: u32,
    /// The reset number that the count began under. The ledger tells a later one.
    pub reset: u64,
    /// The store's epoch, in part, that the share was answered in. A share of another epoch is unknown to the store.
    pub epoch: u32,
    /// Units that others held at the last answer. With what is used, it tells what is left to this gateway, for replies and refusals.
    pub others: u32,
    /// Units that requests wait for: each ask states them all, so that the answer to one of many serves all.
    pub waiting: u32,
    /// Units that were used beyond the share while the ledger was away. They come out of one allowance for the whole window.
    pub beyond: u32,
    /// When the newest statement was made. Its answer is not to be expected any more after a while.
    pub stated_at: Millis,
    /// When the ask was made whose answer said that too little is left. It is the age of what refusals rest on.
    pub told_at: Millis,
    /// How often in a row the ledger has said so: from 0 to 3, which double the pause.
    pub pauses: u8,
    /// When units were last used. A count that is not used gives back what it holds.
    pub used_at: Millis,
    /// Units used a second, in thousandths. What is held in advance follows from it.
    pub rate: u32,
}

/// Bytes of what is stored of a [`Held`].
pub(crate) const BYTES: usize = 4 * WORDS;
const WORDS: usize = 15;

impl Held {
    /// What [`Held::decode`] reads.
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let Self { limit, share, seq, void_until, reset, epoch, others, waiting, beyond, rate, .. } = *self;
        let [low, high] = [reset as u32, (reset >> 32) as u32];
        let [stated, told, used] = [self.stated_at.0, self.told_at.0, self.used_at.0];
        let pauses = self.pauses.into();
        let words: [u32; WORDS] = [
            limit, share, seq, void_until, low, high, epoch, others, waiting, beyond, rate, stated, told,
            used, pauses,
        ];
        let mut bytes = [0; BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; BYTES]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let [
            limit,
            share,
            seq,
            void_until,
            low,
            high,
            epoch,
            others,
            waiting,
            beyond,
            rate,
            stated,
            told,
            used,
            pauses,
        ] = words;
        let reset = u64::from(low) | u64::from(high) << 32;
        let [stated_at, told_at, used_at] = [stated, told, used].map(Millis);
        let pauses = u8::try_from(pauses).unwrap_or(0);
        Self {
            limit,
            share,
            seq,
            void_until,
            reset,
            epoch,
            others,
            waiting,
            beyond,
            stated_at,
            told_at,
            pauses,
            used_at,
            rate,
        }
    }

    /// What is held of the next window, which is used at the pace of this one.
    pub(crate) fn next(&self) -> Self {
        Self { rate: self.rate, used_at: self.used_at, ..Self::default() }
    }

    /// Whether the ledger has answered the newest statement.
    fn is_answered(&self) -> bool {
        self.void_until >= self.seq
    }

    /// How long nobody has asked after the ledger has said that too little is left.
    fn pause(&self, sharing: Sharing) -> u32 {
        sharing.term >> PAUSES.saturating_sub(self.pauses)
    }

    /// An ask that was made `at` an instant was told that too little is left. Of asks that were made within a pause, only the first lengthens it.
    fn told(&mut self, at: Timestamp, sharing: Sharing) {
        let since = self.told_at.until(at);
        if self.pauses == 0 || since >= sharing.term.saturating_mul(2) {
            self.pauses = 1;
        } else if since >= self.pause(sharing) {
            self.pauses = PAUSES.min(self.pauses + 1);
        }
        self.told_at = at.into();
    }
}

/// What the answer to a statement makes of the request that asked, for the quota that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Too little is left.
    Refused,
    /// The ledger cannot decide yet, and will not be able to at once.
    Undecided,
    /// Neither: what was granted may be used, or others have taken it.
    Granted,
}

impl Count {
    /// Whether the share, of which a gateway never uses more than its own limit, is too small for `cost` more units: those of a request that has
    /// asked for them and waited.
    pub(crate) fn lacks(&self, cost: u32, limit: u32) -> bool {
        u64::from(self.used) + u64::from(cost) > u64::from(self.held.share.min(limit))
    }

    /// The same of a request that has not asked for them. It does not take what others wait for: they would have to ask again.
    pub(crate) fn lacks_at_first(&self, cost: u32, limit: u32) -> bool {
        let waiting = if without(Rule::WaitersFirst) { 0 } else { self.held.waiting };
        self.lacks(cost.saturating_add(waiting), limit)
    }

    /// Whether nothing is left to state: the ledger has answered the newest statement, the share is what was used, and the store of `epoch`
    /// knows it.
    pub(crate) fn is_settled(&self, epoch: Option<u32>, sharing: Sharing) -> bool {
        let knows_use = match sharing.in_shadow {
            true => self.used >= self.held.share,
            false => self.used == self.held.share && !self.is_lost(epoch),
        };
        self.held.is_answered() && knows_use
    }

    /// Whether the store may have lost the share, because it has another epoch now.
    fn is_lost(&self, epoch: Option<u32>) -> bool {
        let is_another = self.held.seq > 0 && epoch.is_some_and(|epoch| epoch != self.held.epoch);
        is_another && !without(Rule::EpochRestates)
    }

    /// Units that are left to this gateway, those it holds included.
    pub(crate) fn left(&self, limit: u32) -> u32 {
        left(limit, self.held.others, self.used)
    }

    /// Uses `cost` units, whether the share has them or not.
    pub(crate) fn charge_share(&mut self, cost: u32, now: Timestamp) {
        let missing = self.missing(cost);
        let held = &mut self.held;
        held.beyond = held.beyond.saturating_add(missing);
        held.rate = rate(held.rate, held.used_at.until(now), cost);
        held.used_at = now.into();
        self.used = self.used.saturating_add(cost);
    }

    /// Whether `cost` units, which the share lacks, may be used while the ledger is away: out of `allowance` units for the whole window, but one
    /// request at least, and never beyond the limit.
    pub(crate) fn may_go_beyond(&self, cost: u32, limit: u32, allowance: u32) -> bool {
        let beyond = self.held.beyond.saturating_add(self.missing(cost));
        self.used.saturating_add(cost) <= limit && (self.held.beyond == 0 || beyond <= allowance)
    }

    /// Units of `cost` that the share lacks.
    fn missing(&self, cost: u32) -> u32 {
        cost.saturating_sub(self.held.share.saturating_sub(self.used))
    }

    /// Whether a request for `cost` units, which the share lacks, is refused without an ask: the ledger has lately said that less is left. After a
    /// pause, one request asks, and the others are refused until it is answered.
    ///
    /// A refusal never rests on what is older than the longest pause and a `timeout`, whatever becomes of those who ask.
    pub(crate) fn refuses(&self, cost: u32, limit: u32, now: Timestamp, sharing: Sharing) -> bool {
        let held = &self.held;
        let (age, pause) = (held.told_at.until(now), held.pause(sharing));
        let is_asked =
            age < pause.saturating_add(sharing.timeout) && held.stated_at.until(now) < sharing.timeout;
        let is_recent = age < pause || is_asked || without(Rule::PausesEnd);
        held.pauses > 0 && self.left(limit) < cost && is_recent
    }

    /// An ask of a request that lacks some of `cost` units and waits for them. `name` is the count's in the fleet.
    pub(crate) fn ask(&mut self, cost: u32, name: Hex128, now: Timestamp, sharing: Sharing) -> Stated {
        let held = &mut self.held;
        let have_died = held.is_answered() && held.stated_at.until(now) > sharing.timeout;
        // Nobody has waited that long: those who are counted have died.
        if have_died || without(Rule::NeedOfAll) {
            held.waiting = 0;
        }
        held.waiting = held.waiting.saturating_add(cost);
        let need = held.waiting;
        let hold = need.saturating_add(self.wish(now, sharing));
        self.state(Says::Ask { need, cost, hold }, name, now)
    }

    /// A statement for one who needs nothing: its answer tells what others hold. `None` if the ledger has just said it. An idle count gives back
    /// what it holds, which a tick would have done, but for this statement, after which it waits.
    pub(crate) fn look(&mut self, name: Hex128, now: Timestamp, sharing: Sharing) -> Option<Stated> {
        let held = &self.held;
        let is_answered = held.is_answered();
        if held.seq > 0 && is_answered && held.stated_at.until(now) < sharing.term >> (PAUSES - 1) {
            return None;
        }
        Some(match is_answered && self.is_idle(now, sharing) && !without(Rule::LookReturns) {
            true => self.give_back(0, name, now),
            false => self.ask(0, name, now, sharing),
        })
    }

    /// The count begins anew with nothing used, because an operator resets it. Its reset number is higher than those that it knows, whatever the
    /// clock says. A tick states it until the ledger has answered, as any statement. `generation` is that of a count that begins now.
    pub(crate) fn reset(&mut self, generation: u32, now: Timestamp) {
        let reset = now.millis().max(self.reset_number().saturating_add(1));
        let limit = self.held.limit;
        let (flow, held) = (Flow::default(), Held { limit, reset, ..Held::default() });
        *self = Self { generation, used: 0, flow, held, ..*self };
    }

    /// The request that made the ask `stated` waits for its answer no longer.
    pub(crate) fn leave(&mut self, stated: &Stated) {
        let statement = &stated.statement;
        if let Says::Ask { cost, .. } = statement.says
            && statement.generation == self.generation
        {
            self.held.waiting = self.held.waiting.saturating_sub(cost);
        }
    }

    /// What nobody waits for, and a tick therefore states, if anything; `epoch` is the store's, if it is known. That is
    ///
    /// - a share that the present store does not know;
    /// - what was not answered; a use that grew beyond the share by a settlement or while the ledger was away; what an idle count holds: all
    ///   by a return, but not while an ask may be in flight, whose answer would be void;
    /// - an ask in advance, before what is held is used up: when it would not last for a term.
    ///
    /// In shadow mode it is what is held, and what was not answered: the gateway counts by itself.
    pub(crate) fn attend(
        &mut self,
        name: Hex128,
        epoch: Option<u32>,
        now: Timestamp,
        sharing: Sharing,
    ) -> Option<Stated> {
        let Held { share, reset, void_until, .. } = self.held;
        let (wish, unused) = (self.wish(now, sharing), share.saturating_sub(self.used));
        let is_lost = self.is_lost(epoch);
        if is_lost && unused > 0 {
            return Some(self.give_back(0, name, now));
        }
        if self.held.stated_at.until(now) < sharing.timeout.saturating_mul(2) {
            return None;
        }
        if without(Rule::ResetIsStated) && (reset > 0, void_until, self.used) == (true, 0, 0) {
            return None;
        }
        let is_unanswered = !self.held.is_answered() && !without(Rule::UnansweredIsRestated);
        let is_idle = self.is_idle(now, sharing) && !without(Rule::IdleReturns);
        let owes = self.used > share && !sharing.in_shadow && !without(Rule::DebtIsStated);
        let is_unknown = is_lost && !sharing.in_shadow;
        if is_unanswered || is_idle || owes || is_unknown {
            return Some(self.give_back(wish, name, now));
        }
        // One that may soon be idle asks no more: while an answer is awaited, it could not give back what it holds.
        let is_used = self.held.used_at.until(now) < sharing.term;
        (is_used && unused < used_in(self.held.rate, sharing.term).min(wish / ASKED_AT))
            .then(|| self.state(Says::Ask { need: 0, cost: 0, hold: wish }, name, now))
    }

    /// Whether it holds units that it does not need.
    fn is_idle(&self, now: Timestamp, sharing: Sharing) -> bool {
        self.held.share > self.used && (sharing.in_shadow || self.held.used_at.until(now) >= sharing.idle())
    }

    /// Units that are held in advance.
    fn wish(&self, now: Timestamp, sharing: Sharing) -> u32 {
        let is_unused = sharing.in_shadow || self.held.used_at.until(now) >= sharing.idle();
        if is_unused || self.window.is_long() && self.held.limit < LEAST_OF_A_DAY {
            return 0;
        }
        used_in(self.held.rate, sharing.ahead).min(self.held.limit / MOST_AHEAD)
    }

    fn give_back(&mut self, keep: u32, name: Hex128, now: Timestamp) -> Stated {
        // The share falls before the statement, after which the ledger may give the rest to others at once.
        if !without(Rule::ReturnLowersFirst) {
            self.held.share = self.held.share.min(self.used.saturating_add(keep));
        }
        self.held.waiting = 0;
        let stated = self.state(Says::Return { keep }, name, now);
        if !without(Rule::ReturnVoids) {
            self.held.void_until = self.held.seq.saturating_sub(1);
        }
        stated
    }

    fn state(&mut self, says: Says, counter: Hex128, now: Timestamp) -> Stated {
        let period = self.window.period(self.index);
        let Self { window, generation, used, held, .. } = self;
        held.seq = held.seq.saturating_add(1);
        held.stated_at = now.into();
        let statement = Statement {
            counter,
            window: period.index,
            begins: period.start,
            ends: period.end,
            limit: held.limit,
            generation: *generation,
            seq: held.seq,
            used: *used,
            reset: held.reset,
            says,
        };
        Stated { window: *window, statement, at: now }
    }

    /// Takes up the answer to `stated`. `epoch` is the store's, and `generation` that of a count that would begin now.
    pub(crate) fn answered(
        &mut self,
        stated: &Stated,
        answer: &Answer,
        (epoch, generation): (u32, u32),
        now: Timestamp,
        sharing: Sharing,
    ) {
        let statement = &stated.statement;
        if statement.generation != self.generation && !without(Rule::AnswerIsForAsker) {
            return;
        }
        let held = &mut self.held;
        let is_void = statement.seq <= held.void_until && !(held.is_answered() && without(Rule::AnswerVoids));
        match *answer {
            Answer::Share(answer) if !is_void => {
                held.void_until = held.void_until.max(statement.seq);
                let least = if without(Rule::AnswerSets) { held.share } else { 0 };
                (held.share, held.others, held.epoch) = (answer.share.max(least), answer.others, epoch);
                if let Says::Ask { cost, .. } = statement.says
                    && !answer.settling
                    && self.left(statement.limit) < cost
                {
                    let at = if without(Rule::AgeFromAsk) { now } else { stated.at };
                    self.held.told(at, sharing);
                }
            }
            Answer::Reset(reset) if reset > held.reset => {
                let held = Held { limit: held.limit, reset, ..Held::default() };
                *self = Self { generation, used: 0, held, ..*self };
            }
            Answer::Share(_) | Answer::Reset(_) | Answer::Refused(_) => {}
        }
    }

    /// What the answer to `stated` makes of the request that asked for `cost` units of `limit`. An answer that a stuck worker takes up too late
    /// does not refuse.
    pub(crate) fn verdict(
        &self,
        stated: &Stated,
        answer: &Answer,
        (cost, limit): (u32, u32),
        now: Timestamp,
        sharing: Sharing,
    ) -> Verdict {
        match answer {
            Answer::Share(answer) if answer.settling => Verdict::Undecided,
            Answer::Refused(_) => Verdict::Undecided,
            Answer::Share(answer)
                if stated.statement.generation == self.generation
                    && (Millis::from(stated.at).until(now) <= sharing.timeout
                        || without(Rule::AgeFromAsk))
                    && left(limit, answer.others, self.used) < cost =>
            {
                Verdict::Refused
            }
            Answer::Share(_) | Answer::Reset(_) => Verdict::Granted,
        }
    }
}

fn left(limit: u32, others: u32, used: u32) -> u32 {
    limit.saturating_sub(others).saturating_sub(used)
}

#[cfg(test)]
mod tests;
