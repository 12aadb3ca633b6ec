//! Compares what a step has come to with what is expected of it.

use std::{collections::BTreeMap, fmt};

use host_sim::{End, Headers, Host, LogLine, MetricValue, Outcome};

use super::{
    expect::{Expect, ExpectedCall},
    report::Miss,
    watch::MadeCall,
};

/// What is not as expected in a step.
#[derive(Debug, Default)]
pub(super) struct Check {
    pub(super) misses: Vec<Miss>,
}

const ABSENT: &str = "(absent)";

/// A header's lines as one, for comparison and for the eye.
fn joined(headers: &Headers, name: &str) -> Option<String> {
    let lines: Vec<_> =
        headers.get_all(name).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Check {
    pub(super) fn miss(
        &mut self,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        let miss = Miss { what: what.into(), expected: expected.to_string(), found: found.to_string() };
        // A repeated request misses the same way many times over.
        if !self.misses.contains(&miss) {
            self.misses.push(miss);
        }
    }

    fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, expected: Option<T>, found: &T) {
        if let Some(expected) = expected.filter(|expected| expected != found) {
            self.miss(what, expected, found);
        }
    }

    fn contains(&mut self, what: &str, part: Option<&String>, whole: &str) {
        if let Some(part) = part.filter(|part| !whole.contains(*part)) {
            self.miss(what, part, whole);
        }
    }

    /// Looks at a request's outcome.
    pub(super) fn outcome(&mut self, expect: &Expect, outcome: &Outcome) {
        let none = Headers::new();
        let forwarded = outcome.forwarded();
        self.compare("status", expect.status, &outcome.status());
        self.compare("ends", expect.ends, &(outcome.end() != End::Paused));
        self.compare("reset", expect.reset, &(outcome.end() == End::Reset));
        self.compare("local_reply", expect.local_reply, &outcome.is_local_reply());
        self.compare("details", expect.details.as_deref(), &outcome.details());
        self.compare("body", expect.body.as_deref(), &outcome.text().as_str());
        self.contains("body_contains", expect.body_contains.as_ref(), &outcome.text());
        self.headers("headers", &expect.headers, outcome.headers());
        self.headers("trailers", &expect.trailers, outcome.response().trailers().unwrap_or(&none));
        self.compare("forwarded", expect.forwarded, &forwarded.is_some());
        let wanted = !expect.forwarded_headers.is_empty()
            || !expect.forwarded_trailers.is_empty()
            || expect.forwarded_body.is_some();
        match forwarded {
            Some(forwarded) => {
                self.headers("forwarded_headers", &expect.forwarded_headers, forwarded.headers());
                let trailers = forwarded.trailers().unwrap_or(&none);
                self.headers("forwarded_trailers", &expect.forwarded_trailers, trailers);
                self.compare("forwarded_body", expect.forwarded_body.clone(), &text(forwarded.body_bytes()));
            }
            None if wanted => self.miss("forwarded_headers", "a forwarded request", "none"),
            None => {}
        }
    }

    fn headers(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, found: &Headers) {
        for (name, expected) in expected {
            let found = joined(found, name);
            if *expected != found {
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| ABSENT.to_owned());
                self.miss(format!("{what}.{name}"), text(expected), text(&found));
            }
        }
    }

    /// Looks at the calls to clusters.
    pub(super) fn callouts(&mut self, expected: &[ExpectedCall], made: &[MadeCall]) {
        if expected.len() != made.len() {
            let line = |call: &MadeCall| {
                format!("{}: {} {}", call.cluster, call.request.method(), call.request.path())
            };
            let lines: Vec<_> = made.iter().map(line).collect();
            let found = if lines.is_empty() { "none".to_owned() } else { lines.join("\n") };
            let calls =
                if expected.len() == 1 { "1 call".to_owned() } else { format!("{} calls", expected.len()) };
            self.miss("callouts", calls, found);
            return;
        }
        for (index, (expected, made)) in expected.iter().zip(made).enumerate() {
            let what = |field: &str| format!("callouts[{index}].{field}");
            let body = text(made.request.body_bytes());
            self.compare(&what("cluster"), expected.cluster.as_ref(), &&made.cluster);
            self.headers(&what("headers"), &expected.headers, made.request.headers());
            self.compare(&what("body"), expected.body.as_ref(), &&body);
            self.contains(&what("body_contains"), expected.body_contains.as_ref(), &body);
        }
    }

    /// Looks at what the filter has logged.
    pub(super) fn log(&mut self, expect: &Expect, lines: &[LogLine]) {
        let all = || lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>().join("\n");
        for part in &expect.log {
            if !lines.iter().any(|line| line.message.contains(part)) {
                self.miss("log", part, all());
            }
        }
        for part in &expect.not_logged {
            if let Some(line) = lines.iter().find(|line| line.message.contains(part)) {
                self.miss("not_logged", format!("no line with {part:?}"), &line.message);
            }
        }
    }

    /// Looks at what the host shows after a step.
    pub(super) fn host(&mut self, expect: &Expect, host: &Host) {
        let metrics: BTreeMap<_, _> = host.metrics().all().into_iter().collect();
        for (name, expected) in &expect.metrics {
            match metrics.get(name) {
                Some(MetricValue::Counter(found) | MetricValue::Gauge(found)) if found == expected => {}
                Some(MetricValue::Counter(found) | MetricValue::Gauge(found)) => {
                    self.miss(format!("metrics.{name}"), expected, found);
                }
                Some(MetricValue::Histogram(_)) => {
                    self.miss(format!("metrics.{name}"), expected, "a histogram");
                }
                None => self.miss(format!("metrics.{name}"), expected, "no such metric"),
            }
        }
        let entries = host.shared_data().entries();
        if let Some(most) = expect.shared_data_entries_at_most.filter(|most| entries > *most) {
            self.miss("shared_data_entries_at_most", most, entries);
        }
    }
}
