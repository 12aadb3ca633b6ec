//! Quotas: what may be used in a window, at a rate or at once, and how it is announced.

use core::num::NonZeroU32;
use std::borrow::Cow;

use serde::Serialize;

use crate::count::rate::Rate;
use crate::read::words;
use crate::time::Timestamp;
use crate::window::{Anchor, HOUR, Window};

words! {
    /// Whether requests beyond a quota are refused.
    pub enum Mode derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize) serde(rename_all = "snake_case") {
        /// Refuse requests beyond the quota.
        "enforced" => Enforced,
        /// Count requests and report in metrics what would have been refused. Never refuse.
        "shadow" => Shadow,
    }
}

/// At most `limit` units in each `window`, or at once, if that is a rate, or requests in flight; the draft's `q` and `w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The policy's name in `RateLimit-Policy`, `RateLimit` and `violated-policies`.
    pub name: String,
    /// Units in a window, or the burst of a rate. A request uses the cost of its class. Or requests in flight.
    pub limit: NonZeroU32,
    /// The window, the rate, or how long a request in flight is counted.
    pub window: Window,
    /// Whether it refuses.
    pub mode: Mode,
    /// Whether it gets back what a refunded request was charged.
    pub refundable: bool,
}

impl Quota {
    /// What the quota allows in an hour: `limit` × 3600 / window, rounded down; of an hour and longer windows the limit itself. Of a rate it is
    /// what flows back in an hour, at least 1.
    ///
    /// This is how the contract's two statements on `X-RateLimit-Limit` (a count per hour, of limits per minute) are both kept.
    #[must_use]
    pub fn per_hour(&self) -> u64 {
        let limit = u64::from(self.limit.get());
        if let Some((units, seconds, _)) = self.window.rate() {
            return (u64::from(units) * u64::from(HOUR) / u64::from(seconds.get())).max(1);
        }
        match self.window.seconds() {
            Some(length) if length.get() < HOUR => limit * u64::from(HOUR) / u64::from(length.get()),
            Some(_) | None => limit,
        }
    }

    /// Units that a request of this cost takes: of those in flight one, whatever it costs.
    #[inline(always)]
    pub(crate) fn units(&self, cost: u32) -> u32 {
        if self.window.is_in_flight() { cost.min(1) } else { cost }
    }

    /// How its units flow back, if it is a rate.
    #[inline(always)]
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.window.flows_back().map(|unit| Rate::new(unit, self.limit.get()))
    }

    /// The seconds of its window at `now`, or from empty to full.
    pub(crate) fn seconds(&self, now: Timestamp) -> u64 {
        let period = self.window.at(now);
        self.rate().map_or(period.end.saturating_sub(period.start), Rate::seconds)
    }
}

/// The quotas of a class, all of which apply, and what is announced of them: those of the caller, and those that the caller's organisation
/// shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSet {
    quotas: Vec<Quota>,
    /// How many of them are the caller's; the rest are the organisation's.
    own: usize,
    /// Whether one of them is about requests in flight.
    in_flight: bool,
    /// `RateLimit-Policy`, unless it changes with the month or the year.
    policy: Option<String>,
}

impl QuotaSet {
    /// The quotas of a class; at most [`crate::count::entry::MAX_QUOTAS`] of them are looked at.
    #[must_use]
    pub fn new(quotas: Vec<Quota>) -> Self {
        Self::with_shared(quotas, Vec::new())
    }

    /// The caller's quotas of a class, and those of its organisation; at most [`crate::count::entry::MAX_QUOTAS`] together.
    #[must_use]
    pub fn with_shared(mut quotas: Vec<Quota>, shared: Vec<Quota>) -> Self {
        let own = quotas.len();
        quotas.extend(shared);
        let calendar = quotas.iter().any(|quota| quota.window.is_calendar());
        let policy = (!calendar).then(|| policy(&quotas, Timestamp::from_seconds(0)));
        let in_flight = quotas.iter().any(|quota| quota.window.is_in_flight());
        Self { quotas, own, in_flight, policy }
    }

    /// The same for a subscriber and its organisation whose billing periods begin there; `None` if no quota has one.
    #[must_use]
    pub fn anchored(&self, own: Option<Anchor>, shared: Option<Anchor>) -> Option<Self> {
        let mut anchored = self.quotas.clone();
        for (place, quota) in anchored.iter_mut().enumerate() {
            let anchor = if place < self.own { own } else { shared };
            quota.window = quota.window.anchored(anchor.unwrap_or_default());
        }
        (anchored != self.quotas).then_some(Self {
            quotas: anchored,
            own: self.own,
            in_flight: self.in_flight,
            policy: self.policy.clone(),
        })
    }

    /// The caller's quotas.
    #[must_use]
    pub fn own(&self) -> &[Quota] {
        self.quotas.get(..self.own).unwrap_or_default()
    }

    /// The quotas of the caller's organisation.
    #[must_use]
    pub fn shared(&self) -> &[Quota] {
        self.quotas.get(self.own..).unwrap_or_default()
    }

    /// Whether a request is counted among those in flight until its stream ends.
    #[must_use]
    pub fn are_in_flight(&self) -> bool {
        self.in_flight
    }

    /// All quotas, the caller's first.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The value of `RateLimit-Policy` at `now`.
    #[must_use]
    pub fn policy(&self, now: Timestamp) -> Cow<'_, str> {
        match &self.policy {
            Some(policy) => Cow::Borrowed(policy),
            None => Cow::Owned(policy(&self.quotas, now)),
        }
    }
}

/// The value of `RateLimit-Policy` at `now`: `"standard";q=60;w=60`; of months and years `w` is the actual length. Requests in flight have no
/// window, and are another unit than the draft's default, which is requests.
fn policy(quotas: &[Quota], now: Timestamp) -> String {
    list(quotas.iter().map(|quota| {
        let last = match quota.window.is_in_flight() {
            true => (r#";qu="concurrent-requests""#, None),
            false => (";w=", Some(quota.seconds(now))),
        };
        (quota, [("\";q=", Some(quota.limit.get().into())), last])
    }))
}

/// The value of a header that lists the enforced quotas, each with two parameters: what stands before their numbers, and these, if they have
/// one.
pub(crate) fn list<'q>(
    quotas: impl Iterator<Item = (&'q Quota, [(&'static str, Option<u64>); 2])>,
) -> String {
    let (mut value, mut digits) = (String::with_capacity(64), itoa::Buffer::new());
    for (quota, parameters) in quotas {
        if quota.mode == Mode::Shadow {
            continue;
        }
        value.push_str(if value.is_empty() { "\"" } else { ", \"" });
        value.push_str(&quota.name);
        for (name, number) in parameters {
            value.push_str(name);
            if let Some(number) = number {
                value.push_str(digits.format(number));
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::quota::QuotaTerms;

    #[test]
    fn the_hourly_figure_is_what_the_window_allows_in_an_hour() {
        let rows = [
            ("60/minute", 3600),
            ("2/second", 7200),
            ("1/hour", 1),
            ("5/day", 5),
            ("7/month", 7),
            ("4294967295/second", 15_461_882_262_000),
        ];
        for (rate, per_hour) in rows {
            let QuotaTerms { limit, window, .. } = rate.parse().unwrap();
            let quota =
                Quota { name: String::new(), limit: limit.0, window, mode: Mode::Enforced, refundable: true };
            assert_eq!(quota.per_hour(), per_hour, "{rate}");
        }
    }
}
