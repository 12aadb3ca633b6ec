//! The order in which the keys of short links are indexed.
//!
//! Random keys lie anywhere in an index, so that of a hundred links made at once each changes a page of its own. Keys that end in
//! seven letters and digits, as those made up here do, are therefore indexed by their place in a permutation of all of
//! these: FF1 of NIST SP 800-38G, under a secret of the database. Keys are made up place by place. They lie side by side in
//! the index, and are random to whoever does not know the secret.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes256;
use fpe::ff1::{FF1, FlexibleNumeralString};
use rand::RngExt;
use sqlx::{AnyPool, Row};

use super::StoreError;
use crate::ids::{self, KEY_ALPHABET, KEY_LENGTH};

/// How many keys of [`KEY_LENGTH`] there are.
const KEYS: u64 = (KEY_ALPHABET.len() as u64).pow(KEY_LENGTH as u32);
/// Bytes of the secret.
const SECRET: usize = 32;

/// The order of the keys of one database.
pub(super) struct KeyOrder {
    /// None if the database has links from before there was one: their keys are indexed as they are.
    permutation: Option<FF1<Aes256>>,
    /// The place of the next key that is made up.
    next: AtomicU64,
}

/// A key and its place in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) key: String,
    pub(super) place: String,
}

impl KeyOrder {
    /// The order of the keys of the database that `pool` leads to.
    pub(super) async fn load(pool: &AnyPool) -> Result<Self, StoreError> {
        Self::new(sqlx::query("SELECT secret FROM key_order").fetch_one(pool).await?.try_get(0)?)
    }

    /// `secret` is hexadecimal, or empty if keys are to be indexed as they are.
    fn new(secret: &str) -> Result<Self, StoreError> {
        let corrupt = |problem: &dyn fmt::Display| StoreError::corrupt("key order", &problem.to_string());
        let permutation = if secret.is_empty() {
            None
        } else {
            let mut bytes = [0; SECRET];
            hex::decode_to_slice(secret, &mut bytes).map_err(|error| corrupt(&error))?;
            Some(FF1::new(&bytes, KEY_ALPHABET.len() as u32).map_err(|error| corrupt(&error))?)
        };
        // Wherever others began that make up keys for this database: two that meet would find each other's keys taken.
        let next = AtomicU64::new(rand::rng().random_range(0..KEYS));
        Ok(Self { permutation, next })
    }

    /// The place of a key, which is that of no other, but for those that differ only in case.
    pub(super) fn place_of(&self, key: &str) -> String {
        let folded = key.to_lowercase();
        let end = folded.rfind('/').map_or(0, |slash| slash + 1);
        let permuted = self.permutation.as_ref().zip(numerals(&folded[end..]));
        match permuted.and_then(|(permutation, end)| permutation.decrypt(&[], &end).ok()) {
            Some(place) => folded[..end].to_owned() + &text(place),
            None => folded,
        }
    }

    /// A key that nobody can guess and that most likely no link has yet, below `prefix` if there is one.
    pub(super) fn make_up(&self, prefix: Option<&str>) -> Placed {
        let Placed { key, place } = self.next();
        match prefix {
            None => Placed { key, place },
            Some(prefix) => {
                Placed { key: format!("{prefix}/{key}"), place: format!("{}/{place}", prefix.to_lowercase()) }
            }
        }
    }

    fn next(&self) -> Placed {
        let mut number = self.next.fetch_add(1, Ordering::Relaxed) % KEYS;
        let mut place = vec![0; KEY_LENGTH];
        for digit in place.iter_mut().rev() {
            *digit = (number % KEY_ALPHABET.len() as u64) as u16;
            number /= KEY_ALPHABET.len() as u64;
        }
        let place = FlexibleNumeralString::from(place);
        match self.permutation.as_ref().and_then(|permutation| permutation.encrypt(&[], &place).ok()) {
            Some(key) => Placed { key: text(key), place: text(place) },
            None => {
                let key = ids::short_key(KEY_LENGTH);
                Placed { place: key.clone(), key }
            }
        }
    }
}

/// The digits of a text of [`KEY_LENGTH`] characters that all are in [`KEY_ALPHABET`].
fn numerals(text: &str) -> Option<FlexibleNumeralString> {
    if text.len() != KEY_LENGTH {
        return None;
    }
    let digit = |byte| KEY_ALPHABET.iter().position(|character| *character == byte);
    let digits: Option<Vec<u16>> = text.bytes().map(|byte| digit(byte).map(|digit| digit as u16)).collect();
    digits.map(FlexibleNumeralString::from)
}

fn text(numerals: FlexibleNumeralString) -> String {
    Vec::from(numerals).into_iter().map(|digit: u16| char::from(KEY_ALPHABET[usize::from(digit)])).collect()
}

impl fmt::Debug for KeyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret.
        f.debug_struct("KeyOrder").field("permuted", &self.permutation.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn places_of_keys_outlive_the_program() {
        let order = KeyOrder::new(SECRET).unwrap();
        //  key            place, as databases have it
        let table = [
            ("abcdefg", "9jjbdfw"),
            ("ABCDEFG", "9jjbdfw"),
            ("0000000", "gf273a8"),
            ("sale/abcdefg", "sale/9jjbdfw"),
            ("sale/", "sale/"),
            ("abcdef", "abcdef"),
            ("abcdefgh", "abcdefgh"),
            ("abc-efg", "abc-efg"),
            ("ÄÖÜßabc", "äöüßabc"),
            ("", ""),
        ];
        for (key, place) in table {
            assert_eq!(order.place_of(key), place, "{key}");
        }
    }

    #[test]
    fn every_key_has_a_place_of_its_own() {
        for secret in [SECRET, ""] {
            let order = KeyOrder::new(secret).unwrap();
            let keys = (0..50_000).map(|number| format!("{number:07}"));
            let places: HashSet<String> = keys.map(|key| order.place_of(&key)).collect();
            assert_eq!(places.len(), 50_000, "{secret}");
        }
    }

    #[test]
    fn keys_are_made_up_in_the_order_of_their_places() {
        let order = KeyOrder::new(SECRET).unwrap();
        order.next.store(KEYS - 500, Ordering::Relaxed);
        let mut last = None;
        for _ in 0..500 {
            let Placed { key, place } = order.make_up(None);
            assert_eq!(order.place_of(&key), place);
            assert!(last.as_ref() < Some(&place), "{place} after {last:?}");
            last = Some(place);
        }
        assert_eq!(order.make_up(Some("Sale")).place, "sale/0000000");
    }

    #[test]
    fn another_secret_is_another_order() {
        let (one, other) =
            (KeyOrder::new(SECRET).unwrap(), KeyOrder::new(&SECRET.replace('0', "1")).unwrap());
        for order in [&one, &other] {
            order.next.store(7, Ordering::Relaxed);
        }
        assert_ne!(one.make_up(None).key, other.make_up(None).key);
    }

    #[test]
    fn without_a_secret_keys_are_random_and_lie_where_they_are() {
        let order = KeyOrder::new("").unwrap();
        let made: HashSet<String> = (0..100)
            .map(|_| order.make_up(None))
            .map(|made| {
                assert_eq!(made.key, made.place);
                made.key
            })
            .collect();
        assert_eq!(made.len(), 100);
    }

    #[test]
    fn a_secret_that_is_none_is_named() {
        for secret in ["00", "zz", &SECRET[1..]] {
            let error = KeyOrder::new(secret).unwrap_err().to_string();
            assert!(error.starts_with("stored key order: "), "{error}");
        }
    }
}
