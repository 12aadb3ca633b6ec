//! One request through the gateway, from its connection through the filter to the upstream and back, as it streams.

use std::{
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt as _;
use host_sim::{
    Headers,
    driver::{self, Direction, Part, StreamId},
    edge::{self, Refusal},
};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{sync::Notify, time::Sleep};

mod feed;
mod send;

use super::{
    body::{Aborted, Pipe, StreamBody},
    client::Answer,
    history::{Recent, Record, RequestId},
    thread::{Local, MAX_HEADER_BYTES},
    translate,
};

/// How long a connection is read on after an answer that came before the request's end (Envoy's
/// `delayed_close_timeout`).
const LINGER: Duration = Duration::from_secs(1);

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    peer: SocketAddr,
    /// The client's address, without the port.
    client: String,
    source: Arc<str>,
    destination: Arc<str>,
    id: u64,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, destination: SocketAddr, id: u64) -> Self {
        let (source, destination) = (peer.to_string().into(), destination.to_string().into());
        Self { peer, client: peer.ip().to_string(), source, destination, id }
    }
}

/// Answers a request of a connection. An error breaks the connection, or the stream of an h2c connection, off.
pub(super) async fn serve(
    local: Rc<Local>,
    request: Request<Incoming>,
    connection: Rc<Connection>,
) -> Result<Response<StreamBody>, Aborted> {
    local.stats.requests.fetch_add(1, Ordering::Relaxed);
    let version = request.version();
    let (parts, body) = request.into_parts();
    let protocol = translate::protocol(version);
    let sent = translate::sent_headers(&parts);
    let mut record = local
        .is_recording()
        .then(|| Record::new(local.wall(), local.number(), connection.peer, protocol, sent.clone()));
    let headers = translate::request_headers(sent, &connection.client);
    if let Some(record) = &mut record {
        record.headers.clone_from(&headers);
    }
    let mut refusal = edge::refusal(&headers, protocol);
    if headers.byte_size() > MAX_HEADER_BYTES as usize {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        refusal = Some(Refusal { status, body: "", details: "request_headers_too_large" });
    }
    if let Some(refusal) = refusal {
        local.stats.count_response(refusal.status);
        if let Some(mut record) = record {
            record.refuse(refusal);
            let id = local.recent.as_ref().map(Recent::begin);
            local.note(id, record);
        }
        return translate::refused(refusal).map_err(|_| Aborted);
    }
    let mut exchange = Exchange::new(Rc::clone(&local), &connection, protocol, record);
    let answer = exchange.begin(headers, body).await;
    if !exchange.is_over() || exchange.request_body.is_some() {
        tokio::task::spawn_local(exchange.finish());
    }
    let mut response = answer.ok_or(Aborted)?;
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

type Call = Pin<Box<dyn Future<Output = Answer>>>;

/// A request in progress.
struct Exchange {
    local: Rc<Local>,
    stream: StreamId,
    wake: Rc<Notify>,
    /// What the client speaks.
    protocol: &'static str,
    request_body: Option<Incoming>,
    /// When an upstream that has the whole request must have answered.
    deadline: Option<Pin<Box<Sleep>>>,
    request_sent: bool,
    /// To the upstream.
    up: Pipe,
    call: Option<Call>,
    response_body: Option<Incoming>,
    /// The answer, until its connection takes it.
    answer: Option<Response<StreamBody>>,
    /// Whether there has been an answer.
    answered: bool,
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

enum Event {
    Woken,
    RequestFrame(Option<Result<http_body::Frame<Bytes>, hyper::Error>>),
    Answer(Answer),
    ResponseFrame(Option<Result<http_body::Frame<Bytes>, hyper::Error>>),
    Flushed,
    /// The upstream has taken too long.
    TimedOut,
}

/// The next frame of a body; none ever of one that is not there.
async fn next_frame(body: &mut Option<Incoming>) -> Option<Result<http_body::Frame<Bytes>, hyper::Error>> {
    match body {
        Some(body) => body.frame().await,
        None => std::future::pending().await,
    }
}

impl Exchange {
    fn new(
        local: Rc<Local>,
        connection: &Connection,
        protocol: &'static str,
        record: Option<Record>,
    ) -> Self {
        let connection = driver::Connection {
            source: Arc::clone(&connection.source),
            destination: Arc::clone(&connection.destination),
            protocol,
            id: connection.id,
        };
        let stream = local.with(|worker| worker.open(&connection));
        let wake = Rc::new(Notify::new());
        local.register(stream, Rc::clone(&wake));
        local.stats.active_requests.fetch_add(1, Ordering::Relaxed);
        let (began, id) = (local.now(), local.recent.as_ref().map(Recent::begin));
        Self {
            local,
            stream,
            wake,
            protocol,
            request_body: None,
            deadline: None,
            request_sent: false,
            up: Pipe::default(),
            call: None,
            response_body: None,
            answer: None,
            answered: false,
            down: Pipe::default(),
            over: false,
            began,
            id,
            record,
        }
    }

    /// Takes something down of the request.
    fn note(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    /// Whether the client speaks HTTP/2.
    fn is_http2(&self) -> bool {
        self.protocol == translate::protocol(Version::HTTP_2)
    }

    /// Whether nothing is left to be done for the client.
    fn is_over(&self) -> bool {
        self.over || (self.answered && self.down.is_finished())
    }

    /// Waits for the head of the answer, and takes with it what is there of the rest; `None` where the stream is broken off
    /// before. A client that goes away drops the exchange here.
    async fn begin(&mut self, headers: Headers, body: Incoming) -> Option<Response<StreamBody>> {
        let end = body.is_end_stream();
        self.request_body = (!end).then_some(body);
        self.feed(Direction::Request, [Part::Headers { headers, end }]);
        while !self.is_over() {
            let event = if self.answered {
                let Some(event) = self.next().now_or_never() else { break };
                event
            } else {
                self.next().await
            };
            self.follow(event);
        }
        self.answer.take()
    }

    /// Follows an exchange that has been answered to its end.
    async fn finish(mut self) {
        while !self.is_over() {
            let event = self.next().await;
            self.follow(event);
        }
        let unread = self.request_body.take();
        drop(self);
        linger(unread).await;
    }

    /// Waits for the next thing to happen.
    async fn next(&mut self) -> Event {
        let reads_request =
            self.request_body.is_some() && self.up.has_room() && !self.is_full(Direction::Request);
        let reads_response =
            self.response_body.is_some() && self.down.has_room() && !self.is_full(Direction::Response);
        let Self { wake, request_body, up, call, response_body, down, deadline, .. } = self;
        let answer = async {
            match call {
                Some(call) => call.as_mut().await,
                None => std::future::pending().await,
            }
        };
        let late = async {
            match deadline {
                Some(deadline) => deadline.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The timer last, so that it is set only where there is something to wait for.
            biased;
            () = wake.notified() => Event::Woken,
            frame = next_frame(request_body), if reads_request => Event::RequestFrame(frame),
            answer = answer => Event::Answer(answer),
            frame = next_frame(response_body), if reads_response => Event::ResponseFrame(frame),
            () = up.progress() => Event::Flushed,
            () = down.progress() => Event::Flushed,
            () = late => Event::TimedOut,
        }
    }

    fn follow(&mut self, event: Event) {
        match event {
            Event::Woken => self.collect(),
            Event::RequestFrame(Some(Ok(frame))) => {
                let last = self.request_body.as_ref().is_some_and(Incoming::is_end_stream);
                self.feed_frame(Direction::Request, frame, last);
            }
            Event::RequestFrame(None) => self.feed_data(Direction::Request, Bytes::new(), true),
            // The client broke its request off.
            Event::RequestFrame(Some(Err(_))) => self.over = true,
            Event::Answer(answer) => self.answered(answer),
            Event::ResponseFrame(Some(Ok(frame))) => {
                let last = self.response_body.as_ref().is_some_and(Incoming::is_end_stream);
                self.feed_frame(Direction::Response, frame, last);
            }
            Event::ResponseFrame(None) => self.feed_data(Direction::Response, Bytes::new(), true),
            // The upstream broke its response off: the client must not take it for whole.
            Event::ResponseFrame(Some(Err(_))) => self.reset(),
            Event::Flushed => {}
            Event::TimedOut => self.time_out(),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.local.stats.active_requests.fetch_sub(1, Ordering::Relaxed);
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
