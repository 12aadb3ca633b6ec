//! The rate-limit service that gateways share their quotas through.

use sha2::{Digest, Sha256};

use super::error::{ConfigError, Problem};
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
    /// The domain that the service's counters belong to.
    pub domain: String,
    /// What leases are like.
    pub terms: LeaseTerms,
    /// Whose limits the service goes by.
    pub limits: Limits,
    /// Whether descriptors carry the window's index: for services whose windows start with the first hit.
    pub window_index: bool,
    /// What happens to a request that finds too little leased while the service does not answer.
    pub on_unavailable: OnUnavailable,
}

/// Whose limits a rate-limit service goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Each request carries its quota's.
    Sent,
    /// The service's own configuration has them, by class, window and plan.
    Configured,
}

/// What happens to a request that finds too little leased while the service does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// In each window this gateway admits this many hundredths of the limit beyond its leases.
    Local(u8),
    /// It passes.
    Allow,
    /// It is refused with 503.
    Deny,
}

/// Longest wait for an answer, in milliseconds.
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
            .ok_or_else(|| ConfigError::new("min_window", Problem::Duration(raw.min_window)))?;
        let timeout = milliseconds(&raw.timeout)
            .flatten()
            .ok_or_else(|| ConfigError::new("timeout", Problem::ShortDuration(raw.timeout)))?;
        if !(1..=MAX_TIMEOUT).contains(&timeout) {
            let problem = Problem::Range { given: timeout.into(), expected: "1 ms to 5 s" };
            return Err(ConfigError::new("timeout", problem));
        }
        let on_unavailable = match (raw.on_unavailable, raw.local_percent) {
            (raw::OnUnavailable::Local, percent) => match percent.unwrap_or(10) {
                percent @ 1..=100 => OnUnavailable::Local(percent),
                percent => {
                    let problem =
                        Problem::Range { given: percent.into(), expected: "1 to 100 percent of a limit" };
                    return Err(ConfigError::new("local_percent", problem));
                }
            },
            (raw::OnUnavailable::Allow, None) => OnUnavailable::Allow,
            (raw::OnUnavailable::Deny, None) => OnUnavailable::Deny,
            (_, Some(_)) => {
                let problem = r#"only "on_unavailable": "local" has a share"#.to_owned();
                return Err(ConfigError::new("local_percent", Problem::Invalid(problem)));
            }
        };
        Ok(Self {
            cluster: raw.cluster,
            domain: raw.domain,
            terms: LeaseTerms { min_window, timeout },
            limits: match raw.limits {
                raw::Limits::Sent => Limits::Sent,
                raw::Limits::Configured => Limits::Configured,
            },
            window_index: raw.window_index,
            on_unavailable,
        })
    }

    /// Milliseconds after which a call has no answer. It is longer than a request waits, because a late answer is credited.
    #[must_use]
    pub fn call_timeout(&self) -> u32 {
        self.terms.timeout.saturating_mul(2).max(1000)
    }

    /// Who is counted, as every gateway of the fleet names it. The fingerprint, which is salted, never leaves the process.
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
            // Strangers are counted by each gateway: a flood of addresses must not become one of calls.
            Who::Address(_) => {}
        }
        let hash: [u8; 32] = hash.finalize().into();
        hash.first_chunk().copied().unwrap_or_default()
    }
}
