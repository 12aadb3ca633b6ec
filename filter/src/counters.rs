//! Counting: read the entry, read the time, decide, and store the result unless somebody else stored first.

use crate::entry::{Consumed, EntryError, Standings, consume, peek};
use crate::fingerprint::{Fingerprint, Salt, Who};
use crate::quota::Quota;
use crate::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData, compare_and_swap};
use crate::table::{Capacity, OpenError, Table, Tables};
use crate::time::Timestamp;

/// Compare-and-swaps before counting counts as failed. Every conflict is another worker's success, so with N workers the average
/// wait is N swaps; 64 in a row mean that something is wrong.
pub const MAX_ATTEMPTS: usize = 64;

/// The host as counting needs it: shared data and a clock.
pub trait CounterHost: SharedData {
    /// `proxy_get_current_time_nanoseconds`.
    ///
    /// # Errors
    /// Any status but Ok.
    fn now(&mut self) -> Result<Timestamp, HostError>;
}

/// A counter: whose, and for which class.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    /// Who is counted; strangers have a table of their own.
    pub who: Who<'a>,
    /// The class of endpoints.
    pub class: &'a str,
}

/// Why a request could not be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// A host call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The counter's entry cannot be used.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Other workers stored first, [`MAX_ATTEMPTS`] times.
    #[error("compare-and-swap lost {MAX_ATTEMPTS} times in a row")]
    Contended,
}

/// What counting a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Whether every enforced quota had room; then all of them are consumed, otherwise none.
    pub admitted: bool,
    /// One standing for each quota, as of `at`.
    pub standings: Standings,
    /// The instant of the decision.
    pub at: Timestamp,
    /// Whether the overflow record of a full strangers' entry was used.
    pub overflowed: bool,
    /// The counter's fingerprint, for logs.
    pub fingerprint: Fingerprint,
}

/// The counters of a namespace, as one VM reaches them.
#[derive(Debug)]
pub struct Counters {
    tables: Tables,
    /// Where the tables are if the host has no shared data.
    local: Option<VmLocalData>,
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
        match Tables::open(host, salt, namespace, wanted) {
            Err(OpenError::Host(error)) if error.is_unimplemented() => {
                let mut local = VmLocalData::default();
                let tables = Tables::open(&mut local, salt, namespace, wanted)?;
                Ok(Self { tables, local: Some(local) })
            }
            tables => Ok(Self { tables: tables?, local: None }),
        }
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

    /// Counts one request of `cost` units against all `quotas`, or against none.
    ///
    /// # Errors
    /// If the request was not counted. A malformed entry is emptied, so that the next request is counted again.
    pub fn count(
        &mut self,
        host: &mut impl CounterHost,
        counter: Counter<'_>,
        quotas: &[Quota],
        cost: u32,
    ) -> Result<Counted, CountError> {
        match &mut self.local {
            Some(local) => count(&mut OnVm { local, host }, &self.tables, counter, quotas, cost),
            None => count(host, &self.tables, counter, quotas, cost),
        }
    }

    /// Where a counter stands, without counting.
    ///
    /// # Errors
    /// As [`Counters::count`].
    pub fn standing(
        &mut self,
        host: &mut impl CounterHost,
        counter: Counter<'_>,
        quotas: &[Quota],
    ) -> Result<(Standings, Timestamp), CountError> {
        let fingerprint = self.tables.salt().fingerprint(counter.who, counter.class);
        let name = self.tables.entry(table_of(counter.who), fingerprint);
        let stored = match &mut self.local {
            Some(local) => local.get(name.as_bytes())?,
            None => host.get(name.as_bytes())?,
        };
        let at = host.now()?;
        let entry = stored.as_ref().map_or(&[][..], |(entry, _)| entry.as_slice());
        Ok((peek(entry, fingerprint, quotas, at)?, at))
    }
}

fn count(
    host: &mut impl CounterHost,
    tables: &Tables,
    counter: Counter<'_>,
    quotas: &[Quota],
    cost: u32,
) -> Result<Counted, CountError> {
    let fingerprint = tables.salt().fingerprint(counter.who, counter.class);
    let table = table_of(counter.who);
    let name = tables.entry(table, fingerprint);
    let mut next = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let stored = host.get(name.as_bytes())?;
        let (entry, cas) =
            stored.as_ref().map_or((&[][..], None), |(entry, cas)| (entry.as_slice(), Some(*cas)));
        // The time after the record: a record that a faster worker has just written is then never from the future.
        let at = host.now()?;
        let (consumed, overflowed) = match consume(entry, fingerprint, quotas, cost, at, &mut next) {
            Err(EntryError::Full) if table == Table::Strangers => {
                (consume(entry, Fingerprint::OVERFLOW, quotas, cost, at, &mut next), true)
            }
            consumed => (consumed, false),
        };
        let (admitted, standings) = match consumed {
            Ok(Consumed::Refused(standings)) => (false, standings),
            Ok(Consumed::Admitted(standings)) => match compare_and_swap(host, name.as_bytes(), cas, &next)? {
                Swap::Stored => (true, standings),
                Swap::Conflict => continue,
            },
            Err(EntryError::Malformed) => {
                compare_and_swap(host, name.as_bytes(), cas, &[])?;
                return Err(EntryError::Malformed.into());
            }
            Err(error @ (EntryError::Full | EntryError::TooManyWindows)) => return Err(error.into()),
        };
        return Ok(Counted { admitted, standings, at, overflowed, fingerprint });
    }
    Err(CountError::Contended)
}

fn table_of(who: Who<'_>) -> Table {
    match who {
        Who::Key(_) | Who::Subscriber(_) => Table::Known,
        Who::Address(_) => Table::Strangers,
    }
}

/// A host whose shared data is the VM's own.
struct OnVm<'a, H> {
    local: &'a mut VmLocalData,
    host: &'a mut H,
}

impl<H: CounterHost> SharedData for OnVm<'_, H> {
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
