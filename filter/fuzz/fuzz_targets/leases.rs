//! Leases: any answer of a service is read or refused, any record is charged or refused, and nothing is admitted beyond what is granted.
#![no_main]

use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use filter::count::consume::{Beyond, Charge, Charged, Shared, Standings};
use filter::count::counters::{Counter, CounterHost, Counters};
use filter::count::fingerprint::{Fingerprint, Who};
use filter::count::lease::LeaseTerms;
use filter::count::shared_data::{Cas, HostError, SharedData, Swap, VmLocalData};
use filter::count::table::Capacity;
use filter::fleet::protocol::Response;
use filter::quota::{Mode, Quota};
use filter::request::header_pairs::serialize;
use filter::time::Timestamp;
use filter::window::Window;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Charge { cost: u8 },
    Grant { units: u8, taken: u16 },
    Wait { milliseconds: u16 },
}

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    bytes: &'i [u8],
    limit: u16,
    min_window: u8,
    steps: Vec<Step>,
}

/// Shared data and a clock.
struct Host {
    data: VmLocalData,
    nanos: u64,
}

impl SharedData for Host {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.get(name)
    }

    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.set(name, value, cas)
    }
}

impl CounterHost for Host {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        Ok(Timestamp::from_nanos(self.nanos))
    }
}

fuzz_target!(|input: Input<'_>| {
    let headers = serialize(&[(":status", b"200"), ("grpc-status", b"0")]);
    let _ = Response::read(&headers, input.bytes, b"");
    let _ = Response::read(input.bytes, input.bytes, input.bytes);

    let limit = NonZeroU32::MIN.saturating_add(u32::from(input.limit));
    let quotas = [Quota {
        name: String::new(),
        limit,
        window: Window::MINUTE,
        mode: Mode::Enforced,
        refundable: true,
    }];
    let terms = LeaseTerms { min_window: u32::from(input.min_window), timeout: 250 };
    let charge = |fingerprint: Fingerprint, cost: u8| Charge {
        fingerprint,
        quotas: &quotas,
        cost: 1 + u32::from(cost),
        shared: Some(Shared { terms: &terms, beyond: Beyond::Ask }),
    };
    let mut host = Host { data: VmLocalData::default(), nanos: 1_700_000_040_000_000_000 };
    let at = Timestamp::from_nanos(host.nanos);
    let _ =
        charge(Fingerprint::from_number(1), 0).apply(input.bytes, at, &mut Vec::new(), &mut Standings::new());

    // What was granted and what was admitted in the current minute.
    let capacity = Capacity { known: 4, strangers: 4 };
    let mut counters = Counters::open(&mut host, [7; 16], "", capacity).expect("shared data");
    let place = counters.place(Counter { who: Who::Key(&[1; 32]), class: "standard" });
    let (mut minute, mut granted, mut admitted) = (0, 0_u64, 0_u64);
    for step in input.steps {
        let seconds = host.nanos / 1_000_000_000;
        if minute != seconds / 60 {
            (minute, granted, admitted) = (seconds / 60, 0, 0);
        }
        match step {
            Step::Wait { milliseconds } => host.nanos += u64::from(milliseconds) * 1_000_000,
            Step::Charge { cost } => {
                let charge = charge(place.fingerprint(), cost);
                let counted = counters.charge(&mut host, place, charge, &mut Standings::new());
                if let Charged::Admitted { .. } = counted.expect("an entry of our own").charged {
                    admitted += 1 + u64::from(cost);
                }
                assert!(admitted <= granted, "{admitted} admitted of {granted}");
            }
            Step::Grant { units, taken } => {
                let changed = counters.change_lease(&mut host, place, &quotas[0], |count, _| {
                    count.lease.granted += u32::from(units);
                    count.lease.taken = u32::from(taken);
                    Some(())
                });
                changed.expect("an entry of our own");
                granted += u64::from(units);
            }
        }
    }
});
