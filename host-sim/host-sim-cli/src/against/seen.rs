//! What client, upstream and clusters see of a request.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use tokio::time::Instant;

use super::{
    AgainstError, Contender,
    client::{self, Ending},
};
use crate::scenario::{self, Call, Found, HIDDEN, Masks};

/// How long a client waits for an answer that is not expected to end.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Headers of a connection or of the gateway itself, not of the message.
const NOT_COMPARED: [&str; 4] = ["connection", "date", "server", "transfer-encoding"];

/// The headers of a message by name, each with its lines.
pub(super) type Fields = BTreeMap<String, Vec<String>>;

/// A message as its receiver sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Message {
    pub(super) headers: Fields,
    pub(super) body: String,
    pub(super) trailers: Fields,
}

impl Message {
    fn found(&self) -> Found<'_> {
        Found { headers: &self.headers, body: self.body.clone(), trailers: Some(&self.trailers) }
    }

    pub(super) fn lines(&self, whose: &str, masks: &Masks<'_>) -> Vec<String> {
        let body = masks.hide(&self.body);
        let line = |(name, lines): (&String, &Vec<String>)| match name.as_str() {
            // Hidden values may differ in length, and so may the bodies that hold them.
            "content-length" if body != self.body => format!("{name}: {HIDDEN}"),
            _ => masks.header(name, &lines.join(" | ")),
        };
        let headers = self.headers.iter().map(line).map(|line| format!("{whose} {line}"));
        let trailers = self.trailers.iter().map(line).map(|line| format!("{whose} trailer {line}"));
        headers.chain([format!("{whose} body {body:?}")]).chain(trailers).collect()
    }
}

/// A call of a filter to a cluster.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) cluster: String,
    at: Instant,
    pub(super) message: Message,
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

/// Calls to clusters as expectations are checked on them.
pub(super) fn called(asked: &[Asked]) -> Vec<(&String, Found<'_>)> {
    asked.iter().map(|asked| (&asked.cluster, asked.message.found())).collect()
}

impl Seen {
    /// What expectations are checked on.
    pub(super) fn checked(&self) -> scenario::Seen<'_> {
        scenario::Seen {
            status: self.status,
            ends: !self.waits,
            reset: self.status == 0 && !self.waits,
            answer: self.answer.found(),
            forwarded: self.forwarded.as_ref().map(Message::found),
        }
    }

    /// Takes in what clusters were asked since the last time.
    pub(super) fn hear(&mut self, contender: &dyn Contender) {
        for (name, server) in contender.clusters() {
            let calls = server.take().into_iter();
            self.asked.extend(calls.map(|(at, message)| Asked { cluster: name.clone(), at, message }));
        }
        self.asked.sort_by_key(|asked| asked.at);
    }

    /// Whether both saw the same calls.
    pub(super) fn has_the_calls_of(&self, other: &Self, masks: &Masks<'_>) -> bool {
        self.calls(masks) == other.calls(masks)
    }

    /// The calls to clusters, by cluster: those to several at the same time come there in any order.
    fn calls(&self, masks: &Masks<'_>) -> Vec<String> {
        let mut calls: Vec<_> = self.asked.iter().collect();
        calls.sort_by_key(|asked| &asked.cluster);
        let lines =
            calls.into_iter().map(|asked| asked.message.lines(&format!("asked of {}", asked.cluster), masks));
        lines.flatten().collect()
    }

    /// What was seen, to be compared line by line.
    pub(super) fn lines(&self, masks: &Masks<'_>) -> Vec<String> {
        let mut lines = vec![format!("status {}", self.status)];
        if self.waits {
            lines.push("the client waits".to_owned());
        }
        lines.extend(self.answer.lines("answered", masks));
        match &self.forwarded {
            Some(message) => lines.extend(message.lines("forwarded", masks)),
            None => lines.push("not forwarded".to_owned()),
        }
        lines.extend(self.calls(masks));
        lines
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

/// Headers to compare: those of the message.
pub(super) fn fields(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        fields.entry(name.as_str().to_owned()).or_default().push(value);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_body_is_compared_unless_it_holds_a_hidden_value() {
        let message = |body: &str| Message {
            headers: [("content-length".to_owned(), vec![body.len().to_string()])].into(),
            body: body.to_owned(),
            ..Message::default()
        };
        //  mask, the line of one body, of the other
        let rows = [
            ("at * ns", "answered content-length: …", "answered content-length: …"),
            ("at ", "answered content-length: …", "answered content-length: …"),
            ("before ", "answered content-length: 14", "answered content-length: 15"),
        ];
        for (mask, left, right) in rows {
            let masks = Masks::new(&[mask]);
            let lines = |body| message(body).lines("answered", &masks);
            let (here, there) = (lines("at 9 ns, here."), lines("at 10 ns, here."));
            assert_eq!((here[0].as_str(), there[0].as_str()), (left, right), "{mask}");
            assert_eq!(here == there, left == right, "{mask}");
        }
    }
}
