//! Generated ids and secrets.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use rand::RngExt;
use rand::distr::{Alphanumeric, SampleString};
use sha2::{Digest, Sha256};
use ulid::Ulid;

/// Default length of a generated key.
pub(crate) const KEY_LENGTH: usize = 7;
/// The characters of generated keys. Upper case is left out, because keys are compared without regard to
/// case.
const KEY_ALPHABET: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// `prefix` and a ULID: a unique id that sorts by the millisecond of `now`.
pub(crate) fn sortable(prefix: &str, now: Timestamp) -> String {
    let milliseconds = u64::try_from(now.as_millisecond()).unwrap_or(0);
    format!("{prefix}{}", Ulid::from_parts(milliseconds, rand::rng().random()))
}

/// `length` random letters and digits, in upper and lower case.
pub(crate) fn alphanumeric(length: usize) -> String {
    Alphanumeric.sample_string(&mut rand::rng(), length)
}

/// A random short-link key of `length` lower-case letters and digits.
pub(crate) fn short_key(length: usize) -> String {
    let mut random = rand::rng();
    (0..length).map(|_| char::from(KEY_ALPHABET[random.random_range(0..KEY_ALPHABET.len())])).collect()
}

/// A new API key. It is shown once; the database stores only its [`sha256`].
pub(crate) fn api_key() -> String {
    format!("weir_{}", alphanumeric(32))
}

/// A new webhook secret in the format of Standard Webhooks: `whsec_` and 24 random bytes in Base64.
pub(crate) fn webhook_secret() -> String {
    let bytes: [u8; 24] = rand::rng().random();
    format!("whsec_{}", BASE64_STANDARD.encode(bytes))
}

/// The SHA-256 of a key in lower-case hexadecimal.
#[must_use]
pub fn sha256(key: &[u8]) -> String {
    hex::encode(Sha256::digest(key))
}
