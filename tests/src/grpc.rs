//! gRPC over HTTP/2 without TLS: a server that gives prepared answers, and a client that sees headers and trailers.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/grpc";

/// An empty message: not compressed, and of no bytes.
const MESSAGE: &[u8] = &[0; 5];

/// Fields of headers or trailers.
pub type Fields = &'static [(&'static str, &'static str)];

/// What a server answers to a call.
#[derive(Debug, Clone, Copy)]
pub enum Reply {
    /// Headers, a message and trailers.
    Message(Fields, Fields),
    /// Headers alone, which end the stream.
    HeadersOnly(Fields),
    /// Nothing, ever.
    Silence,
}

/// Listens on a free loopback port until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    // Its end is the listener's.
    _runtime: Runtime,
}

impl Server {
    /// Starts it; `reply` is called with the path of each call.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::new(reply)));
        Ok(Self { address, _runtime: runtime })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept<F: Fn(&str) -> Reply + Send + Sync + 'static>(listener: TcpListener, reply: Arc<F>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let reply = Arc::clone(&reply);
        tokio::spawn(async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let reply = reply(request.uri().path());
                async move { Ok::<_, Infallible>(response(reply).await) }
            });
            // A connection that breaks off is its client's to report.
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn response(reply: Reply) -> http::Response<BoxBody<Bytes, Infallible>> {
    let (headers, body) = match reply {
        Reply::Silence => std::future::pending().await,
        Reply::HeadersOnly(headers) => (headers, Empty::new().boxed()),
        Reply::Message(headers, trailers) => {
            let trailers = map(trailers);
            let message = Full::new(Bytes::from_static(MESSAGE));
            (headers, message.with_trailers(async move { Some(Ok(trailers)) }).boxed())
        }
    };
    let mut response = http::Response::new(body);
    *response.headers_mut() = map(headers);
    response.headers_mut().insert("content-type", HeaderValue::from_static(CONTENT_TYPE));
    response
}

fn map(fields: Fields) -> HeaderMap {
    let field = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    fields.iter().map(field).collect()
}

/// What came back to a call.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The trailers; `None` if the headers ended the stream.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The gRPC status, in the trailers or else in the headers.
    #[must_use]
    pub fn grpc_status(&self) -> Option<u32> {
        let fields = self.trailers.as_ref().unwrap_or(&self.headers);
        fields.get("grpc-status")?.to_str().ok()?.parse().ok()
    }
}

/// Makes a call with an empty message.
///
/// # Errors
/// When the server cannot be reached or breaks off.
pub fn call(server: SocketAddr, path: &str, key: &str) -> anyhow::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = TcpStream::connect(server).await?;
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .context("no HTTP/2 connection")?;
        // Ends with the connection; what went wrong is what the pending call reports.
        tokio::spawn(connection);
        let request = http::Request::post(format!("http://{server}{path}"))
            .header("content-type", CONTENT_TYPE)
            .header("te", "trailers")
            .header("authorization", format!("Bearer {key}"))
            .body(Full::new(Bytes::from_static(MESSAGE)))?;
        let (head, body) = sender.send_request(request).await.context("no answer")?.into_parts();
        let trailers = body.collect().await.context("the answer broke off")?.trailers().cloned();
        Ok(Answer { status: head.status, headers: head.headers, trailers })
    })
}
