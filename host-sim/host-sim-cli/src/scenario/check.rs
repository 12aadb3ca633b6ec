//! Compares what a step has come to with what is expected of it.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::{
    expect::{Expect, ExpectedCall},
    mask::Masks,
    seen::{Called, Fields, Seen},
};

/// The lines of a header, joined with commas.
fn joined(fields: &Fields, name: &str) -> Option<String> {
    fields.get(&name.to_ascii_lowercase()).map(|lines| lines.join(","))
}

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Miss {
    /// What: `status`, `headers.retry-after`, …
    pub what: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// What is not as expected in a step, apart from values that are not compared.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    masks: &'a Masks<'a>,
    pub(crate) misses: Vec<Miss>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(masks: &'a Masks<'a>) -> Self {
        Self { masks, misses: Vec::new() }
    }

    pub(crate) fn miss(&mut self, what: &str, expected: impl fmt::Display, found: impl fmt::Display) {
        let (expected, found) = (expected.to_string(), found.to_string());
        let miss = Miss { what: what.to_owned(), expected, found };
        // A repeated request misses the same way many times over.
        if !self.misses.contains(&miss) {
            self.misses.push(miss);
        }
    }

    pub(crate) fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, expected: Option<T>, found: T) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.miss(what, expected, found);
        }
    }

    fn text(&mut self, what: &str, expected: Option<&String>, found: &str) {
        self.compare(what, expected.map(|expected| self.masks.hide(expected)), self.masks.hide(found));
    }

    fn contains(&mut self, what: &str, part: Option<&String>, whole: &str) {
        if let Some(part) = part.filter(|part| !self.masks.contains(whole, part)) {
            self.miss(what, part, self.masks.hide(whole));
        }
    }

    fn fields(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, found: Option<&Fields>) {
        for (name, expected) in expected {
            let shown = |value: Option<&String>| {
                value.map_or_else(|| "(absent)".to_owned(), |value| self.masks.header_value(name, value))
            };
            let found = found.and_then(|found| joined(found, name));
            self.compare(&format!("{what}.{name}"), Some(shown(expected.as_ref())), shown(found.as_ref()));
        }
    }

    /// Looks at what became of a request.
    pub(crate) fn seen(&mut self, expect: &Expect, seen: &Seen) {
        if let Some(local_reply) = seen.local_reply {
            self.compare("local_reply", expect.local_reply, local_reply);
        }
        if let Some(details) = &seen.details {
            self.compare("details", expect.details.as_ref(), details);
        }
        self.compare("status", expect.status, seen.status);
        self.compare("ends", expect.ends, seen.ends);
        self.compare("reset", expect.reset, seen.reset);
        self.text("body", expect.body.as_ref(), &seen.answer.body);
        self.contains("body_contains", expect.body_contains.as_ref(), &seen.answer.body);
        self.fields("headers", &expect.headers, Some(&seen.answer.headers));
        self.fields("trailers", &expect.trailers, Some(&seen.answer.trailers));
        self.compare("forwarded", expect.forwarded, seen.forwarded.is_some());
        match &seen.forwarded {
            Some(forwarded) => {
                self.fields("forwarded_headers", &expect.forwarded_headers, Some(&forwarded.headers));
                self.fields("forwarded_trailers", &expect.forwarded_trailers, Some(&forwarded.trailers));
                self.text("forwarded_body", expect.forwarded_body.as_ref(), &forwarded.body);
            }
            None if expect.forwarded_headers.is_empty()
                && expect.forwarded_trailers.is_empty()
                && expect.forwarded_body.is_none() => {}
            None => self.miss("forwarded_headers", "a forwarded request", "none"),
        }
    }

    /// Looks at the calls to clusters.
    pub(crate) fn callouts(&mut self, expected: &[ExpectedCall], made: &[Called]) {
        if expected.len() != made.len() {
            let line = |Called { cluster, message }: &Called| {
                let header = |name| joined(&message.headers, name).unwrap_or_default();
                format!("{cluster}: {} {}", header(":method"), header(":path"))
            };
            let lines: Vec<_> = made.iter().map(line).collect();
            let found = if lines.is_empty() { "none".to_owned() } else { lines.join("\n") };
            let plural = if expected.len() == 1 { "" } else { "s" };
            return self.miss("callouts", format_args!("{} call{plural}", expected.len()), found);
        }
        for (index, (expected, Called { cluster, message: made })) in expected.iter().zip(made).enumerate() {
            let what = |field: &str| format!("callouts[{index}].{field}");
            self.compare(&what("cluster"), expected.cluster.as_ref(), cluster);
            self.fields(&what("headers"), &expected.headers, Some(&made.headers));
            self.text(&what("body"), expected.body.as_ref(), &made.body);
            self.contains(&what("body_contains"), expected.body_contains.as_ref(), &made.body);
        }
    }

    /// Looks at what the filters have logged.
    pub(crate) fn log(&mut self, expect: &Expect, lines: &[&str]) {
        for part in &expect.log {
            if !lines.iter().any(|line| self.masks.contains(line, part)) {
                self.miss("log", part, self.masks.hide(&lines.join("\n")));
            }
        }
        for part in &expect.not_logged {
            if let Some(line) = lines.iter().find(|line| line.contains(part)) {
                self.miss("not_logged", format_args!("no line with {part:?}"), self.masks.hide(line));
            }
        }
    }
}
