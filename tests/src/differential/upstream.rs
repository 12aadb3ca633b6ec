//! A server that answers every request as it is told, and remembers the last one.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use host_sim_cli::scenario;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::seen::{Fields, fields, header_map};

/// What a request was, and what was asked for.
type Last = Arc<Mutex<Option<(Fields, String)>>>;

/// A server of HTTP/1.1 and h2c on a free port.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    last: Last,
    // Its end is the listener's.
    _runtime: Runtime,
}

/// An answer, ready to be given again and again.
#[derive(Clone)]
struct Prepared {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    chunked: bool,
    trailers: Option<HeaderMap>,
    /// The connection is closed instead.
    closes: bool,
}

impl Upstream {
    /// Starts one that gives `answer`.
    ///
    /// # Errors
    /// When the answer is none that HTTP has, or it cannot listen.
    pub fn start(answer: &scenario::Answer) -> anyhow::Result<Self> {
        let response = answer.response();
        let mut headers = header_map(answer.headers.iter())?;
        for name in ["content-type", "grpc-status", "grpc-message"] {
            if let Some(value) = response.header_str(name).filter(|_| !headers.contains_key(name)) {
                headers.insert(name, HeaderValue::from_str(value)?);
            }
        }
        let trailers = response.trailers().map(|trailers| {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            trailers.iter().map(|(name, value)| Ok((text(name).parse()?, text(value).parse()?))).collect()
        });
        let prepared = Prepared {
            status: StatusCode::from_u16(response.status())?,
            headers,
            body: response.body_bytes().clone(),
            chunked: answer.chunked,
            trailers: trailers.transpose().map_err(|error: http::Error| error)?,
            closes: answer.reset,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let last = Last::default();
        runtime.spawn(accept(listener, prepared, Arc::clone(&last)));
        Ok(Self { address, last, _runtime: runtime })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The last request that came and was not taken yet.
    pub(super) fn take(&self) -> Option<(Fields, String)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

async fn accept(listener: TcpListener, answer: Prepared, last: Last) {
    // A failed accept is one connection less, which its sender will miss.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (answer, last) = (answer.clone(), Arc::clone(&last));
        tokio::spawn(async move {
            let service = service_fn(|request| serve(request, answer.clone(), Arc::clone(&last)));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().auto_date_header(false);
            builder.http2().auto_date_header(false);
            // A connection that breaks off is its gateway's to report.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: http::Request<Incoming>,
    answer: Prepared,
    last: Last,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, io::Error> {
    let (head, body) = request.into_parts();
    // A request that breaks off is none.
    if let Ok(body) = body.collect().await {
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        let mut fields = fields(&head.headers);
        if let Some(authority) = head.uri.authority().filter(|_| head.version == http::Version::HTTP_2) {
            fields.insert(":authority".to_owned(), vec![authority.to_string()]);
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some((fields, body));
    }

    if answer.closes {
        return Err(io::Error::other("the connection is to be closed"));
    }
    let whole = Full::new(answer.body.clone());
    let body = match answer.trailers {
        Some(trailers) => whole.with_trailers(async move { Some(Ok(trailers)) }).boxed_unsync(),
        None => whole.boxed_unsync(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    if answer.chunked && head.version == http::Version::HTTP_11 {
        response.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
    }
    Ok(response)
}
