//! How the records of a few counters are written in an entry of the table, a value in shared data.
//!
//! ```text
//! entry   version u8, then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the record that overflowed strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), used u32;
//!         in an entry of version 2 also the eight u32 of a lease, in the order of `Lease`'s fields
//! ```
//! All little-endian. Version 1 is written while no record of the entry has a lease. A record lives as long as any of its windows does;
//! a writer drops dead records and keeps live ones that it does not know, for while one configuration drains and the next is in force
//! both write the same entries.

use arrayvec::ArrayVec;

use crate::count::fingerprint::Fingerprint;
use crate::count::lease::Lease;
use crate::time::Timestamp;
use crate::window::Window;

/// Most quotas of a class.
pub const MAX_QUOTAS: usize = 8;
/// Most windows in a record: the quotas of two configurations, for the time that one drains.
pub const MAX_WINDOWS: usize = 2 * MAX_QUOTAS;
/// Most records in an entry, the overflow record apart. With four to an entry when a table is full, a known key's entry would need
/// eight times its share to overflow: for a Poisson distribution about 1 in 10¹⁹.
pub const MAX_RECORDS: usize = 32;
/// Most bytes in an entry without leases.
pub const MAX_BYTES: usize = 1 + (MAX_RECORDS + 1) * (RECORD_HEAD + MAX_WINDOWS * COUNT);
/// Most bytes in an entry with leases.
pub const MAX_LEASED_BYTES: usize = 1 + (MAX_RECORDS + 1) * (RECORD_HEAD + MAX_WINDOWS * LEASED_COUNT);

/// The version of an entry without leases.
pub(crate) const PLAIN: u8 = 1;
/// The version of an entry with leases.
pub(crate) const LEASED: u8 = 2;

pub(crate) const RECORD_HEAD: usize = 9;
pub(crate) const COUNT: usize = 12;
const LEASED_COUNT: usize = COUNT + Lease::BYTES;

/// What one window of one counter has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) window: Window,
    pub(crate) index: u32,
    pub(crate) used: u32,
    /// What this gateway may use of a quota that a fleet shares.
    pub(crate) lease: Lease,
}

impl Count {
    /// Nothing used of the window in which `now` falls.
    pub(crate) fn unused(window: Window, now: Timestamp) -> Self {
        Self { window, index: window.at(now).index, used: 0, lease: Lease::NONE }
    }

    /// The count as of `now`: this one while its window lasts, afterwards none. A window that starts over a second ahead was
    /// written before the clock stepped back: its use moves to now's window, so that the step gives nothing back and locks
    /// nobody out for longer than a window and a second.
    pub(crate) fn at(self, now: Timestamp) -> Option<Self> {
        let stored = self.window.period(self.index);
        if now.is_over_a_second_before(stored.start) {
            let index = self.window.at(now).index;
            Some(Self { index, lease: self.lease.moved(self.used), ..self })
        } else if now.seconds() < stored.end {
            Some(self)
        } else {
            None
        }
    }
}

pub(crate) type Counts = ArrayVec<Count, MAX_WINDOWS>;

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

/// Writes `entry` to `next` with `fingerprint`'s record replaced by `counts` and without dead records.
pub(crate) fn replace_record(
    entry: &[u8],
    fingerprint: Fingerprint,
    counts: &[Count],
    now: Timestamp,
    next: &mut Vec<u8>,
) -> Result<(), EntryError> {
    next.clear();
    let form = if leases_others(entry, fingerprint, now)? || leases(counts) { LEASED } else { PLAIN };
    next.push(form);
    let mut others = 0;
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint == fingerprint {
            continue;
        }
        let live = record.live(now);
        if !live.is_empty() {
            others += usize::from(record.fingerprint != Fingerprint::OVERFLOW);
            push_record(next, form, record.fingerprint, live.into_iter());
        }
    }
    if others >= MAX_RECORDS && fingerprint != Fingerprint::OVERFLOW {
        return Err(EntryError::Full);
    }
    push_record(next, form, fingerprint, counts.iter().copied());
    Ok(())
}

fn leases(counts: &[Count]) -> bool {
    counts.iter().any(|count| count.lease != Lease::NONE)
}

/// Whether a live record of another counter has a lease.
fn leases_others(entry: &[u8], fingerprint: Fingerprint, now: Timestamp) -> Result<bool, EntryError> {
    if entry.first() != Some(&LEASED) {
        return Ok(false);
    }
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint != fingerprint && leases(&record.live(now)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes an entry of one record, none of whose counts has a lease.
pub(crate) fn write_plain(
    next: &mut Vec<u8>,
    fingerprint: Fingerprint,
    counts: impl ExactSizeIterator<Item = Count>,
) {
    next.clear();
    next.push(PLAIN);
    push_record(next, PLAIN, fingerprint, counts);
}

fn push_record(
    entry: &mut Vec<u8>,
    form: u8,
    fingerprint: Fingerprint,
    counts: impl ExactSizeIterator<Item = Count>,
) {
    entry.extend_from_slice(&fingerprint.get().to_le_bytes());
    entry.push(u8::try_from(counts.len()).unwrap_or(u8::MAX));
    for count in counts {
        let [w0, w1, w2, w3] = count.window.code().to_le_bytes();
        let [i0, i1, i2, i3] = count.index.to_le_bytes();
        let [u0, u1, u2, u3] = count.used.to_le_bytes();
        entry.extend_from_slice(&[w0, w1, w2, w3, i0, i1, i2, i3, u0, u1, u2, u3]);
        if form == LEASED {
            entry.extend_from_slice(count.lease.to_bytes().as_flattened());
        }
    }
}

/// The records of an entry.
pub(crate) struct Records<'e> {
    bytes: &'e [u8],
    form: u8,
}

/// The record of a counter.
pub(crate) struct Record<'e> {
    pub(crate) fingerprint: Fingerprint,
    counts: &'e [u8],
    form: u8,
}

impl<'e> Records<'e> {
    pub(crate) fn of(entry: &'e [u8]) -> Result<Self, EntryError> {
        match entry.split_first() {
            None => Ok(Self { bytes: &[], form: PLAIN }),
            Some((&PLAIN, bytes)) if entry.len() <= MAX_BYTES => Ok(Self { bytes, form: PLAIN }),
            Some((&LEASED, bytes)) if entry.len() <= MAX_LEASED_BYTES => Ok(Self { bytes, form: LEASED }),
            Some(_) => Err(EntryError::Malformed),
        }
    }

    /// The live counts of `fingerprint`, and whether any of them has moved.
    pub(crate) fn counts_of(
        entry: &'e [u8],
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Result<(Counts, bool), EntryError> {
        let (mut counts, mut moved) = (Counts::new(), false);
        for record in Self::of(entry)? {
            let record = record?;
            if record.fingerprint == fingerprint {
                let live = record.counts().filter_map(|count| Some((count, count.at(now)?)));
                counts.clear();
                counts
                    .extend(live.inspect(|(stored, count)| moved |= stored != count).map(|(_, count)| count));
            }
        }
        Ok((counts, moved))
    }
}

impl<'e> Iterator for Records<'e> {
    type Item = Result<Record<'e>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let record = Record::split_from(self.bytes, self.form);
        self.bytes = record.as_ref().map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record).ok_or(EntryError::Malformed))
    }
}

impl<'e> Record<'e> {
    fn split_from(bytes: &'e [u8], form: u8) -> Option<(Self, &'e [u8])> {
        let (fingerprint, bytes) = bytes.split_first_chunk::<8>()?;
        let (count, bytes) = bytes.split_first()?;
        let count = usize::from(*count);
        if count > MAX_WINDOWS {
            return None;
        }
        let (counts, rest) = bytes.split_at_checked(count * width(form))?;
        let fingerprint = Fingerprint::from_number(u64::from_le_bytes(*fingerprint));
        Some((Self { fingerprint, counts, form }, rest))
    }

    /// The one record of an entry that has one and no leases.
    pub(crate) fn alone_in(entry: &'e [u8]) -> Option<Self> {
        let (record, others) = Self::split_from(entry.strip_prefix(&[PLAIN])?, PLAIN)?;
        others.is_empty().then_some(record)
    }

    /// The counts of [`Record::alone_in`].
    pub(crate) fn plain_counts(&self) -> impl ExactSizeIterator<Item = Count> + use<'e> {
        let (counts, _) = self.counts.as_chunks::<COUNT>();
        counts.iter().map(|[w0, w1, w2, w3, i0, i1, i2, i3, u0, u1, u2, u3]| Count {
            window: Window::from_code(u32::from_le_bytes([*w0, *w1, *w2, *w3])),
            index: u32::from_le_bytes([*i0, *i1, *i2, *i3]),
            used: u32::from_le_bytes([*u0, *u1, *u2, *u3]),
            lease: Lease::NONE,
        })
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = Count> + use<'e> {
        self.counts.chunks_exact(width(self.form)).map(|count| {
            let (words, _) = count.as_chunks::<4>();
            let word = |place| words.get(place).copied().map_or(0, u32::from_le_bytes);
            Count {
                window: Window::from_code(word(0)),
                index: word(1),
                used: word(2),
                lease: words.get(3..).and_then(Lease::from_bytes).unwrap_or(Lease::NONE),
            }
        })
    }

    /// The counts whose windows last.
    fn live(&self, now: Timestamp) -> Counts {
        self.counts().filter_map(|count| count.at(now)).collect()
    }
}

const fn width(form: u8) -> usize {
    if form == LEASED { LEASED_COUNT } else { COUNT }
}
