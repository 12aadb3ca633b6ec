//! The running service: its listeners, HTTP/1.1 and HTTP/2, and its graceful end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use redis::RedisError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::http::Ledger;
use crate::options::Options;
use crate::store::Store;
use crate::tokens::{InvalidTokens, Tokens};

/// Time limit for running requests after a shutdown began. Each waits for the store for less than a second.
const DRAIN: Duration = Duration::from_secs(10);

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address of the store is none, or it cannot be reached in this way.
    #[error("--store: expected memory or redis[s]://[<user>:<password>@]<host>[:<port>][/<database>]: {0}")]
    Store(RedisError),
    /// Several addresses, but no cluster.
    #[error("--store: several addresses need --cluster")]
    Several,
    /// A store in memory cannot be a cluster.
    #[error("--store: memory cannot be a cluster; leave out --cluster")]
    MemoryCluster,
    /// A file that cannot be read.
    #[error("--store-ca {}: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file without a certificate.
    #[error("--store-ca {}: the file has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// A token file that cannot be used.
    #[error("--token-file {}: {source}", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// Why.
        source: InvalidTokens,
    },
    /// An address on which the service cannot listen.
    #[error("{option} {address}: {source}")]
    Listen {
        /// The option that names it.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The signals that end the service cannot be caught.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
}

/// Serves until SIGINT or SIGTERM, then finishes the running requests for at most ten seconds.
///
/// # Errors
/// If the options cannot be used. A store that does not answer is waited for.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    let ledger = Arc::new(Ledger::new(Store::new(&options)?, Tokens::new(&options)?));
    let (listener, address) = listen("--listen", options.listen).await?;
    let metrics = match options.metrics_listen {
        None => None,
        Some(address) => Some(listen("--metrics-listen", address).await?),
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let (stop, stopped) = watch::channel(false);
    let mut said = format!("listening on http://{address}");
    let router = Arc::clone(&ledger).router(metrics.is_none());
    let serving = tokio::spawn(answer(listener, router, stopped.clone()));
    let serving_metrics = metrics.map(|(listener, address)| {
        said.push_str(&format!("\nmetrics on http://{address}"));
        tokio::spawn(answer(listener, Arc::clone(&ledger).metrics_router(), stopped))
    });
    // Scripts parse these lines to find the ports.
    if let Err(error) = writeln!(io::stdout(), "{said}") {
        tracing::warn!(%error, "could not print the addresses of the listeners");
    }
    let following = tokio::spawn(async move { ledger.follow().await });
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    let _ended = serving.await;
    if let Some(serving) = serving_metrics {
        let _ended = serving.await;
    }
    following.abort();
    Ok(())
}

async fn listen(option: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Listen { option, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves `router` on `listener` until `stop` is true, then finishes the running requests.
async fn answer(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    // Answers are small and complete, so Nagle's algorithm would only delay them.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "could not set TCP_NODELAY");
        }
    });
    let mut stopping = stop.clone();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        drop(stop.wait_for(|stop| *stop).await);
    });
    let deadline = async {
        drop(stopping.wait_for(|stop| *stop).await);
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        _served = serving => {}
        () = deadline => tracing::warn!("requests were still running at the end of the shutdown"),
    }
}
