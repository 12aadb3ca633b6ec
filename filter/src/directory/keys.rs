//! The list as requests read it: whose a key is, and whether a key without a row may get one yet.

use core::time::Duration;

use siphasher::sip::SipHasher24;

use super::head::{Head, State};
use super::list::List;
use super::row::Row;
use crate::config::roster::Terms;
use crate::config::{Agreement, Catalog, DirectorySettings};
use crate::count::fingerprint::KeyDigest;
use crate::count::shared_data::{HostError, SharedData};
use crate::count::table::LIST_ENTRIES;
use crate::time::Timestamp;

/// How far the list can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Not at all: it is older than `max_stale`.
    Stale,
    /// Not at all: it is another directory's.
    Foreign,
    /// A key that has a row is known. The first load has not ended, so that another may get one.
    #[default]
    Partial,
    /// A key without a row is unknown.
    Complete,
}

/// What the list is at a moment. What was read under another view may no longer hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How far it can be relied on.
    pub readiness: Readiness,
    sequence: u32,
}

/// A key's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub digest: KeyDigest,
    /// Its subscriber.
    pub subscriber: String,
    terms: Terms,
    /// A hash of all that the row says.
    pub mark: u64,
}

impl Found {
    fn read(row: Row<'_>) -> Option<Self> {
        let (subscriber, terms) = row.read()?;
        let (digest, mark) = (*row.digest, mark(row));
        Some(Self { digest, subscriber: subscriber.to_owned(), terms, mark })
    }

    /// The terms that the row names.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What the row stands for in a configuration; `None` if the configuration has no plan or class for it.
    #[must_use]
    pub fn agreement(&self, catalog: &Catalog) -> Option<Agreement> {
        catalog.agreement(&self.terms).ok()
    }
}

/// A row that was read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// It says the same, or there is none again.
    Same,
    /// This is what it says now.
    Now(Option<Found>),
}

fn mark(row: Row<'_>) -> u64 {
    SipHasher24::new().hash(row.content)
}

/// The keys of a directory.
#[derive(Clone, Debug)]
pub struct Keys {
    list: List,
    source: u64,
    /// In seconds; 0 for ever.
    max_stale: u32,
}

/// Identifies a service.
pub(super) fn source(settings: &DirectorySettings) -> u64 {
    let parts = [&*settings.cluster, settings.authority(), &*settings.path];
    SipHasher24::new().hash(parts.join("\0").as_bytes())
}

impl Keys {
    /// Those of a directory, which has not been looked at yet.
    #[must_use]
    pub fn new(settings: &DirectorySettings, namespace: &str) -> Self {
        let (source, max_stale) = (source(settings), settings.max_stale.0);
        Self { list: List::new(namespace), source, max_stale }
    }

    /// What the list is at `now`.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn view(&self, host: &mut impl SharedData, now: Timestamp) -> Result<View, HostError> {
        let Some(head) = self.list.head(host)? else {
            return Ok(View { readiness: Readiness::Partial, sequence: 0 });
        };
        Ok(View { readiness: self.readiness(&head, now), sequence: head.sequence })
    }

    fn readiness(&self, head: &Head, now: Timestamp) -> Readiness {
        let age = now.millis().saturating_sub(head.answered);
        let is_stale = self.max_stale > 0 && Duration::from_millis(age).as_secs() > self.max_stale.into();
        match head.state {
            _ if head.source != self.source => Readiness::Foreign,
            State::Foreign => Readiness::Foreign,
            State::Partial => Readiness::Partial,
            State::Complete if is_stale => Readiness::Stale,
            State::Complete => Readiness::Complete,
        }
    }

    /// A key's row; `None` if it has none.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn find(&self, host: &mut impl SharedData, key: &KeyDigest) -> Result<Option<Found>, HostError> {
        Ok(self.list.find(host, key, Found::read)?.flatten())
    }

    /// Reads a key's row again, of which `known` is the mark; 0 stands for no row.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn find_again(
        &self,
        host: &mut impl SharedData,
        key: &KeyDigest,
        known: u64,
    ) -> Result<Again, HostError> {
        let read = |row: Row<'_>| if mark(row) == known { Again::Same } else { Again::Now(Found::read(row)) };
        let absent = if known == 0 { Again::Same } else { Again::Now(None) };
        Ok(self.list.find(host, key, read)?.unwrap_or(absent))
    }

    /// The rows of a subscriber, by digest. Looks at all rows of the list.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn of_subscriber(
        &self,
        host: &mut impl SharedData,
        subscriber: &str,
    ) -> Result<Vec<Found>, HostError> {
        let mut found = Vec::new();
        for number in 0..LIST_ENTRIES {
            self.list.each(host, number, |row| {
                if row.subscriber() == Some(subscriber) {
                    found.extend(Found::read(row));
                }
            })?;
        }
        found.sort_unstable_by_key(|row| row.digest);
        Ok(found)
    }
}
