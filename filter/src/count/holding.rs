//! What a gateway holds of one counter in one window.
//!
//! Each function takes one step on the record, which the caller stores in the compare-and-swap in which it read it. Requests, workers and
//! messages may therefore come in any order, be late, be lost, or come twice.
//!
//! What keeps the sum of all use within the limit is that the ledger never believes a gateway to hold less than it does: the record's share
//! is at most the holder's. It rises only by an answer, and falls before the statement to the ledger. An answer that was given before is void
//! ([`Holding::void_below`]), and an answer is for the count that asked, which its generation tells.

use ledger_wire::{Answer, Hex128, Says, Statement};

use super::pace::{Millis, rate, used_in};
use crate::time::Timestamp;
use crate::window::{DAY, Period};

/// How a fleet is timed, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a request waits for the ledger.
    pub timeout: u32,
    /// What a count holds and does not use is available to others after twice this time at the latest. It is also the longest time between two asks of a count that has nothing left.
    /// Not less than `timeout`.
    pub term: u32,
    /// How much use is held in advance; 0 for none.
    pub ahead: u32,
}

impl Terms {
    /// How long a count is unused before it gives back what it holds: half a term is left for a tick and a call.
    fn idle(self) -> u32 {
        self.term.saturating_add(self.term / 2)
    }
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

/// What statements of a count are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The counter, by a hash that is the same at every gateway.
    pub counter: Hex128,
    /// The count's window.
    pub period: Period,
    /// The quota's limit, as this gateway has it now.
    pub limit: u32,
}

/// A statement, kept until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// What is sent.
    pub statement: Statement,
    /// When it was made.
    pub at: Timestamp,
}

/// What a gateway holds of one counter in one window. No field can be derived from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Tells this count from others of the same counter, which are other holders to the ledger: a late answer to one of them is not for this
    /// one. A count that begins again, for whatever reason, takes a number that the counter has not had in this process.
    pub generation: u32,
    /// Units used.
    pub used: u32,
    /// Units that may be used, in all.
    pub share: u32,
    /// The number of the newest statement. The ledger ignores statements that were overtaken by their numbers.
    pub seq: u32,
    /// Answers to statements below this number are void: they tell an earlier state than an answer that was applied, or than a return,
    /// after which the ledger may give to others what they tell. While it is not above `seq`, the newest statement has no answer.
    pub void_below: u32,
    /// The reset number that the count began under. The ledger tells a later one.
    pub reset: u64,
    /// The store's epoch, in part, that the share was answered in. A share of another epoch is unknown to the store.
    pub epoch: u32,
    /// Units that others held at the last answer. With `used`, it tells what is left to this gateway, for replies and refusals.
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

/// Bytes of a stored holding.
pub const BYTES: usize = 4 * WORDS;
const WORDS: usize = 14;

impl Holding {
    /// What [`Holding::decode`] reads. `generation` and `used` stand in the count.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let words: [u32; WORDS] = [
            self.share,
            self.seq,
            self.void_below,
            self.reset as u32,
            (self.reset >> 32) as u32,
            self.epoch,
            self.others,
            self.waiting,
            self.beyond,
            self.stated_at.0,
            self.told_at.0,
            self.pauses.into(),
            self.used_at.0,
            self.rate,
        ];
        let mut bytes = [0; BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// What was stored of a count with this `generation` and use.
    #[must_use]
    pub fn decode(bytes: &[u8; BYTES], generation: u32, used: u32) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let [
            share,
            seq,
            void_below,
            low,
            high,
            epoch,
            others,
            waiting,
            beyond,
            stated,
            told,
            pauses,
            used_at,
            rate,
        ] = words;
        Self {
            generation,
            used,
            share,
            seq,
            void_below,
            reset: u64::from(low) | u64::from(high) << 32,
            epoch,
            others,
            waiting,
            beyond,
            stated_at: Millis(stated),
            told_at: Millis(told),
            pauses: u8::try_from(pauses).unwrap_or(0),
            used_at: Millis(used_at),
            rate,
        }
    }

    /// A count that begins: `used` is what a window too far ahead had used, and `reset` the reset number if it is known.
    #[must_use]
    pub fn begin(generation: u32, used: u32, reset: u64) -> Self {
        Self {
            generation,
            used,
            share: 0,
            seq: 0,
            void_below: 1,
            reset,
            epoch: 0,
            others: 0,
            waiting: 0,
            beyond: 0,
            stated_at: Millis(0),
            told_at: Millis(0),
            pauses: 0,
            used_at: Millis(0),
            rate: 0,
        }
    }

    /// The count of the next window, which is used at the pace of this one.
    #[must_use]
    pub fn next(&self, generation: u32) -> Self {
        Self { rate: self.rate, used_at: self.used_at, ..Self::begin(generation, 0, 0) }
    }

    /// Whether the share, of which a gateway never uses more than its own limit, is too small for `cost` more units: those of a request that has
    /// asked for them and waited.
    #[must_use]
    pub fn lacks(&self, cost: u32, limit: u32) -> bool {
        u64::from(self.used) + u64::from(cost) > u64::from(self.share.min(limit))
    }

    /// The same of a request that has not asked for them. It does not take what others wait for: they would have to ask again.
    #[must_use]
    pub fn lacks_at_first(&self, cost: u32, limit: u32) -> bool {
        self.lacks(cost.saturating_add(self.waiting), limit)
    }

    /// Whether the ledger has answered the newest statement, and the share is what was used.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.void_below > self.seq && self.used == self.share
    }

    /// Units that are left to this gateway, those it holds included.
    #[must_use]
    pub fn left(&self, limit: u32) -> u32 {
        left(limit, self.others, self.used)
    }

    /// Uses `cost` units. Whether they are there was asked before.
    pub fn charge(&mut self, cost: u32, now: Timestamp) {
        self.rate = rate(self.rate, self.used_at.until(now), cost);
        self.used_at = now.into();
        self.used = self.used.saturating_add(cost);
    }

    /// Whether `cost` units, which the share lacks, may be used while the ledger is away: out of `allowance` units for the whole window, but one
    /// request at least, and never beyond the limit.
    #[must_use]
    pub fn may_go_beyond(&self, cost: u32, limit: u32, allowance: u32) -> bool {
        let beyond = self.beyond.saturating_add(self.missing(cost));
        self.used.saturating_add(cost) <= limit && (self.beyond == 0 || beyond <= allowance)
    }

    /// Uses `cost` units, whether they are there or not.
    pub fn charge_beyond(&mut self, cost: u32, now: Timestamp) {
        self.beyond = self.beyond.saturating_add(self.missing(cost));
        self.charge(cost, now);
    }

    /// Units of `cost` that the share lacks.
    #[must_use]
    pub fn missing(&self, cost: u32) -> u32 {
        cost.saturating_sub(self.share.saturating_sub(self.used))
    }

    /// Whether a request for `cost` units, which the share lacks, is refused without an ask: the ledger has lately said that less is left. After a
    /// pause, one request asks, and the others are refused until it is answered.
    ///
    /// A refusal never rests on what is older than the longest pause and a `timeout`, whatever becomes of those who ask.
    #[must_use]
    pub fn refuses(&self, cost: u32, limit: u32, now: Timestamp, terms: Terms) -> bool {
        let age = self.told_at.until(now);
        let pause = self.pause(terms);
        let is_asked = age < pause.saturating_add(terms.timeout) && self.stated_at.until(now) < terms.timeout;
        self.pauses > 0 && self.left(limit) < cost && (age < pause || is_asked)
    }

    fn pause(&self, terms: Terms) -> u32 {
        terms.term >> PAUSES.saturating_sub(self.pauses)
    }

    /// An ask of a request that lacks some of `cost` units and waits for them.
    pub fn ask(&mut self, cost: u32, subject: &Subject, now: Timestamp, terms: Terms) -> Stated {
        let is_answered = self.void_below > self.seq;
        if is_answered && self.stated_at.until(now) > terms.timeout {
            // Nobody has waited that long: those who are counted have died.
            self.waiting = 0;
        }
        self.waiting = self.waiting.saturating_add(cost);
        let hold = self.waiting.saturating_add(self.wish(subject, now, terms));
        self.state(Says::Ask { need: self.waiting, cost, hold }, subject, now)
    }

    /// Whether what the ledger said last is younger than the shortest pause. Who only looks need not ask again.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp, terms: Terms) -> bool {
        self.seq > 0 && self.void_below > self.seq && self.stated_at.until(now) < terms.term >> (PAUSES - 1)
    }

    /// A statement for one who needs nothing: its answer tells what others hold. An idle count gives back what it holds, which a tick would have
    /// done, but for this statement, after which it waits.
    pub fn look(&mut self, subject: &Subject, now: Timestamp, terms: Terms) -> Stated {
        match self.void_below > self.seq && self.is_idle(now, terms) {
            true => self.give_back(0, subject, now),
            false => self.ask(0, subject, now, terms),
        }
    }

    /// The count that an operator resets, which begins anew with nothing used. Its reset number is higher than those that it knows, whatever the
    /// clock says. A tick states it until the ledger has answered, as any statement. `generation` is that of a count that begins now.
    #[must_use]
    pub fn reset(&self, generation: u32, now: Timestamp) -> Self {
        Self::begin(generation, 0, now.millis().max(self.reset.saturating_add(1)))
    }

    /// The request that made the ask `stated` waits for its answer no longer.
    pub fn leave(&mut self, stated: &Stated) {
        let statement = &stated.statement;
        if let Says::Ask { cost, .. } = statement.says
            && statement.generation == self.generation
        {
            self.waiting = self.waiting.saturating_sub(cost);
        }
    }

    /// What nobody waits for, and a tick therefore states, if anything; `epoch` is the store's, if it is known. That is
    ///
    /// - a share that the present store does not know;
    /// - what was not answered; a use that grew beyond the share by a settlement or while the ledger was away; what an idle count holds: all
    ///   by a return, but not while an ask may be in flight, whose answer would be void;
    /// - an ask in advance, before what is held is used up: when it would not last for a term.
    pub fn attend(
        &mut self,
        subject: &Subject,
        epoch: Option<u32>,
        now: Timestamp,
        terms: Terms,
    ) -> Option<Stated> {
        let (wish, held) = (self.wish(subject, now, terms), self.share.saturating_sub(self.used));
        let is_lost = self.seq > 0 && epoch.is_some_and(|epoch| epoch != self.epoch);
        if is_lost && held > 0 {
            return Some(self.give_back(0, subject, now));
        }
        if self.stated_at.until(now) < terms.timeout.saturating_mul(2) {
            return None;
        }
        if is_lost || self.is_idle(now, terms) || self.void_below <= self.seq || self.used > self.share {
            return Some(self.give_back(wish, subject, now));
        }
        // One that may soon be idle asks no more: while an answer is awaited, it could not give back what it holds.
        let is_used = self.used_at.until(now) < terms.term;
        (is_used && held < used_in(self.rate, terms.term).min(wish / ASKED_AT))
            .then(|| self.state(Says::Ask { need: 0, cost: 0, hold: wish }, subject, now))
    }

    /// Whether it holds units and has not used any for a while.
    fn is_idle(&self, now: Timestamp, terms: Terms) -> bool {
        self.share > self.used && self.used_at.until(now) >= terms.idle()
    }

    /// Units that are held in advance.
    fn wish(&self, subject: &Subject, now: Timestamp, terms: Terms) -> u32 {
        let is_long = subject.period.end - subject.period.start >= u64::from(DAY);
        if self.used_at.until(now) >= terms.idle() || is_long && subject.limit < LEAST_OF_A_DAY {
            return 0;
        }
        used_in(self.rate, terms.ahead).min(subject.limit / MOST_AHEAD)
    }

    fn give_back(&mut self, keep: u32, subject: &Subject, now: Timestamp) -> Stated {
        // The share falls before the statement, after which the ledger may give the rest to others at once.
        self.share = self.share.min(self.used.saturating_add(keep));
        self.waiting = 0;
        let stated = self.state(Says::Return { keep }, subject, now);
        self.void_below = self.seq;
        stated
    }

    fn state(&mut self, says: Says, subject: &Subject, now: Timestamp) -> Stated {
        self.seq = self.seq.saturating_add(1);
        self.stated_at = now.into();
        let Self { generation, seq, used, reset, .. } = *self;
        let Subject { counter, period: Period { index: window, start: begins, end: ends }, limit } = *subject;
        let statement =
            Statement { counter, window, begins, ends, limit, generation, seq, used, reset, says };
        Stated { statement, at: now }
    }

    /// Takes up the answer to `stated`. `epoch` is the store's, and `generation` that of a count that would begin now.
    pub fn answered(&mut self, stated: &Stated, answer: &Answer, epoch: u32, generation: u32, terms: Terms) {
        let Stated { statement, at } = stated;
        if statement.generation != self.generation {
            return;
        }
        match *answer {
            Answer::Share(answer) if statement.seq >= self.void_below => {
                self.void_below = statement.seq.saturating_add(1);
                (self.share, self.others, self.epoch) = (answer.share, answer.others, epoch);
                if let Says::Ask { cost, .. } = statement.says
                    && !answer.settling
                    && self.left(statement.limit) < cost
                {
                    self.told(*at, terms);
                }
            }
            Answer::Reset(reset) if reset > self.reset => *self = Self::begin(generation, 0, reset),
            Answer::Share(_) | Answer::Reset(_) | Answer::Refused(_) => {}
        }
    }

    /// Whether the answer to `stated` refuses the request that asked and still lacks units of the limit. An answer that a stuck worker takes up
    /// too late does not.
    #[must_use]
    pub fn is_refused(
        &self,
        stated: &Stated,
        answer: &Answer,
        limit: u32,
        now: Timestamp,
        terms: Terms,
    ) -> bool {
        let Stated { statement, at } = stated;
        match (statement.says, answer) {
            (Says::Ask { cost, .. }, Answer::Share(answer)) => {
                statement.generation == self.generation
                    && !answer.settling
                    && Millis::from(*at).until(now) <= terms.timeout
                    && left(limit, answer.others, self.used) < cost
            }
            _ => false,
        }
    }

    /// An ask that was made `at` an instant was told that too little is left. Of asks that were made within a pause, only the first lengthens it.
    fn told(&mut self, at: Timestamp, terms: Terms) {
        let since = self.told_at.until(at);
        if self.pauses == 0 || since >= terms.term.saturating_mul(2) {
            self.pauses = 1;
        } else if since >= self.pause(terms) {
            self.pauses = PAUSES.min(self.pauses + 1);
        }
        self.told_at = at.into();
    }
}

fn left(limit: u32, others: u32, used: u32) -> u32 {
    limit.saturating_sub(others).saturating_sub(used)
}

#[cfg(test)]
mod tests;
