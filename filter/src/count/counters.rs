//! The counters of a namespace: what may be done to them, each in one compare-and-swap.

use ledger_wire::Answer;

use super::charge::{Admission, Charge, Standings, Turn, add_others};
use super::entry::{self, Record};
use super::fingerprint::{Salt, Who};
use super::holding::Terms;
use super::settle::{Settlement, reset};
use super::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use super::sharing::{self, Answered, Ask, Attended, OfWindow, SharedName, Statements};
use super::swap::{CountError, CounterHost, Place, Step, SwapLoop, Taken};
use super::table::{Capacity, OpenError, Table, Tables};
use crate::quota::Quota;
use crate::time::Timestamp;

/// The result of counting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What becomes of the request.
    pub admission: Admission,
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
    /// Where the tables are if the host has no shared data.
    local: Option<VmLocalData>,
    /// Whether the gateways of a fleet share the counters of known keys.
    in_fleet: bool,
    swap: SwapLoop,
}

impl Counters {
    /// Opens the tables in the host's shared data or, if it has none, in the VM. `salt` is used if this VM is the first to open them.
    ///
    /// # Errors
    /// If a host call fails or the tables' header is not ours.
    pub fn open(
        host: &mut impl SharedData,
        salt: [u8; 16],
        namespace: &str,
        wanted: Capacity,
    ) -> Result<Self, OpenError> {
        let (tables, local) = match Tables::open(host, salt, namespace, wanted) {
            Err(OpenError::Host(error)) if error.is_unimplemented() => {
                let mut local = VmLocalData::default();
                (Tables::open(&mut local, salt, namespace, wanted)?, Some(local))
            }
            tables => (tables?, None),
        };
        Ok(Self { tables, local, in_fleet: false, swap: SwapLoop::default() })
    }

    /// The same, where the gateways of a fleet share the counters of known keys.
    #[must_use]
    pub fn in_fleet(self, in_fleet: bool) -> Self {
        Self { in_fleet, ..self }
    }

    /// Whether the host has no shared data, so that this VM counts by itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local.is_some()
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

    /// Where the record of a counter is: that of `who` in the class of this name. Strangers have a table of their own.
    #[must_use]
    pub fn place(&self, who: Who<'_>, class: &str) -> Place {
        let table = match who {
            Who::Key(_) | Who::Subscriber(_) | Who::Organisation(_) => Table::Known,
            Who::Address(_) => Table::Strangers,
        };
        let fingerprint = self.tables.salt().fingerprint(who, class);
        let in_fleet = self.in_fleet && table == Table::Known;
        Place { table, fingerprint, name: self.tables.entry(table, fingerprint), in_fleet }
    }

    /// Takes the number of malformed entries that were begun again since the last time.
    pub fn take_repairs(&mut self) -> u32 {
        core::mem::take(&mut self.swap.repairs)
    }

    /// Charges a request to all its quotas, or to none. `standings` receives one for each quota.
    ///
    /// # Errors
    /// If the request was not counted.
    pub fn charge(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        charge: Charge<'_>,
        standings: &mut Standings,
    ) -> Result<Counted, CountError> {
        let step = |record: &mut Record| charge.apply(record, standings);
        let Taken { result: admission, at, overflowed } = match &self.local {
            Some(_) => self.take(host, place, charge.quotas, step)?,
            None => self.swap.take(host, place, charge.quotas, step)?,
        };
        Ok(Counted { admission, at, overflowed })
    }

    /// The same of a counter that a fleet shares.
    ///
    /// # Errors
    /// If the request was not counted.
    pub fn charge_shared(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        charge: Charge<'_>,
        turn: Turn<'_>,
        standings: &mut Standings,
    ) -> Result<Counted, CountError> {
        let step = |record: &mut Record| charge.apply_shared(record, standings, turn);
        let Taken { result: admission, at, overflowed } = self.take(host, place, charge.quotas, step)?;
        Ok(Counted { admission, at, overflowed })
    }

    /// Settles a charge. `standings` receives one for each quota, as they are afterwards. Returns the instant.
    ///
    /// # Errors
    /// If it is not settled. The charge then stands.
    pub fn settle(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        settlement: &Settlement<'_>,
        standings: &mut Standings,
    ) -> Result<Timestamp, CountError> {
        let quotas = settlement.charge.quotas;
        Ok(self.take(host, place, quotas, |record| settlement.apply(record, standings))?.at)
    }

    /// Resets one quota of a counter: its count begins again with nothing used. Returns the units that were used.
    ///
    /// # Errors
    /// If it could not be stored. Nothing is reset then.
    pub fn reset(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quota: &Quota,
    ) -> Result<u32, CountError> {
        let taken = self.take(host, place, core::slice::from_ref(quota), |record| reset(record, quota));
        match taken {
            // A counter without a record, or a record without this window, has used nothing.
            Err(CountError::Entry(_)) => Ok(0),
            taken => Ok(taken?.result),
        }
    }

    /// The same of a counter that a fleet shares, `name` there, and of its quotas with one window. Returns the units that all gateways have used, and what is to be stated.
    ///
    /// # Errors
    /// If it could not be stored. Nothing is reset then.
    pub fn reset_shared(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        name: SharedName,
        quotas: &[Quota],
        terms: Terms,
    ) -> Result<(u32, Statements), CountError> {
        Ok(self.take(host, place, quotas, |record| sharing::reset(record, name, quotas, terms))?.result)
    }

    /// Where a counter stands, without counting.
    ///
    /// # Errors
    /// If it could not be read.
    pub fn standing(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quotas: &[Quota],
    ) -> Result<Standings, CountError> {
        let charge = Charge { quotas, cost: 0 };
        let mut standings = Standings::new();
        let taken = self.take(host, place, quotas, |record| {
            charge.apply(record, &mut standings);
            add_others(quotas, record, &mut standings);
            Step::Keep(())
        });
        if let Err(CountError::Entry(_)) = taken {
            // A counter without a record has used nothing.
            let now = host.now()?;
            self.swap.record.open_unused(place.counter(), quotas, now)?;
            charge.apply(&mut self.swap.record, &mut standings);
        } else {
            taken?;
        }
        Ok(standings)
    }

    /// Asks for what a request lacks. The counter is `name` in the fleet.
    ///
    /// # Errors
    /// If the asks could not be stored. They must not be sent then.
    pub fn ask(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        name: SharedName,
        ask: Ask<'_>,
        terms: Terms,
    ) -> Result<Statements, CountError> {
        Ok(self.take(host, place, ask.quotas, |record| sharing::ask(record, name, ask, terms))?.result)
    }

    /// States what nobody waits for. `epoch` is the store's last one.
    ///
    /// # Errors
    /// If the statements could not be stored. They must not be sent then.
    pub fn attend(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        epoch: Option<u32>,
        terms: Terms,
    ) -> Result<Attended, CountError> {
        Ok(self.take(host, place, &[], |record| sharing::attend(record, epoch, terms))?.result)
    }

    /// The counters in the entry with this number, from 0, that a fleet shares; `None` after the last entry.
    ///
    /// # Errors
    /// If the entry could not be read.
    pub fn shared_in(
        &mut self,
        host: &mut impl CounterHost,
        number: u32,
    ) -> Result<Option<Vec<Place>>, HostError> {
        let Some(name) = self.tables.known_entry(number) else { return Ok(None) };
        let of = |entry: &[u8]| {
            let shared = entry::shared(entry).into_iter();
            shared
                .map(|fingerprint| Place { table: Table::Known, fingerprint, name, in_fleet: true })
                .collect()
        };
        let shared = match &mut self.local {
            Some(local) => local.get(name.as_bytes())?.map(|(entry, _)| of(&entry)),
            None => host.get(name.as_bytes())?.map(|(entry, _)| of(entry.as_ref())),
        };
        Ok(Some(shared.unwrap_or_default()))
    }

    /// Takes up the answers to statements about a counter.
    ///
    /// # Errors
    /// If they could not be stored. The counter then has too little until it states again.
    pub fn take_up(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        stated: &[OfWindow],
        (answers, epoch): (&[Answer], u32),
        terms: Terms,
    ) -> Result<Answered, CountError> {
        let step = |record: &mut Record| sharing::take_up(record, stated, answers, epoch, terms);
        Ok(self.take(host, place, &[], step)?.result)
    }

    /// Forgets a request that got no answer to what it stated.
    ///
    /// # Errors
    /// If it could not be stored. Others ask for its units, too, for a while.
    pub fn leave(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        stated: &[OfWindow],
    ) -> Result<(), CountError> {
        self.take(host, place, &[], |record| sharing::leave(record, stated)).map(|_| ())
    }

    /// Takes a step that not every request takes. The module has one copy of the loop for all of these.
    fn take<T>(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
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
        let taken = self.take_noted(host, place, quotas, &mut noted)?;
        // The loop has taken the step, or failed.
        let result = result.ok_or(CountError::Contended)?;
        Ok(Taken { result, at: taken.at, overflowed: taken.overflowed })
    }

    fn take_noted(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quotas: &[Quota],
        step: &mut dyn FnMut(&mut Record) -> Step<()>,
    ) -> Result<Taken<()>, CountError> {
        let Self { local, swap, .. } = self;
        match local {
            Some(local) => swap.take(&mut OnVm { local, host }, place, quotas, step),
            None => swap.take(host, place, quotas, step),
        }
    }
}

/// A host whose shared data is the VM's own.
struct OnVm<'a, H> {
    local: &'a mut VmLocalData,
    host: &'a mut H,
}

impl<H: CounterHost> SharedData for OnVm<'_, H> {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.local.get(name)
    }

    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.local.set(name, value, cas)
    }
}

impl<H: CounterHost> CounterHost for OnVm<'_, H> {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        self.host.now()
    }
}

#[cfg(test)]
mod tests;
