//! The rate-limit service that gateways share their quotas through.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::ConfigError;
use super::problem::Problem;
use super::rate::{duration, milliseconds};
use super::raw;
use crate::count::fingerprint::Who;
use crate::count::lease::LeaseTerms;
use crate::fleet::protocol::FleetId;

/// A fleet of gateways that share quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The gateway's cluster of the rate-limit service.
    pub cluster: String,
    /// The domain of the service's counters.
    pub domain: String,
    /// Bounds of leases.
    pub terms: LeaseTerms,
    /// Where the service takes limits from.
    pub limits: Limits,
    /// Whether descriptors carry the window's index, for services whose windows start at the first hit.
    pub window_index: bool,
    /// Policy for a request that finds too little leased while the service does not answer.
    pub on_unavailable: OnUnavailable,
}

/// Where a rate-limit service takes limits from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum Limits {
    /// Each call carries its quota's limit.
    #[default]
    Sent,
    /// The service's configuration holds the limits, by class, window and plan.
    Configured,
}

/// Policy for a request that finds too little leased while the service does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// Each gateway admits this percentage of the limit, in each window, beyond its leases.
    Local(u8),
    /// Forward the request.
    Allow,
    /// Answer 503.
    Deny,
}

/// Upper bound of `timeout`, in milliseconds.
const MAX_TIMEOUT: u32 = 5_000;

impl FleetSettings {
    pub(super) fn check(raw: raw::Fleet) -> Result<Self, ConfigError> {
        for (field, text) in [("cluster", &raw.cluster), ("domain", &raw.domain)] {
            if text.is_empty() {
                return Err(ConfigError::new(field, Problem::NoneGiven));
            }
        }
        let min_window = duration(&raw.min_window)
            .flatten()
            .ok_or_else(|| ConfigError::new("min_window", Problem::Duration).given(raw.min_window))?;
        let timeout = milliseconds(&raw.timeout)
            .flatten()
            .ok_or_else(|| ConfigError::new("timeout", Problem::ShortDuration).given(raw.timeout.as_str()))?;
        if !(1..=MAX_TIMEOUT).contains(&timeout) {
            let problem = Problem::Range { expected: "1 ms to 5 s" };
            return Err(ConfigError::new("timeout", problem).given(raw.timeout));
        }
        let on_unavailable = match (raw.on_unavailable, raw.local_percent) {
            (raw::OnUnavailable::Local, percent) => {
                let percent = percent.unwrap_or(10);
                let share = u8::try_from(percent).ok().filter(|share| (1..=100).contains(share));
                OnUnavailable::Local(share.ok_or_else(|| {
                    let problem = Problem::Range { expected: "1 to 100 percent of a limit" };
                    ConfigError::new("local_percent", problem).given(percent)
                })?)
            }
            (raw::OnUnavailable::Allow, None) => OnUnavailable::Allow,
            (raw::OnUnavailable::Deny, None) => OnUnavailable::Deny,
            (_, Some(_)) => {
                let problem = Problem::Invalid(r#"only "on_unavailable": "local" has a share"#.into());
                return Err(ConfigError::new("local_percent", problem));
            }
        };
        Ok(Self {
            cluster: raw.cluster,
            domain: raw.domain,
            terms: LeaseTerms { min_window, timeout },
            limits: raw.limits,
            window_index: raw.window_index,
            on_unavailable,
        })
    }

    /// Milliseconds after which a call has no answer. It is longer than a request waits, because a late answer is credited.
    #[must_use]
    pub fn call_timeout(&self) -> u32 {
        self.terms.timeout.saturating_mul(2).max(1000)
    }

    /// The identity of a descriptor, the same on every gateway of the fleet. The salted fingerprint never leaves the process.
    #[must_use]
    pub fn id(&self, who: Who<'_>) -> FleetId {
        let mut hash = Sha256::new();
        hash.update((self.domain.len() as u64).to_le_bytes());
        hash.update(self.domain.as_bytes());
        match who {
            Who::Key(digest) => {
                hash.update(b"key");
                hash.update(digest);
            }
            Who::Subscriber(id) => {
                hash.update(b"subscriber");
                hash.update(id.as_bytes());
            }
            // Each gateway counts strangers for itself, so requests from many addresses cause no calls to the service. A fleet has no
            // organisations.
            Who::Address(_) | Who::Organisation(_) => {}
        }
        let hash: [u8; 32] = hash.finalize().into();
        hash.first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
