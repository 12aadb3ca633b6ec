//! Swapping without reading first: predicts the number that the host gave this VM's last write of an entry.
//!
//! Reading is the dearest call of counting, because a host hands a value over by calling back into the VM for memory. A VM knows what it
//! has written. What it lacks is the compare-and-swap number of that write. Envoy numbers all writes of the process one after the
//! other, so the number is the next after one that was issued before. A wrong prediction costs a call: the swap fails, and the entry is
//! read.
//!
//! # Why a swap with a predicted number never overwrites another VM's write
//!
//! Let `a` be the number that the host gave this VM's last write of an entry, and `p` the prediction.
//!
//! 1. `p ≤ a`, as long as the host numbers all writes of the process: `p` follows a number that was issued before the write.
//! 2. The numbers of an entry only rise. A swap with `p` succeeds only if the entry's number is `p`. That number is at least `a`, so `p`
//!    is `a`, and the entry is as this VM wrote it.
//!
//! "A number that was issued" is one that a read returned, or that number plus `k` if the entry that was read is this VM's write and this
//! VM has written `k` times since: the later writes got later numbers. An entry with the bytes of this VM's write *is* that
//! write, because each write of an entry counts up the entry's `writes`, and so leaves other bytes than any write before it.
//! Without that counter two VMs may leave equal bytes, the sum is too large, and (1) does not hold.
//!
//! That the host numbers all writes of the process has to be observed [`PROOFS`] times. Until then a number is predicted only if a host
//! that numbers the writes of each value would have given the same.
//!
//! Numbers have 32 bits and start again at 1. A prediction is used for [`MAX_AGE`], in which no process writes 2³² times.

use core::time::Duration;

use arrayvec::ArrayVec;

use super::shared_data::{Cas, Swap};
use super::table::EntryName;
use crate::time::Timestamp;

/// The largest entry that is remembered in its slot: one record of three windows, in no fleet.
const MAX_SMALL: usize = 66;

/// The largest entry that is remembered: the same with what a gateway of a fleet holds.
const MAX_VALUE: usize = 258;

/// Entries that are remembered at most, each in the one slot that it may have: 2.1 MB of each VM, and in a fleet at most 6.3 MB.
///
/// In Envoy 1.40, a request adds 9.1 µs without predictions, 8.0 with 2,048 slots and 7.7 with these while 100 keys are busy, and 8.5, 8.5 and
/// 7.9 while 10,000 are (`weir-bench --keys`, one run).
const MOST_SLOTS: usize = 16_384;
/// Slots for each entry of a smaller table, so that few entries have the same one: those drive each other out, and each request reads.
const SLOTS_OF_AN_ENTRY: usize = 64;

/// Observations that the host numbers all writes of the process before predictions rely on it.
const PROOFS: u8 = 3;

/// Age from which on a prediction is not used any more.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(60);

/// The pause between attempts doubles with each failure in a row, up to this many times.
const MAX_DOUBLINGS: u32 = 10;

/// Remembers what a VM has written, and what it knows of the host's numbers.
#[derive(Debug)]
pub(crate) struct CasPredictor {
    slots: Vec<Written>,
    /// A number that the host has issued: the latest that this VM can be sure of.
    issued: u32,
    has_read: bool,
    /// Writes of this VM.
    writes: u32,
    proofs: u8,
    failures: u32,
    /// Counts until the next attempt.
    pause: u32,
}

/// The last write of this VM to an entry.
#[derive(Clone, Debug, Default)]
struct Written {
    /// The default, which no entry has, if nothing is remembered.
    name: EntryName,
    small: ArrayVec<u8, MAX_SMALL>,
    /// The entry if it is larger; otherwise empty.
    large: Vec<u8>,
    /// The number that a host would give this write that numbers the writes of each value.
    after_replaced: Cas,
    /// The number that follows [`CasPredictor::issued`] as it was before the write.
    after_issued: Cas,
    /// The place of the write among this VM's.
    place: u32,
    at: Timestamp,
}

impl Written {
    /// Remembers the value. `false` if it is too large.
    fn put(&mut self, value: &[u8]) -> bool {
        self.small.clear();
        self.large.clear();
        self.small.try_extend_from_slice(value).is_ok() || self.put_large(value)
    }

    #[cold]
    fn put_large(&mut self, value: &[u8]) -> bool {
        let fits = value.len() <= MAX_VALUE;
        if fits {
            self.large.extend_from_slice(value);
        }
        fits
    }

    fn value(&self) -> &[u8] {
        if self.large.is_empty() { &self.small } else { &self.large }
    }
}

/// An entry as this VM wrote it, and the predicted number of that write.
#[derive(Debug)]
pub(crate) struct Predicted<'p> {
    pub(crate) value: &'p [u8],
    pub(crate) cas: Cas,
    /// The instant of the write.
    pub(crate) written: Timestamp,
}

impl CasPredictor {
    /// A predictor for a table with this number of entries.
    pub(crate) fn new(entries: u32) -> Self {
        let entries = usize::try_from(entries).unwrap_or(MOST_SLOTS);
        let slots = entries.saturating_mul(SLOTS_OF_AN_ENTRY).clamp(2, MOST_SLOTS).next_power_of_two();
        Self {
            slots: vec![Written::default(); slots],
            issued: 0,
            has_read: false,
            writes: 0,
            proofs: 0,
            failures: 0,
            pause: 0,
        }
    }

    /// The entry `name` and its number, if this VM may have been the last to write it. `None` as well while attempts fail too often.
    pub(crate) fn predict(&mut self, name: EntryName) -> Option<Predicted<'_>> {
        if let Some(pause) = self.pause.checked_sub(1) {
            self.pause = pause;
            return None;
        }
        let written = self.written(name)?;
        let is_sure = self.proofs >= PROOFS || written.after_issued == written.after_replaced;
        is_sure.then(|| Predicted { value: written.value(), cas: written.after_issued, written: written.at })
    }

    /// Forgets an entry, because the step on it was not stored: a client that is refused is likely to be refused again, and each refusal needs a
    /// read.
    pub(crate) fn forget(&mut self, name: EntryName) {
        let place = self.slot_of(name);
        if let Some(slot) = self.slots.get_mut(place)
            && slot.name == name
        {
            slot.name = EntryName::default();
        }
    }

    /// Notes the result of a swap with a predicted number.
    pub(crate) fn tried(&mut self, swap: Swap) {
        match swap {
            Swap::Stored => self.failures = 0,
            Swap::Conflict => {
                self.failures = self.failures.saturating_add(1);
                self.pause = (1 << self.failures.min(MAX_DOUBLINGS)) - 1;
            }
        }
    }

    /// Notes the value and the number of an entry that was read.
    pub(crate) fn read(&mut self, name: EntryName, value: &[u8], number: Cas) {
        let mut issued = number.0;
        if let Some(written) = self.written(name)
            && written.value() == value
        {
            issued = issued.wrapping_add(self.writes.wrapping_sub(written.place));
            if written.after_issued != written.after_replaced {
                match number {
                    number if number == written.after_issued => self.proofs = self.proofs.saturating_add(1),
                    number if number == written.after_replaced => self.proofs = 0,
                    _ => {}
                }
            }
        }
        // Numbers start again at 1 after the last, so the later of two is the one ahead by the shorter way.
        if !self.has_read || issued.wrapping_sub(self.issued) <= u32::MAX / 2 {
            self.issued = issued;
        }
        self.has_read = true;
    }

    /// Notes a write of this VM: the new value, and the number of the value that it replaced, if there was one.
    pub(crate) fn wrote(&mut self, name: EntryName, value: &[u8], replaced: Option<Cas>, at: Timestamp) {
        let after_issued = after(self.issued);
        self.wrote_unremembered();
        let place = self.slot_of(name);
        let Some(slot) = self.slots.get_mut(place) else { return };
        // Before the first read, no number is known that was issued.
        if !self.has_read || !slot.put(value) {
            slot.name = EntryName::default();
            return;
        }
        slot.name = name;
        slot.after_replaced = after(replaced.map_or(0, |Cas(number)| number));
        slot.after_issued = after_issued;
        slot.place = self.writes;
        slot.at = at;
    }

    /// Notes a write of this VM to an entry that is not remembered.
    pub(crate) fn wrote_unremembered(&mut self) {
        self.issued = after(self.issued).0;
        self.writes = self.writes.wrapping_add(1);
    }

    fn slot_of(&self, name: EntryName) -> usize {
        let spread = name.distinct().wrapping_mul(0x9E37_79B9);
        usize::try_from(spread >> (u32::BITS - self.slots.len().ilog2())).unwrap_or(0)
    }

    fn written(&self, name: EntryName) -> Option<&Written> {
        self.slots.get(self.slot_of(name)).filter(|written| written.name == name)
    }
}

/// The number after this one. The host never issues 0.
fn after(number: u32) -> Cas {
    Cas(number.checked_add(1).unwrap_or(1))
}

// 16,384 of these are 2.1 MB.
#[cfg(target_arch = "wasm32")]
const _: () = assert!(size_of::<Written>() <= 128);

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::count::charge::{Charge, Standings, Statements};
    use crate::count::counters::Counters;
    use crate::count::fingerprint::Who;
    use crate::count::shared_data::{HostError, SharedData, Swap};
    use crate::count::swap::{CounterHost, LogLevel};
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
        now: u64,
    }

    impl TestHost {
        fn new(numbering: Numbering, given: u32) -> Self {
            Self { numbering, given, values: Default::default(), reads: 0, conflicts: 0, now: 60 }
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
            Ok(Timestamp::from_seconds(self.now))
        }

        fn log(&mut self, _: LogLevel, _: core::fmt::Arguments<'_>) {}
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
            let quotas = [Quota {
                name: "q".into(),
                limit,
                window: Window::MINUTE,
                mode: Mode::Enforced,
                refundable: true,
            }];
            Self { host, vms, quotas }
        }

        fn count(&mut self, vm: usize, key: u8) -> bool {
            let vm = &mut self.vms[vm];
            let counter = vm.counter(Who::Key(&[key; 32]), "standard");
            let charge = Charge { quotas: &self.quotas, cost: 1, shared: None };
            let (mut standings, mut stated) = (Standings::new(), Statements::new());
            let counted = vm.charge(&mut self.host, &counter, charge, &mut standings, &mut stated).unwrap();
            counted.is_admitted()
        }

        fn used(&mut self, vm: usize, key: u8) -> u32 {
            let vm = &mut self.vms[vm];
            let counter = vm.counter(Who::Key(&[key; 32]), "standard");
            vm.standing(&mut self.host, &counter, &self.quotas).unwrap()[0].used
        }
    }

    #[test]
    fn a_vm_that_writes_alone_seldom_reads() {
        let of_value = Numbering::OfValue;
        for (numbering, given, keys, most) in [
            (Numbering::OfProcess, 0, 1, 10),
            // Some of a hundred keys share an entry.
            (Numbering::OfProcess, 0, 100, 200),
            (Numbering::OfProcess, u32::MAX - 500, 100, 300),
            // With more keys, such a host is read each time.
            (of_value, 0, 1, 10),
        ] {
            let mut process = Process::new(numbering, given, 1, 1_000_000);
            for round in 0..10_000 {
                assert!(process.count(0, (round % keys) as u8));
            }
            let TestHost { reads, conflicts, .. } = process.host;
            assert!(reads <= most && conflicts <= 20, "{numbering:?}, {keys} keys: {reads}, {conflicts}");
        }
    }

    /// Without `writes` in the entry, two VMs leave equal bytes here, a VM takes the other's write for its own, and its predictions
    /// run ahead of the numbers that the host issues. Then one of them is the number of the other VM's write.
    #[test]
    fn equal_counts_of_two_vms_are_not_taken_for_one_write() {
        const KEY: u8 = 1;
        let others = 5;
        let mut process = Process::new(Numbering::OfProcess, 0, 2, 1_000_000);
        // The first VM finds out how the host numbers writes.
        for round in 0..100 {
            process.count(0, round % 50 + 2);
        }
        process.host.now = 300;
        process.count(0, KEY);
        for other in 0..others {
            process.count(0, 100 + other);
        }
        // The second VM uses the next window; the clock steps back by two windows, and goes on: one unit of the same window again.
        for now in [360, 240, 300] {
            process.host.now = now;
            process.count(1, KEY);
        }
        assert_eq!(process.used(0, KEY), 1);
        // The first VM reads that. It would predict a number for its next write that comes later than the one the host gives it,
        process.count(0, KEY);
        process.count(0, 100);
        // and that the host gives to the last of these.
        for _ in 1..others {
            process.count(1, KEY);
        }
        process.count(0, KEY);
        assert_eq!(process.used(1, KEY), 2 + u32::from(others), "a write was lost");
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
