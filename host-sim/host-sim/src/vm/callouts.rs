//! Calls of a guest to clusters, and how their answers come to it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    abi::{LogLevel, Status},
    vm::Vm,
    wire::{
        headers::Headers,
        message::{Request, Response},
    },
};

/// What is said of an upstream that cannot be reached.
pub const CONNECT_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure";
/// What is said of one that breaks off before it answers.
pub const RESET_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: connection termination";

/// Calls of the guest to clusters.
#[derive(Debug, Default)]
pub(crate) struct Callouts {
    /// The last token of each kind.
    pub(crate) last_token: [u32; 3],
    /// Called, and not yet taken by the driver.
    pub(crate) started: VecDeque<Callout>,
    /// Calls without an answer, by token.
    pub(crate) open: BTreeMap<u32, OpenCall>,
    /// Streams of gRPC, by token.
    pub(crate) streams: BTreeMap<u32, OpenStream>,
    /// What the guest did with its streams, and the driver has not taken yet.
    pub(crate) grpc_orders: VecDeque<GrpcOrder>,
}

/// What a call speaks. The low two bits of its token tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Http,
    Grpc,
    GrpcStream,
}

impl CallKind {
    pub(crate) fn of(token: u32) -> Option<Self> {
        match token & 3 {
            0 => Some(Self::Http),
            1 => Some(Self::Grpc),
            2 => Some(Self::GrpcStream),
            _ => None,
        }
    }
}

/// A call without an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenCall {
    pub(crate) root: u32,
    pub(crate) kind: CallKind,
}

/// A stream of gRPC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenStream {
    pub(crate) root: u32,
    /// The guest sends no more.
    pub(crate) local_closed: bool,
    /// The cluster sends no more.
    pub(crate) remote_closed: bool,
}

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

impl Vm {
    /// Callouts that the guest has made since the last time.
    pub(crate) fn take_callouts(&mut self) -> Vec<Callout> {
        self.state().callouts.started.drain(..).collect()
    }

    /// What the guest did with its gRPC streams since the last time.
    pub(crate) fn take_grpc_orders(&mut self) -> Vec<GrpcOrder> {
        self.state().callouts.grpc_orders.drain(..).collect()
    }

    /// Hands the answer of a callout to the guest. An answer for a root that is gone is dropped.
    pub(crate) fn finish_callout(&mut self, token: u32, response: Response) {
        let Some(OpenCall { root: root_id, kind }) = self.state().callouts.open.remove(&token) else {
            return;
        };
        if kind == CallKind::Grpc {
            self.finish_grpc_call(root_id, token, response);
            return;
        }
        let state = self.state();
        let too_large = response.body.len() > Callout::MAX_ANSWER;
        if too_large {
            state.shared.logs.tell(LogLevel::Warn, state.name, Callout::TOO_LARGE.to_owned());
        }
        let Some(root) = state.root(root_id) else { return };
        let (headers, body, trailers) = if too_large || response.failure.is_some() {
            root.status = (Status::BrokenConnection.code(), Bytes::from_static(b"reset"));
            (0, 0, 0)
        } else {
            let counts = (
                response.headers.len(),
                response.body.len(),
                response.trailers.as_ref().map_or(0, Headers::len),
            );
            root.callout_response = Some(response);
            counts
        };
        if let Some(on_response) = self.exports.on_http_call_response.clone() {
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let arguments = (root_id, token, count(headers), count(body), count(trailers));
            self.call("proxy_on_http_call_response", root_id, &on_response, arguments);
        }
        if let Some(root) = self.state().root(root_id) {
            root.callout_response = None;
            root.status.1 = Bytes::new();
        }
        self.run_deferred();
    }
}
