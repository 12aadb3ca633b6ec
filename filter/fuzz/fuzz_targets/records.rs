//! Counters' records: any bytes are read or refused, what is written is read, and what is counted and settled is what a plain map counts.
#![no_main]

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use filter::count::charge::{Charge, Standings, Statements};
use filter::count::counters::Counters;
use filter::count::entry::MAX_BYTES;
use filter::count::fingerprint::Who;
use filter::count::settle::{Due, Settlement};
use filter::count::shared_data::{Cas, HostError, SharedData, Swap};
use filter::count::swap::{CounterHost, LogLevel};
use filter::count::table::Capacity;
use filter::quota::{Mode, Quota};
use filter::time::Timestamp;
use filter::window::Window;
use libfuzzer_sys::fuzz_target;

/// Fewer than an entry has room for, so that none is full.
const COUNTERS: u64 = 24;

/// Room for four records, so that all counters share an entry.
const CAPACITY: Capacity = Capacity { known: 4, strangers: 4 };

/// Shared data of one VM, and its clock.
#[derive(Default)]
struct OneVm {
    values: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
    seconds: u64,
}

impl SharedData for OneVm {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.values.get(name).map(|(value, cas)| (value.clone(), Cas(*cas))))
    }

    fn set(&mut self, name: &[u8], value: &[u8], Cas(cas): Cas) -> Result<Swap, HostError> {
        let stored = self.values.entry(name.to_vec()).or_default();
        if stored.1 != 0 && stored.1 != cas {
            return Ok(Swap::Conflict);
        }
        *stored = (value.to_vec(), stored.1 + 1);
        Ok(Swap::Stored)
    }
}

impl CounterHost for OneVm {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_seconds(self.seconds))
    }

    fn log(&mut self, _: LogLevel, _: std::fmt::Arguments<'_>) {}
}

impl OneVm {
    fn counters(&mut self) -> Counters {
        Counters::open(self, [7; 16], "", CAPACITY).expect("counters")
    }

    /// Puts these bytes in the place of every entry. The header comes first.
    fn overwrite(&mut self, bytes: &[u8]) {
        for (value, cas) in self.values.values_mut().skip(1) {
            bytes.clone_into(value);
            *cas += 1;
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Step {
    counter: u64,
    /// A window's length in seconds and a limit, each in a range where windows meet and limits are met.
    quotas: Vec<(u8, u8, bool)>,
    cost: u8,
    seconds: u8,
    /// A charge to settle, by its place among those that are open, and the units that were due; none for a refund.
    settled: Option<(u8, Option<u8>)>,
}

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    bytes: &'i [u8],
    steps: Vec<Step>,
}

fn quotas(given: &[(u8, u8, bool)]) -> Vec<Quota> {
    let quota = |(window, limit, enforced): &(u8, u8, bool)| Quota {
        name: String::new(),
        limit: NonZeroU32::MIN.saturating_add(u32::from(limit % 8)),
        window: Window::from_code(u32::from(window % 4) * 30),
        mode: if *enforced { Mode::Enforced } else { Mode::Shadow },
        refundable: true,
    };
    given.iter().take(4).map(quota).collect()
}

/// Counts in a map, by fingerprint and window: which of the windows it was, and what was used in it.
#[derive(Default)]
struct Model(HashMap<(u64, Window), (u32, u32)>);

impl Model {
    fn used(&self, fingerprint: u64, window: Window, now: Timestamp) -> u32 {
        let (index, used) = self.0.get(&(fingerprint, window)).copied().unwrap_or_default();
        if index == window.at(now).index { used } else { 0 }
    }

    fn consume(&mut self, fingerprint: u64, quotas: &[Quota], cost: u32, now: Timestamp) -> bool {
        let fits = |quota: &Quota| self.used(fingerprint, quota.window, now) + cost <= quota.limit.get();
        if !quotas.iter().all(|quota| quota.mode == Mode::Shadow || fits(quota)) {
            return false;
        }
        let mut windows: Vec<_> = quotas.iter().map(|quota| quota.window).collect();
        windows.sort_unstable();
        windows.dedup();
        for window in windows {
            let used = self.used(fingerprint, window, now) + cost;
            self.0.insert((fingerprint, window), (window.at(now).index, used));
        }
        true
    }

    /// Settles a charge of `cost` in the windows that it was made to.
    fn settle(&mut self, fingerprint: u64, windows: &[(Window, u32)], cost: u32, due: u32) {
        for (window, index) in windows {
            if let Some((current, used)) = self.0.get_mut(&(fingerprint, *window))
                && current == index
            {
                *used = *used - cost + due;
            }
        }
    }
}

/// A charge that is not settled yet.
struct Open {
    number: u64,
    quotas: Vec<Quota>,
    cost: u32,
    standings: Standings,
}

impl Open {
    /// The windows that it was made to, each once.
    fn windows(&self) -> Vec<(Window, u32)> {
        let mut windows: Vec<_> = self
            .quotas
            .iter()
            .zip(&self.standings)
            .map(|(quota, standing)| (quota.window, standing.index))
            .collect();
        windows.sort_unstable();
        windows.dedup();
        windows
    }
}

fuzz_target!(|input: Input<'_>| {
    // A clock that goes on: what one that steps back may do, the filter's own tests say.
    let (mut odd, mut host) = (OneVm::default(), OneVm::default());
    (odd.seconds, host.seconds) = (1_700_000_000, 1_700_000_000);
    let (mut odd_counters, mut counters) = (odd.counters(), host.counters());
    let (mut standings, mut model) = (Standings::new(), Model::default());
    let mut open: Vec<Open> = Vec::new();
    for Step { counter, quotas: given, cost, seconds, settled } in input.steps {
        odd.seconds += u64::from(seconds);
        host.seconds = odd.seconds;
        let (at, quotas, cost) =
            (Timestamp::from_seconds(host.seconds), quotas(&given), 1 + u32::from(cost % 4));
        let number = 1 + counter % COUNTERS;
        let id = number.to_string();
        let charge = Charge { quotas: &quotas, cost, shared: None };
        let mut none = Statements::new();

        // An entry that may be anything is counted in or begun again, and never grows.
        let counter = odd_counters.counter(Who::Subscriber(&id), "c");
        odd.overwrite(input.bytes);
        let _ = odd_counters.charge(&mut odd, &counter, charge, &mut standings, &mut none);
        assert!(odd.values.values().all(|(value, _)| value.len() <= MAX_BYTES.max(input.bytes.len())));

        // An entry of our own.
        let counter = counters.counter(Who::Subscriber(&id), "c");
        let before: Vec<_> = quotas.iter().map(|quota| model.used(number, quota.window, at)).collect();
        let peeked = counters.standing(&mut host, &counter, &quotas).expect("an entry of our own");
        assert_eq!(peeked.iter().map(|standing| standing.used).collect::<Vec<_>>(), before);
        let counted = counters.charge(&mut host, &counter, charge, &mut standings, &mut none);
        let counted = counted.expect("an entry of our own");
        assert_eq!(counted.is_admitted(), model.consume(number, &quotas, cost, at), "{quotas:?}");
        if counted.is_admitted() {
            let standings = standings.clone();
            open.push(Open { number, quotas: quotas.clone(), cost, standings });
        }

        if let Some((place, units)) = settled
            && !open.is_empty()
        {
            let settled = open.swap_remove(usize::from(place) % open.len());
            let Open { number, quotas, cost, standings: charged } = &settled;
            let due = units.map_or(Due::Refund, |units| Due::Units(u32::from(units)));
            let charge = Charge { quotas, cost: *cost, shared: None };
            let settlement = Settlement { charge, charged, due, ends: false };
            let counter = counters.counter(Who::Subscriber(&number.to_string()), "c");
            counters.settle(&mut host, &counter, &settlement, &mut standings).expect("an entry of our own");
            model.settle(*number, &settled.windows(), *cost, units.map_or(0, u32::from));
        }
    }
    assert_eq!(counters.take_noted().repairs, 0);
});
