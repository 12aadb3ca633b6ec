//! A small HTTP/1.1 server in this process.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// What it answers.
pub type Response = http::Response<Full<Bytes>>;

/// Listens on a free loopback port until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    // Its end is the listener's.
    _runtime: Runtime,
}

impl Server {
    /// Starts it; `answer` is called with each whole request.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(
        answer: impl Fn(http::Request<Bytes>) -> Response + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::new(answer)));
        Ok(Self { address, _runtime: runtime })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept<F>(listener: TcpListener, answer: Arc<F>)
where
    F: Fn(http::Request<Bytes>) -> Response + Send + Sync + 'static,
{
    // A failed accept is one connection less, which its client will try again.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let answer = Arc::clone(&answer);
                async move {
                    let (head, body) = request.into_parts();
                    Ok::<_, Infallible>(match body.collect().await {
                        Ok(body) => answer(http::Request::from_parts(head, body.to_bytes())),
                        Err(_) => {
                            let mut refused = Response::default();
                            *refused.status_mut() = http::StatusCode::BAD_REQUEST;
                            refused
                        }
                    })
                }
            });
            // A connection that breaks off is its client's to report.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
