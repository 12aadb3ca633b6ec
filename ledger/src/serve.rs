//! The running service: its listeners, HTTP/1.1 and HTTP/2, and its graceful end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

use crate::error::ServeError;
use crate::http::Ledger;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::store::Store;
use crate::tokens::Tokens;

/// Most connections of a listener. Further ones wait until one closes. A gateway has one or a few for each of its workers.
const CONNECTIONS: usize = 4_096;
/// Time after which a connection is closed over which nothing comes, or whose client reads nothing, or on which the head of an HTTP/1.1
/// request is not whole. A gateway states something each second.
const IDLE: Duration = Duration::from_secs(20);
/// Pause after a failed `accept`, for example when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time limit for running requests after a shutdown began. Each is bounded to less.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until SIGINT or SIGTERM, then finishes the running requests for at most ten seconds.
///
/// # Errors
/// If the options cannot be used. A store that does not answer is waited for.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    if options.tokens.is_empty() && options.token_file.is_none() && !options.listen.ip().is_loopback() {
        let address = options.listen;
        tracing::warn!(%address, "no token is set: whoever reaches this address can use up and lift every quota");
    }
    let store = Store::open(&options).await?;
    let tokens = Tokens::new(options.tokens, options.token_file)?;
    let metrics = Metrics::new().map_err(|error| ServeError::new("metrics", error))?;
    let ledger = Arc::new(Ledger::new(store, tokens, metrics));
    let router = ledger.router(true, options.metrics_listen.is_none());
    let mut listeners = vec![(listen("--listen", options.listen).await?, router)];
    if let Some(address) = options.metrics_listen {
        listeners.push((listen("--metrics-listen", address).await?, ledger.router(false, true)));
    }
    let catch = |kind| signal(kind).map_err(|error| ServeError::new("signal handlers", error));
    let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
    let (stop, stopped) = watch::channel(());
    let mut serving = Vec::new();
    for (((listener, address), router), what) in listeners.into_iter().zip(["listening", "metrics"]) {
        serving.push(tokio::spawn(answer(listener, router, stopped.clone())));
        // Scripts parse these lines to find the ports.
        if let Err(error) = writeln!(io::stdout(), "{what} on http://{address}") {
            tracing::warn!(%error, "could not print the address of a listener");
        }
    }
    // Until the process ends, and so while requests are finished, too.
    tokio::spawn(async move { ledger.follow().await });
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    drop(stop);
    for serving in serving {
        let _ended = serving.await;
    }
    Ok(())
}

async fn listen(option: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |error| ServeError::new(format!("{option} {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves `router` on `listener` until `stop` has no sender, then finishes the running requests.
async fn answer(listener: TcpListener, router: Router, mut stop: watch::Receiver<()>) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    let (connections, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accept => accepted,
            _ = stop.changed() => break,
        };
        let failed = |error: &io::Error| tracing::warn!(%error, "could not accept a connection");
        let Ok((stream, _peer)) = accepted.inspect_err(failed) else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Answers are small and complete, so Nagle's algorithm would only delay them.
        let _delayed = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(IDLE));
        stream.set_write_timeout(Some(IDLE));
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection failed");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, connections.shutdown()).await.is_err() {
        tracing::warn!("requests were still running at the end of the shutdown");
    }
}
