//! An entry of the counters' table: the records of a few counters in one value of shared data.
//!
//! ```text
//! entry   form u8, writes u32, then records up to the end
//! record  fingerprint u64, n u8, n × count          fingerprint 0: the overflow record that strangers share
//! count   window u32 (seconds; 0 = calendar month), index u32 (the window's place in time), generation u32, used u32
//! ```
//! In a record that the gateways of a fleet share the highest bit of `n` is set, the counter's name in the fleet follows it, and what the
//! gateway holds follows each count:
//! ```text
//! shared  fingerprint u64, n u8, name u128 (0 = not known yet), n × (count, held as `Held::encode` writes it)
//! ```
//! Where a count is one of a rate or of requests in flight, or was reset where no fleet shares it, the second highest bit of `n` is set, and more follows each count, before what is held
//! of it:
//! ```text
//! flow    tat u64, given u64 (nanoseconds), or 8 × begun u16 (requests by slot, the newest first); for a window its reset number u64, and 0
//! ```
//! All numbers are little-endian. `form` is [`FORM`], which the entry's name contains as well. `writes` goes up by one with each write, so
//! that no two writes leave equal bytes (`cas_predictor` relies on that). A count's `generation` is the `writes` of the write that began
//! the count: a charge is settled only in the very count that was charged, and a count that begins again for the same window is another
//! one.
//!
//! A record lives as long as one of its windows does, or until all units of its rates are back and its requests have ended. A writer drops
//! ended windows and dead records, and keeps live windows that it does not know and what is held of them, because two configurations write
//! the same record while one of them drains.

use arrayvec::ArrayVec;

use super::fingerprint::Fingerprint;
use super::holding::{self, Held};
use super::in_flight::SLOTS;
use super::rate::{self, Flow, Rate};
use super::table::{Counter, FORM};
use crate::quota::Quota;
use crate::rules::{Rule, without};
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
    let of_fleet = if in_fleet { NAME + windows * holding::BYTES } else { 0 };
    ENTRY_HEAD + (MAX_RECORDS + 1) * (RECORD_HEAD + windows * (COUNT + rate::BYTES) + of_fleet)
}

pub(crate) const ENTRY_HEAD: usize = 5;
pub(crate) const RECORD_HEAD: usize = 9;
pub(crate) const COUNT: usize = 16;
const NAME: usize = 16;
/// The bit of a record's `n` that says that a fleet shares the counter.
const SHARED: u8 = 0x80;
/// The bit that says that more follows each count.
const FLOWS: u8 = 0x40;

/// What one window of one counter has used, or one rate; or the requests of a counter that are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The window's length, or the rate, or how long a request in flight is counted.
    pub window: Window,
    /// The window's place in time, or that of the newest slot of requests in flight; 0 for a rate.
    pub index: u32,
    /// The write of the entry that began this count.
    pub generation: u32,
    /// Units used of a window, or requests in flight.
    pub used: u32,
    /// What was used of a rate, or when the requests in flight have begun.
    pub flow: Flow,
    /// What the gateway holds of it, if a fleet shares the counter.
    pub held: Held,
}

impl Count {
    /// The same at `now`; `None` if its window has ended. `write` is the number of the next write, and `moved` becomes whether use moved from a
    /// window that the clock stepped back from.
    ///
    /// A window that is current, or the next one after the current, stands: a clock that steps back by less than a window gives no
    /// quota back, also after it has caught up. The use of a window further ahead moves to the current one, so that a clock that
    /// was wrong for a while locks no client out for longer than two windows.
    fn at(mut self, now: Timestamp, write: u32, moved: &mut bool) -> Option<Self> {
        if self.window.is_in_flight() {
            *moved |= self.go_on(now, write);
            return (self.used > 0).then_some(self);
        }
        if !self.window.is_shared() {
            return self.stands(now).then_some(self);
        }
        let current = self.window.index_at(now);
        match self.index.checked_sub(current)? {
            0 | 1 => Some(self),
            _ => {
                *moved = true;
                Some(Self { index: current, generation: write, held: Held::default(), ..self })
            }
        }
    }

    /// Whether its flow has to be stored.
    fn has_flow(&self) -> bool {
        !self.window.is_shared() || self.flow != Flow::default()
    }

    /// The number of its window's last reset, in a fleet or without; 0 before the first.
    pub(super) fn reset_number(&self) -> u64 {
        if self.window.is_shared() { self.held.reset.max(self.flow.tat) } else { 0 }
    }

    fn stands(&self, now: Timestamp) -> bool {
        if self.window.is_in_flight() {
            return self.at(now, self.generation, &mut false) == Some(*self);
        }
        match self.window.is_shared() {
            true => self.index.wrapping_sub(self.window.index_at(now)) <= 1,
            false => !self.flow.is_over(now),
        }
    }

    /// When it ends, in seconds since the epoch.
    fn end(&self) -> u64 {
        if let Some(longest) = self.window.longest() {
            return (u64::from(self.index) + SLOTS as u64) * u64::from(longest.get()) / (SLOTS as u64 - 1);
        }
        match self.window.is_shared() {
            true => self.window.period(self.index).end,
            false => self.flow.full_at(),
        }
    }

    /// Units of `limit` that are used: of a rate, whose burst that is, those that are not there.
    #[inline(always)]
    pub(super) fn used(&self, quota: &Quota, now: Timestamp) -> u32 {
        let used = |rate: Rate| quota.limit.get().saturating_sub(self.flow.left(rate, now));
        quota.rate().map_or(self.used, used)
    }

    /// Reads a count off the beginning of a record's counts. `n` of the record decides how long it is.
    fn read(bytes: &mut &[u8], n: u8) -> Option<Self> {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let [window, index, generation, used] = words(count);
        let (mut flow, mut held) = (Flow::default(), Held::default());
        if n & FLOWS != 0 {
            let (stored, after) = rest.split_first_chunk()?;
            (flow, rest) = (Flow::decode(stored), after);
        }
        if n & SHARED != 0 {
            let (stored, after) = rest.split_first_chunk()?;
            (held, rest) = (Held::decode(stored), after);
        }
        *bytes = rest;
        Some(Self { window: Window::from_code(window), index, generation, used, flow, held })
    }

    fn write(&self, next: &mut Vec<u8>, n: u8) {
        let mut bytes = [0; COUNT];
        let words = [self.window.code(), self.index, self.generation, self.used];
        for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        next.extend_from_slice(&bytes);
        if n & FLOWS != 0 {
            next.extend_from_slice(&self.flow.encode());
        }
        if n & SHARED != 0 {
            next.extend_from_slice(&self.held.encode());
        }
    }
}

/// The numbers of a stored count.
fn words(bytes: &[u8; COUNT]) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
        u32::from_le_bytes([i, j, k, l]),
        u32::from_le_bytes([m, n, o, p]),
    ]
}

/// Why an entry has no place for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// All records are live, and none of them is this counter's.
    #[error("a counter's entry in shared data is full")]
    Full,
}

/// The bytes are not an entry: something else writes under the counters' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A counter's record, decoded once, with the bytes of the entry around it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    fingerprint: Fingerprint,
    counts: ArrayVec<Count, MAX_WINDOWS>,
    /// The counter's name in the fleet, if one shares it; 0 while it is not known.
    pub(crate) name: Option<u128>,
    /// Whether one of the counts is that of a rate, or of requests in flight.
    has_flows: bool,
    /// The entry without this record, as the next write leaves it.
    rest: Vec<u8>,
    /// The number of the next write.
    write: u32,
    /// The instant as of which the record was opened.
    pub(crate) at: Timestamp,
    /// Whether use moved from a window that the clock stepped back from.
    pub(crate) moved: bool,
    /// Live counts of windows that no quota has now, whose places others have taken.
    pub(crate) dropped: u32,
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
        counter: &Counter,
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<Result<(), EntryError>, Malformed> {
        self.begin(counter, now);
        if self.is_alone(entry, counter, quotas) {
            return Ok(Ok(()));
        }
        self.open_any(entry, counter, quotas)
    }

    fn begin(&mut self, counter: &Counter, now: Timestamp) {
        self.fingerprint = counter.fingerprint;
        self.counts.clear();
        self.name = None;
        self.has_flows = false;
        self.rest.clear();
        self.at = now;
        self.moved = false;
        self.dropped = 0;
    }

    /// Decodes what nearly all entries are: this record alone, with a count for each quota, in the quotas' order, each in a window that stands.
    fn is_alone(&mut self, entry: &[u8], counter: &Counter, quotas: &[Quota]) -> bool {
        let Some((head, mut bytes)) = entry.split_first_chunk::<{ ENTRY_HEAD + RECORD_HEAD }>() else {
            return false;
        };
        let [FORM, a, b, c, d, who @ .., n] = head else { return false };
        let (shared, flows) = (*n & SHARED != 0, *n & FLOWS != 0);
        if *who != counter.fingerprint.get().to_le_bytes()
            || usize::from(*n & !(SHARED | FLOWS)) != quotas.len()
            || counter.in_fleet && !shared
        {
            return false;
        }
        if shared {
            let Some((name, counts)) = bytes.split_first_chunk() else { return false };
            (self.name, bytes) = (Some(u128::from_le_bytes(*name)), counts);
        }
        self.has_flows = flows;
        for quota in quotas {
            let Some((count, rest)) = bytes.split_first_chunk() else { return false };
            let ([window, index, generation, used], mut flow) = (words(count), Flow::default());
            bytes = rest;
            if flows {
                let Some((stored, rest)) = bytes.split_first_chunk() else { return false };
                (flow, bytes) = (Flow::decode(stored), rest);
            }
            let stands = match flows && !quota.window.is_shared() {
                true => !quota.window.is_in_flight() && !flow.is_over(self.at),
                false => index.wrapping_sub(quota.window.index_at(self.at)) <= 1,
            };
            if window != quota.window.code() || !stands || self.counts.is_full() {
                return false;
            }
            let held = Held::default();
            self.counts.push(Count { window: quota.window, index, generation, used, flow, held });
            if shared
                && let Some((held, rest)) = bytes.split_first_chunk()
                && let Some(count) = self.counts.last_mut()
            {
                (count.held, bytes) = (Held::decode(held), rest);
            }
        }
        self.write = u32::from_le_bytes([*a, *b, *c, *d]).wrapping_add(1);
        bytes.is_empty()
    }

    /// [`Record::open`] for any entry.
    #[cold]
    fn open_any(
        &mut self,
        entry: &[u8],
        counter: &Counter,
        quotas: &[Quota],
    ) -> Result<Result<(), EntryError>, Malformed> {
        self.begin(counter, self.at);
        let (mut records, written) = match entry.split_first_chunk::<ENTRY_HEAD>() {
            // A first write's number is that of the instant, so that an entry that something else has overwritten does not repeat an
            // earlier state.
            None if entry.is_empty() => (&[][..], self.at.low_bits()),
            Some(([FORM, writes @ ..], records)) if entry.len() <= MAX_BYTES => {
                (records, u32::from_le_bytes(*writes))
            }
            _ => return Err(Malformed),
        };
        self.write = written.wrapping_add(1);
        let (mut others, mut is_found) = (0, false);
        while !records.is_empty() {
            let before = records;
            let stored = Stored::read(&mut records)?;
            if stored.fingerprint == self.fingerprint {
                // An entry of this form has each fingerprint once.
                if core::mem::replace(&mut is_found, true) {
                    return Err(Malformed);
                }
                self.take(&stored, quotas)?;
                continue;
            }
            let is_kept = if stored.counts().all(|count| count.stands(self.at)) {
                // Nearly all are, as they were.
                self.rest.extend_from_slice(before.get(..before.len() - records.len()).unwrap_or_default());
                true
            } else {
                let at = |count: Count| count.at(self.at, self.write, &mut false);
                let live: ArrayVec<Count, MAX_WINDOWS> = stored.counts().filter_map(at).collect();
                if !live.is_empty() {
                    let has_flows = live.iter().any(Count::has_flow);
                    push_record(&mut self.rest, stored.fingerprint, &live, (stored.name, has_flows));
                }
                !live.is_empty()
            };
            others += usize::from(is_kept && stored.fingerprint != Fingerprint::OVERFLOW);
        }
        if others >= MAX_RECORDS && self.fingerprint != Fingerprint::OVERFLOW {
            return Ok(Err(EntryError::Full));
        }
        self.add_windows(counter, quotas);
        Ok(Ok(()))
    }

    /// Takes the counts of the stored record that are live, and begins those that `quotas` need of the windows that follow.
    fn take(&mut self, stored: &Stored<'_>, quotas: &[Quota]) -> Result<(), Malformed> {
        self.name = stored.name;
        for count in stored.counts() {
            let next = quotas.iter().any(|quota| quota.window == count.window).then(|| Count {
                index: count.window.index_at(self.at),
                generation: self.write,
                used: 0,
                flow: Flow::default(),
                held: count.held.next(),
                ..count
            });
            if let Some(live) = count.at(self.at, self.write, &mut self.moved).or(next) {
                self.counts.try_push(live).map_err(|_| Malformed)?;
            }
        }
        Ok(())
    }

    /// Opens the record of a counter that has used nothing.
    pub(crate) fn open_unused(&mut self, counter: &Counter, quotas: &[Quota], now: Timestamp) {
        self.begin(counter, now);
        self.add_windows(counter, quotas);
    }

    /// Adds counts for windows that have none, and puts all in the quotas' order, in which they are found at once. If all places are taken, a new count
    /// has that of the one that ends first among those that no quota has now: limits that change at each poll of a directory lift no quota.
    fn add_windows(&mut self, counter: &Counter, quotas: &[Quota]) {
        if counter.in_fleet {
            self.name.get_or_insert(0);
        } else if without(Rule::HeldSurvives) {
            self.name = None;
        }
        let counts = &mut self.counts;
        for quota in quotas.iter().take(MAX_QUOTAS) {
            if counts.iter().all(|count| count.window != quota.window) {
                let (window, index) = (quota.window, quota.window.index_at(self.at));
                let (flow, held) = (Flow::default(), Held::default());
                let unused = Count { window, index, generation: self.write, used: 0, flow, held };
                if counts.try_push(unused).is_err() {
                    let has_none =
                        |count: &&mut Count| quotas.iter().all(|quota| quota.window != count.window);
                    let first = counts.iter_mut().filter(has_none).min_by_key(|count| count.end());
                    // There are fewer quotas than places.
                    first.into_iter().for_each(|first| *first = unused);
                    self.dropped += 1;
                }
            }
        }
        self.has_flows = counts.iter().any(Count::has_flow);
        let place = |count: &Count| quotas.iter().position(|quota| quota.window == count.window);
        counts.sort_by_key(|count| place(count).unwrap_or(MAX_QUOTAS));
    }

    /// The count of a window that the record was opened with.
    pub(crate) fn count(&mut self, window: Window) -> Option<&mut Count> {
        self.counts.iter_mut().find(|count| count.window == window)
    }

    /// Takes the count of a rate that is further ahead than any charge leads to for the furthest that one does. It begins anew then.
    #[cold]
    pub(super) fn clamp(&mut self, quota: &Quota) {
        let (at, generation) = (self.at, self.write);
        if let (Some(rate), Some(count)) = (quota.rate(), self.count(quota.window))
            && count.flow.clamp(rate, at)
        {
            count.generation = generation;
            self.moved = true;
        }
    }

    /// Keeps the number of the reset of a window that no fleet shares.
    pub(super) fn keep_reset(&mut self, window: Window) {
        if let Some(count) = self.count(window).filter(|count| count.window.is_shared()) {
            count.flow.tat = count.held.reset;
            self.has_flows = true;
        }
    }

    /// All counts.
    pub(crate) fn counts(&mut self) -> impl Iterator<Item = &mut Count> {
        self.counts.iter_mut()
    }

    /// The number of a count that begins now.
    pub(crate) fn generation(&self) -> u32 {
        self.write
    }

    /// The entry with this record, to be stored.
    pub(crate) fn encode(&self, next: &mut Vec<u8>) {
        next.clear();
        let [a, b, c, d] = self.write.to_le_bytes();
        next.extend_from_slice(&[FORM, a, b, c, d]);
        next.extend_from_slice(&self.rest);
        push_record(next, self.fingerprint, &self.counts, (self.name, self.has_flows));
    }
}

fn push_record(
    next: &mut Vec<u8>,
    fingerprint: Fingerprint,
    counts: &[Count],
    (name, has_flows): (Option<u128>, bool),
) {
    let [a, b, c, d, e, f, g, h] = fingerprint.get().to_le_bytes();
    let mut n = u8::try_from(counts.len()).unwrap_or(0);
    if name.is_some() {
        n |= SHARED;
    }
    if has_flows {
        n |= FLOWS;
    }
    next.extend_from_slice(&[a, b, c, d, e, f, g, h, n]);
    if let Some(name) = name {
        next.extend_from_slice(&name.to_le_bytes());
    }
    for count in counts {
        count.write(next, n);
    }
}

/// A record as it is stored.
struct Stored<'e> {
    fingerprint: Fingerprint,
    name: Option<u128>,
    n: u8,
    counts: &'e [u8],
}

impl<'e> Stored<'e> {
    /// Reads a record off the beginning of an entry's records.
    fn read(records: &mut &'e [u8]) -> Result<Self, Malformed> {
        let (head, mut bytes) = records.split_first_chunk::<RECORD_HEAD>().ok_or(Malformed)?;
        let [fingerprint @ .., n] = *head;
        let (shared, flows, windows) = (n & SHARED != 0, n & FLOWS != 0, usize::from(n & !(SHARED | FLOWS)));
        let mut name = None;
        if shared {
            let (bits, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
            (name, bytes) = (Some(u128::from_le_bytes(*bits)), rest);
        }
        let size = COUNT + if flows { rate::BYTES } else { 0 } + if shared { holding::BYTES } else { 0 };
        let counts = bytes.split_at_checked(windows * size).filter(|_| windows <= MAX_WINDOWS);
        let (counts, rest) = counts.ok_or(Malformed)?;
        *records = rest;
        Ok(Self { fingerprint: Fingerprint::from_number(u64::from_le_bytes(fingerprint)), name, n, counts })
    }

    fn counts(&self) -> impl Iterator<Item = Count> {
        let (mut rest, n) = (self.counts, self.n);
        core::iter::from_fn(move || Count::read(&mut rest, n))
    }
}

/// The counters of an entry that a fleet shares. None if the entry is malformed, which the next charge repairs.
pub(super) fn shared(entry: &[u8]) -> Vec<Fingerprint> {
    let Some(([FORM, ..], mut records)) = entry.split_first_chunk::<ENTRY_HEAD>() else { return Vec::new() };
    let mut shared = Vec::new();
    while let Ok(stored) = Stored::read(&mut records) {
        shared.extend(stored.name.map(|_| stored.fingerprint));
    }
    shared
}

/// The count of a window of a counter, as it is stored in an entry. For the simulation of fleets, which checks what is kept.
#[cfg(feature = "rules")]
#[must_use]
pub fn stored(entry: &[u8], counter: Fingerprint, window: Window) -> Option<Count> {
    let (_, mut records) = entry.split_first_chunk::<ENTRY_HEAD>()?;
    loop {
        let stored = Stored::read(&mut records).ok()?;
        if stored.fingerprint == counter {
            return stored.counts().find(|count| count.window == window);
        }
    }
}

#[cfg(test)]
mod tests;
