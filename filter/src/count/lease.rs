//! Leases: units of a quota that a gateway takes from the fleet's rate-limit service at once, to hand them out by itself.
//!
//! The service adds what it is asked for before it looks at the limit, so of what is asked beyond the limit everything is lost to the
//! whole fleet until the window ends. And units that one gateway holds are units that another one may be short of. So a lease is as
//! large as the key's rate makes it likely to be used soon, and never more than a part of what is likely to be left; as the quota runs
//! out, leases become smaller.

use crate::quota::Quota;
use crate::time::Timestamp;
use crate::window::Window;

/// A lease is meant to last for this part of the window.
const LASTS: u32 = 3;
/// Hundredths of its fair part of what is likely to be left that a gateway asks for.
const HUNDREDTHS: u64 = 75;
/// A lease is at most so many times what the gateway has been granted before in the window; the second, which may follow a first of very
/// little, so many times that.
const GROWTH: u32 = 8;
const FIRST_GROWTH: u32 = 6;
/// However little is left, this part of the limit may be asked for if the rate asks for it: what is lost by asking for more than is
/// left is less than that, once in a window and for the whole fleet.
const OF_THE_LIMIT: u32 = 20;
/// The first lease of a window: this part of what this gateway used in the window before, and at most this part of the limit.
const FIRST_OF_BEFORE: u32 = 4;
const FIRST_AT_MOST: u32 = 4;
/// The first lease of a gateway that used nothing in the window before. As many gateways may each hold one.
const UNKNOWN_OF_THE_LIMIT: u32 = 200;
/// Tenths of what it holds that a gateway must have used before an answer is taken to say at what rate others use theirs.
const TENTHS_USED: u64 = 6;
/// A rate is taken over this time at least, and the next lease asked for so long before it is needed; in milliseconds.
const AHEAD: u32 = 250;
/// Others are taken to use at most so many times what this gateway does.
const MANY: u64 = 64;

/// What a gateway holds of a quota in a window. Instants are milliseconds since the window's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Units that the service granted in this window.
    pub granted: u32,
    /// Units that the gateway granted itself while the service did not answer.
    pub own: u32,
    /// Units that all gateways together had taken when the service answered last; [`Lease::UNKNOWN`] before it has. Kept rather
    /// than what is left, which depends on a limit that may change.
    pub taken: u32,
    /// Units used when it answered last.
    pub used_then: u32,
    /// When it answered last.
    pub answered: u32,
    /// Until when a lease may be under way that a worker has asked for; 0 if none is.
    pub asked_until: u32,
    /// Units that this gateway used in the window before.
    pub before: u32,
    /// Units that other gateways had taken in the window before.
    pub others_before: u32,
}

impl Lease {
    /// Nothing leased, nothing known.
    pub const NONE: Self = Self {
        granted: 0,
        own: 0,
        taken: Self::UNKNOWN,
        used_then: 0,
        answered: 0,
        asked_until: 0,
        before: 0,
        others_before: 0,
    };
    /// In place of what is taken, which the record does not tell from a whole limit of 2³²−1.
    pub const UNKNOWN: u32 = u32::MAX;

    const WORDS: usize = 8;
    /// Bytes of a lease in a record.
    pub const BYTES: usize = 4 * Self::WORDS;

    pub(crate) fn to_bytes(self) -> [[u8; 4]; Self::WORDS] {
        let Self { granted, own, taken, used_then, answered, asked_until, before, others_before } = self;
        [granted, own, taken, used_then, answered, asked_until, before, others_before].map(u32::to_le_bytes)
    }

    pub(crate) fn from_bytes(bytes: &[[u8; 4]]) -> Option<Self> {
        let words: &[[u8; 4]; Self::WORDS] = bytes.try_into().ok()?;
        let [granted, own, taken, used_then, answered, asked_until, before, others_before] =
            words.map(u32::from_le_bytes);
        Some(Self { granted, own, taken, used_then, answered, asked_until, before, others_before })
    }

    /// The lease of a count that a clock which stepped back has moved to another window: what is used stays paid for, and what was
    /// left over of another window's is nobody's.
    pub(crate) fn moved(self, used: u32) -> Self {
        match self {
            Self::NONE => Self::NONE,
            Self { granted, .. } => Self { granted: granted.min(used), ..Self::NONE },
        }
    }

    /// What the lease of the next window knows of this one's, of which `used` units are used.
    pub(crate) fn of_next_window(self, used: u32) -> Self {
        let others_before = match self.taken {
            Self::UNKNOWN => 0,
            taken => taken.saturating_sub(self.granted),
        };
        Self { before: used, others_before, ..Self::NONE }
    }

    /// Units that may be used at once.
    #[must_use]
    pub fn room(&self, used: u32) -> u32 {
        self.granted.saturating_add(self.own).saturating_sub(used)
    }

    /// Units by which `cost` more than is used go beyond what is granted.
    #[must_use]
    pub fn lacking(&self, used: u32, cost: u32) -> u32 {
        used.saturating_add(cost).saturating_sub(self.granted.saturating_add(self.own))
    }

    /// Units of `limit` that the service had left when it answered last; `None` before it has.
    #[must_use]
    pub fn left(&self, limit: u32) -> Option<u32> {
        (self.taken != Self::UNKNOWN).then(|| limit.saturating_sub(self.taken))
    }

    /// Units of `limit` that the whole fleet can still use, as far as this gateway knows: what it holds and what was left.
    #[must_use]
    pub fn remaining(&self, limit: u32, used: u32) -> u32 {
        match self.left(limit) {
            None => limit.saturating_sub(used),
            Some(left) => self.room(used).saturating_add(left).min(limit),
        }
    }

    /// Whether the service has said that fewer than `lacking` units of `limit` are left. It never has more again in this window.
    #[must_use]
    pub fn is_used_up(&self, limit: u32, lacking: u32) -> bool {
        self.left(limit).is_some_and(|left| left < lacking)
    }

    /// How many units to ask for when `used` are used and `lacking` are needed at once.
    #[must_use]
    pub fn size(&self, terms: &LeaseTerms, quota: &Quota, used: u32, lacking: u32, at: u32) -> u32 {
        let lacking = lacking.max(1);
        if terms.is_called_for_each(quota.window) {
            return lacking;
        }
        let limit = quota.limit.get();
        let known = self.left(limit).unwrap_or(limit);
        let unknown = limit / UNKNOWN_OF_THE_LIMIT;
        let (likely, most) = match self.left(limit) {
            // Another worker's lease is under way, which this one cannot wait for.
            _ if self.asked_until > at => (unknown, unknown),
            None if self.before == 0 => (unknown, unknown),
            None => (self.before / FIRST_OF_BEFORE, limit / FIRST_AT_MOST),
            Some(left) => {
                let growth = if self.used_then > 0 { GROWTH } else { FIRST_GROWTH };
                let part = self.fair_part(limit, used).min(self.granted.saturating_mul(growth));
                let lasting = window_milliseconds(quota.window) / LASTS;
                (self.uses_in(used, at, lasting), part.max(left.min(limit / OF_THE_LIMIT)))
            }
        };
        // More than what was left would be lost.
        likely.min(most).max(1).saturating_add(lacking - 1).min(known).max(lacking)
    }

    /// Whether to ask for more before it is needed: the rest would not last for as long as an answer may usually take.
    #[must_use]
    pub fn is_low(&self, terms: &LeaseTerms, quota: &Quota, used: u32, at: u32) -> bool {
        self.left(quota.limit.get()).is_some_and(|left| left > 0)
            && self.asked_until <= at
            && !terms.is_called_for_each(quota.window)
            && self.room(used) < self.uses_in(used, at, AHEAD)
    }

    /// Units that are likely to be used within `milliseconds`, at the rate since the last answer. A rate needs two units to be one, as the
    /// first is what was asked for.
    fn uses_in(&self, used: u32, at: u32, milliseconds: u32) -> u32 {
        let uses = used.saturating_sub(self.used_then).saturating_sub(1);
        let uses = u64::from(uses) * u64::from(milliseconds);
        let since = at.saturating_sub(self.answered).max(AHEAD);
        u32::try_from(uses / u64::from(since)).unwrap_or(u32::MAX)
    }

    /// This gateway's part of what is likely to be left. Others have gone on as this one has since the last answer; if that was too early
    /// to tell, as they did in the window before, or else like this one. Their parts are what they have taken so far.
    fn fair_part(&self, limit: u32, used: u32) -> u32 {
        let [limit, used, used_then, granted] = [limit, used, self.used_then, self.granted].map(u64::from);
        let seen = u64::from(self.taken).saturating_sub(granted);
        let others = if 10 * used_then >= TENTHS_USED * granted {
            seen * used.max(used_then) / used_then.max(1)
        } else if self.before > 0 {
            let before = u64::from(self.before);
            seen.max(granted * u64::from(self.others_before).min(MANY * before) / before)
        } else {
            seen.max(granted)
        };
        let left = limit.saturating_sub(granted).saturating_sub(others);
        let part = left * granted / (granted + others).max(1) * HUNDREDTHS / 100;
        u32::try_from(part).unwrap_or(u32::MAX)
    }
}

/// What leases are like in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Windows shorter than this, in seconds, are too short for leases: the service is called for each request.
    pub min_window: u32,
    /// How long an answer is waited for, in milliseconds.
    pub timeout: u32,
}

impl LeaseTerms {
    fn is_called_for_each(&self, window: Window) -> bool {
        matches!(window, Window::Seconds(length) if length.get() < self.min_window)
    }
}

/// Whether the rate-limit service's protocol has a unit for this window.
#[must_use]
pub const fn is_leasable(window: Window) -> bool {
    matches!(window, Window::SECOND | Window::MINUTE | Window::HOUR | Window::DAY)
}

/// The length of a window in milliseconds; what the longest that can be leased has fits in.
fn window_milliseconds(window: Window) -> u32 {
    match window {
        Window::Seconds(length) => length.get().saturating_mul(1000),
        Window::CalendarMonth => u32::MAX,
    }
}

/// Milliseconds from the start of the window of this index until `now`.
pub(crate) fn milliseconds_into(window: Window, index: u32, now: Timestamp) -> u32 {
    now.milliseconds_since(window.period(index).start)
}
