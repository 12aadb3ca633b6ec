//! The store of the ledgers and what the simulation knows of it.

use ledger::share::{Counter, Holder, SETTLING, Stated, Terms, is_timely, state};
use ledger_wire::{Answer, Hex128, ItemError, Says, Statement};

use crate::Rule;

/// How long a store keeps a window that has ended, in seconds.
const KEPT: u64 = 180;

/// A gateway and the generation of its count.
pub(crate) type HolderName = (Hex128, u32);
/// A subject and the index of a window.
pub(crate) type Key = (usize, u32);

#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) key: Key,
    ends: u64,
    pub(crate) counter: Counter,
    pub(crate) holders: Vec<(HolderName, Holder)>,
}

impl Window {
    fn holder(&self, name: HolderName) -> Holder {
        self.holders
            .iter()
            .find(|(holder, _)| *holder == name)
            .map_or_else(Holder::default, |(_, holder)| *holder)
    }

    fn put(&mut self, name: HolderName, holder: Holder) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == name) {
            Some((_, stored)) => *stored = holder,
            None => self.holders.push((name, holder)),
        }
    }
}

/// The store, and when each of two replicas saw its epoch begin.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) windows: Vec<Window>,
    pub(crate) epoch: u32,
    seen: [(u32, u64); 2],
}

impl Default for Store {
    fn default() -> Self {
        // A gateway knows no epoch by the number 0.
        Self { windows: Vec::new(), epoch: 1, seen: [(1, 0); 2] }
    }
}

impl Store {
    pub(crate) fn window(&self, key: Key) -> Option<&Window> {
        self.windows.iter().rev().find(|window| window.key == key)
    }

    /// The sum of the shares of a window.
    pub(crate) fn shares(&self, key: Key) -> u64 {
        self.window(key).map_or(0, |window| window.counter.shares)
    }

    /// The share of a holder.
    pub(crate) fn share(&self, key: Key, name: HolderName) -> u32 {
        self.window(key).map_or(0, |window| window.holder(name).share)
    }

    /// Takes a statement at a replica, at `now` by the ledger's clock in milliseconds.
    pub(crate) fn state(
        &mut self,
        (replica, now): (usize, u64),
        key: Key,
        name: HolderName,
        statement: &Statement,
        gateways: u32,
        without: Option<Rule>,
    ) -> Answer {
        let seen = &mut self.seen[replica];
        if seen.0 != self.epoch {
            *seen = (self.epoch, now);
        }
        let began = seen.1;
        if without != Some(Rule::Timely) && !is_timely(statement, now) {
            return Answer::Refused(ItemError {
                code: ItemError::CLOCK.into(),
                field: None,
                message: String::new(),
            });
        }
        let at = match self.windows.iter().rposition(|window| window.key == key) {
            Some(at) => at,
            None => {
                let ends = statement.ends;
                self.windows.push(Window { key, ends, counter: Counter::default(), holders: Vec::new() });
                self.windows.len() - 1
            }
        };
        let window = &mut self.windows[at];
        let name = if without == Some(Rule::AnotherHolder) { (name.0, 0) } else { name };
        let settling = without != Some(Rule::Settling) && now < began + SETTLING;
        let terms = Terms { settling, gateways };
        let (before, holder) = (window.counter, window.holder(name));
        let Stated { counter, holder, answer } = take(before, holder, statement, terms, without);
        if counter.reset != before.reset {
            window.holders.clear();
        }
        window.counter = counter;
        window.put(name, holder);
        answer
    }

    /// Forgets what ended long before `now`, in milliseconds.
    pub(crate) fn expire(&mut self, now: u64) {
        self.windows.retain(|window| (window.ends + KEPT) * 1_000 > now);
    }
}

/// What the ledger makes of a statement, or would without a rule.
fn take(
    mut counter: Counter,
    mut holder: Holder,
    statement: &Statement,
    terms: Terms,
    without: Option<Rule>,
) -> Stated {
    let mut statement = *statement;
    match without {
        Some(Rule::AskNeverLowers) => {
            if let Says::Ask { hold, .. } = statement.says
                && statement.seq > holder.seq
                && statement.reset == counter.reset
            {
                let lowered = holder.share.min(statement.used + hold).max(statement.used);
                counter.shares = counter.shares - u64::from(holder.share) + u64::from(lowered);
                holder.share = lowered;
            }
        }
        Some(Rule::OlderIsIgnored) => {
            let newest = holder.seq;
            holder.seq = holder.seq.min(statement.seq - 1);
            let mut stated = state(counter, holder, &statement, terms);
            stated.holder.seq = stated.holder.seq.max(newest);
            return stated;
        }
        Some(Rule::ResetStands) => statement.reset = statement.reset.max(counter.reset),
        _ => {}
    }
    state(counter, holder, &statement, terms)
}
