//! A request on a connection of its own, and as much of its answer as comes.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::exchange::Request;

/// How a request is sent.
#[derive(Debug)]
pub(super) struct Manner {
    /// Over h2c.
    pub(super) http2: bool,
    /// After the body.
    pub(super) trailers: HeaderMap,
    /// How long the client waits for the rest of an answer.
    pub(super) patience: Duration,
}

/// What a client reads.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The answer's head, once it came.
    pub(super) head: Option<(StatusCode, HeaderMap)>,
    /// As much of the body as came.
    pub(super) body: Vec<u8>,
    /// How it ended.
    pub(super) end: Ending,
}

/// How the reading of an answer ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// All of it came.
    Whole,
    /// The gateway broke it off.
    Broken,
    /// More was to come, and did not.
    #[default]
    Waiting,
}

/// Sends a request whose `host` is its authority, and reads the answer.
///
/// # Errors
/// When the server cannot be reached.
pub(super) fn send(server: SocketAddr, request: Request, manner: Manner) -> anyhow::Result<Reading> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream =
            TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        let patience = manner.patience;
        let mut reading = Reading::default();
        let read = async {
            let Ok(answer) = ask(stream, request, manner).await else { return Ending::Broken };
            let (head, mut body) = answer.into_parts();
            reading.head = Some((head.status, head.headers));
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => reading.body.extend(frame.data_ref().into_iter().flatten()),
                    Err(_) => return Ending::Broken,
                }
            }
            Ending::Whole
        };
        let end = tokio::time::timeout(patience, read).await.unwrap_or(Ending::Waiting);
        reading.end = end;
        Ok(reading)
    })
}

/// The status of the first answer to what is written to a connection of its own, or how the connection ends.
///
/// # Errors
/// When the server cannot be reached.
pub(super) fn status(server: SocketAddr, bytes: &[u8]) -> anyhow::Result<String> {
    let mut stream = std::net::TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(bytes)?;
    let mut head = [0; 12];
    Ok(match stream.read_exact(&mut head) {
        Ok(()) => String::from_utf8_lossy(&head[9..]).into_owned(),
        Err(error) => error.kind().to_string(),
    })
}

async fn ask(stream: TcpStream, request: Request, manner: Manner) -> anyhow::Result<Response<Incoming>> {
    let Manner { http2, trailers, .. } = manner;
    let Request { method, path, mut headers, body } = request;
    let whole = Full::new(body);
    let body: UnsyncBoxBody<Bytes, _> = if trailers.is_empty() {
        // Without a body the headers end the request.
        whole.boxed_unsync()
    } else {
        whole.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
    };
    let mut outgoing = http::Request::builder().method(method);
    if http2 {
        // Neither is a header of HTTP/2.
        headers.remove(header::TRANSFER_ENCODING);
        let authority = headers.remove(header::HOST).context("an authority")?;
        let uri =
            Uri::builder().scheme("http").authority(authority.as_bytes()).path_and_query(path).build()?;
        outgoing = outgoing.uri(uri).version(Version::HTTP_2);
    } else {
        outgoing = outgoing.uri(path);
    }
    let mut outgoing = outgoing.body(body)?;
    *outgoing.headers_mut() = headers;
    // Either connection ends with its answer; what went wrong is what the pending request reports.
    let stream = TokioIo::new(stream);
    Ok(if http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        sender.send_request(outgoing).await?
    } else {
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        sender.send_request(outgoing).await?
    })
}
