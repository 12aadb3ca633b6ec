//! The two ways of a stream.

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
