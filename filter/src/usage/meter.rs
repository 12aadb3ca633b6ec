//! What a caller has used in a class and was not reported yet.

use core::cell::Cell;
use std::sync::Arc;

use super::threshold::Watch;
use crate::config::{Config, hex};
use crate::quota::QuotaSet;

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests that went on to the upstream.
    pub requests: u64,
    /// What these cost.
    pub units: u64,
    /// Requests that the filter refused.
    pub refused: u64,
}

impl Sums {
    /// Adds a request that has used so many units, or was refused.
    pub fn add(&mut self, used: Option<u32>) {
        match used {
            Some(units) => {
                self.requests += 1;
                self.units = self.units.saturating_add(units.into());
            }
            None => self.refused += 1,
        }
    }

    /// The requests in it.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.requests.saturating_add(self.refused)
    }
}

/// Whose requests a meter adds up.
#[derive(Debug)]
pub struct Caller {
    /// The subscriber's id; `None` for a key whose plan comes from metadata.
    pub subscriber: Option<Arc<str>>,
    /// The first bytes of the key's SHA-256.
    pub key: [u8; 8],
    /// The organisation's id.
    pub organisation: Option<Arc<str>>,
    /// The plan, as an index into [`crate::config::Catalog::plans`].
    pub plan: usize,
    /// The quotas, if there are any.
    pub quotas: Option<Arc<QuotaSet>>,
    /// Those whose shares are told, if there are any.
    pub watch: Option<Watch>,
}

impl Caller {
    /// The subscriber, or what stands for one whose plan comes from metadata.
    #[must_use]
    pub fn subject(&self) -> String {
        let key = || format!("key:{}", hex(self.key));
        self.subscriber.as_deref().map_or_else(key, str::to_owned)
    }
}

/// Where a caller stood in its tightest quota at its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tightest {
    /// The place of the quota in its set.
    pub place: usize,
    /// Units of it that were used.
    pub used: u32,
    /// When all of it is there again, in UTC epoch seconds.
    pub to: u64,
}

/// What a caller, or all strangers, have used in a class.
#[derive(Debug)]
pub struct Meter {
    /// The configuration, which has the names.
    pub config: Arc<Config>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// The caller; `None` for strangers.
    pub caller: Option<Caller>,
    pub(super) sums: Cell<Sums>,
    pub(super) tightest: Cell<Option<Tightest>>,
    /// Whether the reporter lists it.
    pub(super) is_listed: Cell<bool>,
    /// For how many more intervals a fleet's answers may change where the caller stands.
    pub(super) looks: Cell<u32>,
}

impl Meter {
    /// A meter that has counted nothing.
    #[must_use]
    pub fn new(config: Arc<Config>, class: usize, caller: Option<Caller>) -> Self {
        let (sums, tightest, is_listed, looks) = Default::default();
        Self { config, class, caller, sums, tightest, is_listed, looks }
    }

    /// The quotas, and those of them whose shares are told.
    #[inline]
    #[must_use]
    pub fn watch(&self) -> Option<(&Arc<QuotaSet>, &Watch)> {
        let caller = self.caller.as_ref()?;
        caller.quotas.as_ref().zip(caller.watch.as_ref())
    }

    /// Notes where the caller stands.
    pub fn stands(&self, tightest: Tightest) {
        self.tightest.set(Some(tightest));
    }
}
