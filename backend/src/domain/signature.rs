//! The two signatures of a delivery.
//!
//! Both are HMAC-SHA-256 with the webhook's secret. Receivers for either convention work without changes:
//!
//! - Standard Webhooks 1.0.0: `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,<Base64>` over
//!   `<id>.<timestamp>.<body>`; the key is the Base64-decoded part of the secret after `whsec_`.
//! - `Dub-Signature: <hex>` over the body; the key is the whole secret as text.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The secret is not `whsec_` followed by Base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("webhook secret: expected whsec_ and 24 to 64 bytes in Base64")]
pub struct InvalidSecret;

/// The value of `webhook-signature` for a message sent at `timestamp`, in Unix seconds.
///
/// # Errors
/// [`InvalidSecret`] if the secret does not have the format of Standard Webhooks.
pub fn standard(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> Result<String, InvalidSecret> {
    let key = secret.strip_prefix("whsec_").ok_or(InvalidSecret)?;
    let key = BASE64_STANDARD.decode(key).map_err(|_| InvalidSecret)?;
    if !(24..=64).contains(&key.len()) {
        return Err(InvalidSecret);
    }
    let signature = hmac(&key, &[id.as_bytes(), b".", timestamp.to_string().as_bytes(), b".", body]);
    Ok(format!("v1,{}", BASE64_STANDARD.encode(signature)))
}

/// The value of `Dub-Signature`.
#[must_use]
pub fn dub(secret: &str, body: &[u8]) -> String {
    hex::encode(hmac(secret.as_bytes(), &[body]))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        br#"{"id":"evt_1","event":"link.deleted","createdAt":"2026-01-05T10:00:00.000Z","data":{"id":"link_1"}}"#;

    #[test]
    fn the_standard_webhooks_vector_holds() {
        let signature = standard("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "evt_1", 1_767_607_200, BODY);
        assert_eq!(signature.as_deref(), Ok("v1,qrSxNGnIS4mfbwkm7WLTtKecgtlrRCt4/mrWgxASnLY="));
    }

    #[test]
    fn the_dub_vector_holds() {
        assert_eq!(
            dub("whsec_6f9f3a63705c44206ca655813bf91b61", BODY),
            "962b07475404206b5cd7f9f7f6b9b8dbfb697643aa3216c656edb32684496de7"
        );
    }

    #[test]
    fn a_secret_of_another_form_is_refused() {
        for secret in ["", "whsec_", "whsec_!", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_AAEC"] {
            assert_eq!(standard(secret, "evt_1", 0, BODY), Err(InvalidSecret), "{secret:?}");
        }
    }
}
