//! What is known of a request when the gateway is done with it.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use host_sim::{Headers, edge::Refusal};

/// The most bytes of a body that are kept.
const MAX_KEPT: usize = 64 << 10;

/// A message as it came by.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Message {
    pub(super) headers: Headers,
    /// The body's first bytes.
    pub(super) body: Vec<u8>,
    /// How many bytes it had.
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

    /// Whether all of its body is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.size == self.body.len() as u64
    }

    /// Whether all that is kept of it is text.
    pub(super) fn is_text(&self) -> bool {
        let fields = self.headers.iter().chain(self.trailers.iter().flat_map(Headers::iter));
        let mut parts = fields.flat_map(|(name, value)| [name.as_ref(), value.as_ref()]);
        parts.all(|part| std::str::from_utf8(part).is_ok()) && std::str::from_utf8(&self.body).is_ok()
    }
}

/// What came of a request at the upstream.
#[derive(Debug)]
pub(in crate::gateway) enum Upstream {
    /// It was not asked.
    Unasked,
    /// It was asked, and the request was over before it answered.
    Asked,
    Answered(Message),
    /// There was no connection to it.
    Unreachable,
    /// It broke off before it answered.
    Broken,
    /// It took too long.
    Late,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum End {
    /// The client got its answer.
    Answered,
    /// The gateway answered before any filter saw the request.
    Refused,
    /// The client went away.
    ClientGone,
    /// The answer was broken off.
    Broken,
}

/// A request that the gateway is done with, or on its way to be.
#[derive(Debug)]
pub(in crate::gateway) struct Record {
    /// When it came, in time since 1970.
    pub(in crate::gateway) started: Duration,
    /// How long it took.
    pub(in crate::gateway) took: Duration,
    /// The worker that served it.
    pub(in crate::gateway) worker: usize,
    pub(in crate::gateway) client: SocketAddr,
    pub(in crate::gateway) protocol: &'static str,
    /// The request as the client sent it.
    pub(in crate::gateway) request: Message,
    /// The request's headers as they went on, or as they reached the filters if they did not.
    pub(in crate::gateway) headers: Headers,
    pub(in crate::gateway) upstream: Upstream,
    pub(in crate::gateway) upstream_address: Option<SocketAddr>,
    /// What the client got.
    pub(in crate::gateway) answer: Message,
    /// Whether it was made in the upstream's place.
    pub(in crate::gateway) local_reply: bool,
    /// `%RESPONSE_CODE_DETAILS%`.
    pub(in crate::gateway) details: String,
    pub(in crate::gateway) end: End,
}

impl Record {
    /// A request that has just come.
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

    /// The gateway answers it before any filter.
    pub(in crate::gateway) fn refuse(&mut self, refusal: Refusal) {
        self.answer.headers.set(":status", refusal.status.to_string());
        self.answer.add(&Bytes::from_static(refusal.body.as_bytes()));
        self.local_reply = true;
        refusal.details.clone_into(&mut self.details);
        self.end = End::Refused;
    }

    /// A part of the answer has gone to the client, the last one if it ends there.
    pub(in crate::gateway) fn sent(&mut self, data: &Bytes, end: bool) {
        self.answer.add(data);
        if end {
            self.end = End::Answered;
        }
    }

    /// The gateway is done with it. There are details where the answer was not the upstream's.
    pub(in crate::gateway) fn is_over(&mut self, took: Duration, details: Option<String>) {
        self.took = took;
        let usual = match (&self.upstream, self.end) {
            (_, End::ClientGone) => "downstream_remote_disconnect",
            (Upstream::Answered(_), _) => "via_upstream",
            _ => "",
        };
        self.details = details.unwrap_or_else(|| usual.to_owned());
    }

    /// The status that the client got; 0 without an answer, as Envoy's log has it.
    pub(super) fn status(&self) -> u16 {
        self.answer.headers.status()
    }

    /// A header of the request as the client sent it, or of those that a gateway adds.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        text(&self.headers, name)
    }
}

/// A header's lines as one, or none.
pub(super) fn text(headers: &Headers, name: &str) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).map(|line| String::from_utf8_lossy(line)).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}
