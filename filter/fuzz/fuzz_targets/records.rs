//! Counters' records: any bytes are read or refused, what is written is read, and what is counted and settled is what a plain map counts.
#![no_main]

use std::collections::HashMap;
use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use filter::count::consume::{Charge, Charged, Standings, peek};
use filter::count::entry::{EntryError, MAX_LEASED_BYTES};
use filter::count::fingerprint::Fingerprint;
use filter::count::settle::{Due, Settlement};
use filter::quota::{Mode, Quota};
use filter::time::Timestamp;
use filter::window::Window;
use libfuzzer_sys::fuzz_target;

/// Fewer than an entry has room for, so that none is full.
const FINGERPRINTS: u64 = 24;

#[derive(Arbitrary, Debug)]
struct Step {
    fingerprint: u64,
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
    let mut now = 1_700_000_000;
    let (mut next, mut standings) = (Vec::new(), Standings::new());
    let (mut any, mut entry, mut model) = (input.bytes.to_vec(), Vec::new(), Model::default());
    let mut open: Vec<Open> = Vec::new();
    for Step { fingerprint, quotas: given, cost, seconds, settled } in input.steps {
        now += u64::from(seconds);
        let (at, quotas, cost) = (Timestamp::from_seconds(now), quotas(&given), 1 + u32::from(cost % 4));
        let number = 1 + fingerprint % FINGERPRINTS;
        let fingerprint = Fingerprint::from_number(number);

        let charge = Charge { fingerprint, quotas: &quotas, cost, shared: None };

        // Bytes that may be anything.
        match charge.apply(&any, at, &mut next, &mut standings) {
            Ok((_, true)) => {
                assert!(next.len() <= MAX_LEASED_BYTES);
                assert!(peek(&next, &charge, at).is_ok(), "what was written is not read");
                any.clone_from(&next);
            }
            Ok((_, false)) => {}
            Err(EntryError::Malformed) => assert!(peek(&any, &charge, at).is_err()),
            Err(EntryError::Full | EntryError::TooManyWindows) => {}
        }

        // An entry of our own.
        let before: Vec<_> = quotas.iter().map(|quota| model.used(number, quota.window, at)).collect();
        let peeked = peek(&entry, &charge, at).expect("an entry of our own");
        assert_eq!(peeked.iter().map(|standing| standing.used).collect::<Vec<_>>(), before);
        let (charged, stores) =
            charge.apply(&entry, at, &mut next, &mut standings).expect("an entry of our own");
        let admitted = matches!(charged, Charged::Admitted { .. });
        assert_eq!(admitted, stores, "time went on, so nothing moved");
        if stores {
            entry.clone_from(&next);
        }
        assert_eq!(admitted, model.consume(number, &quotas, cost, at), "{quotas:?}");
        if admitted {
            let standings = standings.clone();
            open.push(Open { number, quotas: quotas.clone(), cost, standings });
        }

        if let Some((place, units)) = settled
            && !open.is_empty()
        {
            let settled = open.swap_remove(usize::from(place) % open.len());
            let Open { number, quotas, cost, standings: charged } = &settled;
            let due = units.map_or(Due::Refund, |units| Due::Units(u32::from(units)));
            let fingerprint = Fingerprint::from_number(*number);
            let charge = Charge { fingerprint, quotas, cost: *cost, shared: None };
            let settlement = Settlement { charge, charged, due };
            let (_, stores) =
                settlement.apply(&entry, at, &mut next, &mut standings).expect("an entry of our own");
            if stores {
                entry.clone_from(&next);
            }
            model.settle(*number, &settled.windows(), *cost, units.map_or(0, u32::from));
        }
    }
});
