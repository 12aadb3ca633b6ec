//! The step that consumes quota in an entry of the counters' table, whose bytes are [`crate::count::entry`]'s.

use arrayvec::ArrayVec;

use crate::count::entry::{Count, Record, Records, replace_record, write_plain};
pub use crate::count::entry::{EntryError, MAX_BYTES, MAX_QUOTAS, MAX_RECORDS, MAX_WINDOWS};
use crate::count::fingerprint::Fingerprint;
use crate::count::lease::Lease;
use crate::quota::{Mode, Quota};
use crate::time::Timestamp;
use crate::window::{Period, Window};

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

/// A request to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Whose counter.
    pub fingerprint: Fingerprint,
    /// The quotas of the class, each of which is charged. At most [`MAX_QUOTAS`] are looked at.
    pub quotas: &'a [Quota],
    /// Units of each.
    pub cost: u32,
}

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

/// Consumes what `charge` says of every quota, or of none.
///
/// `entry` is the stored value, empty if there is none; `next` receives the value to store, if there is one, and `standings`
/// where the counter stands afterwards: they are the caller's because moving them costs more than filling them. Quotas with
/// windows of the same length share one count.
///
/// # Errors
/// If the entry cannot hold the counter.
pub fn consume(
    entry: &[u8],
    charge: Charge<'_>,
    now: Timestamp,
    next: &mut Vec<u8>,
    standings: &mut Standings,
) -> Result<Consumed, EntryError> {
    match consume_alone(entry, charge, now, next, standings) {
        Some(consumed) => Ok(consumed),
        None => consume_among_others(entry, charge, now, next, standings),
    }
}

/// [`consume`] for any entry.
#[cold]
fn consume_among_others(
    entry: &[u8],
    charge: Charge<'_>,
    now: Timestamp,
    next: &mut Vec<u8>,
    standings: &mut Standings,
) -> Result<Consumed, EntryError> {
    let Charge { fingerprint, quotas, cost } = charge;
    let (mut counts, moved) = Records::counts_of(entry, fingerprint, now)?;

    standings.clear();
    let mut refused = false;
    for quota in quotas.iter().take(MAX_QUOTAS) {
        let count = counts.iter().find(|count| count.window == quota.window).copied();
        let count = count.unwrap_or_else(|| Count::unused(quota.window, now));
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
                .try_push(Count {
                    index: standing.index,
                    used: standing.used,
                    ..Count::unused(quota.window, now)
                })
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
    charge: Charge<'_>,
    now: Timestamp,
    next: &mut Vec<u8>,
    standings: &mut Standings,
) -> Option<Consumed> {
    let Charge { fingerprint, quotas, cost } = charge;
    let record = Record::alone_in(entry)?;
    let fits = record.plain_counts().len() == quotas.len() && quotas.len() <= MAX_QUOTAS;
    if record.fingerprint != fingerprint || !fits {
        return None;
    }
    standings.clear();
    let mut refused = false;
    for (quota, count) in quotas.iter().zip(record.plain_counts()) {
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
        Count { window: quota.window, index: standing.index, used: standing.used, lease: Lease::NONE }
    });
    write_plain(next, fingerprint, counts);
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
    let nothing = Charge { fingerprint, quotas, cost: 0 };
    match consume(entry, nothing, now, &mut Vec::new(), &mut standings) {
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

#[cfg(test)]
mod tests;
