//! A whole request and its response, driven through a worker while the caller waits.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use crate::{
    edge,
    outcome::{End, Outcome, Told},
    shared::record::{Happened, Mark},
    stream::{
        frame::{Direction, Frame, Output, Part},
        manager::{HTTP2, StreamId, VIA_UPSTREAM},
    },
    vm::callouts::{Callout, GrpcOrder, GrpcStep, RESET_ERROR},
    wire::{
        grpc::GrpcEvent,
        headers::Headers,
        message::{ClusterCall, Failure, Request, Response},
    },
    worker::{SimulatedStream, Worker},
};

/// A filter that calls out again from each answer would never come to an end.
const MAX_CALLOUTS: usize = 10_000;

/// What answers the callouts to one cluster.
type Handler = Box<dyn FnMut(&Request) -> Response + Send>;

/// The clusters of a host, by name.
#[derive(Default)]
pub(crate) struct Clusters {
    handlers: BTreeMap<String, Mutex<Handler>>,
    /// What became of the last request, and how many lines the log had then.
    last: Mutex<Option<(Outcome, u64)>>,
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Clusters {
    pub(crate) fn insert(&mut self, name: String, handler: Handler) {
        self.handlers.insert(name, Mutex::new(handler));
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.handlers.keys().cloned()
    }

    fn call(&self, cluster: &str, request: &Request) -> Response {
        match self.handlers.get(cluster) {
            Some(handler) => handler.lock().unwrap_or_else(PoisonError::into_inner)(request),
            None => Response::reset(),
        }
    }

    /// Answers the callouts that the worker's guest has made, and those it makes in answer.
    pub(crate) fn serve(&self, worker: &mut Worker) {
        let mut answered = 0;
        loop {
            worker.tell_ready_queues();
            let callouts = worker.take_callouts();
            let orders = worker.take_grpc_orders();
            if (callouts.is_empty() && orders.is_empty()) || answered > MAX_CALLOUTS {
                return;
            }
            answered += orders.len();
            for order in orders {
                self.follow(worker, order);
            }
            for callout in callouts {
                answered += 1;
                let mut response = self.call(&callout.cluster, &callout.request);
                let Callout { call, cluster, request, .. } = callout.clone();
                worker.record_call(call, ClusterCall { cluster, request, answer: None });
                if response.failure == Some(Failure::Reset) && !callout.is_grpc {
                    response = Callout::unanswered();
                }
                if response.failure == Some(Failure::Silence) || !response.delay.is_zero() {
                    worker.keep_open(&callout, response);
                } else {
                    worker.finish_callout(callout.call, response);
                }
            }
        }
    }
}

impl Clusters {
    /// Takes a step on a stream of gRPC. The cluster is asked once for each message, and without one at the end.
    fn follow(&self, worker: &mut Worker, GrpcOrder { call, step }: GrpcOrder) {
        let body = match step {
            GrpcStep::Open { cluster, request } => {
                let stream = SimulatedStream { cluster, request: *request, answered: false };
                worker.simulated_streams().insert(call, stream);
                return;
            }
            GrpcStep::Reset => {
                worker.simulated_streams().remove(&call);
                return;
            }
            GrpcStep::Send { message, .. } => message,
            GrpcStep::Close => Bytes::new(),
        };
        let Some(stream) = worker.simulated_streams().get_mut(&call) else { return };
        let request = stream.request.clone().body(body);
        let response = self.call(&stream.cluster, &request);
        let cluster = stream.cluster.clone();
        let later = std::mem::replace(&mut stream.answered, true);
        worker.record_call(call, ClusterCall { cluster, request, answer: Some(response.clone()) });
        for event in GrpcEvent::of_answer(response, later) {
            if matches!(event, GrpcEvent::Closed { .. }) {
                worker.simulated_streams().remove(&call);
            }
            worker.grpc_event(call, event);
        }
    }
}

impl Clusters {
    /// Keeps what became of a request until the next one is over.
    fn keep(&self, worker: &Worker, outcome: Outcome) -> Outcome {
        let last = (outcome.clone(), worker.shared.logs.written());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        outcome
    }

    /// What became of the last request, and how many lines the log had then.
    pub(crate) fn last(&self) -> Option<(Outcome, u64)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a stream has given so far.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) forwarded: Option<Request>,
    pub(crate) forwarded_end: bool,
    pub(crate) response: Option<Response>,
    pub(crate) response_end: bool,
    pub(crate) reset: bool,
}

impl Collected {
    pub(crate) const fn new() -> Self {
        Self { forwarded: None, forwarded_end: false, response: None, response_end: false, reset: false }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.response_end || self.reset
    }

    /// Takes in what the filter let go on.
    pub(crate) fn collect(&mut self, worker: &mut Worker, slot: StreamId) {
        for output in worker.outputs(slot) {
            let Output::Frame(Frame { direction, part }) = output else {
                self.reset = true;
                continue;
            };
            match direction {
                Direction::Request => {
                    self.forwarded_end |= part.is_last();
                    Request::gather(&mut self.forwarded, part);
                }
                Direction::Response => {
                    self.response_end |= part.is_last();
                    Response::gather(&mut self.response, part);
                }
            }
        }
    }

    /// How the stream stands.
    fn told(self, worker: &mut Worker, slot: StreamId) -> Told {
        let local = worker.is_local_reply(slot);
        let details = worker.details(slot);
        let end = match (self.reset, self.response_end, local) {
            (true, _, _) => End::Reset,
            (false, true, true) => End::LocalReply,
            (false, true, false) => End::Forwarded,
            (false, false, _) => End::Paused,
        };
        let details = details.unwrap_or_else(|| match end {
            End::Forwarded => VIA_UPSTREAM.to_owned(),
            End::LocalReply | End::Reset | End::Paused => String::new(),
        });
        let response = self.response.unwrap_or_else(|| Response::from_headers(Headers::new()));
        let (failure, happened) = (None, Happened::default());
        Told { end, response, forwarded: self.forwarded, details, failure, happened }
    }
}

/// Feeds a message in the pieces of the host's framing, as far as the filters take it: when they hold more than the
/// gateway's limit it reads no more of it.
fn feed(worker: &mut Worker, clusters: &Clusters, slot: StreamId, direction: Direction, message: Message) {
    let Message { headers, chunks, trailers, is_http2 } = message;
    let end = chunks.is_empty() && trailers.is_none();
    let framing = worker.shared.framing;
    let (count, ends) = (chunks.len(), trailers.is_none());
    let pieces = chunks.into_iter().enumerate().flat_map(|(index, chunk)| {
        let last = index + 1 == count && ends;
        framing.pieces(chunk, last, is_http2)
    });
    let parts = std::iter::once(Part::Headers { headers, end })
        .chain(pieces.map(|(data, end)| Part::Body { data, end }))
        .chain(trailers.map(Part::Trailers));
    for part in parts {
        let is_data = matches!(&part, Part::Body { data, .. } if !data.is_empty());
        if is_data && worker.is_full(slot, direction) {
            return;
        }
        worker.feed(slot, Frame { direction, part });
        clusters.serve(worker);
    }
}

/// A message with what its framing goes by.
struct Message {
    headers: Headers,
    /// The body as it was sent; none where there is no body.
    chunks: Vec<Bytes>,
    trailers: Option<Headers>,
    is_http2: bool,
}

/// Feeds what the upstream answers; its failures are the router's replies.
pub(crate) fn answer(worker: &mut Worker, clusters: &Clusters, slot: StreamId, mut response: Response) {
    match response.failure {
        Some(Failure::Reset) => {
            worker.reply(
                slot,
                503,
                RESET_ERROR,
                "upstream_reset_before_response_started{connection_termination}",
            );
        }
        Some(Failure::Silence) => time_out(worker, slot),
        None => {
            response.declare_length();
            let chunks = response.take_chunks();
            let Response { headers, trailers, .. } = response;
            // Upstreams are spoken to over HTTP/1.
            let message = Message { headers, chunks, trailers, is_http2: false };
            feed(worker, clusters, slot, Direction::Response, message);
        }
    }
    clusters.serve(worker);
}

/// What the router says when the upstream does not answer.
pub(crate) fn time_out(worker: &mut Worker, slot: StreamId) {
    worker.reply(slot, 504, "upstream request timeout", "response_timeout");
}

/// Ends a stream: filters log it, and what became of it is told.
pub(crate) fn finish(
    worker: &mut Worker,
    clusters: &Clusters,
    (slot, mark): (StreamId, Mark),
    collected: Collected,
) -> Outcome {
    let mut told = collected.told(worker, slot);
    worker.close(slot);
    clusters.serve(worker);
    told.failure = worker.failure();
    told.happened = worker.happened_since(mark);
    clusters.keep(worker, Outcome(told.into()))
}

/// Opens a stream and feeds it the whole request; or the outcome of one that the gateway refuses.
pub(crate) fn begin(
    worker: &mut Worker,
    clusters: &Clusters,
    mut request: Request,
) -> Result<(StreamId, Mark), Outcome> {
    if !request.as_given {
        if let Some(refusal) = edge::refusal(&request.headers, request.peer.protocol) {
            return Err(clusters.keep(worker, refusal.outcome()));
        }
        request.declare_length();
        worker.admit(&mut request);
    }
    let chunks = request.take_chunks();
    let Request { headers, trailers, peer, .. } = request;
    let is_http2 = peer.protocol == HTTP2;
    let mark = worker.shared.record.begin();
    let slot = worker.open(peer);
    let message = Message { headers, chunks, trailers, is_http2 };
    feed(worker, clusters, slot, Direction::Request, message);
    Ok((slot, mark))
}

/// Sends a request through the worker's filter to `upstream` and back.
pub(crate) fn send(
    worker: &mut Worker,
    clusters: &Clusters,
    request: Request,
    upstream: &mut dyn FnMut(&Request) -> Response,
) -> Outcome {
    let (slot, mark) = match begin(worker, clusters, request) {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    let mut collected = Collected::new();
    collected.collect(worker, slot);
    if !collected.is_over() && !worker.is_local_reply(slot) {
        match &collected.forwarded {
            Some(forwarded) if collected.forwarded_end => {
                let response = upstream(forwarded);
                answer(worker, clusters, slot, response);
            }
            // The upstream waits for the rest of a body that was declared longer than it is.
            Some(_) if worker.is_request_sent(slot) => time_out(worker, slot),
            _ => {}
        }
        clusters.serve(worker);
        collected.collect(worker, slot);
    }
    finish(worker, clusters, (slot, mark), collected)
}
