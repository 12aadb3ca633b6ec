//! The directory's document:
//! `{"keys": [{"sha256": "<hex>", "subscriber": "acme", "plan": "pro", "limits": {"standard": ["5000/minute"]}}]}`.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::roster::{Roster, RosterBuilder, Terms};
use crate::config::{Entries, parse_digest, read_value};

/// Parses a document. Returns its keys, and the number of rows that are left out because they are malformed or repeat a key.
///
/// # Errors
/// If the document is not a JSON object with a list `keys`.
pub(super) fn parse(body: &[u8]) -> Result<(Roster, usize), serde_json::Error> {
    let Document { keys: Rows { builder, malformed } } = serde_json::from_slice(body)?;
    let (roster, twice) = builder.build();
    Ok((roster, malformed + twice))
}

#[derive(Deserialize)]
struct Document {
    keys: Rows,
}

#[derive(Deserialize)]
struct Row<'r> {
    #[serde(borrow)]
    sha256: Cow<'r, str>,
    #[serde(borrow)]
    subscriber: Cow<'r, str>,
    #[serde(borrow)]
    plan: Cow<'r, str>,
    #[serde(borrow, default = "none")]
    limits: &'r RawValue,
    #[serde(borrow)]
    parent: Option<&'r RawValue>,
}

fn none<'r>() -> &'r RawValue {
    serde_json::from_str("{}").unwrap_or(RawValue::NULL)
}

/// The rows, parsed one by one: a large document is never in memory twice.
struct Rows {
    builder: RosterBuilder,
    malformed: usize,
}

impl Rows {
    fn add(&mut self, row: &RawValue) -> Option<()> {
        let row: Row<'_> = serde_json::from_str(row.get()).ok()?;
        let digest = parse_digest(row.sha256.strip_prefix("sha256:").unwrap_or(&row.sha256))?;
        // Not by serde_json, for which none of these types is compiled.
        let Entries(limits) = read_value(row.limits).ok()?;
        let parent = row.parent.map(read_value).transpose().ok()?;
        let terms = Terms { plan: row.plan.into_owned(), limits, parent };
        self.builder.add(digest, &row.subscriber, terms).ok()
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowsVisitor;

        impl<'de> Visitor<'de> for RowsVisitor {
            type Value = Rows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of keys")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rows, A::Error> {
                let mut rows = Rows { builder: RosterBuilder::default(), malformed: 0 };
                while let Some(row) = list.next_element::<&RawValue>()? {
                    if rows.add(row).is_none() {
                        rows.malformed += 1;
                    }
                }
                Ok(rows)
            }
        }

        deserializer.deserialize_seq(RowsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_alone_is_left_out() {
        let row = |digest: &str, more: &str| format!(r#"{{"sha256": "{digest}", "plan": "free", {more}}}"#);
        let [one, two, three] = ["04", "05", "06"].map(|byte| byte.repeat(32));
        let rows = [
            r#"{"sha256": "xyz", "subscriber": "s", "plan": "free"}"#,
            r#"{"subscriber": "s", "plan": "free"}"#,
            r#"{"sha256": 7, "subscriber": "s", "plan": "free"}"#,
            &row(&one, r#""subscriber": "s", "limits": {"standard": ["x"]}"#),
            "null",
            &row(&two, r#""subscriber": "s""#),
            &row(&two, r#""subscriber": "t""#),
            &row(&format!("sha256:{three}"), r#""subscriber": "caf\u00e9", "note": 1"#),
        ];
        let (roster, left_out) =
            parse(format!(r#"{{"keys": [{}], "as_of": 7}}"#, rows.join(",")).as_bytes()).unwrap();
        assert_eq!((left_out, roster.len()), (7, 1));
        let known = roster.find(&[6; 32]).and_then(|place| roster.at(place)).unwrap();
        assert_eq!(known.subscriber, "caf\u{e9}");
    }

    #[test]
    fn a_row_may_name_an_organisation() {
        let row = |digest: &str, parent: &str| {
            format!(
                r#"{{"sha256": "{}", "subscriber": "s", "plan": "free", "parent": {parent}}}"#,
                digest.repeat(32)
            )
        };
        let rows = [
            row("01", r#"{"organisation": "acme", "limits": {"standard": ["9/minute"]}}"#),
            row("02", "null"),
            row("03", r#"{"organisation": "acme"}"#),
        ];
        let (roster, left_out) = parse(format!(r#"{{"keys": [{}]}}"#, rows.join(",")).as_bytes()).unwrap();
        let organisation = |byte: u8| {
            let known = roster.find(&[byte; 32]).and_then(|place| roster.at(place))?;
            Some(roster.terms()[known.terms].parent.as_ref().map(|parent| &*parent.organisation))
        };
        assert_eq!((left_out, [1, 2, 3].map(organisation)), (1, [Some(Some("acme")), Some(None), None]));
    }

    proptest::proptest! {
        #[test]
        fn no_document_is_too_odd(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200), rows in "[\\[\\]{}\":,0-9a-z]{0,60}") {
            for body in [body, format!(r#"{{"keys": [{rows}]}}"#).into_bytes()] {
                if let Ok((roster, _)) = parse(&body) {
                    // No digest has fewer than 64 digits.
                    proptest::prop_assert!(roster.is_empty());
                }
            }
        }
    }
}
