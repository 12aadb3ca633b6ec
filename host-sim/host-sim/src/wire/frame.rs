//! What streams are made of: frames, which go one way or the other.

use bytes::Bytes;

use crate::wire::headers::Headers;

/// A part of a message.
#[derive(Debug)]
pub enum Part {
    /// It begins.
    Headers {
        /// Its headers, pseudo-headers among them.
        headers: Headers,
        /// Whether it ends with them.
        end: bool,
    },
    /// A piece of its body.
    Body {
        /// The piece, which may be empty at the end.
        data: Bytes,
        /// Whether the message ends with it.
        end: bool,
    },
    /// It ends with trailers.
    Trailers(Headers),
}

impl Part {
    /// Whether nothing of the message follows.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Headers { end, .. } | Self::Body { end, .. } => *end,
            Self::Trailers(_) => true,
        }
    }
}

/// A part of a request or of a response.
#[derive(Debug)]
pub struct Frame {
    /// Whose part it is. A response is the upstream's, or one in its place (see
    /// [`is_local_reply`](crate::driver::Worker::is_local_reply)).
    pub direction: Direction,
    /// The part.
    pub part: Part,
}

/// What a stream gives to its driver: what all filters have let go on. The request's parts go to the upstream and the
/// response's to the client, each in its order.
#[derive(Debug)]
pub enum Output {
    /// A part goes on.
    Frame(Frame),
    /// The stream is cut: neither side hears any more of it.
    Reset,
}

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the upstream.
    Request,
    /// From the upstream to the client.
    Response,
}

impl Direction {
    /// Its place in a pair: requests come first.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Request => 0,
            Self::Response => 1,
        }
    }

    /// What goes this way.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}
