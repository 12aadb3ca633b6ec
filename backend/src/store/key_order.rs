//! The sort keys by which the keys of short links are indexed.
//!
//! Random keys are spread over the whole index, so that each of a hundred links created together changes a different
//! page. A key that ends in seven letters and digits, like a generated key, is therefore indexed by a sort key: a
//! permutation of these seven characters, FF1 of NIST SP 800-38G with a secret of the database. Keys are generated in
//! the order of their sort keys. They are adjacent in the index and unpredictable without the secret.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes256;
use fpe::ff1::{FF1, FlexibleNumeralString};
use rand::RngExt;
use sqlx::{AnyPool, Row};

use super::StoreError;
use crate::ids::{self, KEY_ALPHABET, KEY_LENGTH};

/// Number of keys of [`KEY_LENGTH`].
const KEYS: u64 = (KEY_ALPHABET.len() as u64).pow(KEY_LENGTH as u32);
/// Length of the secret, in bytes.
const SECRET: usize = 32;

/// The sort order of the keys of a database.
pub(super) struct KeyOrder {
    /// None if the database contained links before sort keys existed. Their sort keys are the lower-case keys.
    permutation: Option<FF1<Aes256>>,
    /// The number of the next generated sort key.
    next: AtomicU64,
}

/// A key and its sort key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortedKey {
    pub(super) key: String,
    pub(super) sort_key: String,
}

impl KeyOrder {
    /// Loads the order of a database.
    pub(super) async fn load(pool: &AnyPool) -> Result<Self, StoreError> {
        Self::new(sqlx::query("SELECT secret FROM key_order").fetch_one(pool).await?.try_get(0)?)
    }

    /// `secret` is hexadecimal. If it is empty, sort keys are lower-case keys.
    fn new(secret: &str) -> Result<Self, StoreError> {
        let corrupt = |problem: &dyn fmt::Display| StoreError::corrupt("key order", &problem.to_string());
        let permutation = if secret.is_empty() {
            None
        } else {
            let mut bytes = [0; SECRET];
            hex::decode_to_slice(secret, &mut bytes).map_err(|error| corrupt(&error))?;
            Some(FF1::new(&bytes, KEY_ALPHABET.len() as u32).map_err(|error| corrupt(&error))?)
        };
        // A random start, because two processes with the same start would generate the same keys.
        let next = AtomicU64::new(rand::rng().random_range(0..KEYS));
        Ok(Self { permutation, next })
    }

    /// The sort key of `key`. Keys that differ only in case have the same sort key, all others have different ones.
    pub(super) fn sort_key(&self, key: &str) -> String {
        let folded = key.to_lowercase();
        let end = folded.rfind('/').map_or(0, |slash| slash + 1);
        let permuted = self.permutation.as_ref().zip(numerals(&folded[end..]));
        match permuted.and_then(|(permutation, end)| permutation.decrypt(&[], &end).ok()) {
            Some(permuted) => folded[..end].to_owned() + &text(permuted),
            None => folded,
        }
    }

    /// Generates an unpredictable key, which is most likely unused, under the given prefix.
    pub(super) fn generate(&self, prefix: Option<&str>) -> SortedKey {
        let SortedKey { key, sort_key } = self.next();
        match prefix {
            None => SortedKey { key, sort_key },
            Some(prefix) => SortedKey {
                key: format!("{prefix}/{key}"),
                sort_key: format!("{}/{sort_key}", prefix.to_lowercase()),
            },
        }
    }

    fn next(&self) -> SortedKey {
        let mut number = self.next.fetch_add(1, Ordering::Relaxed) % KEYS;
        let mut digits = vec![0; KEY_LENGTH];
        for digit in digits.iter_mut().rev() {
            *digit = (number % KEY_ALPHABET.len() as u64) as u16;
            number /= KEY_ALPHABET.len() as u64;
        }
        let digits = FlexibleNumeralString::from(digits);
        match self.permutation.as_ref().and_then(|permutation| permutation.encrypt(&[], &digits).ok()) {
            Some(key) => SortedKey { key: text(key), sort_key: text(digits) },
            None => {
                let key = ids::short_key(KEY_LENGTH);
                SortedKey { sort_key: key.clone(), key }
            }
        }
    }
}

/// The digits of a text of [`KEY_LENGTH`] characters of [`KEY_ALPHABET`]. None for any other text.
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
        // The secret is left out.
        f.debug_struct("KeyOrder").field("permuted", &self.permutation.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn sort_keys_are_stable() {
        let order = KeyOrder::new(SECRET).unwrap();
        //  key            sort key, as in existing databases
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
        for (key, sort_key) in table {
            assert_eq!(order.sort_key(key), sort_key, "{key}");
        }
    }

    #[test]
    fn every_key_has_a_sort_key_its_own() {
        for secret in [SECRET, ""] {
            let order = KeyOrder::new(secret).unwrap();
            let keys = (0..50_000).map(|number| format!("{number:07}"));
            let sort_keys: HashSet<String> = keys.map(|key| order.sort_key(&key)).collect();
            assert_eq!(sort_keys.len(), 50_000, "{secret}");
        }
    }

    #[test]
    fn keys_are_generated_in_the_order_of_their_sort_keys() {
        let order = KeyOrder::new(SECRET).unwrap();
        order.next.store(KEYS - 500, Ordering::Relaxed);
        let mut last = None;
        for _ in 0..500 {
            let SortedKey { key, sort_key } = order.generate(None);
            assert_eq!(order.sort_key(&key), sort_key);
            assert!(last.as_ref() < Some(&sort_key), "{sort_key} after {last:?}");
            last = Some(sort_key);
        }
        assert_eq!(order.generate(Some("Sale")).sort_key, "sale/0000000");
    }

    #[test]
    fn another_secret_gives_another_order() {
        let (one, other) =
            (KeyOrder::new(SECRET).unwrap(), KeyOrder::new(&SECRET.replace('0', "1")).unwrap());
        for order in [&one, &other] {
            order.next.store(7, Ordering::Relaxed);
        }
        assert_ne!(one.generate(None).key, other.generate(None).key);
    }

    #[test]
    fn without_a_secret_keys_are_random_and_sort_as_themselves() {
        let order = KeyOrder::new("").unwrap();
        let generated: HashSet<String> = (0..100)
            .map(|_| order.generate(None))
            .map(|generated| {
                assert_eq!(generated.key, generated.sort_key);
                generated.key
            })
            .collect();
        assert_eq!(generated.len(), 100);
    }

    #[test]
    fn malformed_secrets_are_refused() {
        for secret in ["00", "zz", &SECRET[1..]] {
            let error = KeyOrder::new(secret).unwrap_err().to_string();
            assert!(error.starts_with("stored key order: "), "{error}");
        }
    }
}
