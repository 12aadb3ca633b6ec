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
/// If it is anything else. For a plain key, the error has the hash to write; for what may be a hash, it quotes nothing and says how to write
/// either.
pub fn parse_key(key: &str) -> Result<KeyDigest, String> {
    let Some(digits) = key.strip_prefix("sha256:") else {
        if may_be_hash(key) {
            return Err(MAY_BE_HASH.to_owned());
        }
        let hash = hex::encode(digest(key.as_bytes()));
        return Err(format!(
            r#"keys and tokens are given by their hash and written nowhere as they are; write "sha256:{hash}""#
        ));
    };
    KeyDigest::from_hex(digits).map_err(|_| format!("expected {KEY_HASH}"))
}

const MAY_BE_HASH: &str = r#"this may be a hash or a key, and the hash of a hash would let nobody in; put "sha256:" before it if it is the SHA-256 of a key, in hexadecimal digits; if it is a key, `weir hash` prints what to write"#;

/// Whether a text looks like a hash: digits of SHA-256, its base64, or a password's hash such as bcrypt's.
fn may_be_hash(text: &str) -> bool {
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    match text.len() {
        64 => text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        43 => text.bytes().all(is_base64) && !text.contains('='),
        44 => text.bytes().all(is_base64) && text.ends_with('='),
        _ => text.starts_with('$') || text.starts_with("sha256-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_hash_is_refused_without_a_hash_of_it() {
        let hash = hex::encode(digest(b"secret"));
        let rows = [
            (hash.clone(), true),
            (hash.to_uppercase(), true),
            ("$2b$12$R9h/cIPz0gi.URNNX3kh2OPST9/PgBkqquzi.Ss7KIUgO2t0jWMUW".to_owned(), true),
            ("K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=".to_owned(), true),
            ("K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols".to_owned(), true),
            ("secret".to_owned(), false),
            // What `openssl rand -base64 24` and `-hex 16` print.
            ("kq0Jm3jV7yqk3hXo2G1cQ5s8mJtZ0a9B".to_owned(), false),
            ("0123456789abcdef0123456789abcdef".to_owned(), false),
        ];
        for (text, may_be_hash) in rows {
            let refused = parse_key(&text).unwrap_err();
            assert_eq!(refused.starts_with("this may be a hash or a key"), may_be_hash, "{text}: {refused}");
            assert!(!may_be_hash || !refused.contains(&hex::encode(digest(text.as_bytes()))), "{refused}");
        }
        assert_eq!(parse_key(&format!("sha256:{hash}")), Ok(digest(b"secret")));
    }
}
