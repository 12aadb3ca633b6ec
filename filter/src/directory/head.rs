//! What the list is as a whole, and who leads: one entry, which the leader writes after the rows, and which every VM reads ten times a second.
//! It is JSON.

use serde::{Deserialize, Serialize};

use super::leader::Lease;
use super::row::Generation;

/// How far the list can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// Not at all: it is older than `max_stale`. No head says so, because that depends on who reads it.
    #[serde(skip)]
    Stale,
    /// Not at all: it is another directory's, or the rows of that are being removed.
    Foreign,
    /// A key that has a row is known. The first load has not ended, so that another may get one.
    #[default]
    Partial,
    /// All rows are there: a key without a row is unknown.
    Complete,
}

/// The head of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) lease: Lease,
    pub(super) state: Readiness,
    /// Identifies the service.
    pub(super) source: u64,
    /// Goes up whenever what a row said may no longer hold.
    pub(super) sequence: u32,
    /// The last load of the whole list that was begun.
    pub(super) generation: Generation,
    pub(super) rows: u32,
    /// Rows that had no place.
    pub(super) refused: u32,
    /// When the service gave its last good answer, in milliseconds since the epoch.
    pub(super) answered: u64,
    /// The service's name for the state that the list has; empty if it gives none.
    pub(super) version: String,
    /// The ETag of the answer that the list is from; empty if there is none.
    pub(super) etag: String,
}

impl Head {
    pub(super) fn encode(&self, entry: &mut Vec<u8>) {
        entry.clear();
        // Numbers and texts can always be written, and so can bytes to a Vec.
        drop(serde_json::to_writer(entry, self));
    }

    /// `None` if the bytes are not a head.
    pub(super) fn decode(entry: &[u8]) -> Option<Self> {
        serde_json::from_slice(entry).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_nothing_else_is_a_head() {
        for state in [Readiness::Foreign, Readiness::Partial, Readiness::Complete] {
            let head = Head {
                lease: Lease { epoch: 1, holder: u64::MAX, configuration: 3, gave_way: 4, end: 5 },
                state,
                source: u64::MAX - 1,
                sequence: 9,
                generation: 10,
                rows: 11,
                refused: 12,
                answered: 13,
                version: "v\"14\u{0}\u{e9}".to_owned(),
                etag: "\"15\"".to_owned(),
            };
            let mut entry = b"before".to_vec();
            head.encode(&mut entry);
            assert_eq!(Head::decode(&entry), Some(head));
            for length in 0..entry.len() {
                assert_eq!(Head::decode(&entry[..length]), None, "{length} bytes");
            }
            entry.push(0);
            assert_eq!(Head::decode(&entry), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = Head::decode(&bytes);
        }
    }
}
