//! The gateways: their clocks, workers and counts.

use arrayvec::ArrayVec;
use filter::count::holding::{Holding, Stated, Subject, Terms};
use filter::time::Timestamp;
use filter::window::Window;
use ledger_wire::{Answer, Hex128, Says};

use crate::rules::Rule;
use crate::world::{COUNTERS, Time, WORKERS};

/// The clock at the beginning, in milliseconds: away from every edge of a long window.
const START: u64 = 1_000_500_000;

/// A count, and what the simulation knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) index: u32,
    pub(crate) holding: Holding,
    /// When a request last touched it.
    pub(crate) touched: Time,
    /// The number of its last return.
    last_return: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worker {
    /// Goes up when the worker dies.
    pub(crate) life: u32,
    pub(crate) stuck_until: Time,
}

impl Count {
    /// The count begins anew.
    pub(crate) fn begin(&mut self, holding: Holding) {
        (self.holding, self.last_return) = (holding, 0);
    }
}

/// A gateway.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(crate) id: u32,
    /// How far its clock is from the true one, in milliseconds.
    pub(crate) clock: i64,
    pub(crate) counts: [Option<Count>; COUNTERS],
    pub(crate) limits: ArrayVec<u32, COUNTERS>,
    pub(crate) workers: ArrayVec<Worker, WORKERS>,
    /// The epoch that it saw last, and when it states again what is of another.
    pub(crate) epoch: u32,
    pub(crate) restates_at: Time,
    pub(crate) generations: u32,
}

/// An instant by the true clock, in milliseconds.
pub(crate) fn true_millis(now: Time, jumped: u64) -> u64 {
    START + jumped + now / 1_000
}

impl Gateway {
    pub(crate) fn new(id: u32, limits: ArrayVec<u32, COUNTERS>, workers: usize) -> Self {
        Self {
            id,
            clock: 0,
            counts: [const { None }; COUNTERS],
            limits,
            workers: (0..workers).map(|_| Worker::default()).collect(),
            epoch: 0,
            restates_at: 0,
            generations: 0,
        }
    }

    /// The gateway's clock when the true one shows `millis`.
    pub(crate) fn clock_at(&self, millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis.saturating_add_signed(self.clock) * 1_000_000)
    }

    /// The count of a counter, as 4.5 of the filter's guarantees has it: a window that is the next one stands, and the use of one further ahead
    /// moves.
    pub(crate) fn count(&mut self, counter: usize, window: Window, millis: u64, touched: Time) -> &mut Count {
        let current = window.index_at(self.clock_at(millis));
        let stored = self.counts[counter].as_ref();
        let moved = match stored {
            Some(count) if (current..=current + 1).contains(&count.index) => None,
            Some(count) if count.index > current => Some(count.holding.used),
            _ => Some(0),
        };
        if let Some(used) = moved {
            self.generations += 1;
            let holding = match stored {
                Some(count) if count.index < current => count.holding.next(self.generations),
                _ => Holding::begin(self.generations, used, 0),
            };
            self.counts[counter] = Some(Count { index: current, holding, touched, last_return: 0 });
        }
        match &mut self.counts[counter] {
            Some(count) => count,
            None => unreachable!("it has just begun"),
        }
    }

    /// The number of a generation that would begin now.
    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generations += 1;
        self.generations
    }
}

/// How the counts of a gateway take their steps, or would without a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) terms: Terms,
    pub(crate) without: Option<Rule>,
}

impl Steps {
    fn lacks(self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub(crate) fn subject(counter: usize, window: Window, index: u32, limit: u32) -> Subject {
        Subject { counter: Hex128(counter as u128), period: window.period(index), limit }
    }

    pub(crate) fn refuses(self, count: &Count, cost: u32, limit: u32, now: Timestamp) -> bool {
        let holding = &count.holding;
        if self.lacks(Rule::PausesEnd) {
            return holding.pauses > 0 && holding.left(limit) < cost;
        }
        holding.refuses(cost, limit, now, self.terms)
    }

    pub(crate) fn attend(
        self,
        count: &mut Count,
        subject: &Subject,
        epoch: Option<u32>,
        now: Timestamp,
    ) -> Option<Stated> {
        let holding = &mut count.holding;
        let before = *holding;
        let epoch = epoch.filter(|_| !self.lacks(Rule::EpochRestates));
        if self.lacks(Rule::UnansweredIsRestated) {
            holding.void_below = holding.void_below.max(holding.seq + 1);
        }
        let is_answered = holding.void_below > holding.seq;
        if is_answered && holding.used > holding.share && self.lacks(Rule::DebtIsStated)
            || is_answered && holding.used < holding.share && self.lacks(Rule::IdleReturns)
        {
            return None;
        }
        if self.lacks(Rule::ResetIsStated)
            && (holding.reset > 0, holding.void_below, holding.used) == (true, 1, 0)
        {
            return None;
        }
        let stated = holding.attend(subject, epoch, now, self.terms)?;
        self.returned(count, &before, stated);
        Some(stated)
    }

    /// Looks at what others hold.
    pub(crate) fn look(self, count: &mut Count, subject: &Subject, now: Timestamp) -> Stated {
        let before = count.holding;
        if self.lacks(Rule::LookReturns) {
            return count.holding.ask(0, subject, now, self.terms);
        }
        let stated = count.holding.look(subject, now, self.terms);
        self.returned(count, &before, stated);
        stated
    }

    /// A count has stated something, perhaps a return.
    fn returned(self, count: &mut Count, before: &Holding, stated: Stated) {
        let holding = &mut count.holding;
        if let Says::Return { .. } = stated.statement.says {
            count.last_return = stated.statement.seq;
            if self.lacks(Rule::ReturnLowersFirst) {
                holding.share = before.share;
            }
            if self.lacks(Rule::ReturnVoids) {
                holding.void_below = before.void_below;
            }
        }
    }

    pub(crate) fn answered(
        self,
        count: &mut Count,
        stated: &Stated,
        answer: &Answer,
        (epoch, generation): (u32, u32),
        now: Timestamp,
    ) {
        let holding = &mut count.holding;
        let (before, mut stated) = (*holding, self.aged(stated, now));
        if self.lacks(Rule::AnswerIsForAsker) {
            stated.statement.generation = holding.generation;
        }
        if self.lacks(Rule::AnswerVoids) && stated.statement.seq >= count.last_return {
            holding.void_below = holding.void_below.min(stated.statement.seq);
        }
        holding.answered(&stated, answer, epoch, generation, self.terms);
        if holding.generation == before.generation {
            holding.void_below = holding.void_below.max(before.void_below);
            if self.lacks(Rule::AnswerSets) {
                holding.share = holding.share.max(before.share);
            }
        } else {
            count.last_return = 0;
        }
    }

    pub(crate) fn is_refused(
        self,
        count: &Count,
        stated: &Stated,
        answer: &Answer,
        limit: u32,
        now: Timestamp,
    ) -> bool {
        count.holding.is_refused(&self.aged(stated, now), answer, limit, now, self.terms)
    }

    fn aged(self, stated: &Stated, now: Timestamp) -> Stated {
        let at = if self.lacks(Rule::AgeFromAsk) { now } else { stated.at };
        Stated { at, ..*stated }
    }
}
