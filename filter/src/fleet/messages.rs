//! What a gateway and the ledger send each other, as bytes.

use ledger_wire::{Answer, Hex128, Request, Response, Statement};
use sha2::{Digest as _, Sha256};

use crate::count::fingerprint::Salt;
use crate::count::shared_data::HostError;
use crate::time::Timestamp;

/// Most statements in a call.
pub const MOST_STATEMENTS: usize = 1_000;

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
    /// The status is not 200.
    #[error("answered status {0}")]
    Status(String),
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
pub fn request(gateway: Hex128, now: Timestamp, items: Vec<Statement>) -> Vec<u8> {
    // Writing this into memory cannot fail.
    serde_json::to_vec(&Request { gateway, now: now.millis(), items }).unwrap_or_default()
}

/// What the ledger has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The answers, in the order of the statements.
    pub answers: Vec<Answer>,
    /// The store's epoch, in part.
    pub epoch: u32,
    /// The ledger's clock, in milliseconds since 1970.
    pub now: u64,
}

/// The answers to as many statements as were sent.
///
/// # Errors
/// If they are not that.
pub fn response(status: Option<&[u8]>, body: &[u8], sent: usize) -> Result<Heard, AnswerError> {
    let status = status.ok_or(AnswerError::None)?;
    if status != b"200" {
        return Err(AnswerError::Status(String::from_utf8_lossy(status).into_owned()));
    }
    let Response { epoch, now, items: answers } =
        serde_json::from_slice(body).map_err(|error| AnswerError::Body(error.to_string()))?;
    match answers.len() {
        count if count == sent => Ok(Heard { answers, epoch: epoch.0 as u32, now }),
        count => Err(AnswerError::Count(count, sent)),
    }
}

#[cfg(test)]
mod tests {
    use ledger_wire::Share;

    use super::*;

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let share = Share { share: 7, others: 2, reset: 0, settling: false };
        let body = br#"{"epoch":"000000000000000000000000000000ff","now":1,"items":[{"share":7,"others":2,"reset":0}]}"#;
        let rows = [
            (
                Some(&b"200"[..]),
                &body[..],
                1,
                Ok(Heard { answers: vec![Answer::Share(share)], epoch: 255, now: 1 }),
            ),
            (None, b"", 1, Err("no answer")),
            (Some(b"503"), body, 1, Err("answered status 503")),
            (Some(b"200"), body, 2, Err("answered 1 of 2 statements")),
            (
                Some(b"200"),
                b"{",
                1,
                Err("answered what is no answer: EOF while parsing an object at line 1 column 1"),
            ),
        ];
        for (status, body, sent, expected) in rows {
            let found = response(status, body, sent).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }
}
