//! An entry of the counters' table: the records of a few counters in one value of shared data.
//!
//! ```text
//! entry   form u8, writes u32, then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the overflow record that strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), generation u32, used u32
//! ```
//! In a fleet the highest bit of a known counter's `n` is set, and after the counts comes what the gateway holds of each:
//! ```text
//! held    name u128 (the counter's in the fleet; 0 = not known yet), n × (limit u32, holding as `Holding::encode` writes it)
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
use super::holding::{self, Holding};
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
pub const MAX_BYTES: usize = most_bytes(MAX_WINDOWS, true);

/// Most bytes in an entry of records with this number of windows each.
#[must_use]
pub const fn most_bytes(windows: usize, in_fleet: bool) -> usize {
    let of_fleet = if in_fleet { NAME + windows * HELD } else { 0 };
    ENTRY_HEAD + (MAX_RECORDS + 1) * (RECORD_HEAD + windows * COUNT + of_fleet)
}

pub(crate) const ENTRY_HEAD: usize = 5;
pub(crate) const RECORD_HEAD: usize = 9;
pub(crate) const COUNT: usize = 16;
const NAME: usize = 16;
const HELD: usize = 4 + holding::BYTES;
/// The bit of a record's `n` that says that the counter is a fleet's.
const IN_FLEET: u8 = 0x80;

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

/// Whose record it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counter {
    pub(super) fingerprint: Fingerprint,
    /// Whether the gateways of a fleet share the counter.
    pub(super) in_fleet: bool,
}

impl Counter {
    /// A counter that is this gateway's alone.
    pub(super) const fn local(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, in_fleet: false }
    }
}

/// What a gateway of a fleet keeps with a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The quota's limit, as a request has last seen it: ticks state counts, and know no quotas.
    pub(crate) limit: u32,
    pub(crate) holding: Holding,
}

impl Held {
    /// The same with what the count has used, which settlements and resets change.
    fn of(&mut self, count: &Count) -> &mut Self {
        (self.holding.used, self.holding.generation) = (count.used, count.generation);
        self
    }

    fn begin(count: &Count) -> Self {
        Self { limit: 0, holding: Holding::begin(count.generation, count.used, 0) }
    }

    /// What is kept with the count of the next window.
    fn next(&self, count: &Count) -> Self {
        Self { limit: 0, holding: self.holding.next(count.generation) }
    }

    fn encode(&self) -> [u8; HELD] {
        let mut bytes = [0; HELD];
        let (limit, holding) = bytes.split_at_mut(4);
        limit.copy_from_slice(&self.limit.to_le_bytes());
        holding.copy_from_slice(&self.holding.encode());
        bytes
    }

    fn decode(bytes: &[u8; HELD], count: &Count) -> Self {
        let [a, b, c, d, holding @ ..] = bytes;
        let holding = Holding::decode(holding, count.generation, count.used);
        Self { limit: u32::from_le_bytes([*a, *b, *c, *d]), holding }
    }
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
    counter: Counter,
    counts: ArrayVec<Count, MAX_WINDOWS>,
    /// What the gateway holds of each count; none if it is in no fleet.
    held: ArrayVec<Held, MAX_WINDOWS>,
    /// The counter's name in the fleet; 0 if it is not known.
    pub(crate) name: u128,
    /// The entry without this record, as the next write leaves it.
    rest: Vec<u8>,
    /// The number of the next write.
    write: u32,
    /// The instant as of which the record was opened.
    pub(crate) at: Timestamp,
    /// Whether use moved from a window that the clock stepped back from.
    pub(crate) moved: bool,
}

impl Record {
    /// Decodes the record of `counter` in `entry`, as of `now`, with a count for the window of each of `quotas`. `entry` is empty if
    /// there is none. `self` is reused, because moving a record costs more than filling it.
    ///
    /// # Errors
    /// If the entry has no place for the counter; the outer error, if it is malformed.
    pub(crate) fn open(
        &mut self,
        entry: &[u8],
        counter: Counter,
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<Result<(), EntryError>, Malformed> {
        self.begin(counter, now);
        let is_alone = match counter.in_fleet {
            false => self.is_alone::<false>(entry, quotas),
            true => self.is_alone::<true>(entry, quotas),
        };
        match is_alone {
            true => Ok(Ok(())),
            false => self.open_any(entry, quotas),
        }
    }

    fn begin(&mut self, counter: Counter, now: Timestamp) {
        self.counter = counter;
        self.counts.clear();
        self.held.clear();
        self.rest.clear();
        self.at = now;
        self.moved = false;
    }

    /// Decodes what nearly all entries are: this record alone, with a count for each quota, in the quotas' order, each in a window that stands.
    fn is_alone<const HELD_TOO: bool>(&mut self, entry: &[u8], quotas: &[Quota]) -> bool {
        let Some((head, bytes)) = entry.split_first_chunk::<{ ENTRY_HEAD + RECORD_HEAD }>() else {
            return false;
        };
        let [FORM, a, b, c, d, who @ .., n] = head else { return false };
        let (flag, held_bytes) = if HELD_TOO { (IN_FLEET, NAME + quotas.len() * HELD) } else { (0, 0) };
        let Some((counts, held)) = bytes.split_at_checked(quotas.len() * COUNT) else { return false };
        if *who != self.counter.fingerprint.get().to_le_bytes()
            || usize::from(*n ^ flag) != quotas.len()
            || held.len() != held_bytes
        {
            return false;
        }
        for (bytes, quota) in counts.as_chunks().0.iter().zip(quotas) {
            let count = Count::decode(bytes);
            if count.window != quota.window || !matches!(count.at(self.at), Now::Stands) {
                return false;
            }
            if self.counts.try_push(count).is_err() {
                return false;
            }
        }
        self.write = u32::from_le_bytes([*a, *b, *c, *d]).wrapping_add(1);
        if HELD_TOO && let Some((name, held)) = held.split_first_chunk::<NAME>() {
            self.name = u128::from_le_bytes(*name);
            let held = held.as_chunks().0.iter().zip(&self.counts);
            self.held.extend(held.map(|(bytes, count)| Held::decode(bytes, count)));
        }
        true
    }

    /// [`Record::open`] for any entry.
    #[cold]
    fn open_any(&mut self, entry: &[u8], quotas: &[Quota]) -> Result<Result<(), EntryError>, Malformed> {
        self.counts.clear();
        self.held.clear();
        self.name = 0;
        let (mut records, written) = match entry.split_first_chunk::<ENTRY_HEAD>() {
            // A first write's number is that of the instant, so that an entry that something else has overwritten does not repeat an
            // earlier state.
            None if entry.is_empty() => (Records(&[]), self.at.low_bits()),
            Some(([FORM, writes @ ..], records)) if entry.len() <= MAX_BYTES => {
                (Records(records), u32::from_le_bytes(*writes))
            }
            _ => return Err(Malformed),
        };
        self.write = written.wrapping_add(1);
        let (mut others, mut before) = (0, None);
        while let Some(stored) = records.next()? {
            if stored.fingerprint == self.counter.fingerprint {
                if !self.counts.is_empty() {
                    // An entry of this form has each fingerprint once.
                    return Err(Malformed);
                }
                self.moved = stored.read(self.write, self.at, &mut self.counts, &mut self.held);
                self.name = stored.name();
                match self.counter.in_fleet {
                    // A counter that was in no fleet is in one from now on.
                    true => self.held.extend(self.counts.iter().skip(self.held.len()).map(Held::begin)),
                    false => self.held.clear(),
                }
                before = Some(stored);
                continue;
            }
            let (mut counts, mut held) = (ArrayVec::new(), ArrayVec::new());
            stored.read(self.write, self.at, &mut counts, &mut held);
            if !counts.is_empty() {
                others += usize::from(stored.fingerprint != Fingerprint::OVERFLOW);
                push_record(&mut self.rest, stored.fingerprint, &counts, stored.name(), &held);
            }
        }
        if others >= MAX_RECORDS && self.counter.fingerprint != Fingerprint::OVERFLOW {
            return Ok(Err(EntryError::Full));
        }
        Ok(self.add_windows(quotas, before.as_ref()))
    }

    /// Opens the record of a counter that has used nothing.
    pub(crate) fn open_unused(
        &mut self,
        counter: Counter,
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<(), EntryError> {
        self.begin(counter, now);
        self.name = 0;
        self.add_windows(quotas, None)
    }

    /// Adds counts for windows that have none. `before` is the record as it was stored.
    fn add_windows(&mut self, quotas: &[Quota], before: Option<&Stored<'_>>) -> Result<(), EntryError> {
        for quota in quotas.iter().take(MAX_QUOTAS) {
            if self.counts.iter().all(|count| count.window != quota.window) {
                let (window, index) = (quota.window, quota.window.index_at(self.at));
                let unused = Count { window, index, generation: self.write, used: 0 };
                self.counts.try_push(unused).map_err(|_| EntryError::TooManyWindows)?;
                if self.counter.in_fleet {
                    let held = before.and_then(|before| before.held(window));
                    let held = held.map_or_else(|| Held::begin(&unused), |held| held.next(&unused));
                    self.held.try_push(held).map_err(|_| EntryError::TooManyWindows)?;
                }
            }
        }
        Ok(())
    }

    /// The count of a window that the record was opened with.
    pub(crate) fn count(&mut self, window: Window) -> Option<&mut Count> {
        self.counts.iter_mut().find(|count| count.window == window)
    }

    /// The counts that a fleet shares, with what the gateway holds of each.
    pub(crate) fn held(&mut self) -> impl Iterator<Item = (&mut Count, &mut Held)> {
        let all = self.counts.iter_mut().zip(&mut self.held);
        all.map(|(count, held)| {
            held.of(count);
            (count, held)
        })
    }

    /// The count of a window that the record was opened with, and what a gateway of a fleet holds of it.
    pub(crate) fn count_and_held(&mut self, window: Window) -> Option<(&mut Count, Option<&mut Held>)> {
        let place = self.counts.iter().position(|count| count.window == window)?;
        let count = self.counts.get_mut(place)?;
        let held = self.held.get_mut(place).map(|held| held.of(count));
        Some((count, held))
    }

    /// Whether the gateways of a fleet share the counter.
    pub(crate) fn is_shared(&self) -> bool {
        !self.held.is_empty()
    }

    /// The number of a count that begins now.
    pub(crate) fn generation(&self) -> u32 {
        self.write
    }

    /// Begins a count again, with nothing used, because an operator resets it. Returns what was used.
    pub(crate) fn begin_again(&mut self, window: Window) -> u32 {
        let (generation, at) = (self.write, self.at);
        let Some((count, held)) = self.count_and_held(window) else { return 0 };
        if let Some(held) = held {
            held.holding = held.holding.reset(generation, at);
        }
        count.generation = generation;
        core::mem::take(&mut count.used)
    }

    /// The entry with this record, to be stored.
    pub(crate) fn encode(&self, next: &mut Vec<u8>) {
        next.clear();
        let [a, b, c, d] = self.write.to_le_bytes();
        next.extend_from_slice(&[FORM, a, b, c, d]);
        next.extend_from_slice(&self.rest);
        push_record(next, self.counter.fingerprint, &self.counts, self.name, &self.held);
    }
}

fn push_record(next: &mut Vec<u8>, fingerprint: Fingerprint, counts: &[Count], name: u128, held: &[Held]) {
    let [a, b, c, d, e, f, g, h] = fingerprint.get().to_le_bytes();
    let mut n = u8::try_from(counts.len()).unwrap_or(0);
    if !held.is_empty() {
        n |= IN_FLEET;
    }
    next.extend_from_slice(&[a, b, c, d, e, f, g, h, n]);
    for count in counts {
        next.extend_from_slice(&count.encode());
    }
    if !held.is_empty() {
        next.extend_from_slice(&name.to_le_bytes());
        for held in held {
            next.extend_from_slice(&held.encode());
        }
    }
}

/// The counters of an entry that a fleet shares. None if the entry is malformed, which the next charge repairs.
pub(super) fn shared(entry: &[u8]) -> Vec<Fingerprint> {
    let Some(([FORM, ..], records)) = entry.split_first_chunk::<ENTRY_HEAD>() else { return Vec::new() };
    let mut records = Records(records);
    let mut shared = Vec::new();
    while let Ok(Some(stored)) = records.next() {
        shared.extend(stored.fleet.map(|_| stored.fingerprint));
    }
    shared
}

/// A record as it is stored.
struct Stored<'e> {
    fingerprint: Fingerprint,
    counts: &'e [[u8; COUNT]],
    /// In a fleet, the counter's name, and what is held of each count.
    fleet: Option<(&'e [u8; NAME], &'e [[u8; HELD]])>,
}

impl Stored<'_> {
    /// The counter's name in the fleet; 0 if it is not known.
    fn name(&self) -> u128 {
        self.fleet.map_or(0, |(name, _)| u128::from_le_bytes(*name))
    }

    /// What was held of a window, which may have ended.
    fn held(&self, window: Window) -> Option<Held> {
        let mut counts = self.counts.iter().map(Count::decode).zip(self.fleet?.1);
        counts.find_map(|(count, held)| (count.window == window).then(|| Held::decode(held, &count)))
    }

    /// Reads the counts that are live at `now`. `write` is the number of the write that leaves the others behind. Returns whether use moved
    /// from a window that the clock stepped back from.
    fn read(
        &self,
        write: u32,
        now: Timestamp,
        counts: &mut ArrayVec<Count, MAX_WINDOWS>,
        all_held: &mut ArrayVec<Held, MAX_WINDOWS>,
    ) -> bool {
        let mut moved = false;
        let mut held = self.fleet.map(|(_, held)| held.iter());
        for count in self.counts.iter().map(Count::decode) {
            let held = held.as_mut().and_then(Iterator::next);
            let (count, held) = match count.at(now) {
                Now::Stands => (count, held.map(|bytes| Held::decode(bytes, &count))),
                Now::Ended => continue,
                Now::Moved(index) => {
                    moved = true;
                    let count = Count { index, generation: write, ..count };
                    (count, held.map(|_| Held::begin(&count)))
                }
            };
            counts.push(count);
            all_held.extend(held);
        }
        moved
    }
}

/// The records of an entry.
struct Records<'e>(&'e [u8]);

impl<'e> Records<'e> {
    fn next(&mut self) -> Result<Option<Stored<'e>>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (head, bytes) = self.0.split_first_chunk::<RECORD_HEAD>().ok_or(Malformed)?;
        let [fingerprint @ .., n] = *head;
        let (in_fleet, n) = (n & IN_FLEET != 0, usize::from(n & !IN_FLEET));
        if n > MAX_WINDOWS {
            return Err(Malformed);
        }
        let (counts, mut rest) = bytes.split_at_checked(n * COUNT).ok_or(Malformed)?;
        let mut fleet = None;
        if in_fleet {
            let (name, bytes) = rest.split_first_chunk().ok_or(Malformed)?;
            let (held, others) = bytes.split_at_checked(n * HELD).ok_or(Malformed)?;
            fleet = Some((name, held.as_chunks().0));
            rest = others;
        }
        self.0 = rest;
        let fingerprint = Fingerprint::from_number(u64::from_le_bytes(fingerprint));
        Ok(Some(Stored { fingerprint, counts: counts.as_chunks().0, fleet }))
    }
}
