//! What the list is as a whole: one entry, which its leader writes after the rows, and which every VM reads on its ticks.
//!
//! ```text
//! state u8, epoch u32, source u64, sequence u32, generation u16, rows u32, refused u32, answered u64 (ms), version, etag
//! ```
//! Numbers are little-endian; the last two are bytes after their length, a u8.

use super::row::Generation;

/// Most bytes of a version, and of an ETag. A longer one is left out, and the whole list is then asked for each time.
const MOST_BYTES: usize = 255;

/// How much of the list there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The rows of another directory are being removed.
    #[default]
    Foreign = 0,
    /// The first load has not ended: a key that has no row may get one.
    Partial,
    /// All rows are there.
    Complete,
}

/// The head of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: State,
    /// That of the leader that wrote it.
    pub(super) epoch: u32,
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
        entry.push(self.state as u8);
        entry.extend(self.epoch.to_le_bytes());
        entry.extend(self.source.to_le_bytes());
        entry.extend(self.sequence.to_le_bytes());
        entry.extend(self.generation.to_le_bytes());
        entry.extend(self.rows.to_le_bytes());
        entry.extend(self.refused.to_le_bytes());
        entry.extend(self.answered.to_le_bytes());
        for text in [&self.version, &self.etag] {
            let text = Some(text.as_bytes()).filter(|text| text.len() <= MOST_BYTES).unwrap_or_default();
            // At most 255.
            entry.push(text.len() as u8);
            entry.extend(text);
        }
    }

    /// `None` if the bytes are not a head.
    pub(super) fn decode(entry: &[u8]) -> Option<Self> {
        let (state, rest) = entry.split_first()?;
        let state = match state {
            0 => State::Foreign,
            1 => State::Partial,
            2 => State::Complete,
            _ => return None,
        };
        let (epoch, rest) = rest.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (rows, rest) = rest.split_first_chunk()?;
        let (refused, rest) = rest.split_first_chunk()?;
        let (answered, rest) = rest.split_first_chunk()?;
        let (version, rest) = text(rest)?;
        let (etag, rest) = text(rest)?;
        rest.is_empty().then_some(Self {
            state,
            epoch: u32::from_le_bytes(*epoch),
            source: u64::from_le_bytes(*source),
            sequence: u32::from_le_bytes(*sequence),
            generation: Generation::from_le_bytes(*generation),
            rows: u32::from_le_bytes(*rows),
            refused: u32::from_le_bytes(*refused),
            answered: u64::from_le_bytes(*answered),
            version,
            etag,
        })
    }
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((str::from_utf8(text).ok()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            state: State::Complete,
            epoch: 7,
            source: 8,
            sequence: 9,
            generation: 10,
            rows: 11,
            refused: 12,
            answered: 13,
            version: "v14".to_owned(),
            etag: "\"15\"".to_owned(),
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_nothing_else_is_a_head() {
        for state in [State::Foreign, State::Partial, State::Complete] {
            let head = Head { state, ..head() };
            let mut entry = Vec::new();
            head.encode(&mut entry);
            assert_eq!(Head::decode(&entry), Some(head));
            for length in 0..entry.len() {
                assert_eq!(Head::decode(&entry[..length]), None, "{length} bytes");
            }
            entry.push(0);
            assert_eq!(Head::decode(&entry), None);
        }
    }

    #[test]
    fn a_version_that_is_too_long_is_left_out() {
        let mut entry = Vec::new();
        Head { version: "x".repeat(256), ..head() }.encode(&mut entry);
        let found = Head::decode(&entry).unwrap();
        assert_eq!((found.version.as_str(), found.etag.as_str()), ("", "\"15\""));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = Head::decode(&bytes);
        }
    }
}
