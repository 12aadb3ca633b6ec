//! One request through the gateway, from its connection through the filter to the upstream and back, as it streams.

use std::{
    error::Error as _,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::OptionFuture;
use host_sim::{
    Headers,
    driver::{
        self, CONNECT_ERROR, Direction, Output, PROTOCOL_ERROR, Part, RESET_ERROR, StreamId, Upstream, Worker,
    },
    edge::Refusal,
};
use http::{Response, Version};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::{ResponseFuture, connect::HttpInfo};
use tokio::{
    sync::{Notify, oneshot},
    time::{self, Instant},
};

use super::{
    body::{self, Body, Pipe},
    client::{Answer, Failure},
    history::{End, Message, Record, RequestId, Upstream as Asked},
    local::Local,
    translate,
};

/// How long a connection is read on after an answer that came before the request's end (Envoy's
/// `delayed_close_timeout`): closing at once would reset it, and the client would never read the answer.
const LINGER: Duration = Duration::from_secs(1);

/// A request in progress.
pub(super) struct Exchange {
    local: Rc<Local>,
    stream: StreamId,
    /// Notified when the filters have released a part of the stream.
    wake: Rc<Notify>,
    /// Whether the client speaks HTTP/2.
    is_http2: bool,
    /// What is left to be read of the request.
    request_body: Option<Incoming>,
    /// To the upstream.
    up: Pipe,
    call: Option<ResponseFuture>,
    request_sent: bool,
    /// When an upstream that has the whole request must have answered.
    deadline: Option<Instant>,
    /// What is left to be read of the upstream's response.
    response_body: Option<Incoming>,
    /// Takes the head of the answer, once.
    answer: Option<oneshot::Sender<Response<Body>>>,
    /// The answer's body.
    down: Pipe,
    /// Whether it was broken off, by whichever side.
    over: bool,
    /// When it came, on the monotonic clock.
    began: Duration,
    /// Its number among the recent requests, if those are kept.
    id: Option<RequestId>,
    /// What is to be said of it, if that is wanted; gone once it is over.
    record: Option<Record>,
}

impl Exchange {
    pub(super) fn new(
        local: Rc<Local>,
        connection: &driver::Connection,
        id: Option<RequestId>,
        record: Option<Record>,
        answer: oneshot::Sender<Response<Body>>,
    ) -> Self {
        let stream = local.with(|worker| worker.open(connection));
        let wake = Rc::new(Notify::new());
        local.register(stream, Rc::clone(&wake));
        local.common.stats.active_requests.fetch_add(1, Ordering::Relaxed);
        Self {
            began: local.now(),
            local,
            stream,
            wake,
            is_http2: connection.protocol == translate::protocol(Version::HTTP_2),
            request_body: None,
            up: Pipe::default(),
            call: None,
            request_sent: false,
            deadline: None,
            response_body: None,
            answer: Some(answer),
            down: Pipe::default(),
            over: false,
            id,
            record,
        }
    }

    /// Follows the request to the end of its answer, or until either side breaks it off.
    pub(super) async fn run(mut self, headers: Headers, body: Incoming) {
        let end = body.is_end_stream();
        self.request_body = (!end).then_some(body);
        self.feed(Direction::Request, Part::Headers { headers, end });
        loop {
            while self.pass_on() {}
            if self.over || (self.answer.is_none() && self.down.is_finished()) {
                break;
            }
            self.next().await;
        }
        let unread = self.request_body.take();
        drop(self);
        if let Some(mut body) = unread {
            // Beyond the time the client is cut off.
            let read = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = time::timeout(LINGER, read).await;
        }
    }

    /// Waits for the next event of the client, the upstream or the filters, and passes it to the filters.
    async fn next(&mut self) {
        let takes = |pipe: &Pipe, direction| {
            pipe.has_room() && !self.local.peek(|worker| worker.is_full(self.stream, direction))
        };
        let reads_request = takes(&self.up, Direction::Request);
        let reads_response = takes(&self.down, Direction::Response);
        tokio::select! {
            // The timer last, so that it is set only where there is something to wait for.
            biased;
            () = self.wake.notified() => {}
            Some(frame) = OptionFuture::from(self.request_body.as_mut().map(Incoming::frame)), if reads_request => {
                self.take(Direction::Request, frame);
            }
            Some(answer) = OptionFuture::from(self.call.as_mut()) => self.answered(answer),
            Some(frame) = OptionFuture::from(self.response_body.as_mut().map(Incoming::frame)), if reads_response => {
                self.take(Direction::Response, frame);
            }
            () = self.up.progress() => {}
            () = self.down.progress() => {}
            // The client went away before its answer.
            Some(()) = OptionFuture::from(self.answer.as_mut().map(oneshot::Sender::closed)) => self.over = true,
            Some(()) = OptionFuture::from(self.deadline.map(time::sleep_until)) => self.time_out(),
        }
    }

    /// Takes what filters have let go on to where it goes; whether there was any.
    fn pass_on(&mut self) -> bool {
        let stream = self.stream;
        let (outputs, is_sent) =
            self.local.peek(|worker| (worker.outputs(stream), worker.is_request_sent(stream)));
        if is_sent && !std::mem::replace(&mut self.request_sent, true) {
            self.deadline = Some(Instant::now() + self.local.common.options.response_timeout);
        }
        let any = !outputs.is_empty();
        for output in outputs {
            match output {
                Output::Frame(driver::Frame { direction: Direction::Request, part }) => self.send_up(part),
                Output::Frame(driver::Frame { direction: Direction::Response, part }) => self.send_down(part),
                Output::Reset => self.reset(),
            }
        }
        any
    }

    /// Takes something down of the request.
    fn note(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    /// Has filters take a step.
    fn step(&self, step: impl FnOnce(&mut Worker, StreamId)) {
        self.local.with_for(self.id, |worker| step(worker, self.stream));
    }

    fn feed(&self, direction: Direction, part: Part) {
        self.step(|worker, stream| worker.feed(stream, driver::Frame { direction, part }));
    }

    /// Takes the next frame of a body, or its end, to the filters.
    fn take(&mut self, direction: Direction, frame: Option<Result<Frame<Bytes>, hyper::Error>>) {
        let body = match direction {
            Direction::Request => &mut self.request_body,
            Direction::Response => &mut self.response_body,
        };
        let (data, trailers, end) = match frame.transpose() {
            Ok(None) => (Bytes::new(), None, true),
            Ok(Some(frame)) => match frame.into_data() {
                Ok(data) => (data, None, body.as_ref().is_none_or(Incoming::is_end_stream)),
                Err(frame) => (Bytes::new(), frame.into_trailers().ok(), true),
            },
            Err(error) if direction == Direction::Request => return self.unreadable(&error),
            // The upstream broke its response off: the client must not take it for whole.
            Err(_) => return self.reset(),
        };
        if end {
            *body = None;
            if direction == Direction::Response {
                self.deadline = None;
            }
        }
        // Upstreams are spoken to over HTTP/1.
        let is_http2 = self.is_http2 && direction == Direction::Request;
        match trailers {
            Some(trailers) if is_http2 => {
                let trailers = translate::headers_of(&trailers);
                self.note(|record| record.request.end(trailers.clone()));
                self.feed(direction, Part::Trailers(trailers));
            }
            // Over HTTP/1 trailers are dropped (`enable_trailers` is off).
            _ => {
                self.note(|record| match (direction, &mut record.upstream) {
                    (Direction::Request, _) => record.request.add(&data),
                    (Direction::Response, Asked::Answered(answer)) => answer.add(&data),
                    (Direction::Response, _) => {}
                });
                self.step(|worker, stream| {
                    for (data, end) in worker.framing().pieces(data, end, is_http2) {
                        worker.feed(stream, driver::Frame { direction, part: Part::Body { data, end } });
                    }
                });
            }
        }
    }

    /// The client broke its request off, or sent what is no HTTP.
    fn unreadable(&mut self, error: &hyper::Error) {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let is_malformed = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidInput);
        if !is_malformed || self.answer.is_none() {
            return self.over = true;
        }
        self.request_body = None;
        let Refusal { status, body, details } = Refusal::NO_HTTP;
        self.step(|worker, stream| worker.reply(stream, status, body, details));
    }

    /// Takes the upstream's response, or the lack of one, to the filters.
    fn answered(&mut self, answer: Answer) {
        self.call = None;
        let stream = self.stream;
        if self.local.peek(|worker| worker.is_local_reply(stream)) {
            return;
        }
        match answer {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                if let Some(info) = parts.extensions.get::<HttpInfo>() {
                    let (address, local_address) = (info.remote_addr(), Some(info.local_addr()));
                    self.local
                        .peek(|worker| worker.set_upstream(stream, Upstream { address, local_address }));
                    self.note(|record| record.upstream_address = Some(address));
                }
                let end = body.is_end_stream();
                if end {
                    self.deadline = None;
                } else {
                    self.response_body = Some(body);
                }
                let headers = translate::response_headers(&parts);
                self.note(|record| record.upstream = Asked::Answered(Message::new(headers.clone())));
                self.feed(Direction::Response, Part::Headers { headers, end });
            }
            Err(error) => {
                self.local.common.stats.upstream_failures.fetch_add(1, Ordering::Relaxed);
                let (upstream, status, reason, details) = match error.into() {
                    Failure::Unreachable => (
                        Asked::Unreachable,
                        503,
                        CONNECT_ERROR,
                        "upstream_reset_before_response_started{remote_connection_failure}",
                    ),
                    Failure::Broken => (
                        Asked::Broken,
                        503,
                        RESET_ERROR,
                        "upstream_reset_before_response_started{connection_termination}",
                    ),
                    Failure::Malformed => (
                        Asked::Broken,
                        502,
                        PROTOCOL_ERROR,
                        "upstream_reset_before_response_started{protocol_error}",
                    ),
                };
                self.note(|record| record.upstream = upstream);
                self.step(|worker, stream| worker.reply(stream, status, reason, details));
            }
        }
    }

    /// The upstream has the whole request, as far as the gateway knows, and has not answered whole in time.
    fn time_out(&mut self) {
        self.deadline = None;
        self.call = None;
        self.response_body = None;
        if self.answer.is_none() {
            return self.reset();
        }
        self.note(|record| record.upstream = Asked::Late);
        self.step(|worker, stream| worker.reply(stream, 504, "upstream request timeout", "response_timeout"));
    }

    fn send_up(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.call_upstream(headers, end),
            Part::Body { data, end } => self.up.data(data, end),
            Part::Trailers(trailers) => self.up.trailers(translate::header_map(trailers)),
        }
    }

    fn send_down(&mut self, part: Part) {
        match part {
            Part::Headers { headers, end } => self.send_head(headers, end),
            Part::Body { data, end } => {
                self.note(|record| record.sent(&data, end));
                self.down.data(data, end);
            }
            Part::Trailers(trailers) => {
                self.note(|record| {
                    record.answer.end(trailers.clone());
                    record.end = End::Answered;
                });
                self.down.trailers(translate::header_map(trailers));
            }
        }
    }

    fn call_upstream(&mut self, headers: Headers, end: bool) {
        let common = Arc::clone(&self.local.common);
        let body = if end { body::whole(Bytes::new()) } else { self.up.open() };
        let forwarded = self.record.is_some().then(|| headers.clone());
        let Some(request) = translate::outbound(headers, &common.options.upstream, body) else {
            let details = "filter_removed_required_request_headers";
            return self.step(|worker, stream| worker.reply(stream, 503, "", details));
        };
        common.stats.upstream_requests.fetch_add(1, Ordering::Relaxed);
        self.note(|record| {
            record.headers = forwarded.unwrap_or_default();
            record.upstream = Asked::Asked;
            record.upstream_address = common.upstream_address;
        });
        if let Some(address) = common.upstream_address {
            let upstream = Upstream { address, local_address: None };
            self.local.peek(|worker| worker.set_upstream(self.stream, upstream));
        }
        self.call = Some(self.local.clients.request(request));
    }

    fn send_head(&mut self, headers: Headers, end: bool) {
        let stream = self.stream;
        let is_local_reply = self.local.peek(|worker| worker.is_local_reply(stream));
        if is_local_reply {
            // A reply was made in the upstream's place: what goes there is broken off.
            self.up = Pipe::default();
            self.call = None;
            self.response_body = None;
            self.deadline = None;
        }
        let body = if end { body::whole(Bytes::new()) } else { self.down.open() };
        let sent = self.record.is_some().then(|| headers.clone());
        let Some(response) = translate::inbound(headers, body) else { return self.reset() };
        self.local.common.stats.count_response(response.status().as_u16());
        self.note(|record| {
            record.answer = Message::new(sent.unwrap_or_default());
            record.local_reply = is_local_reply;
            record.sent(&Bytes::new(), end);
        });
        if let Some(answer) = self.answer.take() {
            // A client that is gone takes no answer, and drops its body.
            let _ = answer.send(response);
        }
    }

    /// Breaks the stream off: before its head by an error of the service, after it by one of the body.
    fn reset(&mut self) {
        self.local.common.stats.resets.fetch_add(1, Ordering::Relaxed);
        self.note(|record| record.end = End::Broken);
        self.over = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.local.common.stats.active_requests.fetch_sub(1, Ordering::Relaxed);
        self.local.forget(self.stream);
        let (stream, recorded) = (self.stream, self.record.is_some());
        let details = self.local.with_for(self.id, |worker| {
            let details = recorded.then(|| worker.details(stream)).flatten();
            worker.close(stream);
            details
        });
        if let Some(mut record) = self.record.take() {
            record.is_over(self.local.now().saturating_sub(self.began), details);
            self.local.note(self.id, record);
        }
    }
}
