//! A whole request and its response, driven through a worker while the caller waits.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::{
    chain::{StreamId, VIA_UPSTREAM},
    grpc::GrpcEvent,
    message::{End, Failure, Outcome, Request, Response},
    state::{Direction, GrpcOrder, GrpcStep, Output},
    worker::{SimulatedStream, Worker},
};

/// A filter that calls out again from each answer would never come to an end.
const MAX_CALLOUTS: usize = 10_000;

/// What answers the callouts to one cluster.
type Handler = Box<dyn FnMut(&Request) -> Response + Send>;

/// The clusters of a host, by name.
#[derive(Default)]
pub(crate) struct Clusters(BTreeMap<String, Mutex<Handler>>);

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Clusters {
    pub(crate) fn insert(&mut self, name: String, handler: Handler) {
        self.0.insert(name, Mutex::new(handler));
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.0.keys().cloned()
    }

    fn call(&self, cluster: &str, request: &Request) -> Response {
        match self.0.get(cluster) {
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
                let response = self.call(&callout.cluster, &callout.request);
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
                let stream = SimulatedStream { cluster, request, answered: false };
                worker.simulated_streams().insert(call, stream);
                return;
            }
            GrpcStep::Reset => {
                worker.simulated_streams().remove(&call);
                return;
            }
            GrpcStep::Send { message, .. } => message,
            GrpcStep::Close => bytes::Bytes::new(),
        };
        let Some(stream) = worker.simulated_streams().get_mut(&call) else { return };
        let response = self.call(&stream.cluster, &stream.request.clone().body(body));
        let later = std::mem::replace(&mut stream.answered, true);
        for event in GrpcEvent::of_answer(response, later) {
            if matches!(event, GrpcEvent::Closed { .. }) {
                worker.simulated_streams().remove(&call);
            }
            worker.grpc_event(call, event);
        }
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
            match output {
                Output::RequestHeaders { headers, end } => {
                    self.forwarded = Some(Request::from_headers(headers));
                    self.forwarded_end = end;
                }
                Output::RequestBody { data, end } => {
                    if let Some(request) = &mut self.forwarded {
                        request.body = join(&request.body, data);
                    }
                    self.forwarded_end |= end;
                }
                Output::RequestTrailers(trailers) => {
                    if let Some(request) = &mut self.forwarded {
                        request.trailers = Some(trailers);
                    }
                    self.forwarded_end = true;
                }
                Output::ResponseHeaders { headers, end } => {
                    self.response = Some(Response::from_headers(headers));
                    self.response_end = end;
                }
                Output::ResponseBody { data, end } => {
                    if let Some(response) = &mut self.response {
                        response.body = join(&response.body, data);
                    }
                    self.response_end |= end;
                }
                Output::ResponseTrailers(trailers) => {
                    if let Some(response) = &mut self.response {
                        response.trailers = Some(trailers);
                    }
                    self.response_end = true;
                }
                Output::Reset => self.reset = true,
            }
        }
    }

    /// How the stream stands, as an outcome.
    pub(crate) fn outcome(self, worker: &mut Worker, slot: StreamId) -> Outcome {
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
        let response =
            self.response.unwrap_or_else(|| Response::from_headers(crate::headers::Headers::new()));
        Outcome { end, response, forwarded: self.forwarded, details }
    }
}

fn join(before: &bytes::Bytes, data: bytes::Bytes) -> bytes::Bytes {
    if before.is_empty() { data } else { [before.as_ref(), data.as_ref()].concat().into() }
}

/// Feeds what the upstream answers; its failures are the router's replies.
pub(crate) fn answer(worker: &mut Worker, slot: StreamId, response: Response) {
    match response.failure {
        Some(Failure::Reset) => {
            const BODY: &str = "upstream connect error or disconnect/reset before headers. reset reason: connection \
                                termination";
            worker.reply(slot, 503, BODY, "upstream_reset_before_response_started{connection_termination}");
        }
        Some(Failure::Silence) => worker.reply(slot, 504, "upstream request timeout", "response_timeout"),
        None => {
            let Response { headers, body, trailers, .. } = response;
            let end_with_headers = body.is_empty() && trailers.is_none();
            worker.headers(slot, Direction::Response, headers, end_with_headers);
            if !body.is_empty() {
                worker.data(slot, Direction::Response, body, trailers.is_none());
            }
            if let Some(trailers) = trailers {
                worker.trailers(slot, Direction::Response, trailers);
            }
        }
    }
}

/// Sends a request through the worker's filter to `upstream` and back.
pub(crate) fn send(
    worker: &mut Worker,
    clusters: &Clusters,
    request: Request,
    upstream: &mut dyn FnMut(&Request) -> Response,
) -> Outcome {
    let Request { headers, body, trailers, peer } = request;
    let slot = worker.open(peer);
    let mut collected = Collected::new();

    worker.headers(slot, Direction::Request, headers, body.is_empty() && trailers.is_none());
    clusters.serve(worker);
    if !body.is_empty() {
        worker.data(slot, Direction::Request, body, trailers.is_none());
        clusters.serve(worker);
    }
    if let Some(trailers) = trailers {
        worker.trailers(slot, Direction::Request, trailers);
        clusters.serve(worker);
    }
    collected.collect(worker, slot);
    if let Some(forwarded) = &collected.forwarded
        && collected.forwarded_end
        && !collected.is_over()
        && !worker.is_local_reply(slot)
    {
        let response = upstream(forwarded);
        answer(worker, slot, response);
        clusters.serve(worker);
        collected.collect(worker, slot);
    }
    let outcome = collected.outcome(worker, slot);
    worker.close(slot);
    clusters.serve(worker);
    outcome
}
