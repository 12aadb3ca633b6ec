use core::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::count::entry::{COUNT, ENTRY_HEAD, EntryError, MAX_BYTES, MAX_RECORDS, RECORD_HEAD};
use crate::count::fingerprint::Fingerprint;
use crate::count::table::{Counter, EntryName, FORM, Table};
use crate::time::Timestamp;

const ALICE: Fingerprint = Fingerprint::from_number(1);

/// A counter of this gateway alone.
fn counter(fingerprint: Fingerprint) -> Counter {
    Counter { table: Table::Known, fingerprint, entry: EntryName::default(), in_fleet: false }
}

fn quota(limit: u32, window: &str, mode: Mode) -> Quota {
    Quota {
        name: window.to_owned(),
        limit: NonZeroU32::new(limit).unwrap(),
        window: window.parse().unwrap(),
        mode,
        refundable: true,
    }
}

fn enforced(limit: u32, window: &str) -> Quota {
    quota(limit, window, Mode::Enforced)
}

/// An entry, and what a host would do with it.
#[derive(Default)]
struct Stored(Vec<u8>);

impl Stored {
    /// Consumes and stores: whether the request was admitted, and units used and seconds of reset for each quota.
    fn consume(
        &mut self,
        who: Fingerprint,
        quotas: &[Quota],
        cost: u32,
        now: Timestamp,
    ) -> Result<(bool, Vec<(u32, u64)>), EntryError> {
        let (mut record, mut standings, mut none) = (Record::default(), Standings::new(), Statements::new());
        record.open(&self.0, &counter(who), quotas, now).expect("a well-formed entry")?;
        let charge = Charge { quotas, cost, shared: None };
        let admitted = match charge.apply(&mut record, &mut standings, &mut none) {
            Step::Keep((admitted, _)) => admitted,
            Step::Store((admitted, _)) => {
                record.encode(&mut self.0);
                assert!(self.0.len() <= MAX_BYTES);
                admitted
            }
        };
        Ok((
            admitted == Admission::Admitted,
            standings.iter().zip(quotas).map(|(at, quota)| (at.used, at.reset(quota))).collect(),
        ))
    }
}

fn at(seconds: f64) -> Timestamp {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive test instants"
    )]
    Timestamp::from_nanos((seconds * 1e9) as u64)
}

#[test]
fn a_window_refills_when_it_ends_and_not_before() {
    let quotas = [enforced(3, "10s")];
    let mut stored = Stored::default();
    let steps = [
        // at    cost  admitted  used  reset
        (100.0, 1, true, 1, 110),
        (104.0, 2, true, 3, 110),
        (105.0, 1, false, 3, 110),
        (109.999_999, 1, false, 3, 110),
        (110.0, 3, true, 3, 120),
        (119.0, 1, false, 3, 120),
        (500.0, 1, true, 1, 510),
    ];
    for (now, cost, admitted, used, reset) in steps {
        assert_eq!(
            stored.consume(ALICE, &quotas, cost, at(now)),
            Ok((admitted, vec![(used, reset)])),
            "at {now}"
        );
    }
}

#[test]
fn several_quotas_are_consumed_together_or_not_at_all() {
    let quotas = [enforced(2, "second"), enforced(3, "minute")];
    let mut stored = Stored::default();
    let steps = [
        (60.0, true, [(1, 61), (1, 120)]),
        (60.1, true, [(2, 61), (2, 120)]),
        (60.2, false, [(2, 61), (2, 120)]),
        (61.0, true, [(1, 62), (3, 120)]),
        (61.1, false, [(1, 62), (3, 120)]),
        (62.0, false, [(0, 63), (3, 120)]),
        (120.0, true, [(1, 121), (1, 180)]),
    ];
    for (now, admitted, standings) in steps {
        assert_eq!(
            stored.consume(ALICE, &quotas, 1, at(now)),
            Ok((admitted, standings.to_vec())),
            "at {now}"
        );
    }
}

#[test]
fn a_shadow_quota_counts_with_the_enforced_one_of_its_window_and_never_refuses() {
    let quotas = [enforced(3, "minute"), quota(1, "minute", Mode::Shadow), quota(2, "hour", Mode::Shadow)];
    let mut stored = Stored::default();
    for used in 1..=3 {
        let (admitted, standings) = stored.consume(ALICE, &quotas, 1, at(60.0)).unwrap();
        assert!(admitted);
        assert_eq!(standings, [(used, 120), (used, 120), (used, 3600)]);
    }
    assert!(!stored.consume(ALICE, &quotas, 1, at(60.0)).unwrap().0);
}

#[test]
fn a_new_limit_applies_to_what_was_used() {
    let mut stored = Stored::default();
    for (limit, admitted, used) in [(2, true, 1), (2, true, 2), (2, false, 2), (4, true, 3), (1, false, 3)] {
        let answer = stored.consume(ALICE, &[enforced(limit, "minute")], 1, at(60.0));
        assert_eq!(answer, Ok((admitted, vec![(used, 120)])), "limit {limit}");
    }
}

#[test]
fn a_window_of_another_configuration_is_kept_while_it_lasts() {
    let mut stored = Stored::default();
    stored.consume(ALICE, &[enforced(9, "hour")], 5, at(0.0)).unwrap();
    stored.consume(ALICE, &[enforced(9, "minute")], 1, at(1.0)).unwrap();
    assert_eq!(stored.consume(ALICE, &[enforced(9, "hour")], 1, at(2.0)), Ok((true, vec![(6, 3600)])));
    stored.consume(ALICE, &[enforced(9, "minute")], 1, at(3600.0)).unwrap();
    assert_eq!(stored.0.len(), ENTRY_HEAD + RECORD_HEAD + COUNT, "the ended hour is gone");
}

#[test]
fn a_clock_that_steps_back_gives_no_quota_back_and_locks_out_for_two_windows_at_most() {
    let quotas = [enforced(2, "10s")];
    let rows = [
        // two requests at,  the third at,  admitted,  used,  reset
        (110.0, 109.5, false, 2, 120), // by less than a window: the stored window stands
        (110.0, 100.0, false, 2, 120),
        (110.0, 99.9, false, 2, 100), // further: the use moves to the current window
        (500.0, 108.0, false, 2, 110),
        (500.0, 499.0, false, 2, 510),
    ];
    for (first, then, admitted, used, reset) in rows {
        let mut stored = Stored::default();
        assert!(stored.consume(ALICE, &quotas, 2, at(first)).unwrap().0);
        let answer = stored.consume(ALICE, &quotas, 1, at(then));
        assert_eq!(answer, Ok((admitted, vec![(used, reset)])), "{first} then {then}");
    }
    // The clock catches up: the window that was used up stays used up.
    for back in [2.0, 9.9] {
        let mut stored = Stored::default();
        stored.consume(ALICE, &quotas, 2, at(110.5)).unwrap();
        for now in [110.5 - back, 109.9, 110.0, 119.9] {
            assert!(!stored.consume(ALICE, &quotas, 1, at(now)).unwrap().0, "back by {back}, at {now}");
        }
        assert!(stored.consume(ALICE, &quotas, 1, at(120.0)).unwrap().0);
    }
    // However long the refusals go on.
    let mut stored = Stored::default();
    stored.consume(ALICE, &quotas, 2, at(500.0)).unwrap();
    for (now, admitted) in [(108.0, false), (109.9, false), (110.0, true), (111.0, true), (112.0, false)] {
        assert_eq!(stored.consume(ALICE, &quotas, 1, at(now)).unwrap().0, admitted, "at {now}");
    }
}

#[test]
fn dead_records_make_room_and_live_ones_are_never_dropped() {
    let quotas = [enforced(9, "minute")];
    let mut stored = Stored::default();
    let strangers = || (1..).map(Fingerprint::from_number);
    for who in strangers().take(MAX_RECORDS) {
        stored.consume(who, &quotas, 1, at(60.0)).unwrap();
    }
    let late = Fingerprint::from_number(99);
    assert_eq!(stored.consume(late, &quotas, 1, at(119.9)), Err(EntryError::Full));
    assert_eq!(stored.consume(Fingerprint::OVERFLOW, &quotas, 1, at(119.9)), Ok((true, vec![(1, 120)])));
    for who in strangers().take(MAX_RECORDS) {
        assert_eq!(stored.consume(who, &quotas, 1, at(119.9)), Ok((true, vec![(2, 120)])));
    }
    assert_eq!(stored.consume(late, &quotas, 1, at(120.0)), Ok((true, vec![(1, 180)])));
    assert_eq!(stored.0.len(), ENTRY_HEAD + RECORD_HEAD + COUNT, "all others are dead");
}

#[test]
fn a_record_from_a_far_future_dies_with_the_window_it_is_moved_to() {
    let quotas = [enforced(9, "minute")];
    let mut stored = Stored::default();
    stored.consume(ALICE, &quotas, 1, at(1e9)).unwrap();
    let bob = Fingerprint::from_number(2);
    stored.consume(bob, &quotas, 1, at(60.0)).unwrap();
    stored.consume(bob, &quotas, 1, at(120.0)).unwrap();
    assert_eq!(stored.0.len(), ENTRY_HEAD + RECORD_HEAD + COUNT);
}

#[test]
fn a_full_record_drops_the_count_that_ends_first_of_those_that_no_quota_has() {
    let mut stored = Stored::default();
    let days = |days: u32| enforced(9, &format!("{}h", days * 24));
    let mut used = |quotas: &[Quota]| stored.consume(ALICE, quotas, 1, at(1.0)).unwrap().1;
    for place in 1..=16 {
        assert_eq!(used(&[days(place)]), [(1, u64::from(place) * 86_400)]);
    }
    // That of one day is among the quotas, so that of two goes.
    assert_eq!(used(&[days(1), enforced(9, "17h")]), [(2, 86_400), (1, 61_200)]);
    assert_eq!(used(&[days(16), days(1)]), [(2, 16 * 86_400), (3, 86_400)]);
    assert_eq!(used(&[days(2)]), [(1, 2 * 86_400)]);
}

const SHARING: Sharing =
    Sharing { timeout: 250, term: 1_000, ahead: 0, beyond: Beyond::Nothing, in_shadow: false };

fn told(share: u32, others: u32, settling: bool) -> Answer {
    Answer::Share(ledger_wire::Share { share, others, reset: 0, settling })
}

/// A request of three units in a fleet, as one gateway's record and the answers of the ledger make of it.
struct Asking {
    record: Record,
    quotas: [Quota; 2],
    standings: Standings,
    stated: Statements,
}

impl Asking {
    /// A request that has come.
    fn begin() -> (Self, Admission) {
        let quotas = [enforced(10, "minute"), enforced(100, "month")];
        let mut record = Record::default();
        let in_fleet = Counter { in_fleet: true, ..counter(ALICE) };
        assert_eq!(record.open(&[], &in_fleet, &quotas, at(60.0)), Ok(Ok(())));
        let mut asking = Self { record, quotas, standings: Standings::new(), stated: Statements::new() };
        let admission = asking.turn(None, None, 60.0);
        (asking, admission)
    }

    /// What becomes of it with these answers to what it has stated.
    fn turn(&mut self, waited: Option<&[Stated]>, answers: Option<&[Answer]>, seconds: f64) -> Admission {
        let shared = Shared {
            name: SharedName(1),
            sharing: &SHARING,
            waited: waited.map(|stated| (at(60.0), stated)),
            answers: answers.map(|answers| (answers, 7)),
            lack: Lack::Asks,
            until: Until::Charged,
        };
        self.record.at = at(seconds);
        let charge = Charge { quotas: &self.quotas, cost: 3, shared: Some(shared) };
        let (Step::Keep((admission, _)) | Step::Store((admission, _))) =
            charge.apply(&mut self.record, &mut self.standings, &mut self.stated);
        admission
    }

    /// What has come of these answers, in the order of the quotas: the admission, whether each quota is exhausted, and of which windows it
    /// states something.
    fn answered(answers: &[Answer], seconds: f64) -> (Admission, [bool; 2], Vec<Window>) {
        let (mut asking, _) = Self::begin();
        let stated = core::mem::take(&mut asking.stated);
        let admission = asking.turn(Some(&stated), Some(answers), seconds);
        let exhausted = [0, 1].map(|place| asking.standings[place].exhausted);
        (admission, exhausted, asking.stated.iter().map(|stated| stated.window).collect())
    }
}

#[test]
fn the_answer_about_each_quota_decides_that_quota_alone() {
    use Admission::{Admitted, Denied, Lacking, Refused};
    let (asking, admission) = Asking::begin();
    let [minute, month] = [&asking.quotas[0], &asking.quotas[1]].map(|quota| quota.window);
    let asked: Vec<_> = asking.stated.iter().map(|stated| stated.window).collect();
    assert_eq!((admission, asked), (Lacking, vec![minute, month]));
    // Units are left, but others were given them first: it has to ask once more.
    let (granted, taken, none) = (told(3, 0, false), told(2, 0, false), told(0, u32::MAX, false));
    let (settling, reset) = (told(3, 0, true), Answer::Reset(5));
    let rows = [
        ([&granted, &granted], Admitted, [false, false], vec![]),
        ([&none, &granted], Refused, [true, false], vec![]),
        ([&none, &taken], Refused, [true, false], vec![]),
        ([&taken, &none], Refused, [false, true], vec![]),
        ([&none, &none], Refused, [true, true], vec![]),
        ([&none, &settling], Refused, [true, false], vec![]),
        ([&none, &reset], Refused, [true, false], vec![]),
        ([&granted, &taken], Lacking, [false, false], vec![minute, month]),
        ([&taken, &taken], Lacking, [false, false], vec![minute, month]),
        ([&granted, &reset], Lacking, [false, false], vec![minute, month]),
        ([&granted, &settling], Admitted, [false, false], vec![]),
        ([&taken, &told(2, 0, true)], Denied, [false, false], vec![]),
    ];
    for (answers, admission, exhausted, asks) in rows {
        let found = Asking::answered(&answers.map(Clone::clone), 60.1);
        assert_eq!(found, (admission, exhausted, asks), "{answers:?}");
    }
}

#[test]
fn a_request_asks_again_until_its_time_is_over() {
    use Admission::{Denied, Lacking};
    let taken = told(2, 0, false);
    for (seconds, expected) in [(60.249, Lacking), (60.25, Denied), (61.0, Denied)] {
        let (admission, ..) = Asking::answered(&[taken.clone(), taken.clone()], seconds);
        assert_eq!(admission, expected, "{seconds}");
    }
}

#[test]
fn a_step_that_is_taken_again_forgets_what_it_has_stated_before() {
    let (mut asking, _) = Asking::begin();
    assert_eq!(asking.stated.len(), 2);
    // Another worker has stored first: the record that is read again has what is needed.
    asking.record.counts().for_each(|count| count.held.share = 9);
    asking.record.counts().for_each(|count| count.held.waiting = 0);
    assert_eq!(asking.turn(None, None, 60.0), Admission::Admitted);
    assert_eq!(asking.stated.len(), 0);
}

prop_compose! {
    fn any_quota()(limit in 1_u32..50, window in prop::sample::select(vec!["second", "7s", "minute", "hour", "day", "month"])) -> Quota {
        enforced(limit, window)
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd_for_an_entry(
        bytes in prop::collection::vec(prop::num::u8::ANY, 0..300), ours: bool, now: u64,
    ) {
        let bytes: Vec<u8> = ours.then_some(FORM).into_iter().chain(bytes).collect();
        let quotas = [enforced(3, "minute"), enforced(9, "month")];
        let (mut record, mut next, now) = (Record::default(), Vec::new(), Timestamp::from_nanos(now));
        if let Ok(Ok(())) = record.open(&bytes, &counter(ALICE), &quotas, now) {
            let charge = Charge { quotas: &quotas, cost: 1, shared: None };
            charge.apply(&mut record, &mut Standings::new(), &mut Statements::new());
            record.encode(&mut next);
            prop_assert!(next.len() <= MAX_BYTES);
            prop_assert!(matches!(record.open(&next, &counter(ALICE), &quotas, now), Ok(Ok(()))));
        }
    }

    #[test]
    fn a_refusal_holds_until_exactly_the_promised_instant(
        quotas in prop::collection::vec(any_quota(), 1..4), start in 0_u64..4_000_000_000, probe in 0_u64..1_000_000_000
    ) {
        let mut stored = Stored::default();
        let start = Timestamp::from_seconds(start);
        // Use up everything at once.
        while stored.consume(ALICE, &quotas, 1, start).unwrap().0 {}
        let (_, standings) = stored.consume(ALICE, &quotas, 1, start).unwrap();
        let exhausted = quotas.iter().zip(&standings).filter(|(quota, (used, _))| *used >= quota.limit.get());
        let reset = exhausted.map(|(_, (_, reset))| *reset).max().unwrap();
        let before = Timestamp::from_nanos(reset * 1_000_000_000 - 1 - probe.min((reset - start.seconds()) * 1_000_000_000 - 1));
        prop_assert!(!stored.consume(ALICE, &quotas, 1, before).unwrap().0);
        prop_assert!(stored.consume(ALICE, &quotas, 1, Timestamp::from_seconds(reset)).unwrap().0);
    }

    #[test]
    fn no_window_ever_admits_more_than_its_limit(
        quota in any_quota(), steps in prop::collection::vec((0_u64..30_000, 0_u64..4, 1_u32..4), 1..200)
    ) {
        let mut stored = Stored::default();
        let mut admitted = std::collections::HashMap::new();
        let mut now = 1_000_000_000_000_u64;
        for (forward, who, cost) in steps {
            now += forward * 1_000_000;
            let instant = Timestamp::from_nanos(now);
            let who = Fingerprint::from_number(who + 1);
            let window = (who.get(), quota.window.at(instant).index);
            let used = admitted.entry(window).or_insert(0);
            let fits = *used + cost <= quota.limit.get();
            prop_assert_eq!(stored.consume(who, std::slice::from_ref(&quota), cost, instant).unwrap().0, fits);
            *used += if fits { cost } else { 0 };
        }
    }
}
