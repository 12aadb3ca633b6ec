//! The known keys, and on what terms each is known: which plan, with which limits of its own.
//!
//! A roster does not know the configuration that its terms refer to, so a new configuration takes over the roster of the one before
//! it. A key takes 44 bytes and its subscriber's id; terms are stored once however many keys have them.

use core::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Deserializer};

use super::entries::Entries;
use super::leaf::Text;
use super::rate::{Grant, Grants};
use crate::count::fingerprint::KeyDigest;

/// A plan and what replaces its classes, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The plan's name.
    pub plan: String,
    /// Classes' names and what is granted in them instead of what the plan grants.
    pub limits: Vec<(String, Grant)>,
    /// The organisation that the subscriber belongs to.
    pub parent: Option<ParentTerms>,
}

/// An organisation whose subscribers share quotas.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Parent"))]
#[serde(deny_unknown_fields)]
pub struct ParentTerms {
    /// Id of the organisation. All its subscribers share one count of each class.
    pub organisation: Text,
    /// Quotas by class that all subscribers of the organisation share. Each subscriber of an organisation gives the same ones. A class that is
    /// not named here has no shared quota. The name of a quota defaults to `organisation`, followed by the window if the class has several.
    #[serde(deserialize_with = "sorted")]
    #[cfg_attr(feature = "schema", schemars(with = "Grants"))]
    pub limits: Vec<(String, Grant)>,
}

/// In the order of the classes' names, so that limits that were written in another order are the same.
fn sorted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Grant)>, D::Error> {
    let Entries(mut limits) = Grants::deserialize(deserializer)?;
    limits.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(limits)
}

/// The known keys. Build one with [`RosterBuilder`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Sorted by digest: a key is found in some twenty comparisons.
    keys: Vec<Key>,
    ids: String,
    terms: Vec<Terms>,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    digest: KeyDigest,
    /// Start of the subscriber's id in [`Roster::ids`].
    id_start: u32,
    id_bytes: u16,
    /// Number of the key among those that share this copy of the id.
    nth: u16,
    terms: u32,
}

/// Position of a key in the list that a roster was built from. Positions compare in the order of the list.
///
/// Ids are stored in the order of the list, so the start of an id orders keys of different subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    id_start: u32,
    nth: u16,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'r> {
    /// Its SHA-256.
    pub digest: &'r KeyDigest,
    /// Its subscriber.
    pub subscriber: &'r str,
    /// The place of its terms in [`Roster::terms`].
    pub terms: usize,
    /// Its position in the list that the roster was built from.
    pub position: Position,
}

impl Roster {
    /// The place of a key, for [`Roster::at`].
    #[must_use]
    pub fn find(&self, digest: &KeyDigest) -> Option<usize> {
        self.keys.binary_search_by_key(&digest, |key| &key.digest).ok()
    }

    /// What is known of the key at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<Known<'_>> {
        let key = self.keys.get(place)?;
        let id_start = usize::try_from(key.id_start).ok()?;
        Some(Known {
            digest: &key.digest,
            subscriber: self.ids.get(id_start..id_start + usize::from(key.id_bytes))?,
            terms: usize::try_from(key.terms).ok()?,
            position: Position { id_start: key.id_start, nth: key.nth },
        })
    }

    /// All keys, by digest.
    pub fn iter(&self) -> impl Iterator<Item = Known<'_>> {
        (0..self.keys.len()).filter_map(|place| self.at(place))
    }

    /// The different terms that keys have.
    #[must_use]
    pub fn terms(&self) -> &[Terms] {
        &self.terms
    }

    /// How many keys are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many subscribers have keys.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.iter().map(|known| known.subscriber).collect::<HashSet<_>>().len()
    }
}

impl<'r> Known<'r> {
    /// A key of the directory, which is in no roster.
    #[must_use]
    pub const fn of_directory(digest: &'r KeyDigest, subscriber: &'r str) -> Self {
        Self { digest, subscriber, terms: usize::MAX, position: Position { id_start: u32::MAX, nth: 0 } }
    }
}

/// Why a key cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// Longer than a record has room for.
    #[error("a subscriber's id is 1 to {max} bytes long", max = u16::MAX)]
    IdLength,
    /// More than 4 GiB of ids.
    #[error("the subscribers' ids take more than 4 GiB")]
    TooMany,
}

#[inline(never)]
fn by_digest(one: &Key, other: &Key) -> Ordering {
    one.digest.cmp(&other.digest)
}

/// Collects keys.
#[derive(Debug, Default)]
pub struct RosterBuilder {
    roster: Roster,
    places_of_terms: HashMap<Terms, u32>,
}

impl RosterBuilder {
    /// Adds a key. Keys of one subscriber that follow each other share the id's memory.
    ///
    /// # Errors
    /// If the id is too long, or the ids are in all.
    pub fn add(&mut self, digest: KeyDigest, subscriber: &str, terms: Terms) -> Result<(), RosterError> {
        let (Position { id_start, nth }, id_bytes) = self.place(subscriber)?;
        let terms = match self.places_of_terms.get(&terms) {
            Some(place) => *place,
            None => {
                let place = u32::try_from(self.roster.terms.len()).map_err(|_| RosterError::TooMany)?;
                self.roster.terms.push(terms.clone());
                self.places_of_terms.insert(terms, place);
                place
            }
        };
        self.roster.keys.push(Key { digest, id_start, id_bytes, nth, terms });
        Ok(())
    }

    /// The position of the next key, and the length of its subscriber's id, which is stored unless the key before has the same.
    fn place(&mut self, subscriber: &str) -> Result<(Position, u16), RosterError> {
        let Roster { keys, ids, .. } = &mut self.roster;
        if let Some(&Key { id_start, id_bytes, nth, .. }) = keys.last()
            && let Some(nth) = nth.checked_add(1)
            && usize::try_from(id_start).is_ok_and(|start| ids.get(start..) == Some(subscriber))
        {
            return Ok((Position { id_start, nth }, id_bytes));
        }
        let id_bytes = u16::try_from(subscriber.len()).map_err(|_| RosterError::IdLength)?;
        if id_bytes == 0 {
            return Err(RosterError::IdLength);
        }
        let id_start = u32::try_from(ids.len()).map_err(|_| RosterError::TooMany)?;
        ids.push_str(subscriber);
        Ok((Position { id_start, nth: 0 }, id_bytes))
    }

    /// The roster, and how many keys were left out because they stood in it twice: nobody can say whose such a key is.
    #[must_use]
    pub fn build(self) -> (Roster, usize) {
        let Roster { mut keys, mut ids, terms } = self.roster;
        keys.sort_unstable_by(by_digest);
        let twice: Vec<KeyDigest> = keys
            .windows(2)
            .filter_map(|pair| match pair {
                [one, other] if one.digest == other.digest => Some(one.digest),
                _ => None,
            })
            .collect();
        let all = keys.len();
        keys.retain(|key| twice.binary_search(&key.digest).is_err());
        let left_out = all - keys.len();
        keys.shrink_to_fit();
        ids.shrink_to_fit();
        (Roster { keys, ids, terms }, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(plan: &str) -> Terms {
        Terms { plan: plan.to_owned(), limits: Vec::new(), parent: None }
    }

    #[test]
    fn a_key_is_found_with_its_subscriber_and_terms() {
        let mut builder = RosterBuilder::default();
        for (byte, subscriber, plan) in [(9, "a", "free"), (3, "b", "pro"), (7, "b", "pro"), (1, "a", "free")]
        {
            builder.add([byte; 32], subscriber, terms(plan)).unwrap();
        }
        let (roster, left_out) = builder.build();
        assert_eq!((left_out, roster.len(), roster.subscribers(), roster.terms().len()), (0, 4, 2, 2));
        for (byte, expected) in [(1, Some(("a", "free"))), (7, Some(("b", "pro"))), (8, None)] {
            let known = roster.find(&[byte; 32]).and_then(|place| roster.at(place));
            let found = known.map(|known| (known.subscriber, roster.terms()[known.terms].plan.as_str()));
            assert_eq!(found, expected, "{byte}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_nobodys() {
        let mut builder = RosterBuilder::default();
        for (byte, subscriber) in [(1, "a"), (2, "a"), (1, "b"), (1, "c")] {
            builder.add([byte; 32], subscriber, terms("free")).unwrap();
        }
        let (roster, left_out) = builder.build();
        assert_eq!((left_out, roster.find(&[1; 32]), roster.find(&[2; 32])), (3, None, Some(0)));
    }

    #[test]
    fn positions_compare_in_the_order_of_the_list() {
        let mut builder = RosterBuilder::default();
        let all = 3 * 65_536_u32;
        for number in 0..all {
            // Subscribers whose keys follow each other, more of them than one copy of an id is shared by.
            let subscriber = if number < 70_000 { "many" } else { ["a", "b", "b"][number as usize % 3] };
            builder.add(crate::config::digest(&number.to_le_bytes()), subscriber, terms("pro")).unwrap();
        }
        let (roster, _) = builder.build();
        let positions: Vec<_> = (0..all)
            .map(|number| {
                let place = roster.find(&crate::config::digest(&number.to_le_bytes())).unwrap();
                roster.at(place).unwrap().position
            })
            .collect();
        assert!(positions.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_hundred_thousand_keys_take_less_than_sixty_four_bytes_each() {
        let mut builder = RosterBuilder::default();
        for number in 0_u32..100_000 {
            let digest = crate::config::digest(&number.to_le_bytes());
            builder.add(digest, &format!("subscriber-{number:06}"), terms("pro")).unwrap();
        }
        let (roster, _) = builder.build();
        let bytes = roster.keys.capacity() * size_of::<Key>() + roster.ids.capacity();
        assert!(bytes < 64 * roster.len(), "{} bytes a key", bytes / roster.len());
    }

    #[test]
    fn an_id_has_bounds() {
        let mut builder = RosterBuilder::default();
        for id in [String::new(), "x".repeat(65_536)] {
            assert_eq!(builder.add([0; 32], &id, terms("free")), Err(RosterError::IdLength));
        }
        assert_eq!(builder.add([0; 32], &"x".repeat(65_535), terms("free")), Ok(()));
    }
}
