//! Reads a page of the directory.
//!
//! ```json
//! {"version": "1042", "since": "1040", "keys": [{"sha256": "<hex>", "subscriber": "acme", "plan": "pro", "limits": {}, "parent": {},
//!            "billing_anchor": "2026-01-31T00:00:00Z"}],
//!  "removed": ["<hex>"], "next": "…"}
//! ```

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use hex::FromHex as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::DirectoryError;
use super::row::{content, terms};
use crate::config::roster::{ParentTerms, Terms};
use crate::config::{Catalog, GZIP};
use crate::count::fingerprint::KeyDigest;
use crate::read::error::{ConfigError, Quoted};
use crate::window::Anchor;

/// Most keys of a page. A worker reads them at once, which takes some 10 ms.
const MOST_KEYS: usize = 20_000;
/// Most bytes of a page.
pub const PAGE_BYTES: usize = 4 << 20;

/// A key's digest, and the content of its row: nothing for a key that is gone.
pub(super) type PageRow = (KeyDigest, Vec<u8>);

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The state of the service that the list has after this page and those that follow it; `None` if the service names none.
    pub(super) version: Option<String>,
    /// The version since which the page has the changes; `None` if it has all rows, or the first of them.
    pub(super) since: Option<String>,
    /// The cursor of the page that follows.
    pub(super) next: Option<String>,
    /// What is to be stored: first a removal for each key that is gone, because one that is there again is in both lists, and then the rows.
    pub(super) rows: VecDeque<PageRow>,
    /// Rows that are malformed, or that this configuration has no plan or class for.
    pub(super) skipped: Noticed,
    /// Rows whose organisation has another billing anchor in an earlier row, so that the two count apart.
    pub(super) apart: Noticed,
}

/// Rows that an operator should know of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noticed {
    /// How many there are.
    pub(super) rows: usize,
    /// The first of them: its subscriber, and what is wrong with it.
    pub(super) first: Option<String>,
}

impl Noticed {
    fn add(&mut self, first: impl FnOnce() -> String) {
        self.rows += 1;
        self.first.get_or_insert_with(first);
    }
}

/// The billing anchors of organisations, as their first rows have them.
pub(super) type Anchors = HashMap<String, Option<Anchor>>;

/// Most organisations whose rows are compared, so that they take a few megabytes at most.
const MOST_ORGANISATIONS: usize = 50_000;

#[derive(Deserialize)]
struct Document<'d> {
    #[serde(borrow, default, deserialize_with = "list")]
    keys: Option<Vec<&'d RawValue>>,
    #[serde(borrow, default, deserialize_with = "list")]
    removed: Option<Vec<&'d RawValue>>,
    version: Option<String>,
    since: Option<String>,
    next: Option<String>,
}

/// A list that is there. One that is null is empty, which is how services in Go write it.
fn list<'d, D: Deserializer<'d>>(value: D) -> Result<Option<Vec<&'d RawValue>>, D::Error> {
    Ok(Some(Option::deserialize(value)?.unwrap_or_default()))
}

#[derive(Deserialize)]
struct JsonRow<'r> {
    #[serde(borrow)]
    sha256: Cow<'r, str>,
    #[serde(borrow)]
    subscriber: Cow<'r, str>,
    #[serde(borrow)]
    plan: Cow<'r, str>,
    #[serde(borrow)]
    limits: Option<&'r RawValue>,
    #[serde(borrow)]
    parent: Option<&'r RawValue>,
    #[serde(borrow)]
    billing_anchor: Option<Cow<'r, str>>,
}

impl Page {
    /// Reads a page whole, or not at all. A row that is malformed is skipped. `anchors` are those of the pages before.
    pub(super) fn read(
        body: &[u8],
        catalog: &Catalog,
        anchors: &mut Anchors,
    ) -> Result<Self, DirectoryError> {
        if body.len() > PAGE_BYTES {
            return Err(DirectoryError::TooLong);
        }
        if body.starts_with(&GZIP) {
            return Err(DirectoryError::Compressed);
        }
        let malformed = |line, column| DirectoryError::Malformed { bytes: body.len(), line, column };
        // An array would be taken for the fields in their order.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(malformed(1, 1));
        }
        let document: Document<'_> =
            serde_json::from_slice(body).map_err(|error| malformed(error.line(), error.column()))?;
        let Document { keys, removed, version, since, next } = document;
        // What names none of these is another kind of answer, such as an error, and not an empty list.
        if keys.is_none() && removed.is_none() && version.is_none() {
            return Err(malformed(1, 1));
        }
        let (keys, removed) = (keys.unwrap_or_default(), removed.unwrap_or_default());
        if keys.len() + removed.len() > MOST_KEYS {
            return Err(DirectoryError::TooLong);
        }
        let mut page = Self { version, since, next, ..Self::default() };
        for digest in removed {
            if page.remove(digest).is_none() {
                page.skipped.add(|| "in removed: not a SHA-256 in hexadecimal digits".to_owned());
            }
        }
        for row in keys {
            page.add(row, catalog, anchors);
        }
        Ok(page)
    }

    /// Adds a row, or skips one that is malformed. One that the configuration has no plan or class for is both stored and skipped: it is for another
    /// configuration.
    fn add(&mut self, row: &RawValue, catalog: &Catalog, anchors: &mut Anchors) {
        let Ok(row) = serde_json::from_str::<JsonRow<'_>>(row.get()) else {
            let expected = "expected an object whose sha256, subscriber and plan are texts";
            return self.skipped.add(|| format!("without a subscriber: {expected}"));
        };
        if let Err(problem) = self.store(&row, catalog, anchors) {
            let (subscriber, plan) = (Quoted(&row.subscriber), Quoted(&row.plan));
            self.skipped.add(|| format!("of subscriber {subscriber} on plan {plan}: {problem}"));
        }
    }

    /// Notices a row whose organisation has another billing anchor in an earlier one.
    fn compare(&mut self, subscriber: &str, own: &Terms, anchors: &mut Anchors) {
        let Some(ParentTerms { organisation, billing_anchor, .. }) = &own.parent else { return };
        match anchors.get(&**organisation) {
            Some(first) if first != billing_anchor => self.apart.add(|| {
                format!("of subscriber {} in organisation {}", Quoted(subscriber), Quoted(organisation))
            }),
            None if anchors.len() < MOST_ORGANISATIONS => {
                anchors.insert(organisation.to_string(), *billing_anchor);
            }
            Some(_) | None => {}
        }
    }

    fn store(
        &mut self,
        row: &JsonRow<'_>,
        catalog: &Catalog,
        anchors: &mut Anchors,
    ) -> Result<(), ConfigError> {
        let wrong = ConfigError::new;
        let digest = digest(&row.sha256).ok_or_else(|| wrong("sha256 is not 64 hexadecimal digits"))?;
        let limits = row.limits.map(RawValue::get).filter(|limits| *limits != "{}").unwrap_or_default();
        let parent = row.parent.map(RawValue::get).unwrap_or_default();
        let anchor = row.billing_anchor.as_deref().unwrap_or_default();
        let own = match (limits, parent, anchor) {
            // Nearly all rows.
            ("", "", "") => None,
            _ => Some(
                terms(&row.plan, limits, parent, anchor)
                    .ok_or_else(|| wrong("limits, parent or billing_anchor cannot be read"))?,
            ),
        };
        if row.subscriber.is_empty() {
            return Err(wrong("subscriber is empty"));
        }
        own.iter().for_each(|own| self.compare(&row.subscriber, own, anchors));
        let content = content([&row.plan, &row.subscriber, limits, parent, anchor]);
        self.rows.push_back((digest, content.ok_or_else(|| wrong("longer than 65,535 bytes"))?));
        match own.or_else(|| terms(&row.plan, "", "", "").filter(|_| !catalog.grants(&row.plan))) {
            None => Ok(()),
            Some(own) => catalog.agreement(&own).map(drop),
        }
    }

    fn remove(&mut self, key: &RawValue) -> Option<()> {
        let key: Cow<'_, str> = serde_json::from_str(key.get()).ok()?;
        self.rows.push_back((digest(&key)?, Vec::new()));
        Some(())
    }
}

/// The digest of a key, with or without the name of the hash.
fn digest(text: &str) -> Option<KeyDigest> {
    KeyDigest::from_hex(text.strip_prefix("sha256:").unwrap_or(text)).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::row::Row;
    use super::*;
    use crate::config::Config;

    pub(in super::super) fn config(more: &str) -> Config {
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}, "pro": {{"standard": ["600/minute"]}}}},
                "directory": {{"cluster": "backend", "path": "/keys"{more}}}}}"#
        );
        Config::from_json(json.as_bytes()).unwrap()
    }

    fn read(body: &str) -> Result<Page, DirectoryError> {
        Page::read(body.as_bytes(), &config("").catalog, &mut Anchors::new())
    }

    /// The first byte of each key, and its subscriber; a key that is gone has none.
    fn subscribers(page: &Page) -> Vec<(u8, Option<String>)> {
        let read = |(digest, content): &PageRow| {
            let row = Row { digest, generation: 0, content };
            (digest[0], row.subscriber().map(str::to_owned))
        };
        page.rows.iter().map(read).collect()
    }

    #[test]
    fn a_page_says_what_changed_what_is_gone_and_what_follows() {
        let [one, two, three] = ["01", "02", "03"].map(|byte| byte.repeat(32));
        let body = format!(
            r#" {{ "as_of" : {{"x": [1, "]"]}}, "next":"c\u0031","keys": [ {{"sha256":"{one}","subscriber":"a","plan":"pro","limits":{{}}}} ,
                {{"plan":"free","sha256":"sha256:{two}","subscriber":"caf\u00e9","parent":null,"note":[{{}}]}}],
                "removed": ["{three}"], "version": "v2", "since": "v1" }} "#
        );
        let page = read(&body).unwrap();
        let rows = [(3, None), (1, Some("a".to_owned())), (2, Some("caf\u{e9}".to_owned()))];
        assert_eq!(subscribers(&page), rows);
        let [version, since, next] = [&page.version, &page.since, &page.next].map(Option::as_deref);
        assert_eq!((version, since, next), (Some("v2"), Some("v1"), Some("c1")));
        assert_eq!(page.skipped, Noticed::default());
    }

    #[test]
    fn a_list_that_is_null_or_absent_is_empty() {
        let gone = "07".repeat(32);
        for keys in [r#""keys": [], "#, r#""keys": null, "#, ""] {
            let page =
                read(&format!(r#"{{{keys}"removed": ["{gone}"], "version": "2", "since": "1"}}"#)).unwrap();
            assert_eq!(subscribers(&page), [(7, None)], "{keys}");
            for removed in [r#""removed": [], "#, r#""removed": null, "#, ""] {
                let page = read(&format!(r#"{{{keys}{removed}"version": "2", "next": null}}"#)).unwrap();
                let expected = Page { version: Some("2".to_owned()), ..Page::default() };
                assert_eq!(page, expected, "{keys} {removed}");
            }
        }
        for empty in [r#"{"keys": []}"#, r#"{"keys": null}"#, r#"{"removed": null}"#] {
            assert_eq!(read(empty), Ok(Page::default()), "{empty}");
        }
    }

    #[test]
    fn a_page_has_a_most_of_keys_and_of_bytes() {
        let digests = |keys: usize| vec![format!("{:?}", "01".repeat(32)); keys].join(",");
        let row = format!(r#"{{"sha256": "{}", "subscriber": "s", "plan": "pro"}}"#, "02".repeat(32));
        let page = |keys, removed| {
            format!(
                r#"{{"keys": [{}], "removed": [{}]}}"#,
                vec![row.as_str(); keys].join(","),
                digests(removed)
            )
        };
        for (keys, removed, is_taken) in
            [(20_000, 0, true), (20_001, 0, false), (1, 19_999, true), (1, 20_000, false)]
        {
            let read = read(&page(keys, removed));
            assert_eq!(
                read.as_ref().err(),
                (!is_taken).then_some(&DirectoryError::TooLong),
                "{keys}, {removed}"
            );
            assert!(!is_taken || read.unwrap().skipped.rows == 0);
        }
        for (bytes, is_taken) in [(4 << 20, true), ((4 << 20) + 1, false)] {
            let read = read(&(page(1, 0) + &" ".repeat(bytes - page(1, 0).len())));
            assert_eq!(read.err(), (!is_taken).then_some(DirectoryError::TooLong), "{bytes}");
        }
    }

    #[test]
    fn rows_that_give_an_organisation_another_billing_anchor_are_noticed_over_pages() {
        let row = |number: u8, organisation: &str, anchor: &str| {
            let digest = format!("{number:02}").repeat(32);
            let parent = format!(r#"{{"organisation": "{organisation}", "limits": {{}}{anchor}}}"#);
            format!(
                r#"{{"sha256": "{digest}", "subscriber": "s{number}", "plan": "pro", "parent": {parent}}}"#
            )
        };
        let [first, other] =
            ["2026-01-31", "2026-01-30"].map(|day| format!(r#", "billing_anchor": "{day}T00:00:00Z""#));
        let noticed = |rows, first: Option<&str>| Noticed { rows, first: first.map(str::to_owned) };
        let pages = [
            (vec![row(1, "a", &first), row(2, "a", &first), row(3, "b", "")], noticed(0, None)),
            (vec![row(4, "b", ""), row(5, "c", &other)], noticed(0, None)),
            (
                vec![row(6, "b", &first), row(7, "a", &other), row(8, "a", ""), row(9, "a", &first)],
                noticed(3, Some(r#"of subscriber "s6" in organisation "b""#)),
            ),
        ];
        let (config, mut anchors) = (config(""), Anchors::new());
        for (rows, expected) in pages {
            let body = format!(r#"{{"keys": [{}]}}"#, rows.join(","));
            let page = Page::read(body.as_bytes(), &config.catalog, &mut anchors).unwrap();
            assert_eq!((page.apart, page.skipped.rows), (expected, 0), "{body}");
        }
    }

    #[test]
    fn a_bad_row_alone_is_skipped() {
        let row = |digest: &str, more: &str| format!(r#"{{"sha256": "{digest}", "plan": "free", {more}}}"#);
        let [one, two, three, four] = ["04", "05", "06", "07"].map(|byte| byte.repeat(32));
        let parent = r#""parent": {"organisation": "acme""#;
        let rows = [
            r#"{"sha256": "xyz", "subscriber": "s", "plan": "free"}"#.to_owned(),
            r#"{"subscriber": "s", "plan": "free"}"#.to_owned(),
            r#"{"sha256": 7, "subscriber": "s", "plan": "free"}"#.to_owned(),
            row(&one, r#""subscriber": "s", "limits": {"standard": ["x"]}"#),
            row(&one, r#""subscriber": """#),
            row(&one, r#""subscriber": "s", "billing_anchor": "the 31st""#),
            row(&one, &format!(r#""subscriber": "{}""#, "x".repeat(70_000))),
            row(&one, &format!(r#""subscriber": "s", {parent}}}"#)),
            "null".to_owned(),
            "7".to_owned(),
            row(&two, r#""subscriber": "s", "billing_anchor": "2026-01-31""#),
            // For another configuration: it is stored, and counted here.
            row(&three, r#""subscriber": "s", "plan": "gold""#).replace(r#""plan": "free", "#, ""),
            row(&four, &format!(r#""subscriber": "s", {parent}, "limits": {{"standard": ["9/minute"]}}}}"#)),
        ];
        let page =
            read(&format!(r#"{{"keys": [{}], "removed": ["x", 7, "{one}"]}}"#, rows.join(","))).unwrap();
        let keys: Vec<_> = subscribers(&page).into_iter().map(|(byte, row)| (byte, row.is_some())).collect();
        assert_eq!(keys, [(4, false), (5, true), (6, true), (7, true)]);
        assert_eq!(page.skipped.rows, 10 + 1 + 2);
        assert_eq!(page.skipped.first.as_deref(), Some("in removed: not a SHA-256 in hexadecimal digits"));
        let limit = r#"of subscriber "s" on plan "free": limits, parent or billing_anchor cannot be read"#;
        let gold = r#"of subscriber "s" on plan "gold": plan: unknown plan, expected free, pro"#;
        for (row, expected) in [(3, limit), (11, gold)] {
            let page = read(&format!(r#"{{"keys": [{}]}}"#, rows[row])).unwrap();
            assert_eq!((page.skipped.rows, page.skipped.first.as_deref()), (1, Some(expected)));
        }
    }

    #[test]
    fn a_compressed_page_is_told_as_such() {
        assert_eq!(
            Page::read(b"\x1f\x8b\x08\0", &config("").catalog, &mut Anchors::new()).unwrap_err(),
            DirectoryError::Compressed
        );
    }

    #[test]
    fn a_malformed_page_says_how_far_it_was_read() {
        let good =
            format!(r#"{{"keys": [{{"sha256": "{}", "subscriber": "s", "plan": "pro"}}]}}"#, "01".repeat(32));
        let bytes = good.len();
        for end in 0..bytes {
            let found = read(&good[..end]).unwrap_err();
            let DirectoryError::Malformed { bytes, line: 1, column } = found else { panic!("{found:?}") };
            assert!(bytes == end && column <= end.max(1), "{end}: {found:?}");
        }
        let odd = [
            "[]",
            r#"[[]]"#,
            r#"["1"]"#,
            "null",
            "{}",
            r#"{"error": "no keys today"}"#,
            r#"{"removed": 7}"#,
            r#"{"keys": [], "keys": []}"#,
            r#"{"keys": {}}"#,
            r#"{"keys": [] "x": 1}"#,
            r#"{"keys": [],}"#,
            r#"{"keys": [,]}"#,
            r#"{"keys": [{} {}]}"#,
            r#"{"keys": [{},]}"#,
            r#"{"version": 7, "keys": []}"#,
            r#"{"keys": []} x"#,
            r#"{,"keys": []}"#,
            r#"{"keys" []}"#,
            r#"{keys: []}"#,
            r#"{"keys": [tru]}"#,
        ];
        for odd in odd {
            assert!(read(odd).is_err(), "{odd}");
        }
        assert!(read(&good).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn no_page_is_too_odd(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200), rows in "[\\[\\]{}\":,0-9a-z]{0,60}") {
            for body in [String::from_utf8_lossy(&body).into_owned(), format!(r#"{{"keys": [{rows}]}}"#)] {
                if let Ok(page) = read(&body) {
                    // No digest has fewer than 64 digits.
                    proptest::prop_assert!(page.rows.is_empty());
                }
            }
        }

        #[test]
        fn what_is_read_as_a_page_is_json(body in "[\\[\\]{}\":, 0-9ntrue]{0,30}") {
            for body in [body.clone(), format!(r#"{{"keys": [{body}]}}"#), format!(r#"{{"keys": []{body}}}"#)] {
                if read(&body).is_ok() {
                    proptest::prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok(), "{body}");
                }
            }
        }
    }
}
