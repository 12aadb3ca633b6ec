//! The listeners: HTTP/1.1 with bounds on time and size, and an end that loses nothing.

mod patience;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use self::patience::Patient;

/// The most that is buffered of a request's headers, in bytes; beyond it the answer is 431.
const MAX_HEADER_BYTES: usize = 128 * 1024;
/// Headers in a request at most; beyond it the answer is 431.
const MAX_HEADERS: usize = 128;
/// How long requests under way may take once the server is told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after the system could not accept a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a listener grants its clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once. Further ones wait until one of these is closed.
    pub connections: usize,
    /// How long a client may take nothing of an answer; then its connection is closed.
    pub write_timeout: Duration,
    /// How long a client may take to send the headers of a request, and how long an idle connection is kept. It also ends
    /// the connection of a client that has vanished without closing it.
    pub header_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 4_096,
            write_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(60),
        }
    }
}

/// What answers requests.
pub trait Answer: Clone + Send + Sync + 'static {
    /// Answers one, which came from `peer`.
    fn answer(
        self,
        request: hyper::Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response> + Send;
}

impl Answer for Router {
    async fn answer(self, request: hyper::Request<Incoming>, peer: SocketAddr) -> Response {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        self.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// Serves `answers` on `listener` until `stop` turns true, and then what is under way, for at most ten seconds.
pub async fn serve(
    listener: TcpListener,
    answers: impl Answer,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let accept = async {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                // Nobody closes it.
                return std::future::pending().await;
            };
            listener.accept().await.map(|accepted| (place, accepted))
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((place, (stream, peer))) => {
                // Answers are small and complete; waiting to fill a packet only delays them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY could not be set");
                }
                let stream = Patient::new(stream, bounds.write_timeout);
                serve_connection(stream, peer, place, answers.clone(), bounds.header_timeout, &graceful);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            seconds = DRAIN.as_secs(),
            "requests were still under way when the time to finish was over"
        );
    }
}

fn serve_connection(
    stream: Patient<TcpStream>,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    answers: impl Answer,
    header_timeout: Duration,
    graceful: &GracefulShutdown,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(answers.answer(request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection broke off");
        }
        drop(place);
    });
}

/// Returns at the first SIGINT or SIGTERM.
///
/// # Errors
/// If the signals cannot be listened for.
pub async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (interrupt, terminate) = (pin!(interrupt.recv()), pin!(terminate.recv()));
        futures_util::future::select(interrupt, terminate).await;
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
