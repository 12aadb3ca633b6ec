//! Expectations of a scenario that a gateway misses.

use std::{collections::BTreeMap, fmt};

use super::{
    mask::Masks,
    seen::{Asked, Fields, Message, Seen},
};
use crate::scenario::{Expect, ExpectedCall, Miss};

/// What is not as expected, apart from values that are not compared.
#[derive(Debug)]
pub(super) struct Misses<'a> {
    masks: &'a Masks<'a>,
    found: Vec<Miss>,
}

impl<'a> Misses<'a> {
    pub(super) fn new(masks: &'a Masks<'a>) -> Self {
        Self { masks, found: Vec::new() }
    }

    pub(super) fn found(&self) -> &[Miss] {
        &self.found
    }

    pub(super) fn add(&mut self, what: &str, expected: impl fmt::Display, found: impl fmt::Display) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.found.push(Miss { what: what.to_owned(), expected, found });
    }

    fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, expected: Option<T>, found: T) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.add(what, expected, found);
        }
    }

    fn text(&mut self, what: &str, expected: Option<&String>, found: &str) {
        self.compare(what, expected.map(|expected| self.masks.hide(expected)), self.masks.hide(found));
    }

    fn contains(&mut self, what: &str, part: Option<&String>, whole: &str) {
        if let Some(part) = part.filter(|part| !self.masks.contains(whole, part)) {
            self.add(what, part, self.masks.hide(whole));
        }
    }

    fn fields(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, found: &Fields) {
        for (name, expected) in expected {
            let found = found.get(name).map(|lines| lines.join(","));
            let shown = |value: Option<&String>| {
                value.map_or_else(|| "(absent)".to_owned(), |value| self.masks.header_value(name, value))
            };
            self.compare(&format!("{what}.{name}"), Some(shown(expected.as_ref())), shown(found.as_ref()));
        }
    }

    /// Looks at what was seen of a request.
    pub(super) fn seen(&mut self, expect: &Expect, seen: &Seen) {
        let nothing = Message::default();
        let forwarded = seen.forwarded.as_ref().unwrap_or(&nothing);
        self.compare("status", expect.status, seen.status);
        self.compare("ends", expect.ends, !seen.waits);
        self.compare("reset", expect.reset, seen.status == 0 && !seen.waits);
        self.text("body", expect.body.as_ref(), &seen.answer.body);
        self.contains("body_contains", expect.body_contains.as_ref(), &seen.answer.body);
        self.fields("headers", &expect.headers, &seen.answer.headers);
        self.fields("trailers", &expect.trailers, &seen.answer.trailers);
        self.compare("forwarded", expect.forwarded, seen.forwarded.is_some());
        self.fields("forwarded_headers", &expect.forwarded_headers, &forwarded.headers);
        self.fields("forwarded_trailers", &expect.forwarded_trailers, &forwarded.trailers);
        self.text("forwarded_body", expect.forwarded_body.as_ref(), &forwarded.body);
    }

    /// Looks at the calls to clusters.
    pub(super) fn callouts(&mut self, expected: &[ExpectedCall], asked: &[Asked]) {
        if expected.len() != asked.len() {
            self.add("callouts", format!("{} calls", expected.len()), format!("{} calls", asked.len()));
            return;
        }
        for (index, (expected, Asked { cluster, message, .. })) in expected.iter().zip(asked).enumerate() {
            let what = |field: &str| format!("callouts[{index}].{field}");
            self.compare(&what("cluster"), expected.cluster.as_ref(), cluster);
            self.fields(&what("headers"), &expected.headers, &message.headers);
            self.text(&what("body"), expected.body.as_ref(), &message.body);
            self.contains(&what("body_contains"), expected.body_contains.as_ref(), &message.body);
        }
    }

    /// Looks at log lines.
    pub(super) fn log(&mut self, expect: &Expect, log: &[String]) {
        for part in &expect.log {
            if !log.iter().any(|line| self.masks.contains(line, part)) {
                self.add("log", part, self.masks.hide(&log.join("\n")));
            }
        }
        for part in &expect.not_logged {
            if let Some(line) = log.iter().find(|line| line.contains(part)) {
                self.add("not_logged", format!("no line with {part:?}"), self.masks.hide(line));
            }
        }
    }
}
