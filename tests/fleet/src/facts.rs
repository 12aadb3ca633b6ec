//! What really happened, and what must not have.

use crate::Check;
use crate::store::Key;
use crate::world::{MILLI, TERM, Time, World};

/// Longer than this, units may not be free while somebody is refused.
const TWO_TERMS: Time = 2 * TERM as Time * MILLI;

/// What was used of a subject in a window under a reset number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fact {
    key: Key,
    reset: u64,
    used: i64,
    excepted: i64,
}

/// Something that must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What it violates.
    pub check: Check,
    /// The subject and the index of its window.
    pub key: (usize, u32),
    /// How.
    pub what: &'static str,
}

/// What is counted for those who size a fleet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) statements: usize,
    pub(crate) admitted: usize,
    /// Units of the window that had been used when the first request was refused.
    pub(crate) first_429: Option<u64>,
    /// Units that gateways held and had not used when requests ended.
    pub(crate) held: u64,
    /// What the store has at the end: counters in windows, and holders in all of them.
    pub(crate) counters: usize,
    pub(crate) holders: usize,
}

/// What really happened in a world.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) facts: Vec<Fact>,
    /// When fewer units were free than a request may cost.
    pub(crate) short: Vec<(Key, Time)>,
    /// The highest cost.
    pub(crate) most: u32,
    pub(crate) violations: Vec<Violation>,
    pub(crate) tally: Tally,
    /// What to take notes of.
    pub(crate) noted: Option<Key>,
    pub(crate) notes: Vec<String>,
}

impl Facts {
    /// Takes a note of a window, or of all, if notes are taken of it.
    pub(crate) fn note(&mut self, key: Option<Key>, note: impl FnOnce() -> String) {
        if self.noted.is_some_and(|noted| key.is_none_or(|key| key == noted)) {
            self.notes.push(note());
        }
    }

    pub(crate) fn violated(&mut self, check: Check, key: Key, what: &'static str) {
        self.violations.push(Violation { check, key, what });
        self.note(Some(key), || format!("--- {check:?}: {what}"));
    }

    pub(crate) fn used(&mut self, key: Key, reset: u64, used: i64, excepted: i64) {
        match self.facts.iter_mut().rev().find(|fact| fact.key == key && fact.reset == reset) {
            Some(fact) => {
                fact.used += used;
                fact.excepted += excepted;
            }
            None => self.facts.push(Fact { key, reset, used, excepted }),
        }
    }

    /// Units of a window that were used.
    pub(crate) fn units(&self, key: Key) -> u64 {
        let used = self.facts.iter().filter(|fact| fact.key == key).map(|fact| fact.used);
        used.sum::<i64>().unsigned_abs()
    }

    pub(crate) fn all(&self) -> Vec<(Key, u64, i64)> {
        self.facts.iter().map(|fact| (fact.key, fact.reset, fact.used)).collect()
    }

    /// Of the units of a window, `taken` are not free now.
    pub(crate) fn taken(&mut self, key: Key, now: Time, limit: u32, taken: u64) {
        if u64::from(limit) < taken + u64::from(self.most) {
            match self.short.iter_mut().rev().find(|(short, _)| *short == key) {
                Some((_, at)) => *at = now,
                None => self.short.push((key, now)),
            }
        }
    }

    /// A request was refused by the ledger's word.
    pub(crate) fn refused(&mut self, key: Key, reset: u64, now: Time, limit: u32, taken: u64) {
        self.taken(key, now, limit, taken);
        let short = self.short.iter().rev().find(|(short, _)| *short == key);
        let used = self.facts.iter().rev().find(|fact| fact.key == key && fact.reset == reset);
        let used = used.map_or(0, |fact| fact.used);
        let is_free = used + i64::from(self.most) <= i64::from(limit);
        if is_free && short.is_none_or(|(_, at)| now - at > TWO_TERMS) {
            self.violated(Check::Refused, key, "units were free");
        }
    }

    pub(crate) fn check_over(&mut self, world: &World) {
        for fact in std::mem::take(&mut self.facts) {
            if fact.used - fact.excepted > i64::from(world.limit(fact.key.0)) {
                let Fact { reset, used, excepted, .. } = fact;
                self.note(Some(fact.key), || format!("reset {reset}: used {used}, excepted {excepted}"));
                self.violated(Check::Over, fact.key, "the limit was exceeded");
            }
        }
    }
}
