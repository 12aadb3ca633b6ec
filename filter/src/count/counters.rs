//! Counting: read the entry, read the time, decide, and store the result unless another worker has stored in between.

use super::cas_predictor::{CasPredictor, MAX_AGE, Predicted};
use super::consume::{Charge, Standings, peek};
use super::entry::{EntryError, new_entry};
use super::fingerprint::{Fingerprint, Salt, Who};
use super::reset::reset;
use super::settle::Settlement;
use super::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData, compare_and_swap};
use super::table::{Capacity, EntryName, OpenError, Table, Tables};
use crate::quota::Quota;
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

/// The result of counting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Whether the request was admitted.
    pub admitted: bool,
    /// The instant of the decision.
    pub at: Timestamp,
    /// Whether the overflow record of a full strangers' entry was used.
    pub overflowed: bool,
}

/// The counters of a namespace, as one VM reaches them.
#[derive(Debug)]
pub struct Counters {
    tables: Tables,
    /// Where the tables are if the host has no shared data.
    local: Option<VmLocalData>,
    /// Room for the entry to store, kept from request to request.
    next: Vec<u8>,
    predictor: CasPredictor,
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
        Ok(Self { tables, local, next: Vec::new(), predictor: CasPredictor::default() })
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
            Who::Key(_) | Who::Subscriber(_) | Who::Organisation(_) => Table::Known,
            Who::Address(_) => Table::Strangers,
        };
        let fingerprint = self.tables.salt().fingerprint(counter.who, counter.class);
        Place { table, fingerprint, name: self.tables.entry(table, fingerprint) }
    }

    /// Charges a request to all its quotas, or to none. `standings` receives one for each quota.
    ///
    /// # Errors
    /// If the request was not counted. A malformed entry is replaced by an empty one, so that the next request is counted again.
    pub fn charge(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        charge: Charge<'_>,
        standings: &mut Standings,
    ) -> Result<Counted, CountError> {
        let ((admitted, overflowed), at) =
            self.round(host, place, |entry, now, next| match charge.apply(entry, now, next, standings) {
                Err(EntryError::Full) if place.table == Table::Strangers => {
                    let charge = Charge { fingerprint: Fingerprint::OVERFLOW, ..charge };
                    let (admitted, stores) = charge.apply(entry, now, next, standings)?;
                    Ok(((admitted, true), stores))
                }
                applied => applied.map(|(admitted, stores)| ((admitted, false), stores)),
            })?;
        Ok(Counted { admitted, at, overflowed })
    }

    /// Settles a charge. `standings` receives one for each quota, as they are afterwards. Returns the instant.
    ///
    /// # Errors
    /// As [`Counters::charge`]. The charge then stands.
    pub fn settle(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        settlement: &Settlement<'_>,
        standings: &mut Standings,
    ) -> Result<Timestamp, CountError> {
        let (_, at) =
            self.round(host, place, |entry, now, next| settlement.apply(entry, now, next, standings))?;
        Ok(at)
    }

    /// Resets one quota of a counter, in one compare-and-swap. Returns the units that were used.
    ///
    /// # Errors
    /// As [`Counters::charge`]. Nothing is reset then.
    pub fn reset(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        quota: &Quota,
    ) -> Result<u32, CountError> {
        let (used, _) =
            self.round(host, place, |entry, now, next| reset(entry, place.fingerprint, quota, now, next))?;
        Ok(used)
    }

    /// Where a counter stands, without counting.
    ///
    /// # Errors
    /// As [`Counters::charge`].
    pub fn standing(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        charge: Charge<'_>,
    ) -> Result<Standings, CountError> {
        let (standings, _) =
            self.round(host, place, |entry, now, _| Ok((peek(entry, &charge, now)?, false)))?;
        Ok(standings)
    }

    fn round<T>(
        &mut self,
        host: &mut impl CounterHost,
        place: Place,
        step: impl FnMut(&[u8], Timestamp, &mut Vec<u8>) -> Result<(T, bool), EntryError>,
    ) -> Result<(T, Timestamp), CountError> {
        let Self { local, next, predictor, .. } = self;
        match local {
            Some(local) => round(&mut OnVm { local, host }, predictor, next, place, step),
            None => round(host, predictor, next, place, step),
        }
    }
}

/// Takes `step` on the entry, the time and a buffer until no other worker has stored in between. `step` returns its result, and whether
/// the buffer is to be stored. The only compare-and-swap loop of the filter.
fn round<T>(
    host: &mut impl CounterHost,
    predictor: &mut CasPredictor,
    next: &mut Vec<u8>,
    place: Place,
    mut step: impl FnMut(&[u8], Timestamp, &mut Vec<u8>) -> Result<(T, bool), EntryError>,
) -> Result<(T, Timestamp), CountError> {
    let name = place.name.as_bytes();
    // A flood of strangers must not drive known keys' entries out of the predictor's memory.
    let remembers = place.table == Table::Known;
    if remembers && let Some(Predicted { value, cas, written }) = predictor.predict(place.name) {
        let now = host.now()?;
        // A result that is not stored has to be about what is stored, so it needs a read.
        if now.duration_since(written) < MAX_AGE
            && let Ok((result, true)) = step(&value, now, next)
        {
            let swap = host.set(name, next, cas)?;
            predictor.tried(swap);
            if swap == Swap::Stored {
                predictor.wrote(place.name, next, Some(cas), now);
                return Ok((result, now));
            }
        }
    }
    for _ in 0..MAX_ATTEMPTS {
        let stored = host.get(name)?;
        let (entry, cas) =
            stored.as_ref().map_or((&[][..], None), |(entry, cas)| (entry.as_ref(), Some(*cas)));
        if remembers && let Some(cas) = cas {
            predictor.read(place.name, entry, cas);
        }
        // The time after the record: a record that another worker has just written is then never from the future.
        let now = host.now()?;
        let (result, stores) = match step(entry, now, next) {
            Err(EntryError::Malformed) => {
                compare_and_swap(host, name, cas, &new_entry(now))?;
                return Err(EntryError::Malformed.into());
            }
            stepped => stepped?,
        };
        if stores {
            if compare_and_swap(host, name, cas, next)? == Swap::Conflict {
                continue;
            }
            match remembers {
                true => predictor.wrote(place.name, next, cas, now),
                false => predictor.wrote_unremembered(),
            }
        }
        return Ok((result, now));
    }
    Err(CountError::Contended)
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
    use crate::count::entry::MAX_RECORDS;
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
        [Quota {
            name: "q".to_owned(),
            limit,
            window: Window::MINUTE,
            mode: Mode::Enforced,
            refundable: true,
        }]
    }

    fn stranger(number: u8) -> Counter<'static> {
        let address = format!("192.0.2.{number}");
        Counter { who: Who::Address(ClientAddress::parse(address.as_bytes(), 64)), class: "address" }
    }

    fn charge(place: Place, quotas: &[Quota], cost: u32) -> Charge<'_> {
        Charge { fingerprint: place.fingerprint(), quotas, cost }
    }

    fn is_admitted(counted: &Counted) -> bool {
        counted.admitted
    }

    fn count(
        counters: &mut Counters,
        host: &mut TestHost,
        counter: Counter<'_>,
        quotas: &[Quota],
        cost: u32,
    ) -> Result<(Counted, u32), CountError> {
        let (place, mut standings) = (counters.place(counter), Standings::new());
        let counted = counters.charge(host, place, charge(place, quotas, cost), &mut standings)?;
        Ok((counted, standings[0].used))
    }

    #[test]
    fn a_lost_race_is_run_again_sixty_four_times_and_no_more() {
        // One more than attempts: the swap before them, without a read.
        for (conflicts, counted) in [(0, true), (1, true), (MAX_ATTEMPTS, true), (MAX_ATTEMPTS + 1, false)] {
            let mut host = TestHost::default();
            let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
            for _ in 0..2 {
                count(&mut counters, &mut host, ALICE, &minutely(9), 1).unwrap();
            }
            host.conflicts = conflicts;
            let answer = count(&mut counters, &mut host, ALICE, &minutely(9), 1);
            match answer {
                Ok((_, used)) => assert_eq!((counted, used), (true, 3), "{conflicts}"),
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
            let admitted =
                [(); 3].map(|()| is_admitted(&count(vm, &mut host, ALICE, &minutely(2), 1).unwrap().0));
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
            count(&mut counters, &mut host, ALICE, &minutely(1), 1).map(|(count, _)| is_admitted(&count))
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
            admitted_beyond += usize::from(counted.overflowed && is_admitted(&counted));
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
            let standings = counters.standing(&mut host, place, charge(place, &minutely(9), 1)).unwrap();
            assert_eq!(standings[0].used, 3);
        }
    }
}
