//! Calls of guests to clusters, as whoever drives a host makes them.

use std::time::Duration;

use bytes::Bytes;

use crate::wire::message::{Request, Response};

/// What is said of an upstream that cannot be reached.
pub const CONNECT_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure";
/// What is said of one that breaks off before it answers.
pub const RESET_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: connection termination";

/// What is said of one that answers with what is no HTTP.
pub const PROTOCOL_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: protocol error";

/// A call of a guest to a cluster, on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The VM's number on its worker.
    pub(crate) generation: u64,
    /// The guest's name of the call.
    pub(crate) token: u32,
}

/// A call of a guest to a cluster, with one answer.
#[derive(Debug, Clone)]
pub struct Callout {
    /// What its answer is given to.
    pub call: CallId,
    /// Whether it is a unary call of gRPC, which needs HTTP/2; the request has its message in a frame.
    pub is_grpc: bool,
    /// The cluster's name.
    pub cluster: String,
    /// The request, whole.
    pub request: Request,
    /// How long the guest waits; it has no limit when there is none.
    pub timeout: Option<Duration>,
}

impl Callout {
    /// The most bytes of an answer's body that the gateway keeps for the guest: Envoy's `http.async_response_buffer_limit`. What
    /// is longer is broken off. Messages of gRPC have no bound.
    pub const MAX_ANSWER: usize = 32 << 20;

    /// What the log says of an answer beyond [`MAX_ANSWER`](Self::MAX_ANSWER).
    pub const TOO_LARGE: &str =
        "an answer to a call has more than 32 MiB, and is broken off as in Envoy: the filter gets none";

    /// What the guest sees when the time is up.
    pub fn timed_out() -> Response {
        Self::of_the_gateway(504, "upstream request timeout")
    }

    /// What the guest sees when the cluster breaks off before it answers.
    pub fn unanswered() -> Response {
        Self::of_the_gateway(503, RESET_ERROR)
    }

    /// What the guest sees when the cluster answers with what is no HTTP.
    pub fn malformed() -> Response {
        Self::of_the_gateway(502, PROTOCOL_ERROR)
    }

    /// What the guest sees when the cluster cannot be reached.
    pub fn unreachable() -> Response {
        Self::of_the_gateway(503, CONNECT_ERROR)
    }

    /// A response of the gateway's in the cluster's place.
    fn of_the_gateway(status: u16, body: &'static str) -> Response {
        Response::new(status)
            .header("content-length", body.len().to_string())
            .header("content-type", "text/plain")
            .body(body)
    }
}

/// A step of a guest on a stream of gRPC.
#[derive(Debug)]
pub struct GrpcOrder {
    /// The stream.
    pub call: CallId,
    /// What the guest does.
    pub step: GrpcStep,
}

/// What a guest does with a stream of gRPC.
#[derive(Debug)]
pub enum GrpcStep {
    /// Opens it; every other step comes later.
    Open {
        /// The cluster's name.
        cluster: String,
        /// The request's headers.
        request: Box<Request>,
    },
    /// Sends a message.
    Send {
        /// The message in its frame.
        message: Bytes,
        /// Whether it is the guest's last.
        end: bool,
    },
    /// Sends no more.
    Close,
    /// Gives the stream up, and hears no more of it.
    Reset,
}
