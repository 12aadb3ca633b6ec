//! One request through the gateway, from its connection through the filter to the upstream and back, as it streams.

use std::{
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use host_sim::{
    Headers,
    driver::{self, Direction, Output, StreamId, WorkerGuard},
};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use tokio::sync::{Notify, oneshot};

use super::{
    body::{Aborted, Pipe, StreamBody},
    stats::Active,
    thread::{Local, MAX_HEADER_BYTES},
    translate,
};

/// Bytes that a filter may hold of a body: Envoy's buffer limit of a connection.
const BUFFER_LIMIT: usize = 1 << 20;

/// How long a connection is read on after an answer that came before the request's end (Envoy's
/// `delayed_close_timeout`).
const LINGER: Duration = Duration::from_secs(1);

const CONNECT_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure";
const RESET_ERROR: &str =
    "upstream connect error or disconnect/reset before headers. reset reason: connection termination";

/// What is known of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) id: u64,
}

/// Answers a request of a connection. An error breaks the connection, or the stream of an h2c connection, off.
pub(super) async fn serve(
    local: Rc<Local>,
    request: Request<Incoming>,
    connection: Connection,
) -> Result<Response<StreamBody>, Aborted> {
    local.stats.requests.fetch_add(1, Ordering::Relaxed);
    let version = request.version();
    let (parts, body) = request.into_parts();
    let headers = translate::request_headers(&parts, connection.peer);
    if headers.byte_size() > MAX_HEADER_BYTES as usize {
        // As in Envoy, no filter sees it.
        let mut response = Response::new(StreamBody::whole(Bytes::new()));
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        local.stats.count_response(response.status().as_u16());
        return Ok(response);
    }
    let (head, answer) = oneshot::channel();
    let exchange = Exchange::new(Rc::clone(&local), connection, version, head);
    tokio::task::spawn_local(exchange.run(headers, body));
    let mut response = answer.await.map_err(|_| Aborted)?;
    if local.is_draining() && version != Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Reads on what a client still sends after its answer, for a while: closing at once would reset the connection, and the
/// client would never read the answer.
async fn linger(mut body: Option<Incoming>) {
    let Some(body) = &mut body else { return };
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    // Beyond the time the client is cut off.
    let _ = tokio::time::timeout(LINGER, read).await;
}

type Call = Pin<Box<dyn Future<Output = Result<Response<Incoming>, legacy::Error>>>>;

/// A request in progress.
struct Exchange {
    local: Rc<Local>,
    stream: StreamId,
    wake: Rc<Notify>,
    request_body: Option<Incoming>,
    /// To the upstream.
    up: Pipe,
    call: Option<Call>,
    response_body: Option<Incoming>,
    /// To the client; the head is gone once it is sent.
    head: Option<oneshot::Sender<Response<StreamBody>>>,
    down: Pipe,
    over: bool,
}

enum Event {
    Woken,
    RequestFrame(Option<Result<Frame<Bytes>, hyper::Error>>),
    Answer(Result<Response<Incoming>, legacy::Error>),
    ResponseFrame(Option<Result<Frame<Bytes>, hyper::Error>>),
    Flushed,
    ClientGone,
}

/// The next frame of a body; none ever of one that is not there.
async fn next_frame(body: &mut Option<Incoming>) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    match body {
        Some(body) => body.frame().await,
        None => std::future::pending().await,
    }
}

impl Exchange {
    fn new(
        local: Rc<Local>,
        connection: Connection,
        version: Version,
        head: oneshot::Sender<Response<StreamBody>>,
    ) -> Self {
        let connection = driver::Connection {
            source: connection.peer,
            destination: connection.destination,
            protocol: translate::protocol(version),
            id: connection.id,
        };
        let stream = local.with(|worker| worker.open(&connection));
        let wake = Rc::new(Notify::new());
        local.register(stream, Rc::clone(&wake));
        Self {
            local,
            stream,
            wake,
            request_body: None,
            up: Pipe::default(),
            call: None,
            response_body: None,
            head: Some(head),
            down: Pipe::default(),
            over: false,
        }
    }

    async fn run(mut self, headers: Headers, body: Incoming) {
        let stats = Arc::clone(&self.local.stats);
        let _active = Active::new(&stats.active_requests);
        let end = body.is_end_stream();
        self.request_body = (!end).then_some(body);
        self.step(|worker, stream| worker.headers(stream, Direction::Request, headers, end));
        while !self.over {
            let event = self.next().await;
            self.follow(event);
        }
        let unread = self.request_body.take();
        drop(self);
        linger(unread).await;
    }

    /// Waits for the next thing to happen.
    async fn next(&mut self) -> Event {
        let reads_request = self.up.has_room() && !self.holds_too_much(Direction::Request);
        let reads_response = self.down.has_room() && !self.holds_too_much(Direction::Response);
        let Self { wake, request_body, up, call, response_body, head, down, .. } = self;
        let answer = async {
            match call {
                Some(call) => call.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let gone = async {
            match head {
                Some(head) => head.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake.notified() => Event::Woken,
            frame = next_frame(request_body), if reads_request => Event::RequestFrame(frame),
            answer = answer => Event::Answer(answer),
            frame = next_frame(response_body), if reads_response => Event::ResponseFrame(frame),
            () = up.progress() => Event::Flushed,
            () = down.progress() => Event::Flushed,
            () = gone => Event::ClientGone,
        }
    }

    fn follow(&mut self, event: Event) {
        match event {
            Event::Woken => self.collect(),
            Event::RequestFrame(Some(Ok(frame))) => {
                let last = self.request_body.as_ref().is_some_and(Incoming::is_end_stream);
                self.feed(Direction::Request, frame, last);
            }
            Event::RequestFrame(None) => self.feed(Direction::Request, Frame::data(Bytes::new()), true),
            // The client broke its request off.
            Event::RequestFrame(Some(Err(_))) | Event::ClientGone => self.over = true,
            Event::Answer(answer) => self.answered(answer),
            Event::ResponseFrame(Some(Ok(frame))) => {
                let last = self.response_body.as_ref().is_some_and(Incoming::is_end_stream);
                self.feed(Direction::Response, frame, last);
            }
            Event::ResponseFrame(None) => self.feed(Direction::Response, Frame::data(Bytes::new()), true),
            // The upstream broke its response off: the client must not take it for whole.
            Event::ResponseFrame(Some(Err(_))) => self.reset(),
            Event::Flushed => {}
        }
        self.over |= self.head.is_none() && self.down.is_finished();
    }

    /// Takes a step of the filter, and follows what it lets go on.
    fn step(&mut self, step: impl FnOnce(&mut WorkerGuard<'_>, StreamId)) {
        let stream = self.stream;
        self.local.with(|worker| step(worker, stream));
        self.collect();
    }

    fn feed(&mut self, direction: Direction, frame: Frame<Bytes>, last: bool) {
        if last || frame.is_trailers() {
            match direction {
                Direction::Request => self.request_body = None,
                Direction::Response => self.response_body = None,
            }
        }
        match frame.into_data() {
            Ok(data) => self.step(|worker, stream| worker.data(stream, direction, data, last)),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let trailers = translate::headers_of(&trailers);
                    self.step(|worker, stream| worker.trailers(stream, direction, trailers));
                }
            }
        }
        self.check_buffer(direction);
    }

    /// Whether the filter holds so much of a direction that no more is read until it lets go. Where it asked for all
    /// of a body at once, [`check_buffer`](Self::check_buffer) sees to it instead.
    fn holds_too_much(&mut self, direction: Direction) -> bool {
        let stream = self.stream;
        self.local.peek(|worker| worker.held(stream, direction)).bytes > BUFFER_LIMIT
    }

    /// A body that the filter wants whole and that is beyond the limit is refused, as by Envoy.
    fn check_buffer(&mut self, direction: Direction) {
        let stream = self.stream;
        let held = self.local.peek(|worker| worker.held(stream, direction));
        if held.bytes <= BUFFER_LIMIT || !held.wanted_whole {
            return;
        }
        let (status, body, details) = match direction {
            Direction::Request => (413, "Payload Too Large", "request_payload_too_large"),
            Direction::Response => (500, "Internal Server Error", "response_payload_too_large"),
        };
        self.step(|worker, stream| worker.reply(stream, status, body, details));
    }

    fn answered(&mut self, answer: Result<Response<Incoming>, legacy::Error>) {
        self.call = None;
        let stream = self.stream;
        if self.local.peek(|worker| worker.is_local_reply(stream)) {
            return;
        }
        match answer {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let end = body.is_end_stream();
                self.response_body = (!end).then_some(body);
                let headers = translate::response_headers(&parts);
                self.step(|worker, stream| worker.headers(stream, Direction::Response, headers, end));
            }
            Err(error) => {
                self.local.stats.upstream_failures.fetch_add(1, Ordering::Relaxed);
                let (reason, details) = if error.is_connect() {
                    (CONNECT_ERROR, "upstream_reset_before_response_started{remote_connection_failure}")
                } else {
                    (RESET_ERROR, "upstream_reset_before_response_started{connection_termination}")
                };
                self.step(|worker, stream| worker.reply(stream, 503, reason, details));
            }
        }
    }

    /// Takes what the filter has let go on to where it goes.
    fn collect(&mut self) {
        let stream = self.stream;
        let outputs = self.local.peek(|worker| worker.outputs(stream));
        for output in outputs {
            match output {
                Output::RequestHeaders { headers, end } => self.call_upstream(&headers, end),
                Output::RequestBody { data, end } => self.up.data(data, end),
                Output::RequestTrailers(trailers) => self.up.trailers(translate::header_map(&trailers)),
                Output::ResponseHeaders { headers, end } => self.send_head(&headers, end),
                Output::ResponseBody { data, end } => self.down.data(data, end),
                Output::ResponseTrailers(trailers) => self.down.trailers(translate::header_map(&trailers)),
                Output::Reset => self.reset(),
            }
        }
    }

    fn call_upstream(&mut self, headers: &Headers, end: bool) {
        let body = if end { StreamBody::whole(Bytes::new()) } else { self.open_up() };
        match translate::outbound(headers, &self.local.upstream, body) {
            Ok(request) => {
                self.local.stats.upstream_requests.fetch_add(1, Ordering::Relaxed);
                self.call = Some(Box::pin(self.local.client.request(request)));
            }
            Err(translate::Unsendable) => {
                self.step(|worker, stream| {
                    worker.reply(stream, 503, "", "filter_removed_required_request_headers");
                });
            }
        }
    }

    fn open_up(&mut self) -> StreamBody {
        let (pipe, body) = StreamBody::pipe();
        self.up = pipe;
        body
    }

    fn send_head(&mut self, headers: &Headers, end: bool) {
        let stream = self.stream;
        if self.local.peek(|worker| worker.is_local_reply(stream)) {
            // A reply was made in the upstream's place: what goes there is broken off.
            self.up.abort();
            self.call = None;
            self.response_body = None;
        }
        let body = if end {
            StreamBody::whole(Bytes::new())
        } else {
            let (pipe, body) = StreamBody::pipe();
            self.down = pipe;
            body
        };
        match translate::inbound(headers, body) {
            Ok(response) => {
                self.local.stats.count_response(headers.status());
                if let Some(head) = self.head.take() {
                    // A client that is gone is noticed by its pipe, or needs nothing more.
                    let _ = head.send(response);
                }
            }
            Err(translate::Unsendable) => self.reset(),
        }
    }

    /// Breaks the stream off: before its head by an error of the service, after it by one of the body.
    fn reset(&mut self) {
        self.local.stats.resets.fetch_add(1, Ordering::Relaxed);
        self.head = None;
        self.down.abort();
        self.over = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.local.forget(self.stream);
        let stream = self.stream;
        self.local.with(|worker| worker.close(stream));
    }
}
