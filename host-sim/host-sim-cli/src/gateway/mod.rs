//! A live gateway: a host's workers behind a socket, in front of an upstream.
//!
//! As in Envoy, each worker is one thread with its own VM, connections and clients; a connection stays with its worker.
//! HTTP/1.1 and h2c are served, HTTP/1.1 is spoken to the upstream and to clusters, and h2c
//! to a cluster that the filter calls by gRPC. The peer of the connection is the
//! client (`use_remote_address: true`, `xff_num_trusted_hops: 0`): it is `source.address`, and is appended to
//! `x-forwarded-for`, whatever a client sent there. Not there: TLS, upgrades, routes, retries.

mod admin;
mod body;
mod callout;
mod client;
mod exchange;
mod grpc;
mod history;
mod local;
mod service;
mod stats;
mod thread;
mod translate;

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use host_sim::{Host, LoadError, LogLevel, Module, Plugin, VmName, driver::SharedWorker};
use http::Uri;
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub use self::history::{AccessLog, Ended, Recent};
use self::{
    local::{Common, Phase},
    stats::Stats,
    thread::Thread,
};
use crate::stop::Stop;

/// A gateway that does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A URL is not one of plain HTTP.
    #[error("{url}: expected http://host:port")]
    Url {
        /// The URL as given.
        url: Uri,
    },
    /// A URL has a path, which requests would not go to.
    #[error("{url}: expected http://host:port without a path: requests go to the paths that they name")]
    Path {
        /// The URL as given.
        url: Uri,
    },
    /// The filters do not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    host: Host,
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    phase: watch::Sender<Phase>,
    kicks: Vec<Arc<Notify>>,
    threads: Vec<JoinHandle<()>>,
    common: Arc<Common>,
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), GatewayError> {
    let refused = |source| GatewayError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

impl Gateway {
    /// Loads filters into a host, as [`Host::load_chain`] does, and serves them. The host should have been built with
    /// [`Clock::real`](host_sim::Clock::real) and [`system_randomness`](host_sim::Builder::system_randomness). Returns when
    /// connections are accepted.
    ///
    /// # Errors
    /// When the filters do not load, an address cannot be listened on, or a URL is not one of plain HTTP.
    pub fn start<'a>(
        mut host: Host,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
        options: Options,
    ) -> Result<Self, GatewayError> {
        for url in std::iter::once(&options.upstream).chain(options.clusters.values()) {
            if url.scheme_str() != Some("http") || url.authority().is_none() {
                return Err(GatewayError::Url { url: url.clone() });
            }
            if url.path_and_query().is_some_and(|path| path != "/") {
                return Err(GatewayError::Path { url: url.clone() });
            }
        }
        // Before the filters are configured, which may call them.
        host.drive(options.clusters.keys().cloned());
        host.load_chain(filters)?;
        let Some(driver) = host.driver() else { return Err(LoadError::NothingLoaded.into()) };
        let (listener, address) = listen(options.listen)?;
        let admin = options.admin.map(listen).transpose()?;
        let admin_address = admin.as_ref().map(|(_, address)| *address);

        let (phase, of_threads) = watch::channel(Phase::Serving);
        let upstream_address =
            options.upstream.authority().and_then(|authority| authority.as_str().parse().ok());
        let common = Arc::new(Common {
            options,
            upstream_address,
            driver: driver.clone(),
            clock: host.clock().clone(),
            stats: Stats::default(),
            phase: of_threads,
        });
        let (kicks, threads) = (Vec::new(), Vec::new());
        let pages = admin::Pages { metrics: host.metrics().clone(), common: Arc::clone(&common) };
        let mut gateway = Self { address, admin_address, phase, kicks, threads, host, common };
        let mut connections = Vec::new();
        for (index, worker) in driver.workers().iter().enumerate() {
            let (sender, receiver) = mpsc::unbounded_channel();
            connections.push(sender);
            gateway.spawn(VmName::Worker(index), worker, move |thread| thread.serve(receiver))?;
        }
        let admin = admin.map(|(listener, _)| admin::Admin { listener, pages });
        gateway
            .spawn(VmName::Main, driver.main(), move |thread| thread.accept(listener, connections, admin))?;
        // The workers' threads came first, the main one last.
        let kicks = gateway.kicks.clone();
        driver.on_queue_ready(move |name| {
            let kick = match name {
                VmName::Worker(index) => kicks.get(index),
                VmName::Main => kicks.last(),
                VmName::Base | VmName::Canary => None,
            };
            if let Some(kick) = kick {
                kick.notify_one();
            }
        });
        Ok(gateway)
    }

    fn spawn(
        &mut self,
        name: VmName,
        worker: &SharedWorker,
        run: impl FnOnce(Thread) -> io::Result<()> + Send + 'static,
    ) -> Result<(), GatewayError> {
        let kick = Arc::new(Notify::new());
        self.kicks.push(Arc::clone(&kick));
        let worker = worker.clone();
        let thread = Thread { name, worker: worker.clone(), common: Arc::clone(&self.common), kick };
        let spawned = std::thread::Builder::new().name(name.to_string()).spawn(move || {
            if let Err(error) = run(thread) {
                worker.lock().log(LogLevel::Critical, &format!("thread {name} ends: {error}"));
            }
        });
        self.threads.push(spawned.map_err(GatewayError::Thread)?);
        Ok(())
    }

    /// The address that requests go to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of `/ready` and `/stats`, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The host behind the gateway: its log, metrics and shared data.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Gives the filter a new configuration while the gateway serves, as [`Host::update`] does.
    ///
    /// # Errors
    /// As [`Host::update`].
    pub fn update(&mut self, configuration: impl Into<bytes::Bytes>) -> Result<(), LoadError> {
        let updated = self.host.update(configuration);
        self.wake();
        updated
    }

    /// Puts filters in the place of those that serve, as [`Host::replace_chain`] does. Connections stay open, and requests in
    /// progress end with the filters that they began with.
    ///
    /// # Errors
    /// As [`Host::replace_chain`]; then the filters before go on.
    pub fn replace_chain<'a>(
        &mut self,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
    ) -> Result<(), LoadError> {
        let replaced = self.host.replace_chain(filters);
        self.wake();
        replaced
    }

    /// Has each thread look at its VM, which was changed from outside.
    fn wake(&self) {
        self.kicks.iter().for_each(|kick| kick.notify_one());
    }

    /// Stops accepting, answers what is in progress, closes every connection after its next answer or, if it stays
    /// idle, after the grace, and returns when the last one is closed or the drain time is over.
    pub fn shutdown(mut self) {
        self.stop();
    }

    /// As [`shutdown`](Self::shutdown), but a signal that comes meanwhile ends it at once.
    pub async fn shutdown_unless(self, stop: &mut Stop) {
        let (told, ended) = oneshot::channel();
        std::thread::spawn(move || {
            self.shutdown();
            // Nobody waits for it after a second signal.
            let _ = told.send(());
        });
        tokio::select! {
            _ = ended => {}
            () = stop.wait() => {}
        }
    }

    fn stop(&mut self) {
        // Threads that have ended already hear nothing, and need not.
        self.phase.send_replace(Phase::Draining);
        // The main thread came last: it answers at the admin address until the others have ended.
        let main = self.threads.pop();
        // A panic of a thread has been reported by the panic hook.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.phase.send_replace(Phase::Ended);
        main.map(JoinHandle::join);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where a gateway listens, and what it stands in front of.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The upstream, `http://host:port`.
    pub upstream: Uri,
    /// Clusters that the filter can call, by name.
    pub clusters: BTreeMap<String, Uri>,
    /// The address for `/ready`, `/stats` and `/stats/prometheus`, and for `/requests` where [`recent`](Self::recent) is set.
    pub admin: Option<SocketAddr>,
    /// Where a line is written for each request.
    pub access_log: Option<AccessLog>,
    /// Keeps the last requests, which the admin address shows with their headers and bodies.
    pub recent: Option<Recent>,
    /// How long a shutdown waits for clients to come to the end of their requests before it closes idle connections.
    pub grace: Duration,
    /// How long a shutdown waits for requests in progress before it gives them up.
    pub drain: Duration,
    /// How long the upstream may take for its whole answer once it has the whole request (`timeout` of a route): then
    /// the client gets 504, or its answer is broken off. 15 s, as in Envoy, unless set.
    pub response_timeout: Duration,
}

impl Options {
    /// A gateway on a free loopback port in front of `upstream`.
    pub fn new(upstream: Uri) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            upstream,
            clusters: BTreeMap::new(),
            admin: None,
            access_log: None,
            recent: None,
            grace: Duration::from_millis(500),
            drain: Duration::from_secs(30),
            response_timeout: Duration::from_secs(15),
        }
    }
}
