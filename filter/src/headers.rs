//! Where a client stands, as response headers.
//!
//! `X-RateLimit-*` and `Retry-After` follow the contract: a count per hour, what is left of the window, and its end in UTC epoch
//! seconds. `RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers-11 and list every enforced quota.

use core::fmt::Write as _;
use std::borrow::Cow;
use std::sync::Arc;

use crate::config::{HeaderOptions, LimitHeader};
use crate::entry::{Standing, Standings};
use crate::quota::{Mode, Quota, QuotaSet};
use crate::time::Timestamp;

/// The names that a browser's script may read only if `Access-Control-Expose-Headers` lists them.
pub const EXPOSED: &str =
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit-Policy, RateLimit";

/// Where a client stood when its request was admitted or refused.
#[derive(Clone, Debug)]
pub struct Report {
    /// The quotas of the class.
    pub quotas: Arc<QuotaSet>,
    /// One for each quota.
    pub standings: Standings,
    /// Units that the request costs; at least 1.
    pub cost: u32,
    /// The instant of the decision.
    pub at: Timestamp,
}

/// The values of the three `X-RateLimit-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XRateLimit {
    /// `X-RateLimit-Limit`
    pub limit: u64,
    /// `X-RateLimit-Remaining`: requests left in the window.
    pub remaining: u32,
    /// `X-RateLimit-Reset`: when the window ends, in UTC epoch seconds.
    pub reset: u64,
}

impl Report {
    fn enforced(&self) -> impl Iterator<Item = (&Quota, &Standing)> {
        let standings = self.quotas.quotas().iter().zip(&self.standings);
        standings.filter(|(quota, _)| quota.mode == Mode::Enforced)
    }

    /// The quotas that refused, or would refuse were they enforced.
    pub fn exhausted(&self) -> impl Iterator<Item = &Quota> {
        self.enforced().filter_map(|(quota, standing)| standing.exhausted.then_some(quota))
    }

    /// Whether a quota in shadow mode would have refused.
    #[must_use]
    pub fn exhausted_in_shadow(&self) -> bool {
        let standings = self.quotas.quotas().iter().zip(&self.standings);
        standings.into_iter().any(|(quota, standing)| quota.mode == Mode::Shadow && standing.exhausted)
    }

    /// The quota that the `X-` headers speak of: the one that refused, the last to reset if several did; otherwise the one with the
    /// least share left, the first if several have. `None` if no quota is enforced.
    #[must_use]
    pub fn tightest(&self) -> Option<(&Quota, &Standing)> {
        let refused = self.enforced().filter(|(_, standing)| standing.exhausted);
        refused.max_by_key(|(_, standing)| standing.period.end).or_else(|| {
            self.enforced().min_by(|(one, at_one), (other, at_other)| {
                let share = |quota: &Quota, standing: &Standing, of: &Quota| {
                    u64::from(left(quota, standing)) * u64::from(of.limit.get())
                };
                share(one, at_one, other).cmp(&share(other, at_other, one))
            })
        })
    }

    /// The `X-RateLimit-*` headers; `None` if no quota is enforced.
    #[must_use]
    pub fn x_ratelimit(&self, limit: LimitHeader) -> Option<XRateLimit> {
        let (quota, standing) = self.tightest()?;
        Some(XRateLimit {
            limit: match limit {
                LimitHeader::PerHour => quota.per_hour(),
                LimitHeader::PerWindow => quota.limit.get().into(),
            },
            remaining: left(quota, standing) / self.cost.max(1),
            reset: standing.period.end,
        })
    }

    /// `Retry-After` of a refusal: whole seconds until the last exhausted window resets, at least 1.
    #[must_use]
    pub fn retry_after(&self) -> u64 {
        let reset = self.tightest().map_or(0, |(_, standing)| standing.period.end);
        self.at.seconds_until(reset).max(1)
    }

    /// The headers that `options` ask for, names in lower case. None if no quota is enforced.
    pub fn fields(&self, options: HeaderOptions) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let x_ratelimit = options.x_ratelimit.and_then(|limit| self.x_ratelimit(limit));
        let x_fields = x_ratelimit.into_iter().flat_map(|x| {
            [
                ("x-ratelimit-limit", x.limit.to_string().into()),
                ("x-ratelimit-remaining", x.remaining.to_string().into()),
                ("x-ratelimit-reset", x.reset.to_string().into()),
            ]
        });
        let ietf = options.ietf && self.enforced().next().is_some();
        let ietf_fields = ietf.then(|| {
            [("ratelimit-policy", self.quotas.policy(self.at)), ("ratelimit", self.ratelimit().into())]
        });
        x_fields.chain(ietf_fields.into_iter().flatten())
    }

    /// The value of `RateLimit`: `"standard";r=12;t=37`.
    #[must_use]
    pub fn ratelimit(&self) -> String {
        let mut value = String::with_capacity(64);
        for (quota, standing) in self.enforced() {
            let separator = if value.is_empty() { "" } else { ", " };
            let (remaining, reset) = (left(quota, standing), self.at.seconds_until(standing.period.end));
            // Writing to a String cannot fail.
            let _ = write!(value, "{separator}\"{}\";r={remaining};t={reset}", quota.name);
        }
        value
    }
}

/// Units left in a window; a limit that was lowered below what is used leaves none.
fn left(quota: &Quota, standing: &Standing) -> u32 {
    quota.limit.get().saturating_sub(standing.used)
}

/// The value of `RateLimit-Policy` at `now`: `"standard";q=60;w=60`; of a month `w` is its actual length.
#[must_use]
pub fn policy(quotas: &[Quota], now: Timestamp) -> String {
    let mut value = String::with_capacity(32 * quotas.len());
    for quota in quotas.iter().filter(|quota| quota.mode == Mode::Enforced) {
        let separator = if value.is_empty() { "" } else { ", " };
        let period = quota.window.at(now);
        // Writing to a String cannot fail.
        let _ = write!(
            value,
            "{separator}\"{}\";q={};w={}",
            quota.name,
            quota.limit,
            period.end.saturating_sub(period.start)
        );
    }
    value
}
