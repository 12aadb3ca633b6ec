//! Compares what a step has come to with what is expected of it.

use std::{collections::BTreeMap, fmt};

use host_sim::{Headers, Host, MetricValue};

use super::{
    expect::{Expect, ExpectedCall},
    mask::Masks,
};

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// What: `status`, `headers.retry-after`, …
    pub what: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// Headers or trailers.
pub(crate) trait Fields {
    /// The lines of this name, joined with commas.
    fn joined(&self, name: &str) -> Option<String>;
}

impl Fields for Headers {
    fn joined(&self, name: &str) -> Option<String> {
        let lines: Vec<_> = self.get_all(name).map(|line| String::from_utf8_lossy(line)).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

impl Fields for BTreeMap<String, Vec<String>> {
    fn joined(&self, name: &str) -> Option<String> {
        self.get(name).map(|lines| lines.join(","))
    }
}

/// A message as its receiver has it.
pub(crate) struct Found<'a> {
    pub(crate) headers: &'a dyn Fields,
    pub(crate) body: String,
    pub(crate) trailers: Option<&'a dyn Fields>,
}

/// What became of a request.
pub(crate) struct Seen<'a> {
    pub(crate) status: u16,
    /// Whether the client waits for nothing more.
    pub(crate) ends: bool,
    /// Whether the connection was broken off.
    pub(crate) reset: bool,
    pub(crate) answer: Found<'a>,
    /// The request as the upstream has it, if it came there.
    pub(crate) forwarded: Option<Found<'a>>,
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

    fn fields(
        &mut self,
        what: &str,
        expected: &BTreeMap<String, Option<String>>,
        found: Option<&dyn Fields>,
    ) {
        for (name, expected) in expected {
            let shown = |value: Option<&String>| {
                value.map_or_else(|| "(absent)".to_owned(), |value| self.masks.header_value(name, value))
            };
            let found = found.and_then(|found| found.joined(name));
            self.compare(&format!("{what}.{name}"), Some(shown(expected.as_ref())), shown(found.as_ref()));
        }
    }

    /// Looks at what became of a request.
    pub(crate) fn seen(&mut self, expect: &Expect, seen: &Seen<'_>) {
        self.compare("status", expect.status, seen.status);
        self.compare("ends", expect.ends, seen.ends);
        self.compare("reset", expect.reset, seen.reset);
        self.text("body", expect.body.as_ref(), &seen.answer.body);
        self.contains("body_contains", expect.body_contains.as_ref(), &seen.answer.body);
        self.fields("headers", &expect.headers, Some(seen.answer.headers));
        self.fields("trailers", &expect.trailers, seen.answer.trailers);
        self.compare("forwarded", expect.forwarded, seen.forwarded.is_some());
        match &seen.forwarded {
            Some(forwarded) => {
                self.fields("forwarded_headers", &expect.forwarded_headers, Some(forwarded.headers));
                self.fields("forwarded_trailers", &expect.forwarded_trailers, forwarded.trailers);
                self.text("forwarded_body", expect.forwarded_body.as_ref(), &forwarded.body);
            }
            None if expect.forwarded_headers.is_empty()
                && expect.forwarded_trailers.is_empty()
                && expect.forwarded_body.is_none() => {}
            None => self.miss("forwarded_headers", "a forwarded request", "none"),
        }
    }

    /// Looks at the calls to clusters, each with its cluster's name.
    pub(crate) fn callouts(&mut self, expected: &[ExpectedCall], made: &[(&String, Found<'_>)]) {
        if expected.len() != made.len() {
            let line = |(cluster, call): &(&String, Found<'_>)| {
                let header = |name| call.headers.joined(name).unwrap_or_default();
                format!("{cluster}: {} {}", header(":method"), header(":path"))
            };
            let lines: Vec<_> = made.iter().map(line).collect();
            let found = if lines.is_empty() { "none".to_owned() } else { lines.join("\n") };
            let plural = if expected.len() == 1 { "" } else { "s" };
            return self.miss("callouts", format_args!("{} call{plural}", expected.len()), found);
        }
        for (index, (expected, (cluster, made))) in expected.iter().zip(made).enumerate() {
            let what = |field: &str| format!("callouts[{index}].{field}");
            self.compare(&what("cluster"), expected.cluster.as_ref(), *cluster);
            self.fields(&what("headers"), &expected.headers, Some(made.headers));
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

    /// Looks at what the host shows after a step.
    pub(super) fn host(&mut self, expect: &Expect, host: &Host) {
        let metrics: BTreeMap<_, _> = host.metrics().all().into_iter().collect();
        for (name, expected) in &expect.metrics {
            let what = format!("metrics.{name}");
            match metrics.get(name) {
                Some(MetricValue::Counter(found) | MetricValue::Gauge(found)) => {
                    self.compare(&what, Some(expected), found);
                }
                Some(MetricValue::Histogram(_)) => self.miss(&what, expected, "a histogram"),
                None => self.miss(&what, expected, "no such metric"),
            }
        }
        let entries = host.shared_data().entries();
        if let Some(most) = expect.shared_data_entries_at_most.filter(|most| entries > *most) {
            self.miss("shared_data_entries_at_most", most, entries);
        }
    }
}
