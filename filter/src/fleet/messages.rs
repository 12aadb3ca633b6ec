//! What a gateway and the ledger send each other, as bytes.

use ledger_wire::{Answer, Hex128, Request, Response};
use sha2::{Digest as _, Sha256};

use super::client::Call;
use crate::config::GZIP;
use crate::count::fingerprint::Salt;
use crate::count::shared_data::HostError;

/// Why an answer of the ledger is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The host has not sent the call.
    #[error("no call to cluster {cluster}: {error}")]
    NotSent {
        /// The cluster.
        cluster: String,
        /// What the host answered.
        error: HostError,
    },
    /// The call had no answer in time.
    #[error("no answer")]
    None,
    /// The status is not 200. A ledger says why, after a colon; a proxy before it says something else, which is left out.
    #[error("answered status {status}{why}")]
    Status {
        /// The status.
        status: String,
        /// The ledger's code and message.
        why: String,
    },
    /// The body is compressed.
    #[error("answered with gzip, although the call says accept-encoding: identity")]
    Compressed,
    /// The body is not what the ledger answers.
    #[error("answered what is no answer: {0}")]
    Body(String),
    /// There are not as many answers as statements.
    #[error("answered {0} of {1} statements")]
    Count(usize, usize),
}

/// The name of this process among the gateways of its fleet. All its VMs have the same, from the salt that they share.
#[must_use]
pub fn gateway(salt: &Salt) -> Hex128 {
    let hash: [u8; 32] = Sha256::new_with_prefix(b"weir gateway").chain_update(salt.0).finalize().into();
    Hex128(hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes)))
}

/// The body of a call.
#[must_use]
pub fn request(call: Call) -> Vec<u8> {
    let Call { gateway, now, statements: items, .. } = call;
    // Writing this into memory cannot fail.
    serde_json::to_vec(&Request { gateway, now: now.millis(), items }).unwrap_or_default()
}

/// What the ledger has answered to a call.
///
/// # Errors
/// If it has answered nothing, or not that.
pub fn response(status: Option<&[u8]>, body: &[u8]) -> Result<Response, AnswerError> {
    let status = status.ok_or(AnswerError::None)?;
    if status != b"200" {
        let why = match serde_json::from_slice(body) {
            Ok(Answer::Refused(error)) => format!(": {}: {}", error.code, error.message),
            _ => String::new(),
        };
        return Err(AnswerError::Status { status: String::from_utf8_lossy(status).into_owned(), why });
    }
    if body.starts_with(&GZIP) {
        return Err(AnswerError::Compressed);
    }
    serde_json::from_slice(body).map_err(|error| AnswerError::Body(error.to_string()))
}

#[cfg(test)]
mod tests {
    use ledger_wire::{Answer, Share};

    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body_of_the_ledger() {
        let share = Share { share: 7, others: 2, reset: 0, settling: false };
        let body = br#"{"epoch":"000000000000000000000000000000ff","now":1,"items":[{"share":7,"others":2,"reset":0}]}"#;
        let answered = Response { epoch: Hex128(255), now: 1, items: vec![Answer::Share(share)] };
        let rows = [
            (Some(&b"200"[..]), &body[..], Ok(answered)),
            (None, b"", Err("no answer")),
            (Some(b"503"), body, Err("answered status 503")),
            (Some(b"503"), b"no healthy upstream", Err("answered status 503")),
            (
                Some(b"200"),
                b"\x1f\x8b\x08\0",
                Err("answered with gzip, although the call says accept-encoding: identity"),
            ),
            (
                Some(b"503"),
                br#"{"error":{"code":"store_refuses","message":"the store cannot be used: OOM command not allowed"}}"#,
                Err("answered status 503: store_refuses: the store cannot be used: OOM command not allowed"),
            ),
            (
                Some(b"200"),
                b"{",
                Err("answered what is no answer: EOF while parsing an object at line 1 column 1"),
            ),
        ];
        for (status, body, expected) in rows {
            let found = response(status, body).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }
}
