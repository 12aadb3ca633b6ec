//! Keys and tokens by their SHA-256, in hexadecimal digits.

use hex::FromHex as _;
use sha2::{Digest as _, Sha256};

use crate::count::fingerprint::KeyDigest;
use crate::read::error::ConfigError;
use crate::read::{Value, forms};

/// SHA-256 of an API key.
#[must_use]
pub fn digest(key: &[u8]) -> KeyDigest {
    Sha256::digest(key).into()
}

/// A key or a token by its hash: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash(pub(super) KeyDigest);

const KEY_HASH: &str = r#""sha256:" and 64 hexadecimal digits"#;

forms! {
    KeyHash: KEY_HASH, |_definitions| serde_json::json!({"type": "string", "pattern": "^sha256:[0-9A-Fa-f]{64}$"});
    Value::Text(text) => parse_key(&text).map(Self).map_err(ConfigError::new),
}

/// Reads `sha256:` and 64 hexadecimal digits.
///
/// # Errors
/// If it is anything else. For a plain key, the error has the hash to write.
pub fn parse_key(key: &str) -> Result<KeyDigest, String> {
    let Some(digits) = key.strip_prefix("sha256:") else {
        let hash = hex::encode(digest(key.as_bytes()));
        return Err(format!(
            r#"keys and tokens are given by their hash and written nowhere as they are; write "sha256:{hash}""#
        ));
    };
    KeyDigest::from_hex(digits).map_err(|_| format!("expected {KEY_HASH}"))
}
