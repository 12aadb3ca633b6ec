//! One entry of the counters' table: a value in shared data that holds the records of a few counters, and the step that
//! consumes quota in it.
//!
//! ```text
//! entry   version u8 (1), then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the record that overflowed strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), used u32
//! ```
//! All little-endian. A record lives as long as any of its windows does; a writer drops dead records and keeps live ones that it
//! does not know, for while one configuration drains and the next is in force both write the same entries.

use arrayvec::ArrayVec;

use crate::fingerprint::Fingerprint;
use crate::quota::{Mode, Period, Quota, Window};
use crate::time::Timestamp;

/// Most quotas of a class.
pub const MAX_QUOTAS: usize = 8;
/// Most windows in a record: the quotas of two configurations, for the time that one drains.
pub const MAX_WINDOWS: usize = 2 * MAX_QUOTAS;
/// Most records in an entry, the overflow record apart. With four to an entry when a table is full, a known key's entry would need
/// eight times its share to overflow: for a Poisson distribution about 1 in 10¹⁹.
pub const MAX_RECORDS: usize = 32;
/// Most bytes in an entry.
pub const MAX_BYTES: usize = 1 + (MAX_RECORDS + 1) * (RECORD_HEAD + MAX_WINDOWS * COUNT);

const VERSION: u8 = 1;
const RECORD_HEAD: usize = 9;
const COUNT: usize = 12;

/// What one window of one counter has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    window: Window,
    index: u32,
    used: u32,
}

impl Count {
    /// The count as of `now`: this one while its window lasts, afterwards none. A window that starts over a second ahead was
    /// written before the clock stepped back: its use moves to now's window, so that the step gives nothing back and locks
    /// nobody out for longer than a window and a second.
    fn at(self, now: Timestamp) -> Option<Self> {
        let stored = self.window.period(self.index);
        if now.is_over_a_second_before(stored.start) {
            Some(Self { index: self.window.at(now).index, ..self })
        } else if now.seconds() < stored.end {
            Some(self)
        } else {
            None
        }
    }
}

type Counts = ArrayVec<Count, MAX_WINDOWS>;

/// Why an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes are no entry: something else writes under our names.
    #[error("a counter's entry in shared data is malformed")]
    Malformed,
    /// All records are live and none is this counter's.
    #[error("a counter's entry in shared data is full")]
    Full,
    /// The record is full of live windows of earlier configurations.
    #[error("a counter's record holds {MAX_WINDOWS} live windows already")]
    TooManyWindows,
}

/// Where a counter stands on one quota after a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units used in the window, by all who share the counter; may exceed a limit that was lowered.
    pub used: u32,
    /// The window the request was counted in.
    pub period: Period,
    /// Whether the request did not fit in.
    pub exhausted: bool,
}

/// One standing for each quota, in the quotas' order.
pub type Standings = ArrayVec<Standing, MAX_QUOTAS>;

/// The answer of [`consume`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// Every enforced quota had room; the entry's new value was written to the buffer.
    Admitted(Standings),
    /// An enforced quota had no room; nothing is consumed.
    Refused {
        /// Where the counter stands.
        standings: Standings,
        /// Whether the buffer holds a value to store all the same: use moved from a window that the clock stepped back from must
        /// stay in the window it was moved to, or it would follow the clock from window to window and lock the counter's bearer out.
        moved: bool,
    },
}

/// Consumes `cost` units of every quota for the counter `fingerprint`, or of none.
///
/// `entry` is the stored value, empty if there is none; `next` receives the value to store, if there is one. Quotas with windows of the same length share one count. At most [`MAX_QUOTAS`] quotas are looked at.
///
/// # Errors
/// If the entry cannot hold the counter.
pub fn consume(
    entry: &[u8],
    fingerprint: Fingerprint,
    quotas: &[Quota],
    cost: u32,
    now: Timestamp,
    next: &mut Vec<u8>,
) -> Result<Consumed, EntryError> {
    let mut counts = Counts::new();
    let mut moved = false;
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint == fingerprint {
            let stored = record.counts().filter_map(|count| Some((count, count.at(now)?)));
            counts =
                stored.inspect(|(stored, count)| moved |= stored != count).map(|(_, count)| count).collect();
        }
    }

    let mut standings = Standings::new();
    let mut refused = false;
    for quota in quotas.iter().take(MAX_QUOTAS) {
        let count = match counts.iter().find(|count| count.window == quota.window) {
            Some(count) => *count,
            None => Count { window: quota.window, index: quota.window.at(now).index, used: 0 },
        };
        let exhausted = count.used.checked_add(cost).is_none_or(|used| used > quota.limit.get());
        refused |= exhausted && quota.mode == Mode::Enforced;
        standings.push(Standing { used: count.used, period: quota.window.period(count.index), exhausted });
    }
    if refused {
        if moved {
            replace_record(entry, fingerprint, &counts, now, next)?;
        }
        return Ok(Consumed::Refused { standings, moved });
    }

    let mut counted = ArrayVec::<Window, MAX_QUOTAS>::new();
    for (quota, standing) in quotas.iter().zip(&mut standings) {
        standing.used = standing.used.saturating_add(cost);
        if counted.contains(&quota.window) {
            continue;
        }
        counted.push(quota.window);
        match counts.iter_mut().find(|count| count.window == quota.window) {
            Some(count) => count.used = standing.used,
            None => counts
                .try_push(Count { window: quota.window, index: standing.period.index, used: standing.used })
                .map_err(|_| EntryError::TooManyWindows)?,
        }
    }
    replace_record(entry, fingerprint, &counts, now, next)?;
    Ok(Consumed::Admitted(standings))
}

/// Where the counter stands, without using anything.
///
/// # Errors
/// If `entry` is malformed.
pub fn peek(
    entry: &[u8],
    fingerprint: Fingerprint,
    quotas: &[Quota],
    now: Timestamp,
) -> Result<Standings, EntryError> {
    match consume(entry, fingerprint, quotas, 0, now, &mut Vec::new()) {
        Ok(Consumed::Admitted(standings) | Consumed::Refused { standings, .. }) => Ok(standings),
        // A counter that has no record has used nothing.
        Err(EntryError::Full | EntryError::TooManyWindows) => Ok(quotas
            .iter()
            .take(MAX_QUOTAS)
            .map(|quota| Standing { used: 0, period: quota.window.at(now), exhausted: false })
            .collect()),
        Err(EntryError::Malformed) => Err(EntryError::Malformed),
    }
}

/// Writes `entry` to `next` with `fingerprint`'s record replaced by `counts` and without dead records.
fn replace_record(
    entry: &[u8],
    fingerprint: Fingerprint,
    counts: &[Count],
    now: Timestamp,
    next: &mut Vec<u8>,
) -> Result<(), EntryError> {
    next.clear();
    next.push(VERSION);
    let mut others = 0;
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint == fingerprint {
            continue;
        }
        let live: Counts = record.counts().filter_map(|count| count.at(now)).collect();
        if !live.is_empty() {
            others += usize::from(record.fingerprint != Fingerprint::OVERFLOW);
            push_record(next, record.fingerprint, &live);
        }
    }
    if others >= MAX_RECORDS && fingerprint != Fingerprint::OVERFLOW {
        return Err(EntryError::Full);
    }
    push_record(next, fingerprint, counts);
    Ok(())
}

fn push_record(entry: &mut Vec<u8>, fingerprint: Fingerprint, counts: &[Count]) {
    entry.extend_from_slice(&fingerprint.get().to_le_bytes());
    entry.push(u8::try_from(counts.len()).unwrap_or(u8::MAX));
    for count in counts {
        entry.extend_from_slice(&count.window.code().to_le_bytes());
        entry.extend_from_slice(&count.index.to_le_bytes());
        entry.extend_from_slice(&count.used.to_le_bytes());
    }
}

/// The records of an entry.
struct Records<'e>(&'e [u8]);

struct Record<'e> {
    fingerprint: Fingerprint,
    counts: &'e [[u8; COUNT]],
}

impl<'e> Records<'e> {
    fn of(entry: &'e [u8]) -> Result<Self, EntryError> {
        match entry.split_first() {
            None => Ok(Self(&[])),
            Some((&VERSION, records)) if entry.len() <= MAX_BYTES => Ok(Self(records)),
            Some(_) => Err(EntryError::Malformed),
        }
    }
}

impl<'e> Iterator for Records<'e> {
    type Item = Result<Record<'e>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = Record::split_from(self.0);
        self.0 = record.as_ref().map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record).ok_or(EntryError::Malformed))
    }
}

impl<'e> Record<'e> {
    fn split_from(bytes: &'e [u8]) -> Option<(Self, &'e [u8])> {
        let (fingerprint, bytes) = bytes.split_first_chunk::<8>()?;
        let (count, bytes) = bytes.split_first()?;
        let count = usize::from(*count);
        if count > MAX_WINDOWS {
            return None;
        }
        let (counts, rest) = bytes.split_at_checked(count * COUNT)?;
        let (counts, _) = counts.as_chunks::<COUNT>();
        let fingerprint = Fingerprint::from_number(u64::from_le_bytes(*fingerprint));
        Some((Self { fingerprint, counts }, rest))
    }

    fn counts(&self) -> impl Iterator<Item = Count> {
        self.counts.iter().map(|[w0, w1, w2, w3, i0, i1, i2, i3, u0, u1, u2, u3]| Count {
            window: Window::from_code(u32::from_le_bytes([*w0, *w1, *w2, *w3])),
            index: u32::from_le_bytes([*i0, *i1, *i2, *i3]),
            used: u32::from_le_bytes([*u0, *u1, *u2, *u3]),
        })
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    const ALICE: Fingerprint = Fingerprint::from_number(1);

    fn quota(limit: u32, window: &str, mode: Mode) -> Quota {
        Quota {
            name: window.to_owned(),
            limit: NonZeroU32::new(limit).unwrap(),
            window: window.parse().unwrap(),
            mode,
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
            let mut next = Vec::new();
            let (admitted, standings) = match consume(&self.0, who, quotas, cost, now, &mut next)? {
                Consumed::Admitted(standings) => {
                    assert!(next.len() <= MAX_BYTES);
                    self.0 = next;
                    (true, standings)
                }
                Consumed::Refused { standings, moved } => {
                    if moved {
                        self.0 = next;
                    }
                    (false, standings)
                }
            };
            Ok((admitted, standings.iter().map(|at| (at.used, at.period.end)).collect()))
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
        let quotas =
            [enforced(3, "minute"), quota(1, "minute", Mode::Shadow), quota(2, "hour", Mode::Shadow)];
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
        for (limit, admitted, used) in
            [(2, true, 1), (2, true, 2), (2, false, 2), (4, true, 3), (1, false, 3)]
        {
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
        assert_eq!(stored.0.len(), 1 + RECORD_HEAD + COUNT, "the ended hour is gone");
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_quota_back_and_locks_nobody_out() {
        let quotas = [enforced(2, "10s")];
        let rows = [
            // two requests at,  the third at,  admitted,  used,  reset
            (110.0, 109.5, false, 2, 120), // half a second before the window: still that window
            (110.0, 109.0, false, 2, 120), // a second before: still that window
            (110.0, 108.9, false, 2, 110), // more: the use moves to the window of now
            (500.0, 108.0, false, 2, 110), // a jump ahead and back
            (500.0, 499.0, false, 2, 510),
        ];
        for (first, then, admitted, used, reset) in rows {
            let mut stored = Stored::default();
            assert!(stored.consume(ALICE, &quotas, 2, at(first)).unwrap().0);
            let answer = stored.consume(ALICE, &quotas, 1, at(then));
            assert_eq!(answer, Ok((admitted, vec![(used, reset)])), "{first} then {then}");
        }
        // Nobody is locked out for longer than a window and a second, however long the refusals go on.
        let mut stored = Stored::default();
        stored.consume(ALICE, &quotas, 2, at(500.0)).unwrap();
        for (now, admitted) in [(108.0, false), (109.9, false), (110.0, true), (111.0, true), (112.0, false)]
        {
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
        assert_eq!(stored.0.len(), 1 + RECORD_HEAD + COUNT, "all others are dead");
    }

    #[test]
    fn a_record_from_a_far_future_dies_with_the_window_it_is_moved_to() {
        let quotas = [enforced(9, "minute")];
        let mut stored = Stored::default();
        stored.consume(ALICE, &quotas, 1, at(1e9)).unwrap();
        let bob = Fingerprint::from_number(2);
        stored.consume(bob, &quotas, 1, at(60.0)).unwrap();
        stored.consume(bob, &quotas, 1, at(120.0)).unwrap();
        assert_eq!(stored.0.len(), 1 + RECORD_HEAD + COUNT);
    }

    #[test]
    fn a_record_has_room_for_two_configurations_and_says_so_when_there_are_more() {
        let mut stored = Stored::default();
        for seconds in 1..=16 {
            let quotas = [enforced(9, &format!("{}h", seconds * 24))];
            assert!(stored.consume(ALICE, &quotas, 1, at(1.0)).unwrap().0);
        }
        assert_eq!(stored.consume(ALICE, &[enforced(9, "17h")], 1, at(1.0)), Err(EntryError::TooManyWindows));
    }

    #[test]
    fn peeking_changes_nothing_and_finds_an_unknown_counter_unused() {
        let quotas = [enforced(3, "minute")];
        let mut stored = Stored::default();
        stored.consume(ALICE, &quotas, 2, at(60.0)).unwrap();
        let used = |who| peek(&stored.0, who, &quotas, at(61.0)).unwrap().first().unwrap().used;
        assert_eq!((used(ALICE), used(ALICE), used(Fingerprint::from_number(2))), (2, 2, 0));
    }

    prop_compose! {
        fn any_quota()(limit in 1_u32..50, window in prop::sample::select(vec!["second", "7s", "minute", "hour", "day", "month"])) -> Quota {
            enforced(limit, window)
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd_for_an_entry(bytes in prop::collection::vec(prop::num::u8::ANY, 0..300), version in prop::bool::ANY, now: u64) {
            let mut bytes = bytes;
            if version {
                bytes.insert(0, VERSION);
            }
            let quotas = [enforced(3, "minute"), enforced(9, "month")];
            let mut next = Vec::new();
            if consume(&bytes, ALICE, &quotas, 1, Timestamp::from_nanos(now), &mut next).is_ok() {
                prop_assert!(peek(&next, ALICE, &quotas, Timestamp::from_nanos(now)).is_ok());
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
}
