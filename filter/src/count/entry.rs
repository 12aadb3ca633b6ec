//! An entry of the counters' table: the records of a few counters in one value of shared data.
//!
//! ```text
//! entry   version u8, writes u32, then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the overflow record that strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), generation u32, used u32
//! ```
//! All numbers are little-endian. `writes` goes up by one with each write, so that no two writes leave equal bytes
//! (`cas_predictor` relies on that). A count's `generation` is the `writes` of the write that began the count: a charge is settled only in the
//! very count that was charged, and a count that begins again for the same window is another one.
//!
//! A record lives as long as one of its windows does. A writer normalises every record of the entry: it drops ended windows and dead
//! records, and keeps live windows that it does not know, because two configurations write the same record while one of them drains.

use arrayvec::ArrayVec;

use super::fingerprint::Fingerprint;
use crate::quota::Quota;
use crate::time::Timestamp;
use crate::window::Window;

/// Most quotas of a class.
pub const MAX_QUOTAS: usize = 8;
/// Most windows in a record: the quotas of two configurations, for the time that one drains.
pub const MAX_WINDOWS: usize = 2 * MAX_QUOTAS;
/// Most records in an entry, the overflow record apart. With four to an entry when a table is full, a known key's entry would need
/// eight times its share to overflow: for a Poisson distribution about 1 in 10¹⁹.
pub const MAX_RECORDS: usize = 32;
/// Most bytes in an entry.
pub const MAX_BYTES: usize = ENTRY_HEAD + (MAX_RECORDS + 1) * (RECORD_HEAD + MAX_WINDOWS * COUNT);

/// The version of this format. Versions 1 and 2 had no `writes`, and 3 had no generations; a process never reads what another process
/// wrote.
const VERSION: u8 = 4;

pub(crate) const ENTRY_HEAD: usize = 5;
pub(crate) const RECORD_HEAD: usize = 9;
pub(crate) const COUNT: usize = 16;
/// Where in a count `generation` is.
const GENERATION: usize = 8;
/// Where in a count `used` is.
const USED: usize = 12;

/// What one window of one counter has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The window's length.
    pub window: Window,
    /// The window's place in time.
    pub index: u32,
    /// The write of the entry that began this count.
    pub generation: u32,
    /// Units used.
    pub used: u32,
}

impl Count {
    /// Nothing used of the window in which `now` falls. `write`: the write that begins the count.
    pub(crate) fn unused(window: Window, now: Timestamp, write: u32) -> Self {
        Self { window, index: window.at(now).index, generation: write, used: 0 }
    }

    /// The count as of `now`, for the write `write`.
    ///
    /// A window that is current, or the next one after the current, stands: a clock that steps back by less than a window gives no
    /// quota back, also after it has caught up. The use of a window further ahead moves to the current one, so that a clock that
    /// was wrong for a while locks no client out for longer than two windows. `None` if the window has ended.
    pub(crate) fn at(self, now: Timestamp, write: u32) -> Option<Self> {
        let stored = self.window.period(self.index);
        if now.seconds() >= stored.end {
            return None;
        }
        if now.seconds() >= stored.start {
            return Some(self);
        }
        let current = self.window.at(now).index;
        match self.index.checked_sub(1) {
            Some(before) if before == current => Some(self),
            _ => Some(Self { index: current, generation: write, ..self }),
        }
    }
}

type Counts = ArrayVec<Count, MAX_WINDOWS>;

/// Why an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The bytes are not an entry: something else writes under the counters' names.
    #[error("a counter's entry in shared data is malformed")]
    Malformed,
    /// All records are live, and none of them is this counter's.
    #[error("a counter's entry in shared data is full")]
    Full,
    /// The record is full of live windows of earlier configurations.
    #[error("a counter's record holds {MAX_WINDOWS} live windows already")]
    TooManyWindows,
}

/// A counter's record, open for changes in the value that is to be stored next.
#[derive(Debug)]
pub(crate) struct OpenRecord<'n> {
    next: &'n mut [u8],
    /// Where the counts start.
    start: usize,
    counts: usize,
    /// Whether use moved from a window that the clock stepped back from.
    pub(crate) moved: bool,
}

impl<'n> OpenRecord<'n> {
    /// Writes `entry` as of `now` to `next`, with a count for the window of each of `quotas` in the record of `fingerprint`, and opens
    /// that record.
    ///
    /// # Errors
    /// If the entry is malformed or cannot hold the counter.
    pub(crate) fn open(
        entry: &[u8],
        fingerprint: Fingerprint,
        quotas: &[Quota],
        now: Timestamp,
        next: &'n mut Vec<u8>,
    ) -> Result<Self, EntryError> {
        next.clear();
        if is_ready(entry, fingerprint, quotas, now) {
            next.extend_from_slice(entry);
            count_write(next);
            let start = ENTRY_HEAD + RECORD_HEAD;
            return Ok(Self { next, start, counts: quotas.len(), moved: false });
        }
        Self::rewrite(entry, fingerprint, quotas, now, next)
    }

    /// [`OpenRecord::open`] for any entry.
    #[cold]
    fn rewrite(
        entry: &[u8],
        fingerprint: Fingerprint,
        quotas: &[Quota],
        now: Timestamp,
        next: &'n mut Vec<u8>,
    ) -> Result<Self, EntryError> {
        let (mut counts, mut moved, mut others) = (Counts::new(), false, 0);
        next.extend_from_slice(entry.get(..ENTRY_HEAD).unwrap_or_default());
        if next.is_empty() {
            next.extend_from_slice(&new_entry(now));
        }
        let write = count_write(next);
        for record in Records::of(entry)? {
            let record = record?;
            if record.fingerprint != fingerprint {
                let live: Counts = record.counts().filter_map(|count| count.at(now, write)).collect();
                if !live.is_empty() {
                    others += usize::from(record.fingerprint != Fingerprint::OVERFLOW);
                    push_record(next, record.fingerprint, &live);
                }
                continue;
            }
            for stored in record.counts() {
                let Some(count) = stored.at(now, write) else { continue };
                moved |= stored.index != count.index;
                // An entry of this format has each fingerprint once.
                counts.try_push(count).map_err(|_| EntryError::Malformed)?;
            }
        }
        if others >= MAX_RECORDS && fingerprint != Fingerprint::OVERFLOW {
            return Err(EntryError::Full);
        }
        for quota in quotas.iter().take(MAX_QUOTAS) {
            if counts.iter().all(|count| count.window != quota.window) {
                let unused = Count::unused(quota.window, now, write);
                counts.try_push(unused).map_err(|_| EntryError::TooManyWindows)?;
            }
        }
        let start = next.len() + RECORD_HEAD;
        push_record(next, fingerprint, &counts);
        Ok(Self { next, start, counts: counts.len(), moved })
    }

    /// The place of the count of `window`.
    pub(crate) fn find(&self, window: Window) -> Option<usize> {
        (0..self.counts).find(|place| self.count(*place).is_some_and(|count| count.window == window))
    }

    /// The count at `place`.
    pub(crate) fn count(&self, place: usize) -> Option<Count> {
        let start = self.start + place * COUNT;
        decode_count(self.next.get(start..start + COUNT)?)
    }

    /// Replaces what is used, and held, at `place`.
    pub(crate) fn set(&mut self, place: usize, used: u32) {
        let start = self.start + place * COUNT;
        if let Some(bytes) = self.next.get_mut(start + USED..start + COUNT) {
            bytes.copy_from_slice(&used.to_le_bytes());
        }
    }

    /// Begins the count at `place` again, with nothing used and nothing held.
    pub(crate) fn begin_again(&mut self, place: usize) {
        self.set(place, 0);
        let start = self.start + place * COUNT;
        let write = self.next.first_chunk::<ENTRY_HEAD>().map(|[_, write @ ..]| *write);
        if let (Some(write), Some(bytes)) = (write, self.next.get_mut(start + GENERATION..start + USED)) {
            bytes.copy_from_slice(&write);
        }
    }
}

/// Whether `entry` is what nearly all are: the record of `fingerprint` alone, with a count for each quota, in the
/// quotas' order, each in a window that stands.
fn is_ready(entry: &[u8], fingerprint: Fingerprint, quotas: &[Quota], now: Timestamp) -> bool {
    let Some((head, counts)) = entry.split_first_chunk::<{ ENTRY_HEAD + RECORD_HEAD }>() else {
        return false;
    };
    let [VERSION, _, _, _, _, who @ .., n] = head else { return false };
    let (counts, rest) = counts.as_chunks::<COUNT>();
    usize::from(*n) == quotas.len()
        && counts.len() == quotas.len()
        && rest.is_empty()
        && *who == fingerprint.get().to_le_bytes()
        && quotas.iter().zip(counts).all(|(quota, count)| {
            decode_count(count)
                .is_some_and(|count| count.window == quota.window && count.at(now, 0) == Some(count))
        })
}

/// The head of an entry that is written for the first time. `writes` starts at the instant, so that an entry that something else
/// has overwritten does not repeat an earlier state.
pub(crate) fn new_entry(now: Timestamp) -> [u8; ENTRY_HEAD] {
    let [a, b, c, d] = now.low_bits().to_le_bytes();
    [VERSION, a, b, c, d]
}

/// Counts the write of `next`. Returns its number.
fn count_write(next: &mut [u8]) -> u32 {
    let Some([_, writes @ ..]) = next.first_chunk_mut::<ENTRY_HEAD>() else { return 0 };
    let write = u32::from_le_bytes(*writes).wrapping_add(1);
    *writes = write.to_le_bytes();
    write
}

fn push_record(next: &mut Vec<u8>, fingerprint: Fingerprint, counts: &[Count]) {
    next.extend_from_slice(&fingerprint.get().to_le_bytes());
    next.push(u8::try_from(counts.len()).unwrap_or(0));
    for count in counts {
        for word in [count.window.code(), count.index, count.generation, count.used] {
            next.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Reads a count.
fn decode_count(bytes: &[u8]) -> Option<Count> {
    let (words, _) = bytes.as_chunks::<4>();
    let ([window, index, generation, used], _) = words.split_first_chunk()?;
    Some(Count {
        window: Window::from_code(u32::from_le_bytes(*window)),
        index: u32::from_le_bytes(*index),
        generation: u32::from_le_bytes(*generation),
        used: u32::from_le_bytes(*used),
    })
}

/// The records of an entry.
struct Records<'e>(&'e [u8]);

/// The record of a counter.
struct Record<'e> {
    fingerprint: Fingerprint,
    counts: &'e [u8],
}

impl<'e> Records<'e> {
    fn of(entry: &'e [u8]) -> Result<Self, EntryError> {
        match entry.split_first_chunk::<ENTRY_HEAD>() {
            None if entry.is_empty() => Ok(Self(&[])),
            Some(([VERSION, ..], records)) if entry.len() <= MAX_BYTES => Ok(Self(records)),
            _ => Err(EntryError::Malformed),
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
        let (n, bytes) = bytes.split_first()?;
        let counts = usize::from(*n);
        if counts > MAX_WINDOWS {
            return None;
        }
        let (counts, rest) = bytes.split_at_checked(counts * COUNT)?;
        let fingerprint = Fingerprint::from_number(u64::from_le_bytes(*fingerprint));
        Some((Self { fingerprint, counts }, rest))
    }

    fn counts(&self) -> impl Iterator<Item = Count> + use<'e> {
        self.counts.chunks_exact(COUNT).filter_map(decode_count)
    }
}
