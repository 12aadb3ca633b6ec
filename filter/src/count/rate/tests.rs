use core::num::NonZeroU64;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::*;

/// What happens at a rate, this many nanoseconds after what happened before.
#[derive(Clone, Debug)]
enum Step {
    Charge(u32),
    /// Part of a charge is given back: which charge, and how much of it.
    GiveBack(Index, Index),
}

/// Nanoseconds of a unit, units of the burst, and what happens.
type Story = (u64, u32, Vec<(u64, Step)>);

fn stories() -> impl Strategy<Value = Story> {
    (prop_oneof![Just(1u64), Just(7), Just(100), Just(333)], 1u32..13).prop_flat_map(|(unit, burst)| {
        let charge = (1..=burst.min(3)).prop_map(Step::Charge);
        let give_back = any::<(Index, Index)>().prop_map(|(which, part)| Step::GiveBack(which, part));
        let pause = prop_oneof![
            2 => Just(0),
            1 => Just(1),
            1 => 0..=unit,
            1 => 0..=3 * unit,
            1 => 0..=2 * u64::from(burst) * unit,
        ];
        (Just(unit), Just(burst), vec((pause, prop_oneof![2 => charge, 1 => give_back]), 1..60))
    })
}

/// A charge that was admitted: its instant, what is left of it, and what it left behind.
struct Admitted {
    at: u64,
    units: u32,
    left_behind: Flow,
}

/// Tells the story. Returns what was admitted, and each request that was refused: its instant, its units and how many were admitted before it.
fn tell(
    (unit, burst, steps): &Story,
    give_back: impl Fn(&mut Flow, u32, Flow, Rate, Timestamp),
) -> (Vec<Admitted>, Vec<(u64, u32, usize)>) {
    let rate = Rate::new(NonZeroU64::new(*unit).unwrap(), *burst);
    let (mut flow, mut nanos) = (Flow::default(), 0);
    let (mut admitted, mut refused) = (Vec::<Admitted>::new(), Vec::new());
    for (pause, step) in steps {
        nanos += pause;
        let now = Timestamp::from_nanos(nanos);
        match step {
            Step::Charge(units) if flow.left(rate, now) < *units => {
                refused.push((nanos, *units, admitted.len()));
            }
            Step::Charge(units) => {
                flow.charge(*units, rate, now);
                admitted.push(Admitted { at: nanos, units: *units, left_behind: flow });
            }
            Step::GiveBack(which, part) if !admitted.is_empty() => {
                let charge = which.get(&admitted);
                if charge.units > 0 {
                    let back = 1 + u32::try_from(part.index(charge.units as usize)).unwrap();
                    give_back(&mut flow, back, charge.left_behind, rate, now);
                    let place = which.index(admitted.len());
                    // It is given back once.
                    admitted[place].left_behind = Flow::default();
                    admitted[place].units -= back;
                }
            }
            Step::GiveBack(..) => {}
        }
    }
    (admitted, refused)
}

/// Whether in some interval more was admitted than the burst and what flows back in it.
fn exceeds_in_some_interval((unit, burst, _): &Story, admitted: &[Admitted]) -> bool {
    admitted.iter().enumerate().any(|(first, begin)| {
        let mut total = 0;
        admitted[first..].iter().any(|charge| {
            total += u64::from(charge.units);
            total * unit > u64::from(*burst) * unit + charge.at - begin.at
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn in_no_interval_more_is_admitted_than_the_burst_and_what_flows_back_in_it(story in stories()) {
        let (admitted, _) = tell(&story, Flow::give_back);
        prop_assert!(!exceeds_in_some_interval(&story, &admitted));
    }

    #[test]
    fn a_request_is_refused_only_if_it_would_be_too_much_in_some_interval((unit, burst, mut steps) in stories()) {
        steps.retain(|(_, step)| matches!(step, Step::Charge(_)));
        let story = (unit, burst, steps);
        let (mut admitted, refused) = tell(&story, Flow::give_back);
        for (at, units, before) in refused {
            admitted.truncate(admitted.len().max(before));
            let mut with: Vec<_> = admitted[..before].iter().map(|charge| Admitted { ..*charge }).collect();
            with.push(Admitted { at, units, left_behind: Flow::default() });
            prop_assert!(exceeds_in_some_interval(&story, &with), "{units} at {at}");
        }
    }
}

#[test]
fn a_charge_that_is_simply_taken_off_exceeds_the_promise() {
    let naive = |flow: &mut Flow, units: u32, _: Flow, rate: Rate, _: Timestamp| {
        flow.tat = flow.tat.saturating_sub(rate.of(units));
    };
    // Without what others have been given back since.
    let tail = |flow: &mut Flow, units: u32, charged: Flow, rate: Rate, now: Timestamp| {
        flow.give_back(units, Flow { given: flow.given, ..charged }, rate, now);
    };
    let mut runner = TestRunner::deterministic();
    let mut exceeded = [0; 2];
    for _ in 0..20_000 {
        let story = stories().new_tree(&mut runner).unwrap().current();
        exceeded[0] += u32::from(exceeds_in_some_interval(&story, &tell(&story, naive).0));
        exceeded[1] += u32::from(exceeds_in_some_interval(&story, &tell(&story, tail).0));
    }
    assert!(exceeded[0] > 200 && exceeded[1] > 0, "{exceeded:?}");
}

#[test]
fn what_is_said_of_a_rate_is_what_becomes_of_the_next_requests() {
    // Ten a second, twenty at once.
    let rate = Rate::new(NonZeroU64::new(100_000_000).unwrap(), 20);
    let at = |millis: u64| Timestamp::from_nanos((1_000_000 + millis) * 1_000_000);
    let mut flow = Flow { tat: at(0).nanos(), given: 0 };
    assert_eq!(rate.seconds(), 2);
    //   at, units, left afterwards, when all are back, seconds until 1 and until 20 are there
    let rows = [
        (0, 1, 19, 1_001, 0, 1),
        (0, 19, 0, 1_002, 1, 2),
        (50, 0, 0, 1_002, 1, 2),
        (100, 1, 0, 1_003, 1, 2),
        (1_200, 1, 10, 1_003, 0, 1),
        (9_000, 20, 0, 1_011, 1, 2),
    ];
    for (millis, units, left, full, until_one, until_all) in rows {
        let now = at(millis);
        assert!(flow.left(rate, now) >= units, "at {millis}");
        if units > 0 {
            flow.charge(units, rate, now);
        }
        let said = (
            flow.left(rate, now),
            flow.full_at(),
            flow.seconds_until(1, rate, now),
            flow.seconds_until(20, rate, now),
        );
        assert_eq!(said, (left, full, until_one, until_all), "at {millis}");
    }
}

#[test]
fn a_clock_that_was_ahead_and_a_cost_that_is_too_high_lock_out_for_twice_the_burst_at_most() {
    let rate = Rate::new(NonZeroU64::new(1_000).unwrap(), 10);
    let now = Timestamp::from_nanos(1_000_000);
    let mut ahead = Flow { tat: 9_000_000, given: 3 };
    assert!(ahead.clamp(rate, now) && !ahead.clamp(rate, now));
    assert_eq!(ahead, Flow { tat: 1_020_000, given: 3 });
    let mut costly = Flow::default();
    costly.charge(u32::MAX, rate, now);
    assert_eq!(costly.tat, 1_020_000);
    assert_eq!((costly.left(rate, now), costly.left(rate, Timestamp::from_nanos(1_011_000))), (0, 1));
}
