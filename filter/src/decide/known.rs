//! The keys of the directory, as a limiter knows them.

use std::sync::Arc;

use super::host::Host;
use crate::config::roster::Known;
use crate::config::{Agreement, Config};
use crate::count::fingerprint::KeyDigest;
use crate::count::shared_data::HostError;
use crate::directory::{Again, Found, Keys, Readiness, View};

/// The row that an account is from; `mark` is 0 if the key had none.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfRow {
    pub(super) key: KeyDigest,
    pub(super) mark: u64,
}

/// What the directory says of a key.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) row: Arc<OfRow>,
    /// `None` if the key has no row, or one for another configuration.
    pub(super) customer: Option<Customer>,
}

impl Listed {
    fn of(key: KeyDigest, found: Option<Found>, config: &Config) -> Box<Self> {
        let mark = found.as_ref().map_or(0, |row| row.mark);
        let customer = found.and_then(|row| Customer::of(row, config));
        Box::new(Self { row: Arc::new(OfRow { key, mark }), customer })
    }
}

/// The directory's keys in one VM.
#[derive(Debug)]
pub(super) struct DirectoryKeys {
    keys: Keys,
    /// `None` until the list was looked at.
    view: Option<View>,
}

/// A row, and what it stands for in a configuration.
#[derive(Debug)]
pub(super) struct Customer {
    row: Found,
    agreement: Agreement,
}

impl Customer {
    pub(super) fn of(row: Found, config: &Config) -> Option<Self> {
        let agreement = row.agreement(&config.catalog)?;
        Some(Self { row, agreement })
    }

    pub(super) fn known(&self) -> (Known<'_>, &Agreement) {
        (Known::of_directory(&self.row.digest, &self.row.subscriber), &self.agreement)
    }
}

impl DirectoryKeys {
    /// Those of a configuration's directory, if it has one.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let settings = config.settings.directory.as_ref()?;
        Some(Self { keys: Keys::new(settings, &config.settings.namespace), view: None })
    }

    /// Looks at the list. Returns whether what was read before may no longer hold.
    pub(super) fn look(&mut self, host: &mut impl Host) -> Result<bool, HostError> {
        let now = host.now()?;
        let view = self.keys.view(host, now)?;
        Ok(self.view.replace(view) != Some(view))
    }

    pub(super) fn has_looked(&self) -> bool {
        self.view.is_some()
    }

    /// Whether a key without a row is unknown.
    pub(super) fn is_complete(&self) -> bool {
        self.readiness() == Readiness::Complete
    }

    /// How far the list can be relied on.
    pub(super) fn readiness(&self) -> Readiness {
        self.view.unwrap_or_default().readiness
    }

    /// A key's row.
    pub(super) fn find(&self, host: &mut impl Host, key: &KeyDigest) -> Result<Option<Found>, HostError> {
        match self.readiness() {
            Readiness::Foreign | Readiness::Stale => Ok(None),
            Readiness::Partial | Readiness::Complete => self.keys.find(host, key),
        }
    }

    /// What the directory says of a key. Apart and boxed, so that callers without a row pay nothing for it.
    #[cold]
    #[inline(never)]
    pub(super) fn listed(
        &self,
        host: &mut impl Host,
        config: &Config,
        key: &KeyDigest,
    ) -> Result<Box<Listed>, HostError> {
        let found = self.find(host, key)?;
        Ok(Listed::of(*key, found, config))
    }

    /// What the directory says of a key now, unless it is what it said.
    #[cold]
    #[inline(never)]
    pub(super) fn listed_again(
        &self,
        host: &mut impl Host,
        config: &Config,
        row: &OfRow,
    ) -> Result<Option<Box<Listed>>, HostError> {
        let again = match self.readiness() {
            Readiness::Foreign | Readiness::Stale if row.mark == 0 => Again::Same,
            Readiness::Foreign | Readiness::Stale => Again::Now(None),
            Readiness::Partial | Readiness::Complete => self.keys.find_again(host, &row.key, row.mark)?,
        };
        Ok(match again {
            Again::Same => None,
            Again::Now(found) => Some(Listed::of(row.key, found, config)),
        })
    }

    /// The rows of a subscriber. Looks at all rows.
    pub(super) fn of_subscriber(
        &self,
        host: &mut impl Host,
        subscriber: &str,
    ) -> Result<Vec<Found>, HostError> {
        match self.readiness() {
            Readiness::Foreign | Readiness::Stale => Ok(Vec::new()),
            Readiness::Partial | Readiness::Complete => self.keys.of_subscriber(host, subscriber),
        }
    }
}
