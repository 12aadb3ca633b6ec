//! Counting: read the entry, read the time, decide, and store the result unless somebody else stored first.

use crate::count::cas_predictor::CasPredictor;
use crate::count::consume::{Charge, Consumed, EntryError, Standings, consume, peek};
use crate::count::fingerprint::{Fingerprint, Salt, Who};
use crate::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData, compare_and_swap};
use crate::count::table::{Capacity, EntryName, OpenError, Table, Tables};
use crate::quota::Quota;
use crate::time::Timestamp;

/// Compare-and-swaps before counting counts as failed. Every conflict is another worker's success, so with N workers the average
/// wait is N swaps; 64 in a row mean that something is wrong.
pub const MAX_ATTEMPTS: usize = 64;

#[path = "leased.rs"]
mod leased;

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

/// Where a counter's record is. It stays there as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    table: Table,
    fingerprint: Fingerprint,
    name: EntryName,
}

impl Place {
    /// The counter's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Whether every enforced quota had room; then all of them are consumed, otherwise none.
    pub admitted: bool,
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
    /// Room for the entry to store, kept from request to request.
    next: Vec<u8>,
    cas_predictor: CasPredictor,
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
        Ok(Self { tables, local, next: Vec::new(), cas_predictor: CasPredictor::default() })
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

    /// Where the record of a counter is.
    #[must_use]
    pub fn place(&self, counter: Counter<'_>) -> Place {
        let table = match counter.who {
            Who::Key(_) | Who::Subscriber(_) => Table::Known,
            Who::Address(_) => Table::Strangers,
        };
        let fingerprint = self.tables.salt().fingerprint(counter.who, counter.class);
        Place { table, fingerprint, name: self.tables.entry(table, fingerprint) }
    }

    /// Counts one request of `cost` units against all `quotas`, or against none. `standings` receives one for each quota.
    ///
    /// # Errors
    /// If the request was not counted. A malformed entry is emptied, so that the next request is counted again.
    pub fn count(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quotas: &[Quota],
        cost: u32,
        standings: &mut Standings,
    ) -> Result<Counted, CountError> {
        let Self { local, next, cas_predictor, .. } = self;
        match local {
            Some(local) => Counting { host: &mut OnVm { local, host }, cas_predictor, next }
                .count(place, quotas, cost, standings),
            None => Counting { host, cas_predictor, next }.count(place, quotas, cost, standings),
        }
    }

    /// Where a counter stands, without counting.
    ///
    /// # Errors
    /// As [`Counters::count`].
    pub fn standing(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quotas: &[Quota],
    ) -> Result<(Standings, Timestamp), CountError> {
        match &mut self.local {
            Some(local) => standing(&mut OnVm { local, host }, place, quotas),
            None => standing(host, place, quotas),
        }
    }
}

fn standing(
    host: &mut impl CounterHost,
    Place { fingerprint, name, .. }: Place,
    quotas: &[Quota],
) -> Result<(Standings, Timestamp), CountError> {
    let stored = host.get(name.as_bytes())?;
    let at = host.now()?;
    let entry = stored.as_ref().map_or(&[][..], |(entry, _)| entry.as_ref());
    Ok((peek(entry, fingerprint, quotas, at)?, at))
}

/// What counting works with.
struct Counting<'a, H> {
    host: &'a mut H,
    cas_predictor: &'a mut CasPredictor,
    next: &'a mut Vec<u8>,
}

impl<H: CounterHost> Counting<'_, H> {
    fn count(
        mut self,
        place: Place,
        quotas: &[Quota],
        cost: u32,
        standings: &mut Standings,
    ) -> Result<Counted, CountError> {
        if place.table == Table::Known
            && let Some((entry, cas)) = self.cas_predictor.foresee(place.name)
        {
            let at = self.host.now()?;
            let charge = Charge { fingerprint: place.fingerprint, quotas, cost };
            let consumed = consume(&entry, charge, at, self.next, standings);
            // What refuses has to be what is stored, so only an admission can be tried without reading.
            if consumed == Ok(Consumed::Admitted) {
                if self.host.set(place.name.as_bytes(), self.next, cas)? == Swap::Stored {
                    self.cas_predictor.succeeded();
                    self.cas_predictor.wrote(place.name, self.next, Some(cas));
                    let Place { fingerprint, .. } = place;
                    return Ok(Counted { admitted: true, at, overflowed: false, fingerprint });
                }
                self.cas_predictor.failed();
            }
        }
        for _ in 0..MAX_ATTEMPTS {
            if let Some(counted) = self.attempt(place, quotas, cost, standings)? {
                return Ok(counted);
            }
        }
        Err(CountError::Contended)
    }

    /// One round of reading, deciding and swapping; `None` if somebody else swapped first.
    fn attempt(
        &mut self,
        Place { table, fingerprint, name }: Place,
        quotas: &[Quota],
        cost: u32,
        standings: &mut Standings,
    ) -> Result<Option<Counted>, CountError> {
        let Self { host, cas_predictor, next } = self;
        let stored = host.get(name.as_bytes())?;
        let (entry, cas) =
            stored.as_ref().map_or((&[][..], None), |(entry, cas)| (entry.as_ref(), Some(*cas)));
        if let Some(cas) = cas {
            cas_predictor.read(name, entry, cas);
        }
        // The time after the record: a record that a faster worker has just written is then never from the future.
        let at = host.now()?;
        let charge = Charge { fingerprint, quotas, cost };
        let (consumed, overflowed) = match consume(entry, charge, at, next, standings) {
            Err(EntryError::Full) if table == Table::Strangers => {
                let charge = Charge { fingerprint: Fingerprint::OVERFLOW, ..charge };
                (consume(entry, charge, at, next, standings), true)
            }
            consumed => (consumed, false),
        };
        let (admitted, stores) = match consumed {
            Ok(Consumed::Admitted) => (true, true),
            Ok(Consumed::Refused { moved }) => (false, moved),
            Err(EntryError::Malformed) => {
                compare_and_swap(*host, name.as_bytes(), cas, &[])?;
                return Err(EntryError::Malformed.into());
            }
            Err(error @ (EntryError::Full | EntryError::TooManyWindows)) => return Err(error.into()),
        };
        if stores {
            if compare_and_swap(*host, name.as_bytes(), cas, next)? == Swap::Conflict {
                return Ok(None);
            }
            match table {
                Table::Known => cas_predictor.wrote(name, next, cas),
                Table::Strangers => drop(cas_predictor.wrote_elsewhere()),
            }
        }
        Ok(Some(Counted { admitted, at, overflowed, fingerprint }))
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
mod tests {
    use core::num::NonZeroU32;

    use super::*;
    use crate::count::consume::MAX_RECORDS;
    use crate::count::fingerprint::ClientAddress;
    use crate::quota::Mode;
    use crate::window::Window;

    /// Shared data that loses the next `conflicts` writes to another worker, and a clock.
    #[derive(Default)]
    struct TestHost {
        data: VmLocalData,
        conflicts: usize,
        status: Option<u32>,
        now: u64,
    }

    impl TestHost {
        fn check(&self, call: &'static str) -> Result<(), HostError> {
            self.status.map_or(Ok(()), |status| Err(HostError { call, status }))
        }
    }

    impl SharedData for TestHost {
        type Value = Vec<u8>;

        fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
            self.check("proxy_get_shared_data")?;
            self.data.get(name)
        }
        fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
            self.check("proxy_set_shared_data")?;
            if let Some(left) = self.conflicts.checked_sub(1) {
                self.conflicts = left;
                return Ok(Swap::Conflict);
            }
            self.data.set(name, value, cas)
        }
    }

    impl CounterHost for TestHost {
        fn now(&mut self) -> Result<Timestamp, HostError> {
            Ok(Timestamp::from_seconds(self.now))
        }
    }

    const CAPACITY: Capacity = Capacity { known: 64, strangers: 4 };
    const ALICE: Counter<'static> = Counter { who: Who::Key(&[1; 32]), class: "standard" };

    fn minutely(limit: u32) -> [Quota; 1] {
        let limit = NonZeroU32::new(limit).unwrap();
        [Quota { name: "q".to_owned(), limit, window: Window::MINUTE, mode: Mode::Enforced }]
    }

    fn stranger(number: u8) -> Counter<'static> {
        let address = format!("192.0.2.{number}");
        Counter { who: Who::Address(ClientAddress::parse(address.as_bytes(), 64)), class: "address" }
    }

    fn count(
        counters: &mut Counters,
        host: &mut TestHost,
        counter: Counter<'_>,
        quotas: &[Quota],
        cost: u32,
    ) -> Result<(Counted, u32), CountError> {
        let (place, mut standings) = (counters.place(counter), Standings::new());
        let counted = counters.count(host, place, quotas, cost, &mut standings)?;
        Ok((counted, standings[0].used))
    }

    #[test]
    fn a_lost_race_is_run_again_sixty_four_times_and_no_more() {
        // One more than attempts: the swap before them, without a read.
        for (conflicts, counted) in [(0, true), (1, true), (MAX_ATTEMPTS, true), (MAX_ATTEMPTS + 1, false)] {
            let mut host = TestHost::default();
            let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
            count(&mut counters, &mut host, ALICE, &minutely(9), 1).unwrap();
            host.conflicts = conflicts;
            let answer = count(&mut counters, &mut host, ALICE, &minutely(9), 1);
            match answer {
                Ok((_, used)) => assert_eq!((counted, used), (true, 2), "{conflicts}"),
                Err(error) => assert_eq!((counted, error), (false, CountError::Contended), "{conflicts}"),
            }
        }
    }

    #[test]
    fn what_the_host_answers_is_what_the_error_says() {
        let mut host = TestHost::default();
        let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
        host.status = Some(10);
        let error = count(&mut counters, &mut host, ALICE, &minutely(9), 1).unwrap_err();
        assert_eq!(error.to_string(), "proxy_get_shared_data answered status 10");
    }

    #[test]
    fn a_host_without_shared_data_is_counted_on_by_each_vm() {
        let mut host = TestHost { status: Some(12), ..TestHost::default() };
        let mut vms = [1, 2].map(|salt| Counters::open(&mut host, [salt; 16], "", CAPACITY).unwrap());
        for vm in &mut vms {
            assert!(vm.is_local());
            let admitted = [(); 3].map(|()| count(vm, &mut host, ALICE, &minutely(2), 1).unwrap().0.admitted);
            assert_eq!(admitted, [true, true, false]);
        }
    }

    #[test]
    fn a_malformed_entry_is_an_error_once_and_counts_again_afterwards() {
        let mut host = TestHost::default();
        let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
        let name = counters.place(ALICE).name;
        compare_and_swap(&mut host, name.as_bytes(), None, b"not ours").unwrap();
        let answers = [(); 3].map(|()| {
            count(&mut counters, &mut host, ALICE, &minutely(1), 1).map(|(count, _)| count.admitted)
        });
        assert_eq!(answers, [Err(CountError::Entry(EntryError::Malformed)), Ok(true), Ok(false)]);
    }

    #[test]
    fn strangers_beyond_an_entry_share_its_overflow_record_and_known_keys_are_untouched() {
        let mut host = TestHost { now: 60, ..TestHost::default() };
        // Four strangers' records: one entry.
        let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
        count(&mut counters, &mut host, ALICE, &minutely(9), 1).unwrap();
        let mut admitted_beyond = 0;
        for number in 0..=255 {
            let (counted, _) = count(&mut counters, &mut host, stranger(number), &minutely(2), 1).unwrap();
            assert_eq!(counted.overflowed, usize::from(number) >= MAX_RECORDS, "{number}");
            admitted_beyond += usize::from(counted.overflowed && counted.admitted);
        }
        assert_eq!(admitted_beyond, 2);
        assert_eq!(count(&mut counters, &mut host, ALICE, &minutely(9), 1).unwrap().1, 2);
        host.now = 120;
        assert!(!count(&mut counters, &mut host, stranger(255), &minutely(2), 1).unwrap().0.overflowed);
    }

    #[test]
    fn a_standing_is_read_without_counting() {
        let mut host = TestHost::default();
        let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
        count(&mut counters, &mut host, ALICE, &minutely(9), 3).unwrap();
        let place = counters.place(ALICE);
        for _ in 0..2 {
            let (standings, _) = counters.standing(&mut host, place, &minutely(9)).unwrap();
            assert_eq!(standings[0].used, 3);
        }
    }
}
