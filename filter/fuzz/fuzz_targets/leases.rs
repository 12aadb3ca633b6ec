//! Leases: any answer of a service is read or refused, any record is drawn on or refused, and nothing is admitted beyond what is granted.
#![no_main]

use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use filter::count::draw::{Answer, Ask, Beyond, Draw, Drawn, settle};
use filter::count::consume::Standings;
use filter::count::fingerprint::Fingerprint;
use filter::request::header_pairs::serialize;
use filter::count::lease::LeaseTerms;
use filter::quota::{Mode, Quota};
use filter::window::Window;
use filter::fleet::protocol::Response;
use filter::count::entry::MAX_LEASED_BYTES;
use filter::time::Timestamp;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Draw { cost: u8, beyond: u8 },
    Settle { left: Option<u32>, over: bool },
    Wait { milliseconds: u16 },
}

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    bytes: &'i [u8],
    limit: u16,
    min_window: u8,
    steps: Vec<Step>,
}

fuzz_target!(|input: Input<'_>| {
    let headers = serialize(&[(":status", b"200"), ("grpc-status", b"0")]);
    let _ = Response::read(&headers, input.bytes, b"");
    let _ = Response::read(input.bytes, input.bytes, input.bytes);

    let limit = NonZeroU32::MIN.saturating_add(u32::from(input.limit));
    let quotas = [Quota { name: String::new(), limit, window: Window::MINUTE, mode: Mode::Enforced }];
    let terms = LeaseTerms { min_window: u32::from(input.min_window), timeout: 250 };
    let fingerprint = Fingerprint::from_number(1);
    let draw = |cost: u8, beyond| Draw {
        fingerprint,
        quotas: &quotas,
        cost: 1 + u32::from(cost),
        terms: &terms,
        beyond,
    };
    let (mut next, mut standings) = (Vec::new(), Standings::new());
    let mut now = 1_700_000_040_000_000_000;
    let _ = draw(0, Beyond::Ask).from(input.bytes, Timestamp::from_nanos(now), &mut next, &mut standings);

    // What was granted and what was admitted in the minute of `now`, of an entry of our own.
    let (mut entry, mut asked) = (Vec::new(), None::<Ask>);
    let (mut minute, mut granted, mut admitted) = (0, 0_u64, 0_u64);
    for step in input.steps {
        let at = Timestamp::from_nanos(now);
        if minute != at.seconds() / 60 {
            (minute, granted, admitted) = (at.seconds() / 60, 0, 0);
        }
        match step {
            Step::Wait { milliseconds } => now += u64::from(milliseconds) * 1_000_000,
            Step::Draw { cost, beyond } => {
                let beyond = if beyond % 2 == 0 { Beyond::Ask } else { Beyond::Nothing };
                let drawn = draw(cost, beyond)
                    .from(&entry, at, &mut next, &mut standings)
                    .expect("an entry of our own");
                match drawn {
                    Drawn::Admitted(ask) => {
                        admitted += 1 + u64::from(cost);
                        asked = ask.or(asked);
                    }
                    Drawn::Short(ask) => asked = Some(ask),
                    Drawn::Refused { moved } => assert!(!moved, "time went on"),
                }
                if !matches!(drawn, Drawn::Refused { .. }) {
                    assert!(next.len() <= MAX_LEASED_BYTES);
                    entry.clone_from(&next);
                }
                assert!(admitted <= granted, "{admitted} admitted of {granted}");
            }
            Step::Settle { left, over } => {
                let Some(ask) = asked.take() else { continue };
                assert!(ask.units > 0);
                let left = left.map(|left| left % limit);
                let answer = if over { Answer::OverLimit { left } } else { Answer::Granted { left } };
                let settled = settle(&entry, fingerprint, &quotas[0], ask, answer, at, &mut next);
                if settled.expect("an entry of our own") {
                    granted += if over { 0 } else { u64::from(ask.units) };
                    entry.clone_from(&next);
                }
            }
        }
    }
});
