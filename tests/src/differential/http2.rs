//! A request over h2c, on a connection of its own.

use std::net::SocketAddr;

use anyhow::Context as _;
use http::{HeaderMap, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::exchange::{Answer, Request};

/// Sends a request whose `host` is its authority, its trailers after its body, and reads the whole answer.
///
/// # Errors
/// When the server cannot be reached or breaks off.
pub(super) fn send(server: SocketAddr, request: Request, trailers: HeaderMap) -> anyhow::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(exchange(server, request, trailers))
}

async fn exchange(server: SocketAddr, request: Request, trailers: HeaderMap) -> anyhow::Result<Answer> {
    let Request { method, path, mut headers, body } = request;
    // Neither is a header of HTTP/2.
    headers.remove(http::header::TRANSFER_ENCODING);
    let authority = headers.remove(http::header::HOST).context("an authority")?;
    let uri = Uri::builder().scheme("http").authority(authority.as_bytes()).path_and_query(path).build()?;
    let body = if trailers.is_empty() {
        // Without a body the headers end the request.
        Full::new(body).boxed_unsync()
    } else {
        Full::new(body).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
    };
    let mut outgoing =
        http::Request::builder().method(method).uri(uri).version(Version::HTTP_2).body(body)?;
    *outgoing.headers_mut() = headers;

    let stream = TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.context("no h2c connection")?;
    // Ends with the connection; what went wrong is what the pending request reports.
    tokio::spawn(connection);
    let (head, body) = sender.send_request(outgoing).await?.into_parts();
    let body = body.collect().await.context("the answer's body broke off")?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}
