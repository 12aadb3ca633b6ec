use core::num::NonZeroU32;

use super::*;
use crate::count::entry::MAX_RECORDS;
use crate::count::fingerprint::ClientAddress;
use crate::count::shared_data::{Cas, Swap, VmLocalData, compare_and_swap};
use crate::count::swap::{LogLevel, MAX_ATTEMPTS};
use crate::quota::Mode;
use crate::window::Window;

type Whose<'a> = (Who<'a>, &'a str);

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

    fn log(&mut self, _: LogLevel, _: core::fmt::Arguments<'_>) {}
}

const CAPACITY: Capacity = Capacity { known: 64, strangers: 4 };
const ALICE: Whose<'static> = (Who::Key(&[1; 32]), "standard");

fn minutely(limit: u32) -> [Quota; 1] {
    let limit = NonZeroU32::new(limit).unwrap();
    [Quota { name: "q".to_owned(), limit, window: Window::MINUTE, mode: Mode::Enforced, refundable: true }]
}

fn stranger(number: u8) -> Whose<'static> {
    let address = format!("192.0.2.{number}");
    (Who::Address(ClientAddress::parse(address.as_bytes(), 64)), "address")
}

fn count(
    counters: &mut Counters,
    host: &mut TestHost,
    (who, class): Whose<'_>,
    quotas: &[Quota],
    cost: u32,
) -> Result<(Counted, u32), CountError> {
    let (counter, mut standings) = (counters.counter(who, class), Standings::new());
    let charge = Charge { quotas, cost, shared: None };
    let counted = counters.charge(host, &counter, charge, &mut standings, &mut Statements::new())?;
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
fn a_malformed_entry_is_begun_again_by_the_request_that_finds_it_and_a_lost_race_is_a_conflict_like_any_other()
 {
    for conflicts in [0, 3] {
        let mut host = TestHost::default();
        let mut counters = Counters::open(&mut host, [7; 16], "", CAPACITY).unwrap();
        let alice = counters.counter(ALICE.0, ALICE.1);
        compare_and_swap(&mut host, alice.entry.as_bytes(), None, b"not ours").unwrap();
        assert_eq!(counters.standing(&mut host, &alice, &minutely(1)).unwrap()[0].used, 0);
        assert_eq!(counters.take_noted().repairs, 0, "looking changes nothing");
        host.conflicts = conflicts;
        let admitted = [(); 3]
            .map(|()| count(&mut counters, &mut host, ALICE, &minutely(1), 1).unwrap().0.is_admitted());
        assert_eq!(
            (admitted, counters.take_noted().repairs),
            ([true, false, false], 1),
            "{conflicts} conflicts"
        );
    }
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
        admitted_beyond += usize::from(counted.overflowed && counted.is_admitted());
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
    let alice = counters.counter(ALICE.0, ALICE.1);
    for _ in 0..2 {
        let standings = counters.standing(&mut host, &alice, &minutely(9)).unwrap();
        assert_eq!(standings[0].used, 3);
    }
}
