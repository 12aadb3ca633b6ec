//! A request and its response on their way through a worker, whole or step by step.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    clusters::Clusters,
    edge,
    outcome::{End, Outcome, Told},
    shared::record::Mark,
    wire::{
        callout::{PROTOCOL_ERROR, RESET_ERROR},
        frame::Direction,
        frame::{Frame, Output, Part},
        grpc::VIA_UPSTREAM,
        headers::Headers,
        message::{Failure, HTTP2, Peer, Request, Response},
    },
    worker::{SharedWorker, Worker, chain::StreamId},
};

/// A stream in progress. Several may be in progress on one worker, and then share its VM.
///
/// ```no_run
/// # use host_sim::{Host, Request, Response};
/// # fn steps(host: &Host) {
/// let mut stream = host.stream(&Request::post("/upload"), false);
/// stream.body("first ", false);
/// stream.body("second", true);
/// stream.respond(Response::ok());
/// assert_eq!(stream.finish().status(), 200);
/// # }
/// ```
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct Stream {
    worker: SharedWorker,
    clusters: Arc<Clusters>,
    id: StreamId,
    mark: Mark,
    /// What filters have let go on.
    forwarded: Option<Request>,
    is_forwarded: bool,
    response: Option<Response>,
    is_answered: bool,
    is_reset: bool,
    /// The upstream has been asked.
    is_asked: bool,
    is_ended: bool,
}

impl Stream {
    fn begin(worker: &SharedWorker, clusters: &Arc<Clusters>, peer: Peer) -> Self {
        let mut guard = worker.lock();
        let (mark, id) = (guard.shared.record.begin(), guard.open_for(peer));
        drop(guard);
        Self {
            worker: worker.clone(),
            clusters: Arc::clone(clusters),
            id,
            mark,
            forwarded: None,
            is_forwarded: false,
            response: None,
            is_answered: false,
            is_reset: false,
            is_asked: false,
            is_ended: false,
        }
    }

    /// Sends the request's headers; its body and trailers are ignored.
    pub(super) fn open(
        worker: &SharedWorker,
        clusters: &Arc<Clusters>,
        request: &Request,
        end_of_stream: bool,
    ) -> Self {
        let mut request = request.clone();
        if !request.as_given {
            worker.lock().admit(&mut request);
        }
        let Request { headers, peer, .. } = request;
        let mut stream = Self::begin(worker, clusters, peer);
        stream.feed(Direction::Request, Part::Headers { headers, end: end_of_stream });
        stream
    }

    /// Sends the whole request; or the outcome of one that the gateway refuses.
    pub(super) fn send(
        worker: &SharedWorker,
        clusters: &Arc<Clusters>,
        mut request: Request,
    ) -> Result<Self, Outcome> {
        if !request.as_given {
            let mut worker = worker.lock();
            if let Some(refusal) = edge::refusal(&request.headers, request.peer.protocol) {
                return Err(clusters.keep(&worker, refusal.outcome()));
            }
            request.declare_length();
            worker.admit(&mut request);
        }
        let chunks = request.take_chunks();
        let Request { headers, trailers, peer, .. } = request;
        let is_http2 = peer.protocol == HTTP2;
        let mut stream = Self::begin(worker, clusters, peer);
        stream.feed_whole(Direction::Request, Message { headers, chunks, trailers, is_http2 });
        Ok(stream)
    }

    /// Sends a request through the worker's filters to `upstream` and back.
    pub(super) fn exchange(
        worker: &SharedWorker,
        clusters: &Arc<Clusters>,
        request: Request,
        upstream: impl FnMut(&Request) -> Response,
    ) -> Outcome {
        let mut stream = match Self::send(worker, clusters, request) {
            Ok(stream) => stream,
            Err(refused) => return refused,
        };
        if let Some(response) = stream.ask(upstream) {
            stream.respond(response);
        }
        stream.end()
    }

    /// Asks the upstream, once, when the whole request has gone on to it.
    pub(super) fn ask(&mut self, mut upstream: impl FnMut(&Request) -> Response) -> Option<Response> {
        if self.is_asked || self.is_over() || self.worker.lock().is_local_reply(self.id) {
            return None;
        }
        let response = match &self.forwarded {
            Some(forwarded) if self.is_forwarded => upstream(forwarded),
            // The upstream waits for the rest of a body that was declared longer than it is.
            Some(_) if self.worker.lock().is_request_sent(self.id) => Response::silence(),
            _ => return None,
        };
        self.is_asked = true;
        Some(response)
    }

    fn feed(&mut self, direction: Direction, part: Part) {
        self.step(|worker, _, id| worker.feed(id, Frame { direction, part }));
    }

    fn step(&mut self, step: impl FnOnce(&mut Worker, &Clusters, StreamId)) {
        let mut worker = self.worker.lock();
        step(&mut worker, &self.clusters, self.id);
        self.clusters.serve(&mut worker);
        let outputs = worker.outputs(self.id);
        drop(worker);
        for output in outputs {
            match output {
                Output::Frame(Frame { direction: Direction::Request, part }) => {
                    self.is_forwarded |= part.is_last();
                    Request::gather(&mut self.forwarded, part);
                }
                Output::Frame(Frame { direction: Direction::Response, part }) => {
                    self.is_answered |= part.is_last();
                    Response::gather(&mut self.response, part);
                }
                Output::Reset => self.is_reset = true,
            }
        }
    }

    /// Feeds a message in the pieces of the host's framing, as far as the filters take it: when they hold more than the
    /// gateway's limit it reads no more of it.
    fn feed_whole(&mut self, direction: Direction, message: Message) {
        let Message { headers, chunks, trailers, is_http2 } = message;
        let end = chunks.is_empty() && trailers.is_none();
        self.step(|worker, clusters, id| {
            let framing = worker.framing();
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
                if is_data && worker.is_full(id, direction) {
                    return;
                }
                worker.feed(id, Frame { direction, part });
                clusters.serve(worker);
            }
        });
    }

    /// The client sends a piece of body.
    pub fn body(&mut self, data: impl Into<Bytes>, end_of_stream: bool) {
        self.feed(Direction::Request, Part::Body { data: data.into(), end: end_of_stream });
    }

    /// The client sends trailers, which end its request.
    pub fn trailers(&mut self, trailers: Headers) {
        self.feed(Direction::Request, Part::Trailers(trailers));
    }

    /// The upstream answers, whole; its failures are the router's replies.
    pub fn respond(&mut self, mut response: Response) {
        let (status, body, details) = match response.failure {
            None => {
                response.declare_length();
                let chunks = response.take_chunks();
                let Response { headers, trailers, .. } = response;
                if !self.worker.lock().is_local_reply(self.id) {
                    // Upstreams are spoken to over HTTP/1.
                    self.feed_whole(
                        Direction::Response,
                        Message { headers, chunks, trailers, is_http2: false },
                    );
                }
                return;
            }
            Some(Failure::Reset) => {
                (503, RESET_ERROR, "upstream_reset_before_response_started{connection_termination}")
            }
            Some(Failure::Malformed) => {
                (502, PROTOCOL_ERROR, "upstream_reset_before_response_started{protocol_error}")
            }
            Some(Failure::Silence) => (504, "upstream request timeout", "response_timeout"),
        };
        self.step(|worker, _, id| worker.reply(id, status, body, details));
    }

    /// The upstream sends its headers.
    pub fn respond_headers(&mut self, headers: Headers, end_of_stream: bool) {
        self.respond_part(Part::Headers { headers, end: end_of_stream });
    }

    /// The upstream sends a piece of body.
    pub fn respond_body(&mut self, data: impl Into<Bytes>, end_of_stream: bool) {
        self.respond_part(Part::Body { data: data.into(), end: end_of_stream });
    }

    /// The upstream sends trailers, which end its response.
    pub fn respond_trailers(&mut self, trailers: Headers) {
        self.respond_part(Part::Trailers(trailers));
    }

    /// What an upstream sends after a reply was made in its place goes nowhere.
    fn respond_part(&mut self, part: Part) {
        if !self.worker.lock().is_local_reply(self.id) {
            self.feed(Direction::Response, part);
        }
    }

    /// Takes in what other streams, timers or callouts made the filter do with this one.
    pub fn poll(&mut self) {
        self.step(|_, _, _| {});
    }

    /// The request as far as the filter has let it go on.
    pub fn forwarded(&self) -> Option<&Request> {
        self.forwarded.as_ref()
    }

    /// Whether the whole request has gone on to the upstream.
    pub fn is_forwarded(&self) -> bool {
        self.is_forwarded
    }

    /// The response as far as the filter has let it go on.
    pub fn response(&self) -> Option<&Response> {
        self.response.as_ref()
    }

    /// Whether the client has its whole response, or its stream was cut.
    pub fn is_over(&self) -> bool {
        self.is_answered || self.is_reset
    }

    /// Ends the stream, as its end or a client that goes away does: log, done, delete.
    pub fn finish(mut self) -> Outcome {
        self.poll();
        self.end()
    }

    fn end(&mut self) -> Outcome {
        self.is_ended = true;
        let mut worker = self.worker.lock();
        let end = match (self.is_reset, self.is_answered, worker.is_local_reply(self.id)) {
            (true, _, _) => End::Reset,
            (false, true, true) => End::LocalReply,
            (false, true, false) => End::Forwarded,
            (false, false, _) => End::Paused,
        };
        let details = worker.details(self.id).unwrap_or_else(|| match end {
            End::Forwarded => VIA_UPSTREAM.to_owned(),
            End::LocalReply | End::Reset | End::Paused => String::new(),
        });
        let filter_state = worker.filter_state(self.id);
        worker.close(self.id);
        self.clusters.serve(&mut worker);
        let told = Told {
            end,
            response: self.response.take().unwrap_or_else(|| Response::from_headers(Headers::new())),
            forwarded: self.forwarded.take(),
            details,
            filter_state,
            failure: worker.failure(),
            happened: worker.shared.record.end(self.mark, worker.name),
        };
        self.clusters.keep(&worker, Outcome(told.into()))
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

impl Drop for Stream {
    /// A stream that is dropped is one whose client went away.
    fn drop(&mut self) {
        if !self.is_ended {
            self.end();
        }
    }
}
