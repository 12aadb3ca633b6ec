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
    /// Which of the quota's windows the request was counted in.
    pub index: u32,
    /// Whether the request did not fit in.
    pub exhausted: bool,
}

impl Standing {
    /// Before a request of `cost` units uses any of `quota`, of whose window `count` is.
    fn before(count: Count, quota: &Quota, cost: u32) -> Self {
        let exhausted = count.used.checked_add(cost).is_none_or(|used| used > quota.limit.get());
        Self { used: count.used, index: count.index, exhausted }
    }

    fn refuses(&self, quota: &Quota) -> bool {
        self.exhausted && quota.mode == Mode::Enforced
    }

    /// The window the request was counted in, of `quota`, whose standing this is.
    #[must_use]
    pub fn period(&self, quota: &Quota) -> Period {
        quota.window.period(self.index)
    }
}

/// One standing for each quota, in the quotas' order.
pub type Standings = ArrayVec<Standing, MAX_QUOTAS>;

/// The answer of [`consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// Every enforced quota had room; the entry's new value was written to the buffer.
    Admitted,
    /// An enforced quota had no room; nothing is consumed.
    Refused {
        /// Whether the buffer holds a value to store all the same: use moved from a window that the clock stepped back from must
        /// stay in the window it was moved to, or it would follow the clock from window to window and lock the counter's bearer out.
        moved: bool,
    },
}

/// Consumes `cost` units of every quota for the counter `fingerprint`, or of none.
///
/// `entry` is the stored value, empty if there is none; `next` receives the value to store, if there is one, and `standings`
/// where the counter stands afterwards: they are the caller's because moving them costs more than filling them. Quotas with
/// windows of the same length share one count. At most [`MAX_QUOTAS`] quotas are looked at.
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
    standings: &mut Standings,
) -> Result<Consumed, EntryError> {
    match consume_alone(entry, fingerprint, quotas, cost, now, next, standings) {
        Some(consumed) => Ok(consumed),
        None => consume_among_others(entry, fingerprint, quotas, cost, now, next, standings),
    }
}

/// [`consume`] for any entry.
#[cold]
fn consume_among_others(
    entry: &[u8],
    fingerprint: Fingerprint,
    quotas: &[Quota],
    cost: u32,
    now: Timestamp,
    next: &mut Vec<u8>,
    standings: &mut Standings,
) -> Result<Consumed, EntryError> {
    let mut counts = Counts::new();
    let mut moved = false;
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint == fingerprint {
            let live = record.counts().filter_map(|count| Some((count, count.at(now)?)));
            counts.clear();
            counts.extend(live.inspect(|(stored, count)| moved |= stored != count).map(|(_, count)| count));
        }
    }

    standings.clear();
    let mut refused = false;
    for quota in quotas.iter().take(MAX_QUOTAS) {
        let count = match counts.iter().find(|count| count.window == quota.window) {
            Some(count) => *count,
            None => Count { window: quota.window, index: quota.window.at(now).index, used: 0 },
        };
        let standing = Standing::before(count, quota, cost);
        refused |= standing.refuses(quota);
        standings.push(standing);
    }
    if refused {
        if moved {
            replace_record(entry, fingerprint, &counts, now, next)?;
        }
        return Ok(Consumed::Refused { moved });
    }

    let mut counted = ArrayVec::<Window, MAX_QUOTAS>::new();
    for (quota, standing) in quotas.iter().zip(standings) {
        standing.used = standing.used.saturating_add(cost);
        if counted.contains(&quota.window) {
            continue;
        }
        counted.push(quota.window);
        match counts.iter_mut().find(|count| count.window == quota.window) {
            Some(count) => count.used = standing.used,
            None => counts
                .try_push(Count { window: quota.window, index: standing.index, used: standing.used })
                .map_err(|_| EntryError::TooManyWindows)?,
        }
    }
    replace_record(entry, fingerprint, &counts, now, next)?;
    Ok(Consumed::Admitted)
}

/// [`consume`] for the entry that nearly all are: this counter's record alone, with a count for each quota, in the quotas' order, each
/// in a window that lasts. `None` for any other entry. In place, as this is done for each request.
fn consume_alone(
    entry: &[u8],
    fingerprint: Fingerprint,
    quotas: &[Quota],
    cost: u32,
    now: Timestamp,
    next: &mut Vec<u8>,
    standings: &mut Standings,
) -> Option<Consumed> {
    let (record, others) = Record::split_from(entry.strip_prefix(&[VERSION])?)?;
    let fits = record.counts.len() == quotas.len() && quotas.len() <= MAX_QUOTAS;
    if !others.is_empty() || record.fingerprint != fingerprint || !fits {
        return None;
    }
    standings.clear();
    let mut refused = false;
    for (quota, count) in quotas.iter().zip(record.counts()) {
        if count.window != quota.window || count.at(now) != Some(count) {
            return None;
        }
        let standing = Standing::before(count, quota, cost);
        refused |= standing.refuses(quota);
        standings.push(standing);
    }
    if refused {
        return Some(Consumed::Refused { moved: false });
    }
    let counts = quotas.iter().zip(standings).map(|(quota, standing)| {
        standing.used = standing.used.saturating_add(cost);
        Count { window: quota.window, index: standing.index, used: standing.used }
    });
    next.clear();
    next.push(VERSION);
    push_record(next, fingerprint, counts);
    Some(Consumed::Admitted)
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
    let mut standings = Standings::new();
    match consume(entry, fingerprint, quotas, 0, now, &mut Vec::new(), &mut standings) {
        Ok(Consumed::Admitted | Consumed::Refused { .. }) => Ok(standings),
        // A counter that has no record has used nothing.
        Err(EntryError::Full | EntryError::TooManyWindows) => Ok(quotas
            .iter()
            .take(MAX_QUOTAS)
            .map(|quota| Standing { used: 0, index: quota.window.at(now).index, exhausted: false })
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
        let mut live = Counts::new();
        live.extend(record.counts().filter_map(|count| count.at(now)));
        if !live.is_empty() {
            others += usize::from(record.fingerprint != Fingerprint::OVERFLOW);
            push_record(next, record.fingerprint, live.into_iter());
        }
    }
    if others >= MAX_RECORDS && fingerprint != Fingerprint::OVERFLOW {
        return Err(EntryError::Full);
    }
    push_record(next, fingerprint, counts.iter().copied());
    Ok(())
}

fn push_record(entry: &mut Vec<u8>, fingerprint: Fingerprint, counts: impl ExactSizeIterator<Item = Count>) {
    entry.extend_from_slice(&fingerprint.get().to_le_bytes());
    entry.push(u8::try_from(counts.len()).unwrap_or(u8::MAX));
    for count in counts {
        let [w0, w1, w2, w3] = count.window.code().to_le_bytes();
        let [i0, i1, i2, i3] = count.index.to_le_bytes();
        let [u0, u1, u2, u3] = count.used.to_le_bytes();
        entry.extend_from_slice(&[w0, w1, w2, w3, i0, i1, i2, i3, u0, u1, u2, u3]);
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
mod tests;
