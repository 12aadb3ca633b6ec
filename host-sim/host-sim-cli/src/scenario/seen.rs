//! What client, upstream and clusters see of a request, wherever it was sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use host_sim::{End, Headers, Outcome, Request, Response};

use super::mask::{HIDDEN, Masks};

/// Headers of a connection, of the gateway itself or of one version of HTTP, not of the message.
const NOT_COMPARED: [&str; 6] = [":scheme", ":status", "connection", "date", "server", "transfer-encoding"];

/// Headers or trailers by name, each with its lines.
pub(crate) type Fields = BTreeMap<String, Vec<String>>;

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fields(headers: Option<&Headers>) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers.into_iter().flat_map(Headers::iter) {
        fields.entry(text(name).to_ascii_lowercase()).or_default().push(text(value));
    }
    fields
}

/// A message as its receiver has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    pub(crate) headers: Fields,
    pub(crate) body: String,
    pub(crate) trailers: Fields,
}

impl From<&Request> for Message {
    fn from(request: &Request) -> Self {
        let (headers, trailers) = (fields(Some(request.headers())), fields(request.trailers()));
        Self { headers, body: text(request.body_bytes()), trailers }
    }
}

impl From<&Response> for Message {
    fn from(response: &Response) -> Self {
        let (headers, trailers) = (fields(Some(response.headers())), fields(response.trailers()));
        Self { headers, body: text(response.body_bytes()), trailers }
    }
}

impl Message {
    /// The message line by line, apart from values that are not compared.
    pub(crate) fn lines(&self, whose: &str, masks: &Masks<'_>) -> Vec<String> {
        let body = masks.hide(&self.body);
        let line = |(name, lines): (&String, &Vec<String>)| match name.as_str() {
            name if NOT_COMPARED.contains(&name) => None,
            // That there is no body is said with it or without it.
            "content-length" if *lines == ["0"] => None,
            // Hidden values may differ in length, and so may the bodies that hold them.
            "content-length" if body != self.body => Some(format!("{name}: {HIDDEN}")),
            _ => Some(masks.header(name, &lines.join(" | "))),
        };
        let headers = self.headers.iter().filter_map(line).map(|line| format!("{whose} {line}"));
        let trailers = self.trailers.iter().filter_map(line).map(|line| format!("{whose} trailer {line}"));
        headers.chain([format!("{whose} body {body:?}")]).chain(trailers).collect()
    }
}

/// A call of a filter to a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) cluster: String,
    pub(crate) message: Message,
}

/// Calls line by line and by cluster: those to several at the same time come there in any order.
pub(crate) fn lines_of_calls(calls: &[Called], masks: &Masks<'_>) -> Vec<String> {
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by_key(|call| &call.cluster);
    let lines =
        calls.into_iter().map(|call| call.message.lines(&format!("asked of {}", call.cluster), masks));
    lines.flatten().collect()
}

/// What became of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// 0 when no answer came.
    pub(crate) status: u16,
    /// Whether the client waits for nothing more.
    pub(crate) ends: bool,
    /// Whether the connection was broken off.
    pub(crate) reset: bool,
    pub(crate) answer: Message,
    /// The request as the upstream has it, if it came there.
    pub(crate) forwarded: Option<Message>,
    /// `%RESPONSE_CODE_DETAILS%`, where it is known.
    pub(crate) details: Option<String>,
    /// Whether the gateway answered in the upstream's place, where it is known.
    pub(crate) local_reply: Option<bool>,
}

impl From<&Outcome> for Seen {
    fn from(outcome: &Outcome) -> Self {
        Self {
            status: outcome.status(),
            ends: outcome.end() != End::Paused,
            reset: outcome.end() == End::Reset,
            answer: outcome.response().into(),
            forwarded: outcome.forwarded().map(Message::from),
            details: Some(outcome.details().to_owned()),
            local_reply: Some(outcome.is_local_reply()),
        }
    }
}

impl Seen {
    /// What client and upstream saw, to be compared line by line.
    pub(crate) fn lines(&self, masks: &Masks<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        if self.reset {
            // How much of an answer came before that is a matter of time.
            lines.push("the connection is broken off".to_owned());
        } else {
            lines.push(format!("status {}", self.status));
            lines.extend((!self.ends).then(|| "the client waits".to_owned()));
            lines.extend(self.answer.lines("answered", masks));
        }
        match &self.forwarded {
            Some(message) => lines.extend(message.lines("forwarded", masks)),
            None => lines.push("not forwarded".to_owned()),
        }
        lines
    }
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
