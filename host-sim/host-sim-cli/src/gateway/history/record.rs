//! What a gateway records of a request.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use host_sim::{Headers, edge::Refusal};

/// Maximum number of bytes that are kept of a body.
const MAX_KEPT: usize = 64 << 10;

/// A request or an answer as the gateway received or sent it.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Message {
    pub(super) headers: Headers,
    /// The body's first bytes.
    pub(super) body: Vec<u8>,
    /// The size of the body in bytes.
    pub(super) size: u64,
    pub(super) trailers: Option<Headers>,
}

impl Message {
    pub(in crate::gateway) fn new(headers: Headers) -> Self {
        Self { headers, ..Self::default() }
    }

    pub(in crate::gateway) fn add(&mut self, data: &Bytes) {
        self.size += data.len() as u64;
        let room = MAX_KEPT.saturating_sub(self.body.len());
        self.body.extend(data.iter().take(room));
    }

    pub(in crate::gateway) fn end(&mut self, trailers: Headers) {
        self.trailers = Some(trailers);
    }
}

/// How the upstream answered a request.
#[derive(Debug)]
pub(in crate::gateway) enum Upstream {
    /// The request was not forwarded.
    Unasked,
    /// The request ended before the upstream answered.
    Asked,
    Answered(Message),
    /// The gateway could not connect to the upstream.
    Unreachable,
    /// The upstream closed the connection before it answered.
    Broken,
    /// The upstream did not answer in time.
    Late,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum End {
    /// The client got the whole answer.
    Answered,
    /// The gateway answered before any filter saw the request.
    Refused,
    /// The client closed the connection.
    ClientGone,
    /// The answer was broken off.
    Broken,
}

/// A request, from when it arrives until it has ended.
#[derive(Debug)]
pub(in crate::gateway) struct Record {
    /// When the request arrived, as time since the Unix epoch.
    pub(in crate::gateway) started: Duration,
    /// How long the request took.
    pub(in crate::gateway) took: Duration,
    /// The worker that served the request.
    pub(in crate::gateway) worker: usize,
    pub(in crate::gateway) client: SocketAddr,
    pub(in crate::gateway) protocol: &'static str,
    /// The request as the client sent it.
    pub(in crate::gateway) request: Message,
    /// The request's headers as they were forwarded, or as the filters received them if they were not.
    pub(in crate::gateway) headers: Headers,
    pub(in crate::gateway) upstream: Upstream,
    pub(in crate::gateway) upstream_address: Option<SocketAddr>,
    /// The answer that the client got.
    pub(in crate::gateway) answer: Message,
    /// Whether the answer is a local reply, not the upstream's.
    pub(in crate::gateway) local_reply: bool,
    /// `%RESPONSE_CODE_DETAILS%`.
    pub(in crate::gateway) details: String,
    pub(in crate::gateway) end: End,
}

impl Record {
    /// A request that has just arrived.
    pub(in crate::gateway) fn new(
        started: Duration,
        worker: usize,
        client: SocketAddr,
        protocol: &'static str,
        request: Headers,
    ) -> Self {
        Self {
            started,
            took: Duration::ZERO,
            worker,
            client,
            protocol,
            request: Message::new(request),
            headers: Headers::default(),
            upstream: Upstream::Unasked,
            upstream_address: None,
            answer: Message::default(),
            local_reply: false,
            details: String::new(),
            end: End::ClientGone,
        }
    }

    /// Records that the gateway answers before any filter sees the request.
    pub(in crate::gateway) fn refuse(&mut self, refusal: Refusal) {
        self.answer.headers.set(":status", refusal.status.to_string());
        self.answer.add(&Bytes::from_static(refusal.body.as_bytes()));
        self.local_reply = true;
        refusal.details.clone_into(&mut self.details);
        self.end = End::Refused;
    }

    /// Records a part of the answer's body that was sent to the client; `end` is true for the last one.
    pub(in crate::gateway) fn sent(&mut self, data: &Bytes, end: bool) {
        self.answer.add(data);
        if end {
            self.end = End::Answered;
        }
    }

    /// Records that the request has ended. `details` are those of an answer that is not the upstream's.
    pub(in crate::gateway) fn is_over(&mut self, took: Duration, details: Option<String>) {
        self.took = took;
        let usual = match (&self.upstream, self.end) {
            (_, End::ClientGone) => "downstream_remote_disconnect",
            (Upstream::Answered(_), _) => "via_upstream",
            _ => "",
        };
        self.details = details.unwrap_or_else(|| usual.to_owned());
    }

    /// The status that the client got, or 0 without an answer, as in Envoy's log.
    pub(super) fn status(&self) -> u16 {
        self.answer.headers.status()
    }

    /// The method and the path that the client asked for.
    pub(super) fn asked(&self) -> String {
        let header = |name| text(&self.request.headers, name).unwrap_or_default();
        format!("{} {}", header(":method"), header(":path"))
    }

    /// Whether the client got an error, or not the whole answer.
    pub(super) fn is_bad(&self) -> bool {
        self.status() >= 400 || self.end != End::Answered
    }

    /// How the request ended, in words.
    pub(super) fn ending(&self) -> String {
        match self.end {
            End::ClientGone => "the client went away".to_owned(),
            End::Broken => format!("broken off: {}", self.details),
            End::Answered | End::Refused => self.details.clone(),
        }
    }

    /// A header of the request, as it was forwarded or as the filters received it.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        text(&self.headers, name)
    }
}

/// The lines of a header, joined with commas.
pub(super) fn text(headers: &Headers, name: &str) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).map(|line| String::from_utf8_lossy(line)).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}
