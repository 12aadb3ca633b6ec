//! A server that answers requests as a scenario says, and remembers them.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::Instant,
};

use super::{
    AgainstError,
    pieces::{Pieces, header_map},
};
use crate::scenario::{Answer, Answers, Fields, Masks, Message, Sequence};

/// Requests that are kept, the newest.
const KEPT: usize = 1000;

/// A server of HTTP/1.1 and h2c on a free port.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    // Its end is the listener's.
    _runtime: Runtime,
}

#[derive(Debug)]
struct State {
    answers: Sequence<Prepared>,
    /// Answers of one step, in place of the others.
    of_step: Option<Sequence<Prepared>>,
    /// Requests that were not taken yet, the oldest first.
    requests: VecDeque<(Instant, Message)>,
}

/// An answer, ready to be sent again and again.
#[derive(Debug, Clone)]
struct Prepared {
    status: StatusCode,
    headers: HeaderMap,
    body: Pieces,
    chunked: bool,
    after: Duration,
    /// What happens instead.
    instead: Option<Instead>,
}

/// What an upstream does that does not answer.
#[derive(Debug, Clone, Copy)]
enum Instead {
    /// It closes the connection.
    Closes,
    /// It sends what is no HTTP.
    Malformed,
    /// It sends nothing.
    Silent,
}

impl Prepared {
    fn of(answer: &Answer) -> Result<Self, AgainstError> {
        let response = answer.response();
        let mut headers = header_map(answer.headers.iter())?;
        for name in ["content-type", "grpc-status", "grpc-message"] {
            if let Some(value) = response.header_str(name).filter(|_| !headers.contains_key(name)) {
                headers.insert(name, HeaderValue::from_str(value).map_err(AgainstError::message)?);
            }
        }
        let trailers = response.trailers().into_iter().flat_map(host_sim::Headers::iter);
        let trailers = trailers.map(|(name, value)| {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            Ok::<_, http::Error>((text(name).parse()?, text(value).parse::<HeaderValue>()?))
        });
        let trailers = trailers.collect::<Result<HeaderMap, _>>().map_err(AgainstError::message)?;
        Ok(Self {
            status: StatusCode::from_u16(response.status()).map_err(AgainstError::message)?,
            headers,
            body: Pieces::new(response.body_bytes().clone(), &answer.chunks, trailers),
            chunked: answer.chunked,
            after: answer.after.map(jiff::SignedDuration::unsigned_abs).unwrap_or_default(),
            instead: match (answer.reset, answer.malformed, answer.never) {
                (true, ..) => Some(Instead::Closes),
                (_, true, _) => Some(Instead::Malformed),
                (.., true) => Some(Instead::Silent),
                _ => None,
            },
        })
    }

    fn sequence(answers: &Answers) -> Result<Sequence<Self>, AgainstError> {
        Ok(Sequence::new(answers.iter().map(Self::of).collect::<Result<_, _>>()?))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    /// Starts one that gives these answers.
    ///
    /// # Errors
    /// When an answer is none that HTTP has, or it cannot listen.
    pub fn start(answers: &Answers) -> Result<Self, AgainstError> {
        let refused = AgainstError::system("an upstream");
        let answers = Prepared::sequence(answers)?;
        let state = Arc::new(Mutex::new(State { answers, of_step: None, requests: VecDeque::new() }));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(&refused)?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).map_err(&refused)?;
        let address = listener.local_addr().map_err(&refused)?;
        runtime.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, _runtime: runtime })
    }

    /// Starts one for each answer.
    pub(super) fn start_all(
        answers: &BTreeMap<String, Answers>,
    ) -> Result<BTreeMap<String, Self>, AgainstError> {
        answers.iter().map(|(name, answers)| Ok((name.clone(), Self::start(answers)?))).collect()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives these answers in place of the usual ones; `None` ends that.
    pub(super) fn answer(&self, answers: Option<&Answers>) -> Result<(), AgainstError> {
        lock(&self.state).of_step = answers.map(Prepared::sequence).transpose()?;
        Ok(())
    }

    /// The requests that came and were not taken yet, in order.
    pub(super) fn take(&self) -> Vec<(Instant, Message)> {
        lock(&self.state).requests.drain(..).collect()
    }

    /// The same, line by line.
    #[must_use]
    pub fn take_lines(&self) -> Vec<Vec<String>> {
        let masks = Masks::new(&[]);
        self.take().iter().map(|(_, message)| message.lines("forwarded", &masks)).collect()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    // A failed accept is one connection less, which its sender will miss.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let socket = stream
            .into_std()
            .and_then(|socket| Ok((Arc::new(socket.try_clone()?), TcpStream::from_std(socket)?)));
        let Ok((socket, stream)) = socket else { continue };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| serve(request, Arc::clone(&state), Arc::clone(&socket)));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().auto_date_header(false);
            builder.http2().auto_date_header(false);
            // The gateway reports a connection that breaks off.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: http::Request<Incoming>,
    state: Arc<Mutex<State>>,
    socket: Arc<std::net::TcpStream>,
) -> io::Result<Response<Pieces>> {
    let (head, body) = request.into_parts();
    // A request that breaks off is not counted.
    if let Ok(body) = body.collect().await {
        let trailers = body.trailers().map(fields).unwrap_or_default();
        let headers = request_fields(&head);
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        let mut state = lock(&state);
        if state.requests.len() == KEPT {
            state.requests.pop_front();
        }
        state.requests.push_back((Instant::now(), Message { headers, body, trailers }));
    }
    let answer = {
        let state = lock(&state);
        state.of_step.as_ref().unwrap_or(&state.answers).next()
    };
    let closed = || io::Error::other("the connection is to be closed");
    let answer = answer.ok_or_else(closed)?;
    match answer.instead {
        None => {}
        Some(Instead::Closes) => return Err(closed()),
        Some(Instead::Malformed) => {
            // Beside the HTTP library, which has written nothing to the socket yet.
            (&*socket).write_all(b"no HTTP\r\n\r\n")?;
            return Err(closed());
        }
        Some(Instead::Silent) => return std::future::pending().await,
    }
    tokio::time::sleep(answer.after).await;
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    if answer.chunked && head.version == Version::HTTP_11 {
        response.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(response)
}

/// Headers by name, each with its lines.
pub(super) fn fields(headers: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        fields.entry(name.as_str().to_owned()).or_default().push(value);
    }
    fields
}

/// The headers of a request with its pseudo-headers, over either version of HTTP.
fn request_fields(head: &http::request::Parts) -> Fields {
    let mut fields = fields(&head.headers);
    let host = fields.remove("host").unwrap_or_default();
    let authority = head.uri.authority().map_or(host, |authority| vec![authority.to_string()]);
    fields.insert(":authority".to_owned(), authority);
    fields.insert(":method".to_owned(), vec![head.method.to_string()]);
    let path = head.uri.path_and_query().map_or_else(|| head.uri.to_string(), ToString::to_string);
    fields.insert(":path".to_owned(), vec![path]);
    fields
}
