//! A lease: units of a quota that the fleet's rate-limit service has granted this gateway, kept beside what is used.

use crate::quota::Quota;
use crate::time::Timestamp;
use crate::window::{Period, Window};

/// What a gateway holds of a quota in a window. Instants are milliseconds since the window's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Units that the service granted in this window.
    pub granted: u32,
    /// Units that the gateway admitted on its own authority while the service did not answer (`on_unavailable: local`).
    pub own: u32,
    /// Units that all gateways together had taken when the service answered last; [`Lease::UNKNOWN`] before its first answer. This
    /// is kept instead of what is left, which depends on a limit that may change.
    pub taken: u32,
    /// When the service answered last.
    pub answered: u32,
    /// An instant at least [`REFILL_AHEAD`] before the last answer or at the window's start, and the units used then: what the key's
    /// present rate is taken from.
    pub rate_from: u32,
    /// Units used at [`Lease::rate_from`].
    pub rate_used: u32,
    /// Until when a refill is in flight that one of the workers has asked for; 0 if none is.
    pub refill_until: u32,
    /// Units that this gateway used in the window before.
    pub before: u32,
    /// Units that other gateways had taken in the window before.
    pub others_before: u32,
}

/// Period over which the rate of a key is taken at least, and how far ahead of its need a refill is asked for. In milliseconds.
pub const REFILL_AHEAD: u32 = 250;

impl Lease {
    /// Nothing leased, nothing known.
    pub const NONE: Self = Self {
        granted: 0,
        own: 0,
        taken: Self::UNKNOWN,
        answered: 0,
        rate_from: 0,
        rate_used: 0,
        refill_until: 0,
        before: 0,
        others_before: 0,
    };
    /// The value of [`Lease::taken`] before the first answer. A limit of 2³²−1 that is taken whole looks the same.
    pub const UNKNOWN: u32 = u32::MAX;

    const WORDS: usize = 9;
    /// Bytes of a lease in a record.
    pub const BYTES: usize = 4 * Self::WORDS;

    pub(crate) fn to_bytes(self) -> [[u8; 4]; Self::WORDS] {
        let Self { granted, own, taken, answered, rate_from, rate_used, refill_until, before, others_before } =
            self;
        [granted, own, taken, answered, rate_from, rate_used, refill_until, before, others_before]
            .map(u32::to_le_bytes)
    }

    pub(crate) fn from_bytes(bytes: &[[u8; 4]]) -> Option<Self> {
        let words: &[[u8; 4]; Self::WORDS] = bytes.try_into().ok()?;
        let [granted, own, taken, answered, rate_from, rate_used, refill_until, before, others_before] =
            words.map(u32::from_le_bytes);
        Some(Self {
            granted,
            own,
            taken,
            answered,
            rate_from,
            rate_used,
            refill_until,
            before,
            others_before,
        })
    }

    /// The lease of a count that a clock which stepped back has moved to another window. What is used stays paid for; what was left of
    /// another window's lease is lost.
    pub(crate) fn moved(self, used: u32) -> Self {
        match self {
            Self::NONE => Self::NONE,
            Self { granted, own, .. } => {
                Self { granted: granted.min(used), own: own.min(used), ..Self::NONE }
            }
        }
    }

    /// The lease of the next window, after one in which `used` units were used.
    pub(crate) fn of_next_window(self, used: u32) -> Self {
        let others_before = self.taken_by_others().unwrap_or(0);
        if self == Self::NONE { self } else { Self { before: used, others_before, ..Self::NONE } }
    }

    /// The value of [`Lease::granted`] of a quota that the service does not limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Whether the service does not limit the quota.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.granted == Self::UNLIMITED
    }

    /// Notes when the service answered, with `used` units used.
    pub fn answered_at(&mut self, elapsed: u32, used: u32) {
        if elapsed >= self.answered.saturating_add(REFILL_AHEAD) || self.answered == 0 {
            (self.rate_from, self.rate_used) = (elapsed, used);
        }
        self.answered = elapsed;
    }

    /// Units that may be used at once when `used` are used.
    #[must_use]
    pub fn room(&self, used: u32) -> u32 {
        self.granted.saturating_add(self.own).saturating_sub(used)
    }

    /// Units by which `cost` more than `used` goes beyond what is held.
    #[must_use]
    pub fn lacking(&self, used: u32, cost: u32) -> u32 {
        used.saturating_add(cost).saturating_sub(self.granted.saturating_add(self.own))
    }

    /// Units of `limit` that the service had left when it answered last; `None` before its first answer.
    #[must_use]
    pub fn left(&self, limit: u32) -> Option<u32> {
        (self.taken != Self::UNKNOWN).then(|| limit.saturating_sub(self.taken))
    }

    /// Units that other gateways had taken when the service answered last; `None` before its first answer.
    #[must_use]
    pub fn taken_by_others(&self) -> Option<u32> {
        (self.taken != Self::UNKNOWN).then(|| self.taken.saturating_sub(self.granted))
    }

    /// Units of `limit` that clients can still use, as far as this gateway knows: what it holds and what the service had left.
    #[must_use]
    pub fn remaining(&self, limit: u32, used: u32) -> u32 {
        match self.left(limit) {
            None => limit.saturating_sub(used),
            Some(left) => self.room(used).saturating_add(left).min(limit),
        }
    }

    /// Whether the service has reported that fewer than `lacking` units of `limit` are left. It never has more again in this window.
    #[must_use]
    pub fn is_exhausted(&self, limit: u32, lacking: u32) -> bool {
        self.left(limit).is_some_and(|left| left < lacking)
    }

    /// Whether a refill may be asked for now: none is in flight, the service may have more, and the window lasts for longer than the
    /// answer may take.
    #[must_use]
    pub fn may_refill(&self, terms: &LeaseTerms, quota: &Quota, time: WindowTime) -> bool {
        terms.leases(quota.window)
            && self.left(quota.limit.get()).is_none_or(|left| left > 0)
            && self.refill_until <= time.elapsed
            && time.left > terms.timeout
    }

    /// Whether a refill is to be asked for before a request has to wait for one: at the key's rate the room does not last for
    /// [`REFILL_AHEAD`], or is a debt.
    #[must_use]
    pub fn is_low(&self, terms: &LeaseTerms, quota: &Quota, used: u32, time: WindowTime) -> bool {
        self.may_refill(terms, quota, time)
            && (self.room(used) < self.likely_in(used, time, REFILL_AHEAD) || self.lacking(used, 0) > 0)
    }

    /// Units that are likely to be used in the next `milliseconds`: at the mean rate of this window, or at the present rate if that is
    /// higher. A rate needs two units to be one.
    #[must_use]
    pub fn likely_in(&self, used: u32, time: WindowTime, milliseconds: u32) -> u32 {
        let at_rate = |units: u32, since: u32| {
            let units = u64::from(units.saturating_sub(1)) * u64::from(milliseconds);
            u32::try_from(units / u64::from(since.max(REFILL_AHEAD))).unwrap_or(u32::MAX)
        };
        let present =
            at_rate(used.saturating_sub(self.rate_used), time.elapsed.saturating_sub(self.rate_from));
        at_rate(used, time.elapsed).max(present)
    }
}

/// How far a window has gone, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTime {
    /// Since its start.
    pub elapsed: u32,
    /// Until its end.
    pub left: u32,
}

impl WindowTime {
    /// The time in the window `index` at `now`; `None` while that window is ahead of the clock.
    #[must_use]
    pub fn of(window: Window, index: u32, now: Timestamp) -> Option<Self> {
        let Period { start, end, .. } = window.period(index);
        let elapsed = now.milliseconds_since(start);
        let length = u32::try_from(end.saturating_sub(start).saturating_mul(1000)).unwrap_or(u32::MAX);
        (now.seconds() >= start).then_some(Self { elapsed, left: length.saturating_sub(elapsed) })
    }
}

/// When quota is leased, and how long for an answer is waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Seconds. Quotas with shorter windows are requested per request instead of leased.
    pub min_window: u32,
    /// Longest wait of a request, in milliseconds.
    pub timeout: u32,
}

impl LeaseTerms {
    /// Whether units of a quota with this window are leased, rather than requested by each request.
    #[must_use]
    pub fn leases(&self, window: Window) -> bool {
        matches!(window, Window::Seconds(length) if length.get() >= self.min_window)
    }
}

/// Whether the rate-limit service's protocol has a unit for this window, aligned as the window is.
#[must_use]
pub const fn is_leasable(window: Window) -> bool {
    matches!(window, Window::SECOND | Window::MINUTE | Window::HOUR | Window::DAY)
}
