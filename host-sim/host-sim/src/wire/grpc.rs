//! gRPC calls of the filter: messages in their frames, and how answers reach the guest.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::wire::{
    headers::Headers,
    message::{Failure, Request, Response},
};

/// `%RESPONSE_CODE_DETAILS%` of a stream that the upstream has answered, which is all that Envoy says of a call that its
/// cluster has failed without saying why.
pub(crate) const VIA_UPSTREAM: &str = "via_upstream";

/// gRPC's `UNKNOWN`: an answer that does not say how it went.
const UNKNOWN: u32 = 2;
/// gRPC's `INTERNAL`: the answer to a unary call has no message.
pub(crate) const INTERNAL: u32 = 13;

/// gRPC's `UNAVAILABLE`.
pub(crate) const UNAVAILABLE: u32 = 14;

/// The gRPC status for an HTTP status (`source/common/grpc/status.cc`).
pub(crate) fn grpc_status_of(status: u32) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => 2,
    }
}

/// What happens to a gRPC call, as the guest's callbacks report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcEvent {
    /// The answer begins.
    InitialMetadata(Headers),
    /// A message, without its frame.
    Message(Bytes),
    /// The answer's trailers.
    TrailingMetadata(Headers),
    /// The call is over.
    Closed {
        /// The status of gRPC; 0 is fine.
        status: u32,
        /// What the status says.
        message: String,
    },
}

/// A message in its frame: not compressed, its length, itself.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Takes the whole messages off the front of what came; a part of one stays.
fn unframe(received: &mut BytesMut) -> Vec<Bytes> {
    let mut messages = Vec::new();
    while let Some(len) = received.get(1..5).map(|mut len| len.get_u32()) {
        let end = usize::try_from(len).unwrap_or(usize::MAX).saturating_add(5);
        if received.len() < end {
            break;
        }
        messages.push(received.split_to(end).freeze().slice(5..));
    }
    messages
}

impl GrpcEvent {
    /// How a call went, by its trailers (or the headers of an answer that has nothing else).
    fn closed(trailers: &Headers) -> Self {
        let text = |name: &str| trailers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let status = text("grpc-status").and_then(|status| status.parse().ok()).unwrap_or(UNKNOWN);
        let message = text("grpc-message").unwrap_or_default();
        // A stream that ends without a status is described by the response-code details.
        let message = if message.is_empty() { VIA_UPSTREAM.to_owned() } else { message };
        Self::Closed { status, message }
    }

    /// What the headers of an answer already say: nothing more than themselves, that it is no gRPC, or that it is all.
    pub fn of_headers(headers: Headers, end: bool) -> Vec<Self> {
        let http_status = headers.status();
        if http_status != 200 && headers.get("grpc-status").is_none() {
            let status = grpc_status_of(http_status.into());
            let message = VIA_UPSTREAM.to_owned();
            return vec![Self::InitialMetadata(headers), Self::Closed { status, message }];
        }
        if end {
            let last = Self::closed(&headers);
            return vec![Self::InitialMetadata(Headers::new()), Self::TrailingMetadata(headers), last];
        }
        vec![Self::InitialMetadata(headers)]
    }

    /// The whole messages at the front of what came of a body, which are taken off; a part of one stays.
    pub fn of_body(received: &mut BytesMut) -> Vec<Self> {
        unframe(received).into_iter().map(Self::Message).collect()
    }

    /// What trailers say.
    pub fn of_trailers(trailers: Headers) -> Vec<Self> {
        let last = Self::closed(&trailers);
        vec![Self::TrailingMetadata(trailers), last]
    }

    /// The connection broke, or never was.
    pub fn broken() -> Self {
        Self::unavailable("upstream reset")
    }

    /// There is nobody to answer the call.
    pub(crate) fn unavailable(why: &str) -> Self {
        Self::Closed { status: UNAVAILABLE, message: why.to_owned() }
    }

    /// All that a whole answer says. The answer to a later message of a stream says nothing of its headers again.
    pub(crate) fn of_answer(response: Response, later: bool) -> Vec<Self> {
        match response.failure {
            Some(Failure::Reset | Failure::Malformed) => return vec![Self::broken()],
            Some(Failure::Silence) => return Vec::new(),
            None => {}
        }
        let Response { headers, body, trailers, .. } = response;
        let whole = body.is_empty() && trailers.is_none() && headers.get("grpc-status").is_some();
        let mut events = Self::of_headers(headers, whole);
        if later && events.len() == 1 {
            events.clear();
        }
        if events.iter().any(|event| matches!(event, Self::Closed { .. })) {
            return events;
        }
        events.extend(Self::of_body(&mut BytesMut::from(body.as_ref())));
        events.extend(trailers.into_iter().flat_map(Self::of_trailers));
        events
    }
}

impl Response {
    /// The answer of a gRPC service: one message, and status 0.
    pub fn grpc(message: impl AsRef<[u8]>) -> Self {
        Self::new(200)
            .header("content-type", "application/grpc")
            .grpc_message(message)
            .trailer("grpc-status", "0")
    }

    /// Messages of a gRPC stream that goes on: its trailers are not there yet.
    pub fn grpc_stream() -> Self {
        Self::new(200).header("content-type", "application/grpc")
    }

    /// Adds a message of gRPC to the body.
    #[must_use]
    pub fn grpc_message(mut self, message: impl AsRef<[u8]>) -> Self {
        self.body = [self.body.as_ref(), frame(message.as_ref()).as_ref()].concat().into();
        self
    }

    /// The answer of a gRPC service that failed.
    pub fn grpc_status(status: u32, message: &str) -> Self {
        Self::new(200)
            .header("content-type", "application/grpc")
            .header("grpc-status", status.to_string())
            .header("grpc-message", message.to_owned())
    }
}

impl Request {
    /// The messages of a gRPC request. A stream's cluster is asked once for each message that the filter sends, and with
    /// none when the filter closes its side.
    pub fn grpc_messages(&self) -> Vec<Bytes> {
        unframe(&mut BytesMut::from(self.body.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_from_their_frames_as_they_come() {
        let framed = [frame(b"ab"), frame(b""), frame(b"c")].concat();
        let mut received = BytesMut::from(&framed[..3]);
        assert!(unframe(&mut received).is_empty());
        received.extend_from_slice(&framed[3..15]);
        assert_eq!(unframe(&mut received), ["ab", ""]);
        received.extend_from_slice(&framed[15..]);
        assert_eq!((unframe(&mut received), received.len()), (vec![Bytes::from("c")], 0));
    }

    #[test]
    fn an_answer_says_what_envoy_makes_of_it() {
        let status = |events: Vec<GrpcEvent>| match events.last() {
            Some(GrpcEvent::Closed { status, .. }) => (events.len(), Some(*status)),
            _ => (events.len(), None),
        };
        let rows = [
            ("a message", Response::grpc("m"), (4, Some(0))),
            ("trailers only", Response::grpc_status(7, "no"), (3, Some(7))),
            ("no gRPC", Response::new(503), (2, Some(14))),
            ("a stream that goes on", Response::grpc_stream().grpc_message("a").grpc_message("b"), (3, None)),
            ("no status", Response::grpc_stream().trailer("x", "y"), (3, Some(2))),
            ("broken", Response::reset(), (1, Some(14))),
        ];
        for (what, response, expected) in rows {
            assert_eq!(status(GrpcEvent::of_answer(response, false)), expected, "{what}");
        }
    }
}
