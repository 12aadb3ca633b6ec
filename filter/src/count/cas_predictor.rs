//! Swapping without reading first: the value of an entry, if nobody has written it since this VM did.
//!
//! Reading is the dearest call of counting, for a host hands a value over by calling back into the VM for memory. What a VM has written
//! it knows; it only lacks the number that the host gave the write. Hosts number their writes one after the other, Envoy all writes
//! of the process, others those of each value. So the number can be foreseen, and the swap be tried with it.
//!
//! A wrong number costs a call and nothing else: the swap fails, and the entry is read. And no number is right by accident, so that
//! another VM's write would be overwritten. What is foreseen for a write is never greater than the number that the write got: where a
//! process's writes are numbered, it is the next after one that was given before, and elsewhere the next after the number that was
//! replaced. Numbers rise, so a write of another VM that has the foreseen number came before ours, and is not the value any more. (They
//! are 32 bits wide: of 2³² writes to *other* entries between two of ours, one more would have to be another VM's of this very entry.)

use arrayvec::ArrayVec;

use crate::count::shared_data::Cas;
use crate::count::table::EntryName;

/// The largest entry that is kept in mind: one record of three windows.
const MAX_VALUE: usize = 48;

/// Entries that are kept in mind, each in the one place that it may have: 160 KiB for each VM.
const PLACES: usize = 2048;

/// As often it must be seen that the host numbers all writes of the process before that is relied on.
const PROOFS: i8 = 3;

/// After so many failures in a row the pause between attempts grows no more: it doubles with each.
const MAX_DOUBLINGS: u32 = 10;

/// What a VM has written, and what it knows of the host's numbers.
#[derive(Debug)]
pub struct CasPredictor {
    places: Vec<Option<Written>>,
    /// A number that the host has given, of all the last that this VM can tell.
    given: u32,
    /// Whether any number has been seen.
    has_read: bool,
    /// How often this VM has written.
    writes: u32,
    /// How often it was seen in a row that all writes of the process are numbered; below 0 that those of each value are.
    proofs: i8,
    failures: u32,
    /// Counts until the next attempt.
    pause: u32,
}

/// The last write of this VM to an entry.
#[derive(Debug)]
struct Written {
    name: EntryName,
    value: ArrayVec<u8, MAX_VALUE>,
    /// The number of the value that it replaced; 0 if there was none.
    replaced: Cas,
    /// The next after [`CasPredictor::given`] as it was before the write.
    next: Cas,
    /// Which of this VM's writes it was.
    place: u32,
}

impl Default for CasPredictor {
    fn default() -> Self {
        let places = core::iter::repeat_with(|| None).take(PLACES).collect();
        Self { places, given: 0, has_read: false, writes: 0, proofs: 0, failures: 0, pause: 0 }
    }
}

impl CasPredictor {
    /// An entry and its number, if this VM was the last to write it. `None` as well if attempts fail too often to be worth it.
    pub fn foresee(&mut self, name: EntryName) -> Option<(ArrayVec<u8, MAX_VALUE>, Cas)> {
        if let Some(pause) = self.pause.checked_sub(1) {
            self.pause = pause;
            return None;
        }
        let written = self.written(name)?;
        let (of_process, of_value) = (written.next, after(written.replaced.0));
        let number = match self.proofs {
            PROOFS.. => of_process,
            ..0 => of_value,
            _ if of_process == of_value => of_value,
            _ => return None,
        };
        Some((written.value.clone(), number))
    }

    /// Takes note of a swap with a foreseen number that failed.
    #[cold]
    pub fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.pause = (1 << self.failures.min(MAX_DOUBLINGS)) - 1;
    }

    /// Takes note of what an entry and its number turned out to be.
    pub fn read(&mut self, name: EntryName, value: &[u8], number: Cas) {
        let mut given = number.0;
        if let Some(written) = self.written(name)
            && *written.value == *value
        {
            // Nobody has written since, so this is the number that our write got. Those after it have got later ones.
            given = given.wrapping_add(self.writes.wrapping_sub(written.place));
            let (of_process, of_value) = (written.next, after(written.replaced.0));
            if number == of_process && of_process != of_value {
                self.proofs = self.proofs.saturating_add(1);
            } else if number == of_value && of_process != of_value {
                self.proofs = -1;
            }
        }
        // Numbers start again at 1 when they are used up, so which is later is told by the shorter way.
        if !self.has_read || given.wrapping_sub(self.given) <= u32::MAX / 2 {
            self.given = given;
        }
        self.has_read = true;
    }

    /// Takes note of a write to an entry that is kept in mind: its new value, and the number of the value that it replaced.
    pub fn wrote(&mut self, name: EntryName, value: &[u8], replaced: Option<Cas>) {
        let next = self.wrote_elsewhere();
        let replaced = replaced.unwrap_or(Cas(0));
        if let Some(place) = self.places.get_mut(place_of(name)) {
            let value = ArrayVec::try_from(value).ok();
            *place = value.map(|value| Written { name, value, replaced, next, place: self.writes });
        }
    }

    /// Takes note of a write to an entry that is not; returns what number is foreseen for it.
    pub fn wrote_elsewhere(&mut self) -> Cas {
        let next = after(self.given);
        self.given = next.0;
        self.writes = self.writes.wrapping_add(1);
        next
    }

    /// Takes note of a swap with a foreseen number that succeeded.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    fn written(&self, name: EntryName) -> Option<&Written> {
        self.places.get(place_of(name))?.as_ref().filter(|written| written.name == name)
    }
}

/// The number after this one; 0 is none.
fn after(number: u32) -> Cas {
    Cas(number.checked_add(1).unwrap_or(1))
}

fn place_of(name: EntryName) -> usize {
    let spread = name.distinct().wrapping_mul(0x9E37_79B9);
    usize::try_from(spread >> (u32::BITS - PLACES.ilog2())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::count::consume::Standings;
    use crate::count::counters::{Counter, CounterHost, Counters};
    use crate::count::fingerprint::Who;
    use crate::count::shared_data::{HostError, SharedData, Swap};
    use crate::count::table::Capacity;
    use crate::quota::{Mode, Quota};
    use crate::time::Timestamp;
    use crate::window::Window;

    /// How a host numbers writes.
    #[derive(Clone, Copy, Debug)]
    enum Numbering {
        OfProcess,
        OfValue,
    }

    /// A host that counts its calls.
    struct TestHost {
        numbering: Numbering,
        given: u32,
        values: std::collections::BTreeMap<Vec<u8>, (Vec<u8>, Cas)>,
        reads: usize,
        conflicts: usize,
    }

    impl TestHost {
        fn new(numbering: Numbering, given: u32) -> Self {
            Self { numbering, given, values: Default::default(), reads: 0, conflicts: 0 }
        }
    }

    impl SharedData for TestHost {
        type Value = Vec<u8>;

        fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
            self.reads += 1;
            Ok(self.values.get(name).cloned())
        }

        fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
            let stored = self.values.get(name).map(|(_, cas)| *cas);
            if stored.is_some_and(|stored| stored != cas) {
                self.conflicts += 1;
                return Ok(Swap::Conflict);
            }
            let number = match self.numbering {
                Numbering::OfProcess => after(self.given),
                Numbering::OfValue => after(stored.map_or(0, |cas| cas.0)),
            };
            self.given = number.0;
            self.values.insert(name.to_vec(), (value.to_vec(), number));
            Ok(Swap::Stored)
        }
    }

    impl CounterHost for TestHost {
        fn now(&mut self) -> Result<Timestamp, HostError> {
            Ok(Timestamp::from_seconds(60))
        }
    }

    /// Some VMs of a process that count keys of one quota.
    struct Process {
        host: TestHost,
        vms: Vec<Counters>,
        quotas: [Quota; 1],
    }

    impl Process {
        fn new(numbering: Numbering, given: u32, vms: usize, limit: u32) -> Self {
            let mut host = TestHost::new(numbering, given);
            let capacity = Capacity { known: 1024, strangers: 4 };
            let vms = (0..vms).map(|_| Counters::open(&mut host, [7; 16], "", capacity).unwrap()).collect();
            let limit = NonZeroU32::new(limit).unwrap();
            let quotas = [Quota { name: "q".into(), limit, window: Window::MINUTE, mode: Mode::Enforced }];
            Self { host, vms, quotas }
        }

        fn count(&mut self, vm: usize, key: u8) -> bool {
            let vm = &mut self.vms[vm];
            let place = vm.place(Counter { who: Who::Key(&[key; 32]), class: "standard" });
            vm.count(&mut self.host, place, &self.quotas, 1, &mut Standings::new()).unwrap().admitted
        }
    }

    #[test]
    fn a_vm_that_writes_alone_seldom_reads_however_its_host_numbers() {
        for (numbering, given) in
            [(Numbering::OfProcess, 0), (Numbering::OfProcess, u32::MAX - 500), (Numbering::OfValue, 0)]
        {
            // Some of a hundred keys have one place between two of them.
            for (keys, few) in [(1, 10), (100, 1000)] {
                let mut process = Process::new(numbering, given, 1, 1_000_000);
                for round in 0..10_000 {
                    assert!(process.count(0, (round % keys) as u8));
                }
                let TestHost { reads, conflicts, .. } = process.host;
                assert!(reads <= few && conflicts <= 10, "{numbering:?}, {keys} keys: {reads}, {conflicts}");
            }
        }
    }

    #[test]
    fn attempts_become_seldom_where_they_fail() {
        let mut process = Process::new(Numbering::OfProcess, 0, 2, 1_000_000);
        for round in 0..20_000 {
            assert!(process.count(round % 2, 1));
        }
        let conflicts = process.host.conflicts;
        assert!(conflicts < 200, "{conflicts}");
    }

    proptest! {
        #[test]
        fn no_count_is_lost_and_none_refused_early_whoever_writes_in_between(
            of_process in any::<bool>(),
            given in prop_oneof![Just(0), Just(u32::MAX - 20)],
            requests in prop::collection::vec((0_usize..3, prop_oneof![Just(0), Just(1), 2_u8..40], 1_usize..9), 1..200),
        ) {
            const LIMIT: u32 = 60;
            let numbering = if of_process { Numbering::OfProcess } else { Numbering::OfValue };
            let mut process = Process::new(numbering, given, 3, LIMIT);
            let mut sent = std::collections::BTreeMap::<u8, u32>::new();
            for (vm, key, times) in requests {
                for _ in 0..times {
                    let sent = sent.entry(key).or_default();
                    *sent += 1;
                    prop_assert_eq!(process.count(vm, key), *sent <= LIMIT, "request {} of key {}", sent, key);
                }
            }
        }
    }
}
