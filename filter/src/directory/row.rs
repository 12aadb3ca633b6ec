//! A row of the list, as an entry of shared data holds it: a key with its subscriber and terms.
//!
//! ```text
//! entry  epoch u32, then rows up to the end
//! row    bytes that follow u16, SHA-256 of the key, generation u16, then plan, subscriber, limits and parent
//! ```
//! Numbers are little-endian. Each of the last four fields is a text after its length, a u16. The limits and the parent are the JSON of the
//! page, or empty. A row names its plan, and does not point into a configuration: two configurations read the same rows while one of them
//! drains. In a page, a row without texts removes that of its key.

use serde_json::value::RawValue;

use crate::config::roster::Terms;
use crate::count::fingerprint::KeyDigest;
use crate::read::{Entries, read_value};

/// The number of a load of the whole list. After a load, rows of other generations are removed.
pub(super) type Generation = u16;

/// The first bytes of a row.
const HEAD: usize = 2 + 32 + 2;

/// What a key's row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'r> {
    pub(super) digest: &'r KeyDigest,
    pub(super) generation: Generation,
    /// The texts. All that a key's terms depend on is in them.
    pub(super) content: &'r [u8],
}

/// The texts of a row: plan, subscriber, limits, parent.
pub(super) type Texts<'t> = [&'t str; 4];

/// Appends a row. `false`, and nothing is appended, if it is too long.
pub(super) fn push(rows: &mut Vec<u8>, digest: &KeyDigest, texts: Texts<'_>) -> bool {
    let length = HEAD - 2 + texts.iter().map(|text| 2 + text.len()).sum::<usize>();
    let Ok(length) = u16::try_from(length) else { return false };
    rows.extend(length.to_le_bytes());
    rows.extend(digest);
    rows.extend([0, 0]);
    for text in texts {
        // Shorter than the row, whose length fits.
        rows.extend((text.len() as u16).to_le_bytes());
        rows.extend(text.as_bytes());
    }
    true
}

/// Appends the removal of a key's row.
pub(super) fn push_removal(rows: &mut Vec<u8>, digest: &KeyDigest) {
    Row { digest, generation: 0, content: &[] }.push_as(0, rows);
}

/// Takes the first row; `None` at the end, and before other bytes.
pub(super) fn split_first(rows: &[u8]) -> Option<(Row<'_>, &[u8])> {
    let (length, rest) = rows.split_first_chunk()?;
    let (bytes, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let (digest, bytes) = bytes.split_first_chunk()?;
    let (generation, bytes) = bytes.split_first_chunk()?;
    Some((Row { digest, generation: Generation::from_le_bytes(*generation), content: bytes }, rest))
}

impl<'r> Row<'r> {
    /// Whether the row removes that of its key.
    pub(super) fn removes(&self) -> bool {
        self.content.is_empty()
    }

    /// Appends the row under another generation.
    pub(super) fn push_as(&self, generation: Generation, rows: &mut Vec<u8>) {
        // As long as it was when it was read.
        rows.extend(((HEAD - 2 + self.content.len()) as u16).to_le_bytes());
        rows.extend(self.digest);
        rows.extend(generation.to_le_bytes());
        rows.extend(self.content);
    }

    fn texts(&self) -> Option<Texts<'r>> {
        let mut rest = self.content;
        let mut texts = [""; 4];
        for text in &mut texts {
            let (length, after) = rest.split_first_chunk()?;
            let (bytes, others) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            (*text, rest) = (str::from_utf8(bytes).ok()?, others);
        }
        Some(texts)
    }

    /// The subscriber, and the terms that the row names.
    pub(super) fn read(&self) -> Option<(&'r str, Terms)> {
        let [plan, subscriber, limits, parent] = self.texts()?;
        Some((subscriber, terms(plan, limits, parent)?))
    }

    /// The subscriber.
    pub(super) fn subscriber(&self) -> Option<&'r str> {
        self.texts().map(|[_, subscriber, ..]| subscriber)
    }
}

/// The terms of a row of which the limits and the parent are JSON, or empty.
pub(super) fn terms(plan: &str, limits: &str, parent: &str) -> Option<Terms> {
    // Not by serde_json, for which none of these types is compiled.
    fn json(text: &str) -> Option<&RawValue> {
        serde_json::from_str(text).ok()
    }
    let limits = match limits {
        "" => Vec::new(),
        limits => read_value::<Entries<_>>(json(limits)?).ok()?.0,
    };
    let parent = match parent {
        "" => None,
        parent => Some(read_value(json(parent)?).ok()?),
    };
    Some(Terms { plan: plan.to_owned(), limits, parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(rows: &[u8]) -> Vec<Row<'_>> {
        let mut rest = rows;
        core::iter::from_fn(|| {
            let (row, more) = split_first(rest)?;
            rest = more;
            Some(row)
        })
        .collect()
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let limits = r#"{"standard": ["5000/minute"]}"#;
        let parent = r#"{"organisation": "acme", "limits": {"standard": ["9/day"]}}"#;
        let texts = [["pro", "s", "", ""], ["free", "caf\u{e9}", limits, ""], ["", "x", "", parent]];
        let mut rows = Vec::new();
        for (byte, texts) in (1..).zip(texts) {
            assert!(push(&mut rows, &[byte; 32], texts));
        }
        let found = split(&rows);
        assert_eq!(found.len(), 3);
        for ((byte, texts), row) in (1..).zip(texts).zip(&found) {
            assert_eq!((row.digest, row.generation, row.texts()), (&[byte; 32], 0, Some(texts)));
        }
        let (subscriber, terms) = found[1].read().unwrap();
        assert_eq!(
            (subscriber, &*terms.plan, terms.limits.len(), terms.parent),
            ("caf\u{e9}", "free", 1, None)
        );
        let parent = found[2].read().unwrap().1.parent.unwrap();
        assert_eq!((&*parent.organisation, parent.limits.len()), ("acme", 1));
    }

    #[test]
    fn another_generation_changes_nothing_that_a_row_says() {
        let mut rows = Vec::new();
        push(&mut rows, &[1; 32], ["pro", "s", "", ""]);
        let mut again = Vec::new();
        let [row] = split(&rows)[..] else { panic!() };
        row.push_as(7, &mut again);
        let [later] = split(&again)[..] else { panic!() };
        assert_eq!(row.content, later.content);
        assert_eq!((later.generation, later.digest), (7, row.digest));
        let mut other = Vec::new();
        push(&mut other, &[1; 32], ["pro", "t", "", ""]);
        assert_ne!(row.content, split(&other)[0].content);
    }

    #[test]
    fn a_removal_is_told_from_a_row() {
        let mut rows = Vec::new();
        push_removal(&mut rows, &[1; 32]);
        push(&mut rows, &[2; 32], [""; 4]);
        let found = split(&rows);
        let removes: Vec<_> = found.iter().map(|row| (row.digest[0], row.removes())).collect();
        assert_eq!(removes, [(1, true), (2, false)]);
    }

    #[test]
    fn a_row_has_a_longest_length() {
        let mut rows = Vec::new();
        assert!(!push(&mut rows, &[1; 32], ["pro", &"x".repeat(65_520), "", ""]) && rows.is_empty());
        assert!(push(&mut rows, &[1; 32], ["pro", &"x".repeat(65_400), "", ""]));
        assert_eq!(split(&rows)[0].subscriber().map(str::len), Some(65_400));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            for row in split(&bytes) {
                let _ = row.read();
            }
        }
    }
}
