//! The list as requests read it: whose a key is, and whether a key without a row may get one yet.

use core::time::Duration;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

use super::head::{Head, Readiness};
use super::list::List;
use super::row::Row;
use crate::config::roster::Known;
use crate::config::{Agreement, Catalog, DirectorySettings};
use crate::count::fingerprint::KeyDigest;
use crate::count::shared_data::{HostError, SharedData};
use crate::count::table::LIST_ENTRIES;
use crate::time::Timestamp;

/// What the list is at a moment. What was read under another view may no longer hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How far it can be relied on.
    pub readiness: Readiness,
    sequence: u32,
}

/// The row that a key had when it was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRow {
    key: KeyDigest,
    /// A hash of all that the row says; 0 if there was none.
    mark: u64,
}

/// What the list says of a key.
#[derive(Debug)]
pub struct Listed {
    /// The row that says so.
    pub row: Arc<SeenRow>,
    /// The subscriber, and what the row stands for in a configuration. `None` if the key has no row, or one for another configuration.
    customer: Option<(String, Agreement)>,
}

impl Listed {
    fn new(key: KeyDigest, mark: u64, customer: Option<(String, Agreement)>) -> Self {
        Self { row: Arc::new(SeenRow { key, mark }), customer }
    }

    fn read(row: Row<'_>, catalog: &Catalog) -> Self {
        let customer =
            row.read().and_then(|(id, terms)| Some((id.to_owned(), catalog.agreement(&terms).ok()?)));
        Self::new(*row.digest, mark(row), customer)
    }

    /// The key's owner, and what it is entitled to.
    #[must_use]
    pub fn known(&self) -> Option<(Known<'_>, &Agreement)> {
        let (subscriber, agreement) = self.customer.as_ref()?;
        Some((Known { digest: &self.row.key, subscriber }, agreement))
    }
}

fn mark(row: Row<'_>) -> u64 {
    SipHasher24::new().hash(row.content)
}

/// The keys of a directory, in one VM.
#[derive(Clone, Debug)]
pub struct Keys {
    list: List,
    source: u64,
    /// In seconds; 0 for ever.
    max_stale: u32,
    /// `None` until the list was looked at.
    view: Option<View>,
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
        Self { list: List::new(namespace), source, max_stale, view: None }
    }

    /// Looks at the list. Returns whether what was read before may no longer hold.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn look(&mut self, host: &mut impl SharedData, now: Timestamp) -> Result<bool, HostError> {
        let head = self.list.head(host)?;
        let view = head.map_or_else(View::default, |head| View {
            readiness: self.readiness_of(&head, now),
            sequence: head.sequence,
        });
        Ok(self.view.replace(view) != Some(view))
    }

    fn readiness_of(&self, head: &Head, now: Timestamp) -> Readiness {
        let age = now.millis().saturating_sub(head.answered);
        let is_stale = self.max_stale > 0 && Duration::from_millis(age).as_secs() > self.max_stale.into();
        match head.state {
            _ if head.source != self.source => Readiness::Foreign,
            Readiness::Complete if is_stale => Readiness::Stale,
            state => state,
        }
    }

    /// What the list was when it was looked at last; `None` before.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.view
    }

    /// How far the list can be relied on.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.view.unwrap_or_default().readiness
    }

    fn has_rows(&self) -> bool {
        matches!(self.readiness(), Readiness::Partial | Readiness::Complete)
    }

    /// What the list says of a key. Apart and boxed, so that callers without a row pay nothing for it.
    ///
    /// # Errors
    /// If a host call fails.
    #[cold]
    #[inline(never)]
    pub fn find(
        &self,
        host: &mut impl SharedData,
        catalog: &Catalog,
        key: &KeyDigest,
    ) -> Result<Box<Listed>, HostError> {
        let found = match self.has_rows() {
            true => self.list.find(host, key, |row| Listed::read(row, catalog))?,
            false => None,
        };
        Ok(Box::new(found.unwrap_or_else(|| Listed::new(*key, 0, None))))
    }

    /// What the list says of a key now, unless it is what it said.
    ///
    /// # Errors
    /// If a host call fails.
    #[cold]
    #[inline(never)]
    pub fn find_again(
        &self,
        host: &mut impl SharedData,
        catalog: &Catalog,
        seen: &SeenRow,
    ) -> Result<Option<Box<Listed>>, HostError> {
        let read = |row: Row<'_>| (mark(row) != seen.mark).then(|| Listed::read(row, catalog));
        let found = match self.has_rows() {
            true => self.list.find(host, &seen.key, read)?,
            false => None,
        };
        let absent = || (seen.mark != 0).then(|| Listed::new(seen.key, 0, None));
        Ok(found.unwrap_or_else(absent).map(Box::new))
    }

    /// The rows of a subscriber, by key. Looks at all rows of the list.
    ///
    /// # Errors
    /// If a host call fails.
    pub fn of_subscriber(
        &self,
        host: &mut impl SharedData,
        catalog: &Catalog,
        subscriber: &str,
    ) -> Result<Vec<Listed>, HostError> {
        let mut found = Vec::new();
        for number in (0..LIST_ENTRIES).filter(|_| self.has_rows()) {
            self.list.each(host, number, |row| {
                if row.subscriber() == Some(subscriber) {
                    found.push(Listed::read(row, catalog));
                }
            })?;
        }
        found.sort_unstable_by_key(|listed| listed.row.key);
        Ok(found)
    }
}
