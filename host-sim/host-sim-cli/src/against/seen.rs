//! What client, upstream and clusters see of a request.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::{
    AgainstError, Contender,
    client::{self, Ending},
};
use crate::scenario::{Call, Expect, ExpectedCall, Lines, Miss};

/// How long a client waits for an answer that is not expected to end.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Headers of a connection or of the gateway itself, not of the message.
const NOT_COMPARED: [&str; 4] = ["connection", "date", "server", "transfer-encoding"];

/// The headers of a message by name, each with its lines.
pub(super) type Fields = BTreeMap<String, Vec<String>>;

/// A message as its receiver sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) headers: Fields,
    pub(super) body: String,
    pub(super) trailers: Fields,
}

/// A call of a filter to a cluster.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    cluster: String,
    at: Instant,
    message: Message,
}

/// What client and upstream saw of a request.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Whether the client waits for more.
    pub(super) waits: bool,
    /// 0 when the connection broke off, or no answer came.
    pub(super) status: u16,
    pub(super) answer: Message,
    /// The request at the upstream, if it came there.
    pub(super) forwarded: Option<Message>,
    /// The calls to clusters, in the order in which they came there.
    pub(super) asked: Vec<Asked>,
}

impl Seen {
    /// Takes in what clusters were asked since the last time.
    pub(super) fn hear(&mut self, contender: &dyn Contender) {
        for (name, server) in contender.clusters() {
            let calls = server.take().into_iter();
            self.asked.extend(calls.map(|(at, message)| Asked { cluster: name.clone(), at, message }));
        }
        self.asked.sort_by_key(|asked| asked.at);
    }

    /// Whether both saw the same calls.
    pub(super) fn has_the_calls_of(&self, other: &Self) -> bool {
        calls(self) == calls(other)
    }
}

/// Sends a request and gathers what client and upstream saw. The client waits for `patience` for an answer that is to end.
pub(super) fn send(
    contender: &dyn Contender,
    call: &Call,
    ends: bool,
    patience: Duration,
) -> Result<Seen, AgainstError> {
    contender.count();
    let reading = client::send(contender.address(), call, if ends { patience } else { IMPATIENCE })?;
    let forwarded = contender.upstream().take().pop().map(|(_, message)| message);
    let waits = reading.end == Ending::Waiting;
    let whole = reading.head.filter(|_| reading.end != Ending::Broken);
    let (status, answer) = whole.map_or_else(Default::default, |(status, headers)| {
        let body = String::from_utf8_lossy(&reading.body).into_owned();
        let answer = Message { headers: fields(&headers), body, trailers: fields(&reading.trailers) };
        (status.as_u16(), answer)
    });
    Ok(Seen { waits, status, answer, forwarded, asked: Vec::new() })
}

pub(super) fn header_map<'a>(
    headers: impl Iterator<Item = (&'a String, &'a Lines)>,
) -> Result<HeaderMap, AgainstError> {
    let mut map = HeaderMap::new();
    for (name, lines) in headers {
        for line in lines.iter() {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(AgainstError::message)?;
            map.append(name, HeaderValue::from_str(line).map_err(AgainstError::message)?);
        }
    }
    Ok(map)
}

/// Headers to compare: those of the message. What differs in every run is masked.
pub(super) fn fields(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "x-request-id" => "(a random id)".to_owned(),
            // For a client on the same machine, Envoy appends an address of the machine.
            "x-forwarded-for" => "(the client)".to_owned(),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        fields.entry(name.as_str().to_owned()).or_default().push(value);
    }
    fields
}

/// The calls to clusters, by cluster: those to several at the same time come there in any order.
fn calls(seen: &Seen) -> Vec<(&str, &Message)> {
    let mut calls: Vec<_> = seen.asked.iter().map(|asked| (asked.cluster.as_str(), &asked.message)).collect();
    calls.sort_by_key(|(cluster, _)| *cluster);
    calls
}

/// What was seen, to be compared line by line.
pub(super) fn lines(seen: &Seen) -> Vec<String> {
    let of = |message: &Message, whose: &str| -> Vec<String> {
        let line = |(name, lines): (&String, &Vec<String>)| format!("{name}: {}", lines.join(" | "));
        let headers = message.headers.iter().map(line).map(|line| format!("{whose} {line}"));
        let trailers = message.trailers.iter().map(line).map(|line| format!("{whose} trailer {line}"));
        headers.chain([format!("{whose} body {:?}", message.body)]).chain(trailers).collect()
    };
    let mut lines = vec![format!("status {}", seen.status)];
    if seen.waits {
        lines.push("the client waits".to_owned());
    }
    lines.extend(of(&seen.answer, "answered"));
    match &seen.forwarded {
        Some(message) => lines.extend(of(message, "forwarded")),
        None => lines.push("not forwarded".to_owned()),
    }
    lines.extend(
        calls(seen).into_iter().flat_map(|(cluster, message)| of(message, &format!("asked of {cluster}"))),
    );
    lines
}

/// What is not as expected.
#[derive(Debug, Default)]
pub(super) struct Misses(pub(super) Vec<Miss>);

impl Misses {
    pub(super) fn add(&mut self, what: &str, expected: impl fmt::Display, found: impl fmt::Display) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.0.push(Miss { what: what.to_owned(), expected, found });
    }

    fn compare<T: PartialEq + fmt::Display>(&mut self, what: &str, expected: Option<T>, found: T) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.add(what, expected, found);
        }
    }

    fn contains(&mut self, what: &str, part: Option<&String>, whole: &str) {
        if let Some(part) = part.filter(|part| !whole.contains(*part)) {
            self.add(what, part, whole);
        }
    }

    fn fields(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, found: &Fields) {
        for (name, expected) in expected {
            let found = found.get(name).map(|lines| lines.join(","));
            if found != *expected {
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "(absent)".to_owned());
                self.add(&format!("{what}.{name}"), text(expected), text(&found));
            }
        }
    }

    /// Looks at what was seen of a request.
    pub(super) fn seen(&mut self, expect: &Expect, seen: &Seen) {
        let nothing = Message::default();
        let forwarded = seen.forwarded.as_ref().unwrap_or(&nothing);
        self.compare("status", expect.status, seen.status);
        self.compare("ends", expect.ends, !seen.waits);
        self.compare("reset", expect.reset, seen.status == 0 && !seen.waits);
        self.compare("body", expect.body.as_ref(), &seen.answer.body);
        self.contains("body_contains", expect.body_contains.as_ref(), &seen.answer.body);
        self.fields("headers", &expect.headers, &seen.answer.headers);
        self.fields("trailers", &expect.trailers, &seen.answer.trailers);
        self.compare("forwarded", expect.forwarded, seen.forwarded.is_some());
        self.fields("forwarded_headers", &expect.forwarded_headers, &forwarded.headers);
        self.fields("forwarded_trailers", &expect.forwarded_trailers, &forwarded.trailers);
        self.compare("forwarded_body", expect.forwarded_body.as_ref(), &forwarded.body);
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
            self.compare(&what("body"), expected.body.as_ref(), &message.body);
            self.contains(&what("body_contains"), expected.body_contains.as_ref(), &message.body);
        }
    }

    /// Looks at log lines.
    pub(super) fn log(&mut self, expect: &Expect, log: &[String]) {
        for part in &expect.log {
            if !log.iter().any(|line| line.contains(part)) {
                self.add("log", part, log.join("\n"));
            }
        }
        for part in &expect.not_logged {
            if let Some(line) = log.iter().find(|line| line.contains(part)) {
                self.add("not_logged", format!("no line with {part:?}"), line);
            }
        }
    }
}
