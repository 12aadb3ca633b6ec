//! Reads a page of the directory, some rows at a time, so that a worker never stands still for a page. serde_json reads each value in place;
//! only where one begins in the document is found out here.
//!
//! ```json
//! {"version": "1042", "since": "1040", "keys": [{"sha256": "<hex>", "subscriber": "acme", "plan": "pro", "limits": {}, "parent": {}}],
//!  "removed": ["<hex>"], "next": "…"}
//! ```
//! Nothing of a page counts before it was read to its end.

use core::mem;
use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::row::{push, terms};
use crate::config::{Catalog, parse_digest};
use crate::count::fingerprint::KeyDigest;

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The state of the service that the list has after this page and those that follow it; `None` if the service names none.
    pub(super) version: Option<String>,
    /// The version since which the page has the changes; `None` if it has all rows, or the first of them.
    pub(super) since: Option<String>,
    /// The cursor of the page that follows.
    pub(super) next: Option<String>,
    /// The rows, as they are stored.
    pub(super) rows: Vec<u8>,
    /// The keys that are gone.
    pub(super) removed: Vec<KeyDigest>,
    /// Rows that are malformed, or that this configuration has no plan or class for.
    pub(super) skipped: usize,
}

/// Where a page is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Before the document's brace.
    Nothing,
    /// Before the name of a field, the first or another.
    Fields { is_first: bool },
    /// Before an element of one of the two lists, the first or another.
    List { of_keys: bool, is_first: bool },
    /// After the last brace.
    End,
}

/// A page that is being read.
#[derive(Debug)]
pub(super) struct Reader {
    body: Vec<u8>,
    at: usize,
    within: Within,
    has_keys: bool,
    page: Page,
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
}

impl Reader {
    pub(super) fn new(body: Vec<u8>) -> Self {
        // A row is shorter than its JSON, and is never copied to make room for more.
        let rows = Vec::with_capacity(body.len() / 4 * 3);
        let page = Page { rows, ..Page::default() };
        Self { body, at: 0, within: Within::Nothing, has_keys: false, page }
    }

    /// Reads one row, or one field. `true` at the end of the page.
    pub(super) fn step(&mut self, catalog: &Catalog) -> Result<bool, Malformed> {
        match self.advance(catalog) {
            Some(()) => Ok(self.within == Within::End),
            None => Err(Malformed { at: self.at, bytes: self.body.len() }),
        }
    }

    /// The page, once it was read.
    pub(super) fn page(&mut self) -> Page {
        mem::take(&mut self.page)
    }

    fn advance(&mut self, catalog: &Catalog) -> Option<()> {
        match self.within {
            Within::Nothing => {
                self.expect(b'{')?;
                self.within = Within::Fields { is_first: true };
            }
            Within::Fields { is_first } => {
                if self.takes(b'}') {
                    self.skip_space();
                    self.within = Within::End;
                    return (self.has_keys && self.at == self.body.len()).then_some(());
                }
                if !is_first {
                    self.expect(b',')?;
                }
                self.within = Within::Fields { is_first: false };
                self.field()?;
            }
            Within::List { of_keys, is_first } => {
                if self.takes(b']') {
                    self.within = Within::Fields { is_first: false };
                    return Some(());
                }
                if !is_first {
                    self.expect(b',')?;
                }
                self.within = Within::List { of_keys, is_first: false };
                let Self { body, at, page, .. } = self;
                let is_good = match of_keys {
                    true => element(body, at)?.and_then(|row| page.add(&row, catalog)),
                    false => element(body, at)?.and_then(|digest: Cow<'_, str>| page.remove(&digest)),
                };
                page.skipped += usize::from(is_good.is_none());
            }
            Within::End => {}
        }
        Some(())
    }

    fn field(&mut self) -> Option<()> {
        let name: Cow<'_, str> = value(&self.body, &mut self.at)?;
        let is_list = match &*name {
            "keys" => Some(true),
            "removed" => Some(false),
            _ => None,
        };
        let page = &mut self.page;
        let text = match &*name {
            "version" => Some(&mut page.version),
            "since" => Some(&mut page.since),
            "next" => Some(&mut page.next),
            _ => None,
        };
        take(&self.body, &mut self.at, b':').then_some(())?;
        if let Some(of_keys) = is_list {
            self.expect(b'[')?;
            self.has_keys |= of_keys;
            self.within = Within::List { of_keys, is_first: true };
        } else if let Some(text) = text {
            *text = value(&self.body, &mut self.at)?;
        } else {
            let _: IgnoredAny = value(&self.body, &mut self.at)?;
        }
        Some(())
    }

    fn skip_space(&mut self) {
        skip_space(&self.body, &mut self.at);
    }

    fn takes(&mut self, byte: u8) -> bool {
        take(&self.body, &mut self.at, byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.takes(byte).then_some(())
    }
}

impl Page {
    /// Adds a row. `None` if it is malformed, or if the configuration has no plan or class for it: such a row is for another configuration.
    fn add(&mut self, row: &JsonRow<'_>, catalog: &Catalog) -> Option<()> {
        let digest = parse_digest(row.sha256.strip_prefix("sha256:").unwrap_or(&row.sha256))?;
        let limits = row.limits.map(RawValue::get).filter(|limits| *limits != "{}").unwrap_or_default();
        let parent = row.parent.map(RawValue::get).unwrap_or_default();
        let own = match (limits, parent) {
            // Nearly all rows.
            ("", "") => None,
            _ => Some(terms(&row.plan, limits, parent)?),
        };
        let is_added = !row.subscriber.is_empty()
            && push(&mut self.rows, &digest, [&row.plan, &row.subscriber, limits, parent]);
        let is_for_this =
            own.map_or_else(|| catalog.grants(&row.plan), |own| catalog.agreement(&own).is_ok());
        (is_added && is_for_this).then_some(())
    }

    fn remove(&mut self, digest: &str) -> Option<()> {
        self.removed.push(parse_digest(digest.strip_prefix("sha256:").unwrap_or(digest))?);
        Some(())
    }
}

/// The element that begins at `at`, which then is after it; `Some(None)` if it is another kind of value than it should be.
fn element<'b, T: Deserialize<'b>>(body: &'b [u8], at: &mut usize) -> Option<Option<T>> {
    match value(body, at) {
        Some(element) => Some(Some(element)),
        None => value::<IgnoredAny>(body, at).map(|_| None),
    }
}

/// The value that begins at `at`, which then is after it.
fn value<'b, T: Deserialize<'b>>(body: &'b [u8], at: &mut usize) -> Option<T> {
    let mut values = serde_json::Deserializer::from_slice(body.get(*at..)?).into_iter::<T>();
    let value = values.next()?.ok()?;
    *at += values.byte_offset();
    Some(value)
}

fn skip_space(body: &[u8], at: &mut usize) {
    let space = body.get(*at..).unwrap_or_default().iter().take_while(|byte| b" \n\t\r".contains(byte));
    *at += space.count();
}

fn take(body: &[u8], at: &mut usize, byte: u8) -> bool {
    skip_space(body, at);
    let found = body.get(*at) == Some(&byte);
    *at += usize::from(found);
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::row::split_first;
    use super::*;
    use crate::config::Config;

    pub(in super::super) fn config(more: &str) -> Config {
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}, "pro": {{"standard": ["600/minute"]}}}},
                "directory": {{"cluster": "backend", "path": "/keys"{more}}}}}"#
        );
        Config::from_json(json.as_bytes()).unwrap()
    }

    fn read(body: &str) -> Result<Page, Malformed> {
        let config = config("");
        let mut reader = Reader::new(body.as_bytes().to_vec());
        while !reader.step(&config.catalog)? {}
        Ok(reader.page())
    }

    fn subscribers(page: &Page) -> Vec<(u8, String)> {
        let mut rest = &page.rows[..];
        core::iter::from_fn(|| {
            let (row, more) = split_first(rest)?;
            rest = more;
            Some((row.digest[0], row.subscriber().unwrap().to_owned()))
        })
        .collect()
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
        assert_eq!(subscribers(&page), [(1, "a".to_owned()), (2, "caf\u{e9}".to_owned())]);
        let [version, since, next] = [&page.version, &page.since, &page.next].map(Option::as_deref);
        assert_eq!((version, since, next), (Some("v2"), Some("v1"), Some("c1")));
        assert_eq!((&page.removed[..], page.skipped), (&[[3; 32]][..], 0));
        let bare = read(r#"{"keys":[]}"#).unwrap();
        assert_eq!(bare, Page::default());
        assert_eq!(read(r#"{"keys":[],"next":null,"version":null}"#).unwrap(), Page::default());
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
            row(&one, &format!(r#""subscriber": "{}""#, "x".repeat(70_000))),
            row(&one, &format!(r#""subscriber": "s", {parent}}}"#)),
            "null".to_owned(),
            "7".to_owned(),
            row(&two, r#""subscriber": "s""#),
            // For another configuration: it is stored, and counted here.
            row(&three, r#""subscriber": "s", "plan": "gold""#).replace(r#""plan": "free", "#, ""),
            row(&four, &format!(r#""subscriber": "s", {parent}, "limits": {{"standard": ["9/minute"]}}}}"#)),
        ];
        let page =
            read(&format!(r#"{{"keys": [{}], "removed": ["x", 7, "{one}"]}}"#, rows.join(","))).unwrap();
        assert_eq!(subscribers(&page).into_iter().map(|(byte, _)| byte).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!((page.skipped, page.removed.len()), (9 + 1 + 2, 1));
    }

    #[test]
    fn a_malformed_page_says_how_far_it_was_read() {
        let good =
            format!(r#"{{"keys": [{{"sha256": "{}", "subscriber": "s", "plan": "pro"}}]}}"#, "01".repeat(32));
        let bytes = good.len();
        for end in 0..bytes {
            let found = read(&good[..end]).unwrap_err();
            assert!(found.bytes == end && found.at <= end, "{end}: {found:?}");
        }
        let odd = [
            "[]",
            "null",
            "{}",
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
                    proptest::prop_assert!(serde_json::from_str::<IgnoredAny>(&body).is_ok(), "{body}");
                }
            }
        }
    }
}
