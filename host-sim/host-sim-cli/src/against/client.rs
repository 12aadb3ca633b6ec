//! A request on a separate connection, and as much of its answer as comes.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{
    AgainstError,
    pieces::{Pieces, header_map},
    wait::runtime,
};
use crate::scenario::Call;

/// What a client reads.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The answer's head, once it came.
    pub(super) head: Option<(StatusCode, HeaderMap)>,
    /// As much of the body as came.
    pub(super) body: Vec<u8>,
    pub(super) trailers: HeaderMap,
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

/// Sends a request, and reads the answer for `patience`.
///
/// # Errors
/// When the server cannot be reached, or HTTP cannot carry the request.
pub(super) fn send(server: SocketAddr, call: &Call, patience: Duration) -> Result<Reading, AgainstError> {
    let outgoing = request(call)?;
    runtime()?.block_on(async {
        let stream = connect(server).await?;
        let mut reading = Reading::default();
        let read = async {
            let Ok(answer) = ask(stream, outgoing).await else { return Ending::Broken };
            let (head, mut body) = answer.into_parts();
            reading.head = Some((head.status, head.headers));
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return Ending::Broken };
                match frame.into_data() {
                    Ok(data) => reading.body.extend(data),
                    Err(frame) => reading.trailers = frame.into_trailers().unwrap_or_default(),
                }
            }
            Ending::Whole
        };
        reading.end = tokio::time::timeout(patience, read).await.unwrap_or(Ending::Waiting);
        Ok(reading)
    })
}

/// The body of the answer to a request without one; `None` where the server does not answer.
pub(super) fn fetch(server: SocketAddr, method: Method, path: &str) -> Option<Bytes> {
    let body = Pieces::new(Bytes::new(), &[], HeaderMap::new());
    let request = http::Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let request = request.body(body).ok()?;
    runtime().ok()?.block_on(async {
        let answer = ask(connect(server).await.ok()?, request).await.ok()?;
        Some(answer.into_body().collect().await.ok()?.to_bytes())
    })
}

fn request(call: &Call) -> Result<http::Request<Pieces>, AgainstError> {
    let authority = call.authority.as_deref().unwrap_or("localhost");
    let mut headers = header_map(call.headers.iter())?;
    let trailers = call.trailers.iter();
    let trailers =
        trailers.map(|(name, value)| Ok::<_, http::Error>((name.parse()?, value.parse::<HeaderValue>()?)));
    let trailers = trailers.collect::<Result<HeaderMap, _>>().map_err(AgainstError::message)?;
    let body = Pieces::new(call.body.clone().into(), &call.chunks, trailers);
    let mut outgoing =
        http::Request::builder().method(call.method.parse::<Method>().map_err(AgainstError::message)?);
    if call.http2 {
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(call.path.as_str());
        outgoing = outgoing.uri(uri.build().map_err(AgainstError::message)?).version(Version::HTTP_2);
    } else {
        headers.insert(header::HOST, authority.parse().map_err(AgainstError::message)?);
        if call.chunked {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        outgoing = outgoing.uri(call.path.as_str());
    }
    let mut outgoing = outgoing.body(body).map_err(AgainstError::message)?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

async fn connect(address: SocketAddr) -> Result<TcpStream, AgainstError> {
    let refused = |source| AgainstError::Connect { address, source };
    let stream = TcpStream::connect(address).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    Ok(stream)
}

async fn ask(stream: TcpStream, outgoing: http::Request<Pieces>) -> hyper::Result<Response<Incoming>> {
    let stream = TokioIo::new(stream);
    // Either connection ends with its answer. The pending request reports what went wrong.
    if outgoing.version() == Version::HTTP_2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        sender.send_request(outgoing).await
    } else {
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        sender.send_request(outgoing).await
    }
}
