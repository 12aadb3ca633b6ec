//! The listeners: HTTP/1.1 with limits on time and size, and a graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

/// Maximum size of the head of a request, in bytes. Larger ones are answered with 431. Envoy passes 60 KiB, and each connection may have as
/// much in memory.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of headers in a request. More headers are answered with 431.
const MAX_HEADERS: usize = 128;
/// Time limit for running requests after a shutdown began.
const DRAIN: Duration = Duration::from_secs(10);
/// Maximum number of connections that wait to be accepted. It is what Linux permits by default, and enough for those that arrive while
/// all threads are busy for a tenth of a second.
const BACKLOG: u32 = 4_096;
/// Pause after a failed `accept`, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of connections. Further connections wait until one closes.
    pub connections: usize,
    /// Time after which a connection is closed if the client reads nothing of the response.
    pub write_timeout: Duration,
    /// Time limit for the headers of a request, which also applies to idle connections.
    pub header_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4_096,
            write_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
        }
    }
}

/// A request handler.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Handles a request from `peer`.
    fn answer(
        self,
        request: hyper::Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response> + Send;
}

impl Handler for Router {
    async fn answer(self, request: hyper::Request<Incoming>, peer: SocketAddr) -> Response {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        self.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// Listens at an address. Requires a tokio runtime.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise connections that a previous process has closed would keep the port for a minute.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `handler` on `listener` until `stop` is true, then finishes the running requests for at most ten seconds.
pub async fn serve(
    listener: TcpListener,
    handler: impl Handler,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let accept = async {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                // The semaphore is never closed.
                return std::future::pending().await;
            };
            listener.accept().await.map(|accepted| (permit, accepted))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((permit, (stream, peer))) => {
                // Responses are small and complete, so Nagle's algorithm would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not set TCP_NODELAY");
                }
                serve_one(stream, peer, permit, handler.clone(), bounds, &graceful);
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            seconds = DRAIN.as_secs(),
            "requests were still running at the end of the shutdown timeout"
        );
    }
}

/// Serves a connection until it ends.
fn serve_one(
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    handler: impl Handler,
    bounds: Bounds,
    graceful: &GracefulShutdown,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.answer(request, peer).await) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(bounds.write_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection error");
        }
        drop(permit);
    });
}

/// The signals that ask the process to stop: SIGINT and SIGTERM. Where there are none, the Ctrl-C of the console.
#[derive(Debug)]
pub struct StopSignals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl StopSignals {
    /// Listens to the signals, which then no longer end the process. Requires a tokio runtime.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
