//! The directory: known keys, fetched from a service that has them.
//!
//! Each VM polls by itself: `GET` with `If-None-Match`, so an answer without news is a few bytes. A good answer replaces the roster
//! whole; any other keeps it. The document is
//! `{"keys": [{"sha256": "<hex>", "subscriber": "acme", "plan": "pro", "limits": {"standard": ["5000/minute"]}}]}`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::roster::{Roster, RosterBuilder, Terms};
use crate::config::{DirectorySettings, Grants, parse_digest};
use crate::time::Timestamp;

/// Polls a directory and keeps what it answered last.
#[derive(Debug)]
pub struct Directory {
    settings: DirectorySettings,
    roster: Option<Arc<Roster>>,
    etag: Option<Vec<u8>>,
    last_poll: Option<Timestamp>,
    last_success: Option<Timestamp>,
    is_failing: bool,
}

/// A poll to be made: `GET` of this path.
#[derive(Debug, PartialEq, Eq)]
pub struct Poll<'d> {
    /// The gateway's cluster, also the `:authority`.
    pub cluster: &'d str,
    /// The path.
    pub path: &'d str,
    /// The value of `authorization`.
    pub authorization: Option<String>,
    /// The value of `if-none-match`.
    pub if_none_match: Option<&'d [u8]>,
    /// After so many milliseconds there is no answer.
    pub timeout: u32,
}

/// What a good answer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing changed.
    Unchanged,
    /// There is a new roster.
    Replaced {
        /// Rows that were left out: malformed, or of a key that stands twice.
        skipped: usize,
    },
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// There was none.
    #[error("no answer from cluster {0:?}")]
    NoAnswer(String),
    /// It was neither 200 nor 304.
    #[error("answered status {0}")]
    Status(String),
    /// It was no document.
    #[error("answered no directory: {0}")]
    Malformed(String),
    /// It has more keys than there are records for.
    #[error("counters.known: {available} records are fewer than the {needed} that the directory's keys need")]
    Capacity {
        /// As configured.
        available: u32,
        /// As needed.
        needed: usize,
    },
}

impl Directory {
    /// A directory that has not been asked yet.
    #[must_use]
    pub fn new(settings: DirectorySettings) -> Self {
        Self { settings, roster: None, etag: None, last_poll: None, last_success: None, is_failing: false }
    }

    /// The same directory under another configuration: what it answered stays in force.
    #[must_use]
    pub fn take_over(&self, settings: DirectorySettings) -> Self {
        Self {
            settings,
            roster: self.roster.clone(),
            etag: self.etag.clone(),
            last_poll: None,
            last_success: self.last_success,
            is_failing: false,
        }
    }

    /// What is polled.
    #[must_use]
    pub fn settings(&self) -> &DirectorySettings {
        &self.settings
    }

    /// The keys, unless there was no good answer yet or the last one is too long ago.
    #[must_use]
    pub fn roster(&self) -> Option<&Arc<Roster>> {
        self.roster.as_ref()
    }

    /// The poll that is due at `now`, if one is. It counts as made. A clock that stepped back makes it due at once.
    pub fn poll(&mut self, now: Timestamp) -> Option<Poll<'_>> {
        let interval = u64::from(self.settings.interval);
        let is_due = self.last_poll.is_none_or(|last| now < last || now.seconds_since(last) >= interval);
        if !is_due {
            return None;
        }
        self.last_poll = Some(now);
        Some(Poll {
            cluster: &self.settings.cluster,
            path: &self.settings.path,
            authorization: self.settings.bearer.as_ref().map(|token| format!("Bearer {token}")),
            if_none_match: self.etag.as_deref(),
            timeout: self.settings.timeout_milliseconds(),
        })
    }

    /// Takes the answer of a poll: its status and `etag`, `None` if there was none, and its body. `needs` says how many of the
    /// `available` records a roster's keys would need.
    ///
    /// # Errors
    /// If it was no good answer. What was known stays known.
    pub fn answer(
        &mut self,
        head: Option<(&[u8], Option<&[u8]>)>,
        body: &[u8],
        now: Timestamp,
        available: u32,
        needs: impl FnOnce(&Arc<Roster>) -> usize,
    ) -> Result<Update, DirectoryError> {
        let update = match head {
            None => return Err(DirectoryError::NoAnswer(self.settings.cluster.clone())),
            Some((b"304", _)) if self.roster.is_some() => Update::Unchanged,
            Some((b"200", etag)) => {
                let (roster, skipped) = parse(body)?;
                let roster = Arc::new(roster);
                let needed = needs(&roster);
                if usize::try_from(available).is_ok_and(|available| available < needed) {
                    return Err(DirectoryError::Capacity { available, needed });
                }
                self.roster = Some(roster);
                self.etag = etag.map(<[u8]>::to_vec);
                Update::Replaced { skipped }
            }
            Some((status, _)) => {
                return Err(DirectoryError::Status(String::from_utf8_lossy(status).into_owned()));
            }
        };
        self.last_success = Some(now);
        Ok(update)
    }

    /// Whether this is the first failure after a success, or the first success after a failure: what is worth a line in the log.
    pub fn turns(&mut self, fails: bool) -> bool {
        std::mem::replace(&mut self.is_failing, fails) != fails
    }

    /// Forgets the keys if the last good answer is longer ago than `max_stale`. Whether it did.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let max_stale = u64::from(self.settings.max_stale);
        let is_stale = max_stale > 0
            && self.roster.is_some()
            && self.last_success.is_some_and(|last| now.seconds_since(last) > max_stale);
        if is_stale {
            self.roster = None;
            self.etag = None;
        }
        is_stale
    }
}

fn parse(body: &[u8]) -> Result<(Roster, usize), DirectoryError> {
    let malformed = |error: serde_json::Error| DirectoryError::Malformed(error.to_string());
    let Document { keys: Rows { builder, malformed: rows } } =
        serde_json::from_slice(body).map_err(malformed)?;
    let (roster, twice) = builder.build();
    Ok((roster, rows + twice))
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
    #[serde(default)]
    limits: Grants,
}

/// The rows, taken one by one: a large document is never in memory twice.
struct Rows {
    builder: RosterBuilder,
    malformed: usize,
}

impl Rows {
    fn add(&mut self, row: &RawValue) -> Option<()> {
        let row: Row<'_> = serde_json::from_str(row.get()).ok()?;
        let digest = parse_digest(row.sha256.strip_prefix("sha256:").unwrap_or(&row.sha256))?;
        let terms = Terms { plan: row.plan.into_owned(), limits: row.limits.0 };
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
    use crate::config::NotReady;

    fn settings(max_stale: u32) -> DirectorySettings {
        DirectorySettings {
            cluster: "backend".into(),
            path: "/keys".into(),
            interval: 10,
            bearer: Some("token".into()),
            not_ready: NotReady::Pass,
            max_stale,
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn document(rows: &[&str]) -> String {
        format!(r#"{{"keys": [{}], "as_of": 7}}"#, rows.join(","))
    }

    fn row(byte: &str, plan: &str) -> String {
        format!(r#"{{"sha256": "{}", "subscriber": "s", "plan": "{plan}", "limits": {{}}}}"#, byte.repeat(32))
    }

    fn answer(
        directory: &mut Directory,
        status: &str,
        body: &str,
        now: u64,
    ) -> Result<Update, DirectoryError> {
        let head = Some((status.as_bytes(), Some(&b"\"v1\""[..])));
        directory.answer(head, body.as_bytes(), at(now), 2, |roster| roster.len())
    }

    #[test]
    fn it_is_polled_at_once_and_then_every_interval() {
        let mut directory = Directory::new(settings(0));
        for (now, is_due) in
            [(100, true), (100, false), (109, false), (110, true), (119, false), (50, true), (59, false)]
        {
            assert_eq!(directory.poll(at(now)).is_some(), is_due, "at {now}");
        }
        let expected = Poll {
            cluster: "backend",
            path: "/keys",
            authorization: Some("Bearer token".into()),
            if_none_match: None,
            timeout: 5000,
        };
        assert_eq!(directory.poll(at(200)), Some(expected));
    }

    #[test]
    fn a_good_answer_replaces_all_and_any_other_keeps_it() {
        let mut directory = Directory::new(settings(0));
        let (one, two) = (row("01", "free"), row("02", "pro"));
        let three = document(&[&one, &two, &row("03", "pro")]);
        let steps = [
            ("304", String::new(), Err(DirectoryError::Status("304".into())), None),
            ("200", document(&[&one]), Ok(Update::Replaced { skipped: 0 }), Some(1)),
            ("304", String::new(), Ok(Update::Unchanged), Some(1)),
            ("500", document(&[]), Err(DirectoryError::Status("500".into())), Some(1)),
            (
                "200",
                "[]".into(),
                Err(DirectoryError::Malformed("missing field `keys` at line 1 column 2".into())),
                Some(1),
            ),
            ("200", three, Err(DirectoryError::Capacity { available: 2, needed: 3 }), Some(1)),
            ("200", document(&[&two, &one]), Ok(Update::Replaced { skipped: 0 }), Some(2)),
            ("200", document(&[]), Ok(Update::Replaced { skipped: 0 }), Some(0)),
        ];
        for (status, body, expected, keys) in steps {
            let found = answer(&mut directory, status, &body, 100);
            match (&found, &expected) {
                (Err(DirectoryError::Malformed(_)), Err(DirectoryError::Malformed(_))) => {}
                _ => assert_eq!(found, expected, "{status} {body}"),
            }
            assert_eq!(directory.roster().map(|roster| roster.len()), keys, "{status} {body}");
        }
        let none = directory.answer(None, b"", at(100), 2, |roster| roster.len());
        assert_eq!(none, Err(DirectoryError::NoAnswer("backend".into())));
        assert_eq!(directory.poll(at(200)).unwrap().if_none_match, Some(&b"\"v1\""[..]));
    }

    #[test]
    fn a_bad_row_alone_is_left_out() {
        let mut directory = Directory::new(settings(0));
        let rows = [
            r#"{"sha256": "xyz", "subscriber": "s", "plan": "free"}"#,
            r#"{"subscriber": "s", "plan": "free"}"#,
            r#"{"sha256": 7, "subscriber": "s", "plan": "free"}"#,
            &format!(
                r#"{{"sha256": "{}", "subscriber": "s", "plan": "free", "limits": {{"standard": ["x"]}}}}"#,
                "04".repeat(32)
            ),
            "null",
            &row("05", "free"),
            &row("05", "pro"),
            &format!(
                r#"{{"sha256": "sha256:{}", "subscriber": "caf\u00e9", "plan": "free", "note": 1}}"#,
                "06".repeat(32)
            ),
        ];
        assert_eq!(answer(&mut directory, "200", &document(&rows), 100), Ok(Update::Replaced { skipped: 7 }));
        let roster = directory.roster().unwrap();
        let known = roster.find(&[6; 32]).and_then(|place| roster.at(place)).unwrap();
        assert_eq!(known.subscriber, "caf\u{e9}");
    }

    #[test]
    fn an_answer_is_believed_until_it_is_too_stale() {
        for (max_stale, now, expected) in
            [(0, 1_000_000, false), (60, 160, false), (60, 161, true), (60, 50, false)]
        {
            let mut directory = Directory::new(settings(max_stale));
            assert!(!directory.expire(at(now)));
            answer(&mut directory, "200", &document(&[&row("01", "free")]), 100).unwrap();
            assert_eq!(directory.expire(at(now)), expected, "{max_stale} s at {now}");
            assert_eq!(directory.roster().is_none(), expected);
            assert_eq!(directory.poll(at(now)).unwrap().if_none_match.is_none(), expected);
        }
    }

    #[test]
    fn a_failure_is_worth_a_line_once() {
        let mut directory = Directory::new(settings(0));
        let turns = [false, true, true, false, false, true].map(|fails| directory.turns(fails));
        assert_eq!(turns, [false, true, false, true, false, true]);
    }

    #[test]
    fn a_new_configuration_takes_over_what_is_known() {
        let mut before = Directory::new(settings(0));
        answer(&mut before, "200", &document(&[&row("01", "free")]), 100).unwrap();
        before.poll(at(100));
        let mut after = before.take_over(settings(60));
        assert_eq!(after.roster().unwrap().len(), 1);
        assert!(after.poll(at(101)).unwrap().if_none_match.is_some());
        assert!(after.expire(at(161)));
    }

    proptest::proptest! {
        #[test]
        fn no_document_is_too_odd(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200), rows in "[\\[\\]{}\":,0-9a-z]{0,60}") {
            let mut directory = Directory::new(settings(0));
            for body in [body, format!(r#"{{"keys": [{rows}]}}"#).into_bytes()] {
                if directory.answer(Some((b"200", None)), &body, at(1), 9, |roster| roster.len()).is_err() {
                    proptest::prop_assert!(directory.roster().is_none_or(|roster| roster.is_empty()));
                }
            }
        }
    }
}
