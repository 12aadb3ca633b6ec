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
    driver::{self, Direction, Part, StreamId},
    edge::{self, Refusal},
};
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

mod feed;
mod send;

use super::{
    body::{Aborted, Pipe, StreamBody},
    history::{Recent, Record, RequestId},
    stats::Active,
    thread::{Local, MAX_HEADER_BYTES},
    translate,
};

/// How long a connection is read on after an answer that came before the request's end (Envoy's
/// `delayed_close_timeout`).
const LINGER: Duration = Duration::from_secs(1);

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
    let protocol = translate::protocol(version);
    let sent = translate::sent_headers(&parts);
    let headers = translate::request_headers(&sent, connection.peer);
    let mut refusal = edge::refusal(&headers, protocol);
    let mut record = Record::new(local.wall(), local.number(), connection.peer, protocol, sent);
    record.headers.clone_from(&headers);
    if headers.byte_size() > MAX_HEADER_BYTES as usize {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16();
        refusal = Some(Refusal { status, body: "", details: "request_headers_too_large" });
    }
    if let Some(refusal) = refusal {
        local.stats.count_response(refusal.status);
        record.refuse(refusal);
        let id = local.recent.as_ref().map(Recent::begin);
        local.note(id, record);
        return translate::refused(refusal).map_err(|_| Aborted);
    }
    let (head, answer) = oneshot::channel();
    let exchange = Exchange::new(Rc::clone(&local), connection, record, head);
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
    /// Whether the client speaks HTTP/2.
    is_http2: bool,
    request_body: Option<Incoming>,
    /// When an upstream that has the whole request must have answered.
    deadline: Option<Instant>,
    request_sent: bool,
    /// To the upstream.
    up: Pipe,
    call: Option<Call>,
    response_body: Option<Incoming>,
    /// To the client; the head is gone once it is sent.
    head: Option<oneshot::Sender<Response<StreamBody>>>,
    down: Pipe,
    over: bool,
    /// When it came, on the monotonic clock.
    began: Duration,
    /// Its number among the recent requests, if those are kept.
    id: Option<RequestId>,
    /// What is to be said of it; gone once it is over.
    record: Option<Record>,
}

enum Event {
    Woken,
    RequestFrame(Option<Result<http_body::Frame<Bytes>, hyper::Error>>),
    Answer(Result<Response<Incoming>, legacy::Error>),
    ResponseFrame(Option<Result<http_body::Frame<Bytes>, hyper::Error>>),
    Flushed,
    ClientGone,
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
        connection: Connection,
        record: Record,
        head: oneshot::Sender<Response<StreamBody>>,
    ) -> Self {
        let connection = driver::Connection {
            source: connection.peer,
            destination: connection.destination,
            protocol: record.protocol,
            id: connection.id,
        };
        let stream = local.with(|worker| worker.open(&connection));
        let wake = Rc::new(Notify::new());
        local.register(stream, Rc::clone(&wake));
        let (began, id) = (local.now(), local.recent.as_ref().map(Recent::begin));
        Self {
            local,
            stream,
            wake,
            is_http2: record.protocol == translate::protocol(Version::HTTP_2),
            request_body: None,
            deadline: None,
            request_sent: false,
            up: Pipe::default(),
            call: None,
            response_body: None,
            head: Some(head),
            down: Pipe::default(),
            over: false,
            began,
            id,
            record: Some(record),
        }
    }

    /// Takes something down of the request.
    fn note(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    async fn run(mut self, headers: Headers, body: Incoming) {
        let stats = Arc::clone(&self.local.stats);
        let _active = Active::new(&stats.active_requests);
        let end = body.is_end_stream();
        self.request_body = (!end).then_some(body);
        self.feed(Direction::Request, [Part::Headers { headers, end }]);
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
        let reads_request = self.up.has_room() && !self.is_full(Direction::Request);
        let reads_response = self.down.has_room() && !self.is_full(Direction::Response);
        let Self { wake, request_body, up, call, response_body, head, down, deadline, .. } = self;
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
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(*deadline).await,
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
            Event::RequestFrame(Some(Err(_))) | Event::ClientGone => self.over = true,
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
        self.over |= self.head.is_none() && self.down.is_finished();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.local.forget(self.stream);
        let stream = self.stream;
        let details = self.local.with_for(self.id, |worker| {
            let details = worker.details(stream);
            worker.close(stream);
            details
        });
        if let Some(mut record) = self.record.take() {
            record.is_over(self.local.now().saturating_sub(self.began), details);
            self.local.note(self.id, record);
        }
    }
}
