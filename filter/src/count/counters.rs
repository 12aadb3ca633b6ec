//! The counters of a namespace: what may be done to them, each in one compare-and-swap.

use super::charge::{Admission, By, Charge, SharedName, Standing, Standings, Statements, add_others, state};
use super::entry::{self, Record};
use super::fingerprint::{Salt, Who};
use super::holding::Sharing;
use super::shared_data::{HostError, SharedData};
use super::swap::{CountError, CounterHost, Step, SwapLoop, Taken};
use super::table::{Capacity, Counter, OpenError, Table, Tables};
use crate::quota::Quota;
use crate::time::Timestamp;

/// The result of counting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What becomes of the request.
    pub admission: Admission,
    /// What has decided it.
    pub by: By,
    /// The instant of the decision.
    pub at: Timestamp,
    /// Whether the overflow record of a full strangers' entry was used.
    pub overflowed: bool,
}

impl Counted {
    /// Whether the request was admitted.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admission == Admission::Admitted
    }
}

/// The counters of a namespace, as one VM reaches them.
#[derive(Debug)]
pub struct Counters {
    tables: Tables,
    /// Whether the gateways of a fleet share the counters of known keys.
    in_fleet: bool,
    swap: SwapLoop,
    /// What has happened since it was taken.
    pub(super) noted: Noted,
}

/// What happened to counters, apart from the results of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Malformed entries that were begun again.
    pub repairs: u32,
    /// Live counts of windows that no quota had any more, whose places in a full record others have taken.
    pub dropped: u32,
    /// Callers that got back what their organisation did not admit.
    pub given_back: u32,
    /// Callers that did not, and why the last one did not.
    pub not_given_back: Option<(u32, CountError)>,
}

impl Counters {
    /// Opens the tables in the host's shared data. `salt` is used if this VM is the first to open them.
    ///
    /// # Errors
    /// If a host call fails or the tables' header is not ours.
    pub fn open(
        host: &mut impl SharedData,
        salt: [u8; 16],
        namespace: &str,
        wanted: Capacity,
    ) -> Result<Self, OpenError> {
        let tables = Tables::open(host, salt, namespace, wanted)?;
        let swap = SwapLoop::new(tables.capacity());
        Ok(Self { tables, in_fleet: false, swap, noted: Noted::default() })
    }

    /// The same, where the gateways of a fleet share the counters of known keys.
    #[must_use]
    pub fn in_fleet(self, in_fleet: bool) -> Self {
        Self { in_fleet, ..self }
    }

    /// The capacity in force: the first VM's.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.tables.capacity()
    }

    /// The process's salt.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        self.tables.salt()
    }

    /// The counter of `who` in the class of this name. Strangers have a table of their own.
    #[must_use]
    pub fn counter(&self, who: Who<'_>, class: &str) -> Counter {
        let table = match who {
            Who::Key(_) | Who::Subscriber(_) | Who::Organisation(_) => Table::Known,
            Who::Address(_) => Table::Strangers,
        };
        let fingerprint = self.tables.salt().fingerprint(who, class);
        let in_fleet = self.in_fleet && table == Table::Known;
        Counter { table, fingerprint, entry: self.tables.entry(table, fingerprint), in_fleet }
    }

    /// Takes what has happened since the last time.
    pub fn take_noted(&mut self) -> Noted {
        let repairs = core::mem::take(&mut self.swap.repairs);
        let dropped = core::mem::take(&mut self.swap.dropped);
        Noted { repairs, dropped, ..core::mem::take(&mut self.noted) }
    }

    /// Charges a request to all its quotas, or to none. `standings` receives one for each quota, and `stated` what it has asked of the ledger.
    ///
    /// # Errors
    /// If the request was not counted.
    pub fn charge(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        charge: Charge<'_>,
        standings: &mut Standings,
        stated: &mut Statements,
    ) -> Result<Counted, CountError> {
        let Taken { result: (admission, by), at, overflowed } = match charge.shared {
            None => {
                let Charge { quotas, cost, .. } = charge;
                let step = |record: &mut Record| {
                    Charge { quotas, cost, shared: None }.apply(record, standings, stated)
                };
                self.swap.take(host, counter, quotas, step)?
            }
            Some(_) => {
                self.take(host, counter, charge.quotas, |record| charge.apply(record, standings, stated))?
            }
        };
        Ok(Counted { admission, by, at, overflowed })
    }

    /// Resets the quotas of a counter, whose window is the same: their count begins again with nothing used. Returns the units that were used
    /// and, where a fleet shares the counter under a name, those that others hold included; and what is to be stated then.
    ///
    /// A reset keeps the window and changes the count's generation, so it takes the charges of requests that are in flight out of the count:
    /// none of them is settled or given back a second time.
    ///
    /// # Errors
    /// If it could not be stored. Nothing is reset then.
    pub fn reset(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        quotas: &[Quota],
        shared: Option<(SharedName, &Sharing)>,
    ) -> Result<(u32, Statements), CountError> {
        let taken = self.take(host, counter, quotas, |record| {
            let (at, generation) = (record.at, record.generation());
            let count = quotas.first().and_then(|quota| Some((quota, record.count(quota.window)?)));
            let used = count.map_or(0, |(quota, count)| {
                let others = if shared.is_some() { count.held.others } else { 0 };
                let used = count.used(quota, at).saturating_add(others);
                count.reset(generation, at);
                used
            });
            if let (false, Some(quota)) = (counter.in_fleet, quotas.first()) {
                record.keep_reset(quota.window);
            }
            let statements = shared.map_or_else(Statements::new, |(name, sharing)| {
                state(record, name, quotas, |count, name, at| count.look(name, at, *sharing))
            });
            Step::Store((used, statements))
        });
        match taken {
            // A counter without a record, or a record without this window, has used nothing.
            Err(CountError::Entry(_)) if shared.is_none() => Ok((0, Statements::new())),
            taken => Ok(taken?.result),
        }
    }

    /// The number of the last reset of a count that stood there; 0 if it was never reset, or stands no more.
    ///
    /// # Errors
    /// If it could not be read.
    pub fn reset_number(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        quota: &Quota,
        standing: &Standing,
    ) -> Result<u64, CountError> {
        let taken = self.take(host, counter, core::slice::from_ref(quota), |record| {
            let count = record.count(quota.window);
            let stands = count
                .filter(|count| (count.index, count.generation) == (standing.index, standing.generation));
            Step::Keep(stands.map_or(0, |count| count.reset_number()))
        });
        Ok(taken?.result)
    }

    /// Where a counter stands, without counting.
    ///
    /// # Errors
    /// If it could not be read.
    pub fn standing(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        quotas: &[Quota],
    ) -> Result<Standings, CountError> {
        let charge = Charge { quotas, cost: 0, shared: None };
        let (mut standings, mut none) = (Standings::new(), Statements::new());
        let taken = self.take(host, counter, quotas, |record| {
            charge.apply(record, &mut standings, &mut none);
            if counter.in_fleet {
                add_others(quotas, record, &mut standings);
            }
            Step::Keep(())
        });
        if let Err(CountError::Entry(_)) = taken {
            // A counter without a record has used nothing.
            let now = host.now()?;
            self.swap.record.open_unused(counter, quotas, now);
            charge.apply(&mut self.swap.record, &mut standings, &mut none);
        } else {
            taken?;
        }
        Ok(standings)
    }

    /// The counters in the entry with this number, from 0, that a fleet shares; `None` after the last entry.
    ///
    /// # Errors
    /// If the entry could not be read.
    pub fn shared_in(
        &mut self,
        host: &mut impl CounterHost,
        number: u32,
    ) -> Result<Option<Vec<Counter>>, HostError> {
        let Some(name) = self.tables.known_entry(number) else { return Ok(None) };
        let of = |entry: &[u8]| {
            let shared = entry::shared(entry).into_iter();
            shared
                .map(|fingerprint| Counter {
                    table: Table::Known,
                    fingerprint,
                    entry: name,
                    in_fleet: self.in_fleet,
                })
                .collect()
        };
        let shared = host.get(name.as_bytes())?.map(|(entry, _)| of(entry.as_ref()));
        Ok(Some(shared.unwrap_or_default()))
    }

    /// Takes a step on a record that is opened with a count for each of `quotas`. The module has one copy of the loop for all steps but the one that
    /// every request takes.
    ///
    /// # Errors
    /// If the result could not be stored: the step is not taken then.
    pub(crate) fn take<T>(
        &mut self,
        host: &mut impl CounterHost,
        counter: &Counter,
        quotas: &[Quota],
        mut step: impl FnMut(&mut Record) -> Step<T>,
    ) -> Result<Taken<T>, CountError> {
        let mut result = None;
        let mut noted = |record: &mut Record| match step(record) {
            Step::Keep(taken) => {
                result = Some(taken);
                Step::Keep(())
            }
            Step::Store(taken) => {
                result = Some(taken);
                Step::Store(())
            }
        };
        let step: &mut dyn FnMut(&mut Record) -> Step<()> = &mut noted;
        let taken = self.swap.take(host, counter, quotas, step)?;
        // The loop has taken the step, or failed.
        let result = result.ok_or(CountError::Contended)?;
        Ok(Taken { result, at: taken.at, overflowed: taken.overflowed })
    }
}

#[cfg(test)]
mod tests;
