//! The directory: known keys, fetched from a service.
//!
//! Each VM polls for itself: `GET` with `If-None-Match`, so an answer without changes is a few bytes. A good answer replaces the
//! roster as a whole; any other answer keeps it. The roster holds every row of the document. [`entitled`] picks the keys that a
//! configuration has plans and records for, so the ETag stays valid for a configuration with other plans or a larger capacity.

mod document;
mod polling;

use std::sync::Arc;
use std::time::Duration;

use self::document::parse;
use self::polling::Schedule;
use crate::config::roster::Roster;
use crate::config::{Config, DirectorySettings, Subscribers};
use crate::count::shared_data::HostError;
use crate::time::Timestamp;

/// Polls a directory and keeps its last good answer.
#[derive(Debug)]
pub struct Directory {
    settings: DirectorySettings,
    schedule: Schedule,
    roster: Option<Arc<Roster>>,
    etag: Option<Vec<u8>>,
    last_success: Option<Timestamp>,
    /// The failure that was logged last, unless there has been a good answer since.
    failure: Option<DirectoryError>,
}

/// A poll to send: `GET` of this path.
#[derive(Debug, PartialEq, Eq)]
pub struct Poll<'d> {
    /// The gateway's cluster.
    pub cluster: &'d str,
    /// The `:authority`.
    pub authority: &'d str,
    /// The path.
    pub path: &'d str,
    /// The value of `authorization`.
    pub authorization: Option<String>,
    /// The value of `if-none-match`.
    pub if_none_match: Option<&'d [u8]>,
    /// Longest wait for the answer, in milliseconds.
    pub timeout: u32,
}

/// The effect of a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The roster has not changed.
    Unchanged,
    /// There is a new roster.
    Replaced {
        /// Number of rows that are left out because they are malformed or repeat a key.
        skipped: usize,
    },
}

/// Numbers of keys of a roster that are not known under a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The configuration lacks their plan or a class of their limits.
    pub without_agreement: usize,
    /// The keys before them need all records of `counters.known`.
    pub over_capacity: usize,
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// The host has no such cluster.
    #[error("this gateway has no cluster {0:?}; add it, or correct directory.cluster")]
    NoCluster(String),
    /// The host did not send the poll.
    #[error("cluster {0:?}: {1}")]
    NotSent(String, HostError),
    /// There was none. A host that breaks off a large answer hands over none of it.
    #[error(
        "no answer from cluster {0:?}: the call failed, took longer than {1} ms, or the gateway broke off an answer that is too large \
         (over 32 MiB in Envoy: http.async_response_buffer_limit)"
    )]
    NoAnswer(String, u32),
    /// Its status was neither 200 nor 304.
    #[error("answered status {0}")]
    Status(String),
    /// It was not a document.
    #[error("answered a malformed document: {0}")]
    Malformed(String),
}

impl Directory {
    /// A directory that has not been polled yet. `jitter` is a random number that spreads the retries of a gateway's VMs.
    #[must_use]
    pub fn new(settings: DirectorySettings, jitter: u8) -> Self {
        let schedule = Schedule::new(interval(&settings), jitter);
        Self { settings, schedule, roster: None, etag: None, last_success: None, failure: None }
    }

    /// The same directory under another configuration: its last answer stays in force.
    #[must_use]
    pub fn take_over(&self, settings: DirectorySettings) -> Self {
        Self {
            schedule: self.schedule.renewed(interval(&settings), self.roster.is_some()),
            settings,
            roster: self.roster.clone(),
            etag: self.etag.clone(),
            last_success: self.last_success,
            failure: None,
        }
    }

    /// The settings of the polls.
    #[must_use]
    pub fn settings(&self) -> &DirectorySettings {
        &self.settings
    }

    /// The keys; `None` before the first good answer and when the last one is older than `max_stale`.
    #[must_use]
    pub fn roster(&self) -> Option<&Arc<Roster>> {
        self.roster.as_ref()
    }

    /// The poll that is due at `now`, if one is. It counts as sent.
    pub fn poll(&mut self, now: Timestamp) -> Option<Poll<'_>> {
        if !self.schedule.is_due(now) {
            return None;
        }
        self.schedule.sent(now);
        Some(Poll {
            cluster: &self.settings.cluster,
            authority: self.settings.authority(),
            path: &self.settings.path,
            authorization: self.settings.bearer.as_ref().map(|token| format!("Bearer {}", token.expose())),
            if_none_match: self.etag.as_deref(),
            timeout: self.settings.timeout_milliseconds(),
        })
    }

    /// Takes the failure of a host to send a poll. Envoy answers an unknown cluster with BadArgument.
    pub fn not_sent(&mut self, error: HostError, now: Timestamp) -> DirectoryError {
        self.schedule.failed(now);
        let cluster = self.settings.cluster.to_string();
        match error.is_bad_argument() {
            true => DirectoryError::NoCluster(cluster),
            false => DirectoryError::NotSent(cluster, error),
        }
    }

    /// Takes the answer of a poll: its status and `etag`, or `None` if there was no answer, and its body.
    ///
    /// # Errors
    /// If the answer is not good. The keys of the last good answer stay known.
    pub fn answer(
        &mut self,
        head: Option<(&[u8], Option<&[u8]>)>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Update, DirectoryError> {
        let update = self.take(head, body);
        match update {
            Ok(_) => {
                self.last_success = Some(now);
                self.schedule.succeeded();
            }
            Err(_) => self.schedule.failed(now),
        }
        update
    }

    fn take(&mut self, head: Option<(&[u8], Option<&[u8]>)>, body: &[u8]) -> Result<Update, DirectoryError> {
        match head {
            None => {
                let timeout = self.settings.timeout_milliseconds();
                Err(DirectoryError::NoAnswer(self.settings.cluster.to_string(), timeout))
            }
            Some((b"304", _)) if self.roster.is_some() => Ok(Update::Unchanged),
            Some((b"200", etag)) => {
                let (roster, skipped) =
                    parse(body).map_err(|error| DirectoryError::Malformed(error.to_string()))?;
                self.roster = Some(Arc::new(roster));
                self.etag = etag.map(<[u8]>::to_vec);
                Ok(Update::Replaced { skipped })
            }
            Some((status, _)) => Err(DirectoryError::Status(String::from_utf8_lossy(status).into_owned())),
        }
    }

    /// Whether a result is another than the last: a new failure, or the first success after one. Only these are logged.
    pub fn is_news(&mut self, failure: Option<&DirectoryError>) -> bool {
        let is_news = self.failure.as_ref() != failure;
        if is_news {
            self.failure = failure.cloned();
        }
        is_news
    }

    /// Drops the keys if the last good answer is older than `max_stale`. Returns whether it dropped them.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        // `max_stale` is in whole seconds.
        let max_stale = u64::from(self.settings.max_stale.0);
        let is_stale = max_stale > 0
            && self.roster.is_some()
            && self.last_success.is_some_and(|last| now.duration_since(last).as_secs() > max_stale);
        if is_stale {
            self.roster = None;
            self.etag = None;
        }
        is_stale
    }
}

fn interval(settings: &DirectorySettings) -> Duration {
    Duration::from_secs(settings.interval.0.into())
}

/// The keys of `roster` that `config` has plans, classes and records for. The configuration's own subscribers come first; the
/// remaining records of `counters.known` go to the keys of the directory in the order of its document.
#[must_use]
pub fn entitled(roster: Arc<Roster>, config: &Config) -> (Subscribers, LeftOut) {
    let mut subscribers = Subscribers::new(roster, &config.catalog);
    let without_agreement = subscribers.without_agreement();
    let capacity = usize::try_from(config.settings.counters.known).unwrap_or(usize::MAX);
    let records = capacity.saturating_sub(config.subscribers.records(config.settings.count_by));
    let over_capacity = subscribers.limit(records, config.settings.count_by);
    (subscribers, LeftOut { without_agreement, over_capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(max_stale: u32) -> DirectorySettings {
        let json = format!(
            r#"{{"plans": {{"free": {{"standard": ["60/minute"]}}}}, "directory": {{
                "cluster": "backend", "path": "/keys", "authority": "links.internal", "bearer": "token", "max_stale": "{max_stale}s"
            }}}}"#
        );
        Config::from_json(json.as_bytes()).unwrap().settings.directory.unwrap()
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
        directory.answer(head, body.as_bytes(), at(now))
    }

    #[test]
    fn a_poll_is_sent_when_it_is_due_and_sooner_after_a_failure() {
        let mut directory = Directory::new(settings(0), 0);
        let expected = Poll {
            cluster: "backend",
            authority: "links.internal",
            path: "/keys",
            authorization: Some("Bearer token".into()),
            if_none_match: None,
            timeout: 5000,
        };
        assert_eq!(directory.poll(at(100)), Some(expected));
        // now, the status of an answer, whether a poll is due
        let steps = [
            (100, None, false),
            (100, Some("503"), false),
            (101, None, true),
            (101, Some("200"), false),
            (110, None, false),
            (111, Some("304"), true),
            (111, Some("503"), false),
            (113, None, false),
            (114, None, true),
            (50, None, true),
        ];
        let document = document(&[]);
        for (now, status, is_due) in steps {
            if let Some(status) = status {
                let _ = answer(&mut directory, status, &document, now);
            }
            assert_eq!(directory.poll(at(now)).is_some(), is_due, "at {now}");
        }
    }

    #[test]
    fn a_good_answer_replaces_all_and_any_other_keeps_it() {
        let mut directory = Directory::new(settings(0), 0);
        let (one, two) = (row("01", "free"), row("02", "pro"));
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
        let none = directory.answer(None, b"", at(100));
        assert_eq!(none, Err(DirectoryError::NoAnswer("backend".into(), 5000)));
        assert_eq!(directory.poll(at(200)).unwrap().if_none_match, Some(&b"\"v1\""[..]));
    }

    #[test]
    fn an_answer_is_believed_until_it_is_too_stale() {
        for (max_stale, now, expected) in
            [(0, 1_000_000, false), (60, 160, false), (60, 161, true), (60, 50, false)]
        {
            let mut directory = Directory::new(settings(max_stale), 0);
            assert!(!directory.expire(at(now)));
            answer(&mut directory, "200", &document(&[&row("01", "free")]), 100).unwrap();
            assert_eq!(directory.expire(at(now)), expected, "{max_stale} s at {now}");
            assert_eq!(directory.roster().is_none(), expected);
            assert_eq!(directory.poll(at(now)).unwrap().if_none_match.is_none(), expected);
        }
    }

    #[test]
    fn a_failure_is_worth_a_line_once_and_again_when_it_changes() {
        let mut directory = Directory::new(settings(0), 0);
        let status = |status: &str| Some(DirectoryError::Status(status.into()));
        let no_cluster = || {
            let unknown = HostError { call: "proxy_http_call", status: 2 };
            Some(Directory::new(settings(0), 0).not_sent(unknown, at(100)))
        };
        // the failure of a poll, and whether it is logged
        let steps = [
            (None, false),
            (no_cluster(), true),
            (no_cluster(), false),
            (status("503"), true),
            (status("503"), false),
            (status("401"), true),
            (None, true),
            (None, false),
            (status("401"), true),
        ];
        for (step, (failure, is_news)) in steps.into_iter().enumerate() {
            assert_eq!(directory.is_news(failure.as_ref()), is_news, "step {step}: {failure:?}");
        }
        let message = no_cluster().unwrap().to_string();
        assert_eq!(message, r#"this gateway has no cluster "backend"; add it, or correct directory.cluster"#);
    }

    #[test]
    fn a_new_configuration_takes_over_what_is_known() {
        let mut before = Directory::new(settings(0), 0);
        answer(&mut before, "200", &document(&[&row("01", "free")]), 100).unwrap();
        before.poll(at(100));
        let mut after = before.take_over(settings(60));
        assert_eq!(after.roster().unwrap().len(), 1);
        assert!(after.poll(at(101)).unwrap().if_none_match.is_some());
        assert!(after.expire(at(161)));
    }

    #[test]
    fn a_document_over_capacity_is_known_up_to_it_in_its_order() {
        let config = |known: u32, count_by: &str| {
            let json = format!(
                r#"{{"plans": {{"free": {{"standard": ["1/minute"]}},
                                "pro": {{"standard": ["1/minute"], "analytics": ["1/second"]}}}},
                    "classes": [{{"name": "analytics", "match": [{{"path": "/a"}}]}}],
                    "subscribers": [{{"id": "own", "plan": "free", "keys": ["sha256:{}"]}}],
                    "counters": {{"known": {known}, "strangers": 4}}, "count_by": "{count_by}"}}"#,
                "ff".repeat(32)
            );
            Config::from_json(json.as_bytes()).unwrap()
        };
        let row = |(byte, subscriber, plan): &(u8, &str, &str)| {
            let digest = format!("{byte:02x}").repeat(32);
            let (plan, more) = match *plan {
                "pooled" => {
                    ("free", r#", "parent": {"organisation": "acme", "limits": {"standard": ["9/day"]}}"#)
                }
                plan => (plan, ""),
            };
            format!(r#"{{"sha256": "{digest}", "subscriber": "{subscriber}", "plan": "{plan}"{more}}}"#)
        };
        let all = [
            (9, "a", "free"),
            (3, "b", "pro"),
            (7, "b", "free"),
            (5, "c", "gold"),
            (1, "a", "pro"),
            (8, "d", "free"),
        ];
        let without_b = [all[0], all[3], all[4], all[5]];
        let pooled = [(9, "a", "pooled"), (5, "c", "gold"), (3, "b", "pooled"), (7, "b", "pooled")];
        // rows, records, `count_by`, the keys that are known, in the order of the document, and the number over capacity
        let cases = [
            (&all[..], 64, "key", &[9, 3, 7, 1, 8][..], 0),
            (&all, 8, "key", &[9, 3, 7, 1, 8], 0),
            (&all, 7, "key", &[9, 3, 7, 1], 1),
            (&all, 6, "key", &[9, 3, 7], 2),
            (&all, 5, "key", &[9, 3, 7], 2),
            (&all, 3, "key", &[9], 4),
            (&all, 1, "key", &[], 5),
            (&all, 6, "subscriber", &[9, 3, 7, 1, 8], 0),
            (&all, 5, "subscriber", &[9, 3, 7, 1], 1),
            (&all, 4, "subscriber", &[9, 3, 7], 2),
            // A revoked key is unknown, and its records are there for the keys after it.
            (&without_b, 4, "key", &[9, 1], 1),
            // An organisation has a record of its own.
            (&pooled, 5, "key", &[9, 3, 7], 0),
            (&pooled, 4, "key", &[9, 3], 1),
            (&pooled, 2, "key", &[], 3),
            (&pooled, 4, "subscriber", &[9, 3, 7], 0),
        ];
        for (rows, known, count_by, expected, over_capacity) in cases {
            let what = format!("{known} records by {count_by}, {} rows", rows.len());
            let mut directory = Directory::new(settings(0), 0);
            let bytes: Vec<_> = rows.iter().map(|(byte, ..)| *byte).collect();
            let rows: Vec<_> = rows.iter().map(row).collect();
            let rows: Vec<_> = rows.iter().map(String::as_str).collect();
            let update = answer(&mut directory, "200", &document(&rows), 100);
            assert_eq!(update, Ok(Update::Replaced { skipped: 0 }), "{what}");
            let config = config(known, count_by);
            let (subscribers, left_out) = entitled(Arc::clone(directory.roster().unwrap()), &config);
            let found = bytes.into_iter().filter(|byte| subscribers.get(&[*byte; 32]).is_some());
            assert_eq!(found.collect::<Vec<_>>(), expected, "{what}");
            assert_eq!(left_out, LeftOut { without_agreement: 1, over_capacity }, "{what}");
            assert!(subscribers.records(config.settings.count_by) < known as usize, "{what}");
            assert_eq!(directory.poll(at(200)).unwrap().if_none_match, Some(&b"\"v1\""[..]), "{what}");
        }
    }
}
