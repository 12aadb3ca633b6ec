//! An entry of the counters' table: the records of a few counters in one value of shared data.
//!
//! ```text
//! entry   form u8, writes u32, then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the overflow record that strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), generation u32, used u32
//! ```
//! All numbers are little-endian. `form` is [`FORM`], which the entry's name contains as well. `writes` goes up by one with each write, so
//! that no two writes leave equal bytes (`cas_predictor` relies on that). A count's `generation` is the `writes` of the write that began
//! the count: a charge is settled only in the very count that was charged, and a count that begins again for the same window is another
//! one.
//!
//! A record lives as long as one of its windows does. A writer drops ended windows and dead records, and keeps live windows that it does
//! not know, because two configurations write the same record while one of them drains.

use arrayvec::ArrayVec;

use super::fingerprint::Fingerprint;
use super::table::FORM;
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

pub(crate) const ENTRY_HEAD: usize = 5;
pub(crate) const RECORD_HEAD: usize = 9;
pub(crate) const COUNT: usize = 16;

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

/// What becomes of a stored count at an instant.
enum Now {
    /// It stands.
    Stands,
    /// Its window has ended.
    Ended,
    /// Its window is too far ahead: its use moves to the current window, which has this index.
    Moved(u32),
}

impl Count {
    /// A window that is current, or the next one after the current, stands: a clock that steps back by less than a window gives no
    /// quota back, also after it has caught up. The use of a window further ahead moves to the current one, so that a clock that
    /// was wrong for a while locks no client out for longer than two windows.
    fn at(&self, now: Timestamp) -> Now {
        let current = self.window.index_at(now);
        match self.index.checked_sub(current) {
            Some(0 | 1) => Now::Stands,
            Some(_) => Now::Moved(current),
            None => Now::Ended,
        }
    }

    fn encode(&self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        let words = [self.window.code(), self.index, self.generation, self.used];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; COUNT]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            window: Window::from_code(u32::from_le_bytes([a, b, c, d])),
            index: u32::from_le_bytes([e, f, g, h]),
            generation: u32::from_le_bytes([i, j, k, l]),
            used: u32::from_le_bytes([m, n, o, p]),
        }
    }
}

/// Why an entry has no place for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// All records are live, and none of them is this counter's.
    #[error("a counter's entry in shared data is full")]
    Full,
    /// The record is full of live windows of earlier configurations.
    #[error("a counter's record holds {MAX_WINDOWS} live windows already")]
    TooManyWindows,
}

/// The bytes are not an entry: something else writes under the counters' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A counter's record, decoded once, with the bytes of the entry around it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    fingerprint: Fingerprint,
    counts: ArrayVec<Count, MAX_WINDOWS>,
    /// The entry without this record, as the next write leaves it.
    rest: Vec<u8>,
    /// The number of the next write.
    write: u32,
    /// Whether use moved from a window that the clock stepped back from.
    pub(crate) moved: bool,
}

impl Record {
    /// Decodes the record of `fingerprint` in `entry`, as of `now`, with a count for the window of each of `quotas`. `entry` is empty if there
    /// is none. `self` is reused, because moving a record costs more than filling it.
    ///
    /// # Errors
    /// If the entry has no place for the counter; the outer error, if it is malformed.
    pub(crate) fn open(
        &mut self,
        entry: &[u8],
        fingerprint: Fingerprint,
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<Result<(), EntryError>, Malformed> {
        self.begin(fingerprint);
        if self.is_alone(entry, quotas, now) {
            return Ok(Ok(()));
        }
        self.open_any(entry, quotas, now)
    }

    fn begin(&mut self, fingerprint: Fingerprint) {
        self.fingerprint = fingerprint;
        self.counts.clear();
        self.rest.clear();
        self.moved = false;
    }

    /// Decodes what nearly all entries are: this record alone, with a count for each quota, in the quotas' order, each in a window that stands.
    fn is_alone(&mut self, entry: &[u8], quotas: &[Quota], now: Timestamp) -> bool {
        let Some((head, counts)) = entry.split_first_chunk::<{ ENTRY_HEAD + RECORD_HEAD }>() else {
            return false;
        };
        let [FORM, a, b, c, d, who @ .., n] = head else { return false };
        let (counts, rest) = counts.as_chunks::<COUNT>();
        if *who != self.fingerprint.get().to_le_bytes()
            || usize::from(*n) != counts.len()
            || counts.len() != quotas.len()
            || !rest.is_empty()
        {
            return false;
        }
        for (bytes, quota) in counts.iter().zip(quotas) {
            let count = Count::decode(bytes);
            if count.window != quota.window || !matches!(count.at(now), Now::Stands) {
                return false;
            }
            if self.counts.try_push(count).is_err() {
                return false;
            }
        }
        self.write = u32::from_le_bytes([*a, *b, *c, *d]).wrapping_add(1);
        true
    }

    /// [`Record::open`] for any entry.
    #[cold]
    fn open_any(
        &mut self,
        entry: &[u8],
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<Result<(), EntryError>, Malformed> {
        self.counts.clear();
        let (mut records, written) = match entry.split_first_chunk::<ENTRY_HEAD>() {
            // A first write's number is that of the instant, so that an entry that something else has overwritten does not repeat an
            // earlier state.
            None if entry.is_empty() => (Records(&[]), now.low_bits()),
            Some(([FORM, writes @ ..], records)) if entry.len() <= MAX_BYTES => {
                (Records(records), u32::from_le_bytes(*writes))
            }
            _ => return Err(Malformed),
        };
        self.write = written.wrapping_add(1);
        let mut others = 0;
        while let Some((fingerprint, counts)) = records.next()? {
            let live = counts.iter().map(Count::decode).filter_map(|count| match count.at(now) {
                Now::Stands => Some(count),
                Now::Ended => None,
                Now::Moved(index) => Some(Count { index, generation: self.write, ..count }),
            });
            if fingerprint == self.fingerprint {
                for count in live {
                    // An entry of this form has each fingerprint once.
                    self.counts.try_push(count).map_err(|_| Malformed)?;
                }
                self.moved |=
                    counts.iter().any(|bytes| matches!(Count::decode(bytes).at(now), Now::Moved(_)));
                continue;
            }
            let live: ArrayVec<_, MAX_WINDOWS> = live.collect();
            if !live.is_empty() {
                others += usize::from(fingerprint != Fingerprint::OVERFLOW);
                push_record(&mut self.rest, fingerprint, &live);
            }
        }
        if others >= MAX_RECORDS && self.fingerprint != Fingerprint::OVERFLOW {
            return Ok(Err(EntryError::Full));
        }
        Ok(self.add_windows(quotas, now))
    }

    /// Opens the record of a counter that has used nothing.
    pub(crate) fn open_unused(&mut self, quotas: &[Quota], now: Timestamp) -> Result<(), EntryError> {
        self.begin(self.fingerprint);
        self.add_windows(quotas, now)
    }

    fn add_windows(&mut self, quotas: &[Quota], now: Timestamp) -> Result<(), EntryError> {
        for quota in quotas.iter().take(MAX_QUOTAS) {
            if self.counts.iter().all(|count| count.window != quota.window) {
                let (window, index) = (quota.window, quota.window.index_at(now));
                let unused = Count { window, index, generation: self.write, used: 0 };
                self.counts.try_push(unused).map_err(|_| EntryError::TooManyWindows)?;
            }
        }
        Ok(())
    }

    /// The count of a window that the record was opened with.
    pub(crate) fn count(&mut self, window: Window) -> Option<&mut Count> {
        self.counts.iter_mut().find(|count| count.window == window)
    }

    /// Begins a count again, with nothing used. Returns what was used.
    pub(crate) fn begin_again(&mut self, window: Window) -> u32 {
        let generation = self.write;
        self.count(window).map_or(0, |count| {
            count.generation = generation;
            core::mem::take(&mut count.used)
        })
    }

    /// The entry with this record, to be stored.
    pub(crate) fn encode(&self, next: &mut Vec<u8>) {
        next.clear();
        let [a, b, c, d] = self.write.to_le_bytes();
        next.extend_from_slice(&[FORM, a, b, c, d]);
        next.extend_from_slice(&self.rest);
        push_record(next, self.fingerprint, &self.counts);
    }
}

fn push_record(next: &mut Vec<u8>, fingerprint: Fingerprint, counts: &[Count]) {
    let [a, b, c, d, e, f, g, h] = fingerprint.get().to_le_bytes();
    next.extend_from_slice(&[a, b, c, d, e, f, g, h, u8::try_from(counts.len()).unwrap_or(0)]);
    for count in counts {
        next.extend_from_slice(&count.encode());
    }
}

/// A record as it is stored: its fingerprint and its counts.
type Stored<'e> = (Fingerprint, &'e [[u8; COUNT]]);

/// The records of an entry.
struct Records<'e>(&'e [u8]);

impl<'e> Records<'e> {
    fn next(&mut self) -> Result<Option<Stored<'e>>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (head, bytes) = self.0.split_first_chunk::<RECORD_HEAD>().ok_or(Malformed)?;
        let [fingerprint @ .., n] = *head;
        let n = usize::from(n);
        if n > MAX_WINDOWS {
            return Err(Malformed);
        }
        let (counts, rest) = bytes.split_at_checked(n * COUNT).ok_or(Malformed)?;
        self.0 = rest;
        let fingerprint = Fingerprint::from_number(u64::from_le_bytes(fingerprint));
        Ok(Some((fingerprint, counts.as_chunks().0)))
    }
}
