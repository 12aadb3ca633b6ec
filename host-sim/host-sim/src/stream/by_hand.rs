//! A stream whose every step a test takes by hand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{
    outcome::Outcome,
    shared::record::Mark,
    stream::{
        exchange::{self, Clusters, Collected},
        frame::{Direction, Frame, Part},
        manager::StreamId,
    },
    wire::{
        headers::Headers,
        message::{Request, Response},
    },
    worker::Worker,
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
pub struct Stream {
    worker: Arc<Mutex<Worker>>,
    clusters: Arc<Clusters>,
    slot: StreamId,
    mark: Mark,
    collected: Collected,
    is_ended: bool,
}

impl Stream {
    /// Sends the request's headers; its body and trailers are ignored.
    pub(crate) fn open(
        worker: Arc<Mutex<Worker>>,
        clusters: Arc<Clusters>,
        request: &Request,
        end_of_stream: bool,
    ) -> Self {
        let mut request = request.clone();
        let mut guard = Self::lock(&worker);
        if !request.as_given {
            guard.admit(&mut request);
        }
        let Request { headers, peer, .. } = request;
        let mark = guard.shared.record.begin();
        let slot = guard.open(peer);
        drop(guard);
        let mut stream = Self { worker, clusters, slot, mark, collected: Collected::new(), is_ended: false };
        stream.feed(Direction::Request, Part::Headers { headers, end: end_of_stream });
        stream
    }

    /// Sends the whole request; or the outcome of one that the gateway refuses.
    pub(crate) fn send(
        worker: Arc<Mutex<Worker>>,
        clusters: Arc<Clusters>,
        request: Request,
    ) -> Result<Self, Outcome> {
        let (slot, mark) = exchange::begin(&mut Self::lock(&worker), &clusters, request)?;
        let mut stream = Self { worker, clusters, slot, mark, collected: Collected::new(), is_ended: false };
        stream.poll();
        Ok(stream)
    }

    /// Whether a reply was made in the upstream's place.
    pub(crate) fn is_local_reply(&self) -> bool {
        Self::lock(&self.worker).is_local_reply(self.slot)
    }

    /// Whether filters have let the whole request go on, of which the upstream may still read less.
    pub(crate) fn is_request_sent(&self) -> bool {
        Self::lock(&self.worker).is_request_sent(self.slot)
    }

    /// The upstream's time is up.
    pub(crate) fn time_out(&mut self) {
        self.step(exchange::time_out);
    }

    fn lock(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
        worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&mut self, direction: Direction, part: Part) {
        self.step(|worker, slot| worker.feed(slot, Frame { direction, part }));
    }

    fn step(&mut self, step: impl FnOnce(&mut Worker, StreamId)) {
        let mut worker = Self::lock(&self.worker);
        step(&mut worker, self.slot);
        self.clusters.serve(&mut worker);
        self.collected.collect(&mut worker, self.slot);
    }

    /// The client sends a piece of body.
    pub fn body(&mut self, data: impl Into<Bytes>, end_of_stream: bool) {
        let data = data.into();
        self.feed(Direction::Request, Part::Body { data, end: end_of_stream });
    }

    /// The client sends trailers, which end its request.
    pub fn trailers(&mut self, trailers: Headers) {
        self.feed(Direction::Request, Part::Trailers(trailers));
    }

    /// The upstream answers, whole.
    pub fn respond(&mut self, response: Response) {
        let clusters = Arc::clone(&self.clusters);
        self.upstream(|worker, slot| exchange::answer(worker, &clusters, slot, response));
    }

    /// The upstream sends its headers.
    pub fn respond_headers(&mut self, headers: Headers, end_of_stream: bool) {
        self.upstream_part(Part::Headers { headers, end: end_of_stream });
    }

    /// The upstream sends a piece of body.
    pub fn respond_body(&mut self, data: impl Into<Bytes>, end_of_stream: bool) {
        let data = data.into();
        self.upstream_part(Part::Body { data, end: end_of_stream });
    }

    /// The upstream sends trailers, which end its response.
    pub fn respond_trailers(&mut self, trailers: Headers) {
        self.upstream_part(Part::Trailers(trailers));
    }

    /// What an upstream sends after a reply was made in its place goes nowhere.
    fn upstream(&mut self, step: impl FnOnce(&mut Worker, StreamId)) {
        if !self.is_local_reply() {
            self.step(step);
        }
    }

    fn upstream_part(&mut self, part: Part) {
        self.upstream(|worker, slot| worker.feed(slot, Frame { direction: Direction::Response, part }));
    }

    /// Takes in what other streams, timers or callouts made the filter do with this one.
    pub fn poll(&mut self) {
        self.step(|_, _| {});
    }

    /// The request as far as the filter has let it go on.
    pub fn forwarded(&self) -> Option<&Request> {
        self.collected.forwarded.as_ref()
    }

    /// Whether the whole request has gone on to the upstream.
    pub fn is_forwarded(&self) -> bool {
        self.collected.forwarded_end
    }

    /// The response as far as the filter has let it go on.
    pub fn response(&self) -> Option<&Response> {
        self.collected.response.as_ref()
    }

    /// Whether the client has its whole response, or its stream was cut.
    pub fn is_over(&self) -> bool {
        self.collected.is_over()
    }

    /// Ends the stream, as its end or a client that goes away does: log, done, delete.
    pub fn finish(mut self) -> Outcome {
        self.poll();
        self.end()
    }

    fn end(&mut self) -> Outcome {
        self.is_ended = true;
        let collected = std::mem::replace(&mut self.collected, Collected::new());
        exchange::finish(&mut Self::lock(&self.worker), &self.clusters, (self.slot, self.mark), collected)
    }
}

impl Drop for Stream {
    /// A stream that is dropped is one whose client went away.
    fn drop(&mut self) {
        if !self.is_ended {
            self.end();
        }
    }
}
