//! What a request is charged to: the counter of its caller, and the one that the caller's organisation shares.
//!
//! The caller's quotas are charged first, and then the organisation's. If those do not admit the request, the caller's charge is given back
//! to the counts that hold it. So no quota is ever exceeded, and a caller whose own quotas are used up takes nothing from its organisation.
//! Until the charge is given back, a concurrent request of the same caller may be refused. A VM that dies in between leaves the caller's
//! charge until its window ends.

use std::sync::Arc;

use ledger_wire::Answer;

use super::charge::{Admission, By, Charge, Lack, Shared, SharedName, Standings, Statements, Until};
use super::counters::{Counted, Counters};
use super::entry::Record;
use super::holding::Sharing;
use super::settle::{Due, Settlement};
use super::swap::{CountError, CounterHost};
use super::table::Counter;
use crate::quota::{Quota, QuotaSet};
use crate::time::Timestamp;

/// The counters that a request is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The caller's.
    pub own: Counter,
    /// What not every caller has.
    pub others: Option<Arc<Others>>,
}

/// The counters of a caller beyond its own, and what a fleet needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Others {
    /// The one that the caller's organisation shares.
    pub organisation: Option<Counter>,
    /// In a fleet, the names of both counters.
    pub names: Option<[SharedName; 2]>,
}

/// A counter, its name in the fleet, and those of the class's quotas that are counted there.
type Level<'q> = (Counter, Option<SharedName>, &'q [Quota]);

impl Levels {
    fn organisation(&self) -> Option<Counter> {
        self.others.as_ref()?.organisation
    }

    /// Whether the gateways of a fleet share them.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        self.others.as_ref().is_some_and(|others| others.names.is_some())
    }

    /// All counters.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        [Some(self.own), self.organisation()].into_iter().flatten()
    }

    /// The quotas of each record that a request is charged to.
    #[inline]
    fn with<'q>(&self, quotas: &'q QuotaSet) -> [Option<Level<'q>>; 2] {
        let names = self.others.as_ref().and_then(|others| others.names);
        let name = |level: usize| names.and_then(|names| names.get(level).copied());
        let own = Some((self.own, name(0), quotas.own()));
        let shared = self.organisation().map(|counter| (counter, name(1), quotas.shared()));
        [own, shared].map(|part| part.filter(|(.., quotas)| !quotas.is_empty()))
    }
}

/// What a request needs of its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The quotas of the class.
    pub quotas: Arc<QuotaSet>,
    /// Where they are counted.
    pub levels: Levels,
    /// Units of each; at least 1.
    pub cost: u32,
}

/// What was stated about one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The counter.
    pub counter: Counter,
    /// The statements.
    pub statements: Statements,
}

/// How a request is charged in a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// How quotas are shared.
    pub sharing: &'a Sharing,
    /// What becomes of the request if a share is too small.
    pub lack: Lack,
    /// Since when it waits, and what it has stated; `None` if it has just come.
    pub waited: Option<(Timestamp, &'a [Asked])>,
    /// The answers, in the order of the statements, and the store's epoch; `None` if there are none.
    pub answers: Option<(&'a [Answer], u32)>,
}

impl Turn<'_> {
    /// The turn at one counter.
    fn at(&self, counter: Counter, name: SharedName, until: Until) -> Shared<'_> {
        let Self { sharing, lack, waited, answers } = *self;
        let (mut before, mut of_counter) = (0, None);
        for asked in waited.map_or(&[][..], |(_, asked)| asked) {
            if asked.counter == counter {
                of_counter = Some((before, asked.statements.as_slice()));
            }
            before += asked.statements.len();
        }
        let (first, stated) = of_counter.unwrap_or_default();
        let answers = answers
            .map(|(answers, epoch)| (answers.get(first..first + stated.len()).unwrap_or_default(), epoch));
        Shared { name, sharing, waited: waited.map(|(since, _)| (since, stated)), answers, lack, until }
    }
}

/// What became of a request at its counters.
#[derive(Debug)]
pub struct Outcome {
    /// What became of it.
    pub counted: Counted,
    /// What it has asked of the ledger.
    pub asked: Vec<Asked>,
}

impl Counters {
    /// Charges a request to all its quotas, or to none. `standings` receives where the client stands afterwards.
    ///
    /// # Errors
    /// If the request was not counted.
    #[cold]
    pub fn charge_levels(
        &mut self,
        host: &mut impl CounterHost,
        demand: &Demand,
        turn: Option<Turn<'_>>,
        standings: &mut Standings,
    ) -> Result<Outcome, CountError> {
        let levels = demand.levels.with(&demand.quotas);
        let (first, second) = match levels {
            [Some(own), shared] => (own, shared),
            [None, Some(shared)] => (shared, None),
            // A class has a quota.
            [None, None] => ((demand.levels.own, None, &[][..]), None),
        };
        let mut asked = Vec::new();
        let counted =
            self.charge_level(host, first, demand.cost, (turn, Until::Charged), standings, &mut asked)?;
        let Some(second) = second else { return Ok(Outcome { counted, asked }) };
        let mut of_second = Standings::new();
        if !counted.is_admitted() {
            let until = match counted.admission {
                Admission::Lacking => Until::Asked,
                _ => Until::TakenUp,
            };
            let takes_up = turn.is_some_and(|turn| turn.waited.is_some() || until == Until::Asked);
            if takes_up {
                self.charge_level(host, second, demand.cost, (turn, until), &mut of_second, &mut asked)?;
            }
            return Ok(Outcome { counted, asked });
        }
        let own = counted;
        let counted =
            self.charge_level(host, second, demand.cost, (turn, Until::Charged), &mut of_second, &mut asked);
        if !matches!(counted, Ok(Counted { admission: Admission::Admitted, .. })) {
            let asks_again = matches!(counted, Ok(Counted { admission: Admission::Lacking, .. }))
                && turn.is_some_and(|turn| turn.waited.is_some());
            self.give_back(host, first, demand.cost, standings);
            if let (true, Some(turn)) = (asks_again, turn) {
                // It has taken up the answers already, and now asks for what others may take meanwhile.
                let again = Turn { waited: turn.waited.map(|(since, _)| (since, &[][..])), ..turn };
                let mut ignored = Standings::new();
                self.charge_level(
                    host,
                    first,
                    demand.cost,
                    (Some(again), Until::Asked),
                    &mut ignored,
                    &mut asked,
                )?;
            }
        }
        let counted = counted?;
        standings.extend(of_second);
        let by = match (own.by, counted.by) {
            (By::Beyond, _) => By::Beyond,
            (_, by) => by,
        };
        Ok(Outcome { counted: Counted { by, ..counted }, asked })
    }

    fn charge_level(
        &mut self,
        host: &mut impl CounterHost,
        (counter, name, quotas): Level<'_>,
        cost: u32,
        (turn, until): (Option<Turn<'_>>, Until),
        standings: &mut Standings,
        asked: &mut Vec<Asked>,
    ) -> Result<Counted, CountError> {
        let shared = turn.as_ref().zip(name).map(|(turn, name)| turn.at(counter, name, until));
        let mut statements = Statements::new();
        let charge = Charge { quotas, cost, shared };
        let counted = self.charge(host, &counter, charge, standings, &mut statements)?;
        if !statements.is_empty() {
            asked.push(Asked { counter, statements });
        }
        Ok(counted)
    }

    /// Gives a charge back that was made. `standings` is where the counter stood then, and becomes where it stands afterwards.
    fn give_back(
        &mut self,
        host: &mut impl CounterHost,
        (counter, _, quotas): Level<'_>,
        cost: u32,
        standings: &mut Standings,
    ) {
        let charge = Charge { quotas, cost, shared: None };
        let charged = core::mem::take(standings);
        let settlement = Settlement { charge, charged: &charged, due: Due::Units(0), ends: true };
        match self.settle(host, &counter, &settlement, standings) {
            Ok(_) => self.noted.given_back = self.noted.given_back.saturating_add(1),
            Err(error) => {
                *standings = charged;
                self.noted.not_given_back.get_or_insert((0, error)).0 += 1;
            }
        }
    }

    /// Settles a charge of one counter. `standings` becomes where it stands afterwards. Returns the instant.
    ///
    /// # Errors
    /// If it is not settled. The charge then stands.
    pub fn settle(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        settlement: &Settlement<'_>,
        standings: &mut Standings,
    ) -> Result<Timestamp, CountError> {
        let step = |record: &mut Record| settlement.apply(record, counter.in_fleet, standings);
        Ok(self.take(host, counter, settlement.charge.quotas, step)?.at)
    }

    /// Settles a charge: it becomes what was `due`, and if the request `ends`, it is in flight no longer. `standings` is where the client stood after the charge, and becomes where it stands
    /// afterwards. Returns the instant, if anything was settled.
    ///
    /// # Errors
    /// The first of what was not settled, where the charge stands.
    pub fn settle_levels(
        &mut self,
        host: &mut impl CounterHost,
        demand: &Demand,
        (due, ends): (Due, bool),
        standings: &mut Standings,
    ) -> Result<Option<Timestamp>, CountError> {
        let before = core::mem::take(standings);
        let (mut before, mut at, mut failed) = (before.as_slice(), None, None);
        for (counter, _, quotas) in demand.levels.with(&demand.quotas).into_iter().flatten() {
            let (charged, others) = before.split_at_checked(quotas.len()).unwrap_or_default();
            before = others;
            let charge = Charge { quotas, cost: demand.cost, shared: None };
            let mut after = Standings::new();
            match self.settle(host, &counter, &Settlement { charge, charged, due, ends }, &mut after) {
                Ok(settled) => {
                    at = Some(settled);
                    standings.extend(after);
                }
                Err(error) => {
                    failed = Some(error);
                    standings.extend(charged.iter().copied());
                }
            }
        }
        failed.map_or(Ok(at), Err)
    }
}
