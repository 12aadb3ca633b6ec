use core::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::count::charge::Statements;
use crate::count::counters::Counters;
use crate::count::fingerprint::Who;
use crate::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use crate::count::swap::{CounterHost, LogLevel};
use crate::count::table::{Capacity, Counter};
use crate::quota::Mode;
use crate::time::Timestamp;

fn quota(limit: u32, window: &str) -> Quota {
    Quota {
        name: window.to_owned(),
        limit: NonZeroU32::new(limit).unwrap(),
        window: window.parse().unwrap(),
        mode: Mode::Enforced,
        refundable: true,
    }
}

/// Shared data, and a clock that a test sets.
#[derive(Default)]
struct TestHost {
    data: VmLocalData,
    seconds: u64,
}

impl SharedData for TestHost {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }
}

impl CounterHost for TestHost {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_seconds(self.seconds))
    }

    fn log(&mut self, _: LogLevel, _: core::fmt::Arguments<'_>) {}
}

/// One counter, and the charges that it was made.
struct Ledger {
    host: TestHost,
    counters: Counters,
    counter: Counter,
    quotas: Vec<Quota>,
    charges: Vec<(u32, Standings)>,
}

impl Ledger {
    fn new(quotas: Vec<Quota>) -> Self {
        let (mut host, capacity) = (TestHost::default(), Capacity { known: 4, strangers: 4 });
        let counters = Counters::open(&mut host, [7; 16], "", capacity).unwrap();
        let counter = counters.counter(Who::Subscriber("alice"), "standard");
        Self { host, counters, counter, quotas, charges: Vec::new() }
    }

    fn charge(&mut self, cost: u32, seconds: u64) -> bool {
        let Self { host, counters, counter, quotas, charges } = self;
        host.seconds = seconds;
        let (mut standings, mut none) = (Standings::new(), Statements::new());
        let charge = Charge { quotas, cost, shared: None };
        let admitted =
            counters.charge(host, counter, charge, &mut standings, &mut none).unwrap().is_admitted();
        if admitted {
            charges.push((cost, standings));
        }
        admitted
    }

    /// Settles a charge.
    fn settle(&mut self, place: usize, due: Due, seconds: u64) {
        let Self { host, counters, counter, quotas, charges } = self;
        host.seconds = seconds;
        let (cost, charged) = charges.remove(place);
        let mut standings = Standings::new();
        let charge = Charge { quotas, cost, shared: None };
        let settlement = Settlement { charge, charged: &charged, due, ends: false };
        counters.settle(host, counter, &settlement, &mut standings).unwrap();
        let reported: Vec<_> = standings.iter().map(|standing| standing.used).collect();
        assert_eq!(reported, self.used(seconds));
    }

    /// Resets a quota. Returns the units that were used of it.
    fn reset(&mut self, place: usize, seconds: u64) -> u32 {
        let Self { host, counters, counter, quotas, .. } = self;
        host.seconds = seconds;
        counters.reset(host, counter, &quotas[place..=place], None).unwrap().0
    }

    fn used(&mut self, seconds: u64) -> Vec<u32> {
        let Self { host, counters, counter, quotas, .. } = self;
        host.seconds = seconds;
        let standings = counters.standing(host, counter, quotas).unwrap();
        standings.iter().map(|standing| standing.used).collect()
    }

    /// Something else empties the entry.
    fn empty(&mut self) {
        let name = self.counter.entry;
        let (_, cas) = self.host.get(name.as_bytes()).unwrap().unwrap();
        assert_eq!(self.host.set(name.as_bytes(), b"", cas), Ok(Swap::Stored));
    }
}

#[test]
fn a_charge_becomes_what_was_due_in_the_windows_that_it_was_made_to() {
    let rows = [
        // due, when, used of the minute, and of the hour
        (Due::Units(4), 61, [4, 4]),
        (Due::Units(0), 119, [0, 0]),
        (Due::Units(250), 61, [250, 250]),
        (Due::Units(u32::MAX), 61, [u32::MAX, u32::MAX]),
        (Due::Refund, 61, [0, 10]),
        (Due::Units(4), 120, [0, 4]),
        (Due::Refund, 120, [0, 10]),
        (Due::Units(4), 3600, [0, 0]),
    ];
    for (due, when, used) in rows {
        let mut ledger =
            Ledger::new(vec![quota(100, "minute"), Quota { refundable: false, ..quota(1000, "hour") }]);
        assert!(ledger.charge(10, 60));
        ledger.settle(0, due, when);
        assert_eq!(ledger.used(when), used, "{due:?} at {when}");
    }
}

#[test]
fn what_is_charged_beyond_the_limit_the_next_requests_pay() {
    let mut ledger = Ledger::new(vec![quota(100, "minute")]);
    assert!(ledger.charge(10, 60));
    ledger.settle(0, Due::Units(250), 61);
    assert!(!ledger.charge(1, 119));
    assert!(ledger.charge(1, 120));
}

#[test]
fn quotas_with_one_window_share_a_count_which_is_settled_once() {
    let shadow = Quota { mode: Mode::Shadow, ..quota(5, "minute") };
    let mut ledger = Ledger::new(vec![quota(100, "minute"), shadow]);
    ledger.charge(10, 60);
    ledger.settle(0, Due::Units(4), 61);
    assert_eq!(ledger.used(61), [4, 4]);
}

#[test]
fn a_count_that_has_begun_again_is_not_the_one_that_was_charged() {
    // The clock steps back by more than a window, so that the use moves, and then returns to a window that begins again.
    let mut ledger = Ledger::new(vec![quota(100, "10s")]);
    ledger.charge(10, 500);
    ledger.charge(1, 100);
    assert_eq!(ledger.used(100), [11]);
    ledger.charge(2, 500);
    assert_eq!(ledger.used(500), [2]);
    ledger.settle(0, Due::Refund, 501);
    assert_eq!(ledger.used(501), [2]);

    // Something else has overwritten the entry, which is emptied.
    let mut ledger = Ledger::new(vec![quota(100, "10s")]);
    ledger.charge(10, 500);
    ledger.empty();
    ledger.charge(2, 501);
    ledger.settle(0, Due::Refund, 502);
    assert_eq!(ledger.used(502), [2]);
}

#[test]
fn a_charge_from_before_a_reset_is_not_settled_in_the_count_that_follows() {
    for (due, hour) in [(Due::Units(4), 12), (Due::Units(250), 258), (Due::Refund, 8)] {
        let mut ledger = Ledger::new(vec![quota(20, "minute"), quota(1000, "hour")]);
        ledger.charge(10, 60);
        assert_eq!(ledger.reset(0, 61), 10);
        ledger.charge(8, 62);
        assert_eq!(ledger.used(62), [8, 18]);
        // The hour has not been reset, so the charge is settled there.
        ledger.settle(0, due, 63);
        assert_eq!(ledger.used(63), [8, hour], "{due:?}");
    }
}

#[test]
fn a_reset_of_what_is_not_used_leaves_the_other_counts_alone() {
    let mut ledger = Ledger::new(vec![quota(20, "minute"), quota(1000, "hour")]);
    assert_eq!((ledger.reset(0, 60), ledger.used(60)), (0, vec![0, 0]));
    ledger.charge(10, 60);
    assert_eq!(ledger.reset(0, 120), 0, "the minute has ended");
    ledger.settle(0, Due::Units(4), 120);
    assert_eq!(ledger.used(120), [0, 4]);
}

#[test]
fn a_charge_whose_use_the_clock_has_moved_stands() {
    let mut ledger = Ledger::new(vec![quota(100, "10s")]);
    ledger.charge(10, 500);
    ledger.charge(1, 100);
    ledger.settle(0, Due::Refund, 101);
    assert_eq!(ledger.used(101), [11]);
}

proptest! {
    #[test]
    fn a_window_holds_exactly_what_its_requests_since_the_last_reset_were_due_or_have_reserved(
        limits in (20_u32..100, 20_u32..200),
        steps in prop::collection::vec((0_u64..20, 1_u32..9, prop::option::of((any::<prop::sample::Index>(), 0_u32..9, any::<bool>())), prop::option::weighted(0.1, 0_usize..2)), 1..120),
        beyond in any::<bool>(),
    ) {
        let quotas = vec![quota(limits.0, "minute"), Quota { refundable: false, ..quota(limits.1, "hour") }];
        let mut ledger = Ledger::new(quotas.clone());
        // For each quota, the window that a charge was made to, and what it holds of that; beside the open ones their number.
        let mut held: Vec<[(u32, u32); 2]> = Vec::new();
        let mut open = Vec::new();
        let mut now = 7200;
        for (forward, cost, settled, reset) in steps {
            now += forward;
            let current = |quota: &Quota| quota.window.at(Timestamp::from_seconds(now)).index;
            let sum = |held: &[[(u32, u32); 2]], place: usize| -> u32 {
                let of_window = held.iter().map(|charge| charge[place]);
                of_window.filter(|(index, _)| *index == current(&quotas[place])).map(|(_, units)| units).sum()
            };
            let fits = (0..2).all(|place| sum(&held, place) + cost <= quotas[place].limit.get());
            prop_assert_eq!(ledger.charge(cost, now), fits);
            if fits {
                open.push(held.len());
                held.push([0, 1].map(|place| (current(&quotas[place]), cost)));
            }
            if let Some(place) = reset {
                prop_assert_eq!(ledger.reset(place, now), sum(&held, place));
                // No charge from before the reset is in the count any more, whatever settles it.
                held.iter_mut().for_each(|charge| charge[place].0 = u32::MAX);
            }
            if let (Some((index, units, refunds)), false) = (settled, open.is_empty()) {
                let place = index.index(open.len());
                let charge = &mut held[open.remove(place)];
                let reserved = charge[0].1;
                let units = if beyond { units * 20 } else { units.min(reserved) };
                ledger.settle(place, if refunds { Due::Refund } else { Due::Units(units) }, now);
                charge[0].1 = if refunds { 0 } else { units };
                charge[1].1 = if refunds { reserved } else { units };
            }
            let used = ledger.used(now);
            for place in 0..2 {
                prop_assert_eq!(used[place], sum(&held, place));
                prop_assert!(beyond || used[place] <= quotas[place].limit.get());
            }
        }
    }
}
