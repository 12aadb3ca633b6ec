//! The step that draws quota from leases in an entry of the counters' table, and the one that adds a lease to it: what
//! [`crate::count::consume::consume`] is where a fleet shares its quotas.
//!
//! Enforced quotas are drawn from what the fleet's rate-limit service has granted; quotas in shadow mode are counted beside.

use crate::count::consume::{Standing, Standings};
use crate::count::entry::{Count, Counts, EntryError, MAX_QUOTAS, Records, replace_record};
use crate::count::fingerprint::Fingerprint;
use crate::count::lease::{LeaseTerms, milliseconds_into};
use crate::quota::{Mode, Quota};
use crate::time::Timestamp;
use crate::window::Window;

/// A lease to ask the service for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The quota, as an index into those of the class.
    pub quota: usize,
    /// The window's place in time.
    pub index: u32,
    /// Units; at least 1.
    pub units: u32,
}

/// A request to be drawn for.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// Whose counter.
    pub fingerprint: Fingerprint,
    /// The quotas of the class.
    pub quotas: &'a [Quota],
    /// Units of each; at least 1.
    pub cost: u32,
    /// What leases are like.
    pub terms: &'a LeaseTerms,
    /// What it may do beyond what is leased.
    pub beyond: Beyond,
}

/// What a request that finds too little leased may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Ask for more.
    Ask,
    /// Nothing: the service does not answer.
    Nothing,
    /// Pass, and be paid for by later leases.
    Pass,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Every enforced quota had room; the entry's new value was written to the buffer. If a lease runs low, the next one is to be asked
    /// for.
    Admitted(Option<Ask>),
    /// A quota is used up; nothing is consumed.
    Refused {
        /// Whether the buffer holds a value to store all the same, as [`crate::count::consume::Consumed::Refused`] says.
        moved: bool,
    },
    /// This gateway holds too little of a quota that the service may have more of. Nothing is consumed; the buffer holds a value to store,
    /// by which others know that a lease is asked for.
    Short(Ask),
}

impl Draw<'_> {
    /// Draws the request's cost from every quota, or from none. `entry`, `next` and `standings` are [`crate::count::consume::consume`]'s.
    ///
    /// # Errors
    /// If the entry cannot hold the counter.
    pub fn from(
        &self,
        entry: &[u8],
        now: Timestamp,
        next: &mut Vec<u8>,
        standings: &mut Standings,
    ) -> Result<Drawn, EntryError> {
        let (mut counts, moved) = counts_of(entry, self.fingerprint, self.quotas, now)?;
        self.stand(&counts, standings);
        let mut short = None;
        for (place, quota) in self.enforced() {
            let Some(count) = of(&mut counts, quota.window) else { continue };
            let (limit, lacking) = (quota.limit.get(), count.lease.lacking(count.used, self.cost));
            // What is held counts for nothing once the limit has been lowered below what is used.
            let beyond_limit = lacking == 0 && count.used.saturating_add(self.cost) > limit;
            if self.beyond == Beyond::Pass || (lacking == 0 && !beyond_limit) {
                continue;
            }
            let nothing = self.beyond == Beyond::Nothing;
            let used_up = beyond_limit || nothing || count.lease.is_used_up(limit, lacking);
            if let Some(standing) = standings.get_mut(place) {
                standing.exhausted = used_up;
            }
            if !used_up && short.is_none() {
                short = Some(self.ask(place, quota, count, lacking, now));
            }
        }
        if self.enforced().any(|(place, _)| standings.get(place).is_some_and(|standing| standing.exhausted)) {
            if moved {
                replace_record(entry, self.fingerprint, &counts, now, next)?;
            }
            return Ok(Drawn::Refused { moved });
        }
        if let Some(ask) = short {
            replace_record(entry, self.fingerprint, &counts, now, next)?;
            return Ok(Drawn::Short(ask));
        }

        for count in
            counts.iter_mut().filter(|count| self.quotas.iter().any(|quota| quota.window == count.window))
        {
            count.used = count.used.saturating_add(self.cost);
        }
        let mut low = None;
        for (place, quota) in self.enforced() {
            let Some(count) = of(&mut counts, quota.window) else { continue };
            let at = milliseconds_into(count.window, count.index, now);
            if self.beyond == Beyond::Ask
                && low.is_none()
                && count.lease.is_low(self.terms, quota, count.used, at)
            {
                low = Some(self.ask(place, quota, count, 0, now));
            }
        }
        for standing in standings.iter_mut() {
            standing.used = standing.used.saturating_add(self.cost);
        }
        replace_record(entry, self.fingerprint, &counts, now, next)?;
        Ok(Drawn::Admitted(low))
    }

    fn enforced(&self) -> impl Iterator<Item = (usize, &Quota)> {
        let quotas = self.quotas.iter().enumerate().take(MAX_QUOTAS);
        quotas.filter(|(_, quota)| quota.mode == Mode::Enforced)
    }

    /// The next lease of `quota`, `lacking` units of which are needed at once. Others see from `count` that it is asked for.
    fn ask(&self, place: usize, quota: &Quota, count: &mut Count, lacking: u32, now: Timestamp) -> Ask {
        let at = milliseconds_into(count.window, count.index, now);
        let units = count.lease.size(self.terms, quota, count.used, lacking, at);
        count.lease.asked_until = at.saturating_add(self.terms.timeout);
        Ask { quota: place, index: count.index, units }
    }

    /// Where the counter stands on each quota. Of a quota that a fleet shares, what is used is what the fleet cannot use any more.
    fn stand(&self, counts: &Counts, standings: &mut Standings) {
        standings.clear();
        for quota in self.quotas.iter().take(MAX_QUOTAS) {
            let Some(count) = counts.iter().find(|count| count.window == quota.window) else { continue };
            let sharing = self.enforced().find(|(_, shared)| shared.window == quota.window);
            let used = sharing.map_or(count.used, |(_, shared)| {
                let limit = shared.limit.get();
                limit - count.lease.remaining(limit, count.used)
            });
            let exhausted = quota.mode == Mode::Shadow && used.saturating_add(self.cost) > quota.limit.get();
            standings.push(Standing { used, index: count.index, exhausted });
        }
    }

    /// Where the counter stands, without using or asking for anything.
    ///
    /// # Errors
    /// If `entry` is malformed.
    pub fn peek(&self, entry: &[u8], now: Timestamp) -> Result<Standings, EntryError> {
        let mut standings = Standings::new();
        let (counts, _) = counts_of(entry, self.fingerprint, self.quotas, now)?;
        self.stand(&counts, &mut standings);
        Ok(standings)
    }
}

/// What became of an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The units are this gateway's.
    Granted {
        /// What the service says to be left; some do not say.
        left: Option<u32>,
    },
    /// Fewer were left. A service that adds first has nothing left then, and says so.
    OverLimit {
        /// What the service says to be left.
        left: Option<u32>,
    },
    /// There was none, or none of use.
    Nothing,
    /// There was none, and the gateway may use this many units in the window all the same.
    Own(u32),
}

/// Brings the answer to `ask`, which was about `quota`, into the record of `fingerprint`; `false` if its window has ended.
///
/// # Errors
/// If the entry cannot hold the counter.
pub fn settle(
    entry: &[u8],
    fingerprint: Fingerprint,
    quota: &Quota,
    ask: Ask,
    answer: Answer,
    now: Timestamp,
    next: &mut Vec<u8>,
) -> Result<bool, EntryError> {
    let (mut counts, _) = counts_of(entry, fingerprint, core::slice::from_ref(quota), now)?;
    let Some(count) = of(&mut counts, quota.window).filter(|count| count.index == ask.index) else {
        return Ok(false);
    };
    let limit = quota.limit.get();
    let lease = &mut count.lease;
    lease.asked_until = 0;
    let left = match answer {
        Answer::Nothing => None,
        Answer::Own(units) => {
            lease.own = lease.own.max(units);
            None
        }
        Answer::Granted { left } => {
            lease.granted = lease.granted.saturating_add(ask.units);
            Some(left.unwrap_or_else(|| lease.left(limit).unwrap_or(limit).saturating_sub(ask.units)))
        }
        Answer::OverLimit { left } => {
            let less = lease.left(limit).unwrap_or(limit).min(ask.units.saturating_sub(1));
            Some(left.unwrap_or(less))
        }
    };
    if let Some(left) = left {
        lease.taken = limit.saturating_sub(left);
        lease.used_then = count.used;
        lease.answered = milliseconds_into(count.window, count.index, now);
    }
    replace_record(entry, fingerprint, &counts, now, next)?;
    Ok(true)
}

fn of(counts: &mut Counts, window: Window) -> Option<&mut Count> {
    counts.iter_mut().find(|count| count.window == window)
}

/// The counter's counts, one for the window of each of `quotas` among them, and whether any has moved.
fn counts_of(
    entry: &[u8],
    fingerprint: Fingerprint,
    quotas: &[Quota],
    now: Timestamp,
) -> Result<(Counts, bool), EntryError> {
    let (mut counts, moved) = Records::counts_of(entry, fingerprint, now)?;
    for quota in quotas.iter().take(MAX_QUOTAS) {
        if counts.iter().all(|count| count.window != quota.window) {
            let mut unused = Count::unused(quota.window, now);
            if let Some(before) = count_before(entry, fingerprint, &unused)? {
                unused.lease = before.lease.of_next_window(before.used);
            }
            counts.try_push(unused).map_err(|_| EntryError::TooManyWindows)?;
        }
    }
    Ok((counts, moved))
}

/// The count of the window before that of `count`, if the record still has it.
fn count_before(entry: &[u8], fingerprint: Fingerprint, count: &Count) -> Result<Option<Count>, EntryError> {
    let mut before = None;
    for record in Records::of(entry)? {
        let record = record?;
        if record.fingerprint == fingerprint {
            before = record.counts().find(|stored| {
                stored.window == count.window && stored.index.checked_add(1) == Some(count.index)
            });
        }
    }
    Ok(before)
}

#[cfg(test)]
mod tests;
