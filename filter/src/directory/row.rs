//! A row of the list, as an entry of shared data holds it: a key with its subscriber and terms.
//!
//! ```text
//! entry  epoch u32, then rows up to the end
//! row    bytes that follow u16, SHA-256 of the key, generation u16, then plan, subscriber, limits, parent and billing anchor
//! ```
//! Numbers are little-endian. Each of the last five fields is a text after its length, a u16. The limits and the parent are the JSON of the
//! page, or empty. A row names its plan, and does not point into a configuration: two configurations read the same rows while one of them
//! drains.

use serde_json::value::RawValue;

use crate::config::instant;
use crate::config::roster::Terms;
use crate::count::fingerprint::KeyDigest;
use crate::read::{Entries, read_value};

/// The number of a load of the whole list. After a load, rows of other generations are removed.
pub(super) type Generation = u16;

/// Bytes of a row that follow its length and are before its texts.
const HEAD: usize = 32 + 2;

/// What a key's row says. In an answer, a row without texts removes that of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'r> {
    pub(super) digest: &'r KeyDigest,
    pub(super) generation: Generation,
    /// The texts. All that a key's terms depend on is in them.
    pub(super) content: &'r [u8],
}

/// The texts of a row: plan, subscriber, limits, parent, billing anchor.
pub(super) type Texts<'t> = [&'t str; 5];

/// The texts as a row has them. `None` if they are too long for one.
pub(super) fn content(texts: Texts<'_>) -> Option<Vec<u8>> {
    let length = texts.iter().map(|text| 2 + text.len()).sum::<usize>();
    u16::try_from(HEAD + length).ok()?;
    let mut content = Vec::with_capacity(length);
    for text in texts {
        // Shorter than the row, whose length fits.
        content.extend((text.len() as u16).to_le_bytes());
        content.extend(text.as_bytes());
    }
    Some(content)
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

    /// Appends the row.
    pub(super) fn push(&self, rows: &mut Vec<u8>) {
        // Content is not too long for a row.
        rows.extend(((HEAD + self.content.len()) as u16).to_le_bytes());
        rows.extend(self.digest);
        rows.extend(self.generation.to_le_bytes());
        rows.extend(self.content);
    }

    fn texts(&self) -> Option<Texts<'r>> {
        let mut rest = self.content;
        let mut texts = Texts::default();
        for text in &mut texts {
            let (length, after) = rest.split_first_chunk()?;
            let (bytes, others) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            (*text, rest) = (str::from_utf8(bytes).ok()?, others);
        }
        Some(texts)
    }

    /// The subscriber, and the terms that the row names.
    pub(super) fn read(&self) -> Option<(&'r str, Terms)> {
        let [plan, subscriber, limits, parent, anchor] = self.texts()?;
        Some((subscriber, terms(plan, limits, parent, anchor)?))
    }

    /// The subscriber.
    pub(super) fn subscriber(&self) -> Option<&'r str> {
        self.texts().map(|[_, subscriber, ..]| subscriber)
    }
}

/// The terms of a row of which the limits and the parent are JSON, or empty, and the billing anchor is an instant, or empty.
pub(super) fn terms(plan: &str, limits: &str, parent: &str, anchor: &str) -> Option<Terms> {
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
    let billing_anchor = match anchor {
        "" => None,
        anchor => Some(instant(anchor)?),
    };
    Some(Terms { plan: plan.to_owned(), limits, billing_anchor, parent })
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
        let anchor = "2026-01-31T00:00:00Z";
        let texts =
            [["pro", "s", "", "", ""], ["free", "caf\u{e9}", limits, "", anchor], ["", "x", "", parent, ""]];
        let mut rows = Vec::new();
        for (byte, texts) in (1..).zip(texts) {
            let content = content(texts).unwrap();
            Row { digest: &[byte; 32], generation: byte.into(), content: &content }.push(&mut rows);
        }
        let found = split(&rows);
        assert_eq!(found.len(), 3);
        for ((byte, texts), row) in (1..).zip(texts).zip(&found) {
            assert_eq!((row.digest, row.generation, row.texts()), (&[byte; 32], byte.into(), Some(texts)));
        }
        let (subscriber, terms) = found[1].read().unwrap();
        assert_eq!(
            (subscriber, &*terms.plan, terms.limits.len(), terms.billing_anchor, terms.parent),
            ("caf\u{e9}", "free", 1, instant(anchor), None)
        );
        let parent = found[2].read().unwrap().1.parent.unwrap();
        assert_eq!((&*parent.organisation, parent.limits.len()), ("acme", 1));
    }

    #[test]
    fn a_removal_is_told_from_a_row() {
        let removes = |content: &[u8]| Row { digest: &[1; 32], generation: 1, content }.removes();
        assert!(removes(&[]));
        assert!(!removes(&content([""; 5]).unwrap()));
    }

    #[test]
    fn a_row_has_a_longest_length() {
        assert_eq!(content(["pro", &"x".repeat(65_520), "", "", ""]), None);
        let longest = content(["pro", &"x".repeat(65_400), "", "", ""]).unwrap();
        let mut rows = Vec::new();
        Row { digest: &[1; 32], generation: 1, content: &longest }.push(&mut rows);
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
