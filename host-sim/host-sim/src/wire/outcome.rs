//! What became of a request.

use bytes::Bytes;

use crate::wire::{
    headers::Headers,
    message::{Request, Response},
};

/// How a stream came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The upstream answered.
    Forwarded,
    /// The filter, or the host on its behalf, answered.
    LocalReply,
    /// The stream was cut: the client sees a broken connection, or a truncated answer.
    Reset,
    /// The filter holds the stream and nothing is left that would let it go on, or the client waits for the rest of an
    /// answer that is shorter than its `content-length`.
    Paused,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub(crate) end: End,
    pub(crate) response: Response,
    pub(crate) forwarded: Option<Request>,
    pub(crate) details: String,
}

impl Outcome {
    /// How it ended.
    pub fn end(&self) -> End {
        self.end
    }

    /// Whether the filter, or the host on its behalf, answered in the upstream's place.
    pub fn is_local_reply(&self) -> bool {
        self.end == End::LocalReply
    }

    /// What the client sees. For a paused or reset stream, as much of it as was sent.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// The status that the client sees; 0 when it saw none.
    pub fn status(&self) -> u16 {
        self.response.status()
    }

    /// The first value of a response header, if it is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.header_str(name)
    }

    /// All response headers.
    pub fn headers(&self) -> &Headers {
        &self.response.headers
    }

    /// The response body.
    pub fn body(&self) -> &Bytes {
        &self.response.body
    }

    /// The response body as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.response.body).into_owned()
    }

    /// The request as the upstream received it, if it did.
    pub fn forwarded(&self) -> Option<&Request> {
        self.forwarded.as_ref()
    }

    /// What `%RESPONSE_CODE_DETAILS%` of an access log says: `via_upstream`, what the filter gave with its reply, …
    pub fn details(&self) -> &str {
        &self.details
    }
}
