//! One thread of the gateway: its runtime, its connections, its timers.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use host_sim::{
    Clock, LogLevel, VmName,
    driver::{CallId, GrpcOrder, GrpcStep, StreamId, Work, Worker, WorkerGuard},
};
use http::Uri;
use hyper::service::service_fn;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    runtime::LocalOptions,
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time,
};

use super::{
    Stats,
    admin::Admin,
    body::StreamBody,
    callout,
    client::Client,
    cluster::ToCluster,
    exchange::{self, Connection},
    grpc,
    history::{AccessLog, Recent, Record, RequestId},
    stats::Active,
};

/// Envoy's limit of a request's headers (`max_request_headers_kb`).
pub(super) const MAX_HEADER_BYTES: u32 = 60 * 1024;

/// Connections that came in while the listener was told to close are still taken.
const LAST_ACCEPT: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// No new connection; each one closes with its next answer, or when it stays idle for the grace.
    Draining {
        grace: Duration,
    },
}

/// What a thread is started with.
pub(super) struct Thread {
    pub(super) name: VmName,
    pub(super) worker: Worker,
    pub(super) upstream: Uri,
    pub(super) clusters: Arc<BTreeMap<String, Uri>>,
    pub(super) clock: Clock,
    pub(super) stats: Arc<Stats>,
    pub(super) phase: watch::Receiver<Phase>,
    /// Wakes the thread when its VM was changed from outside.
    pub(super) kick: Arc<Notify>,
    pub(super) drain: Duration,
    pub(super) response_timeout: Duration,
    pub(super) access_log: Option<AccessLog>,
    pub(super) recent: Option<Recent>,
}

/// A client of one cluster, over HTTP/2.
type GrpcClient = legacy::Client<ToCluster, StreamBody>;

/// What the tasks of a thread share.
pub(super) struct Local {
    name: VmName,
    worker: Worker,
    streams: RefCell<HashMap<StreamId, Rc<Notify>>>,
    /// Streams of gRPC that the guest has open.
    grpc_streams: RefCell<HashMap<CallId, mpsc::UnboundedSender<GrpcStep>>>,
    pub(super) client: Client,
    /// Clients of clusters that were called by gRPC.
    grpc_clients: RefCell<HashMap<String, GrpcClient>>,
    connector: HttpConnector,
    pub(super) upstream: Uri,
    /// The upstream's address; a name has one once it is connected to.
    pub(super) upstream_address: Option<SocketAddr>,
    pub(super) clusters: Arc<BTreeMap<String, Uri>>,
    clock: Clock,
    pub(super) stats: Arc<Stats>,
    /// How long an upstream may take for its whole answer to a whole request.
    pub(super) response_timeout: Duration,
    pub(super) access_log: Option<AccessLog>,
    pub(super) recent: Option<Recent>,
    phase: watch::Receiver<Phase>,
    kick: Arc<Notify>,
}

/// Runs tasks on the thread that they come from.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl Thread {
    fn run<F: Future<Output = io::Result<()>>>(self, main: impl FnOnce(Rc<Local>) -> F) -> io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            let local = Rc::new(Local {
                name: self.name,
                worker: self.worker,
                streams: RefCell::default(),
                grpc_streams: RefCell::default(),
                client: Client::new(connector.clone()),
                grpc_clients: RefCell::default(),
                connector,
                upstream_address: self
                    .upstream
                    .authority()
                    .and_then(|authority| authority.as_str().parse().ok()),
                upstream: self.upstream,
                clusters: self.clusters,
                clock: self.clock,
                stats: self.stats,
                response_timeout: self.response_timeout,
                access_log: self.access_log,
                recent: self.recent,
                phase: self.phase,
                kick: self.kick,
            });
            tokio::task::spawn_local(timers(Rc::clone(&local)));
            main(local).await
        })
    }

    /// Serves the connections that the main thread hands over, until there are no more of them.
    pub(super) fn serve(
        self,
        mut incoming: mpsc::UnboundedReceiver<(TcpStream, SocketAddr, u64)>,
    ) -> io::Result<()> {
        let drain = self.drain;
        self.run(|local| async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    handed = incoming.recv() => match handed {
                        Some((stream, peer, id)) => {
                            connections.spawn_local(connection(Rc::clone(&local), stream, peer, id));
                        }
                        None => break,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
            // Requests that take longer than this are given up with the runtime.
            let ended = async { while connections.join_next().await.is_some() {} };
            let _ = time::timeout(drain, ended).await;
            Ok(())
        })
    }

    /// Accepts connections and deals them out to the workers, and serves the admin address; this is also where the
    /// main VM's timers run.
    pub(super) fn accept(
        self,
        listener: TcpListener,
        workers: Vec<mpsc::UnboundedSender<(TcpStream, SocketAddr, u64)>>,
        admin: Option<Admin>,
    ) -> io::Result<()> {
        let mut phase = self.phase.clone();
        let stats = Arc::clone(&self.stats);
        self.run(|_| async move {
            if let Some(admin) = admin {
                tokio::task::spawn_local(admin.serve(phase.clone()));
            }
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let ids = AtomicU64::new(1);
            let deal = |stream: tokio::net::TcpStream, peer| -> io::Result<()> {
                let id = ids.fetch_add(1, Ordering::Relaxed);
                let index = usize::try_from(id).unwrap_or(0) % workers.len().max(1);
                stats.connections.fetch_add(1, Ordering::Relaxed);
                if let Some(worker) = workers.get(index) {
                    // A worker that is gone closes the connection by dropping it.
                    let _ = worker.send((stream.into_std()?, peer, id));
                }
                Ok(())
            };
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, peer)) => deal(stream, peer)?,
                        // Out of descriptors, or the client is gone already: neither ends the gateway.
                        Err(_) => tokio::task::yield_now().await,
                    },
                    _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                }
            }
            while let Ok(Ok((stream, peer))) = time::timeout(LAST_ACCEPT, listener.accept()).await {
                deal(stream, peer)?;
            }
            Ok(())
        })
    }
}

impl Local {
    /// Takes a step on the thread's VM, and follows what comes of it: calls to make, streams to wake, timers to set.
    pub(super) fn with<'a, T>(self: &'a Rc<Self>, step: impl FnOnce(&mut WorkerGuard<'a>) -> T) -> T {
        self.with_for(None, step)
    }

    /// The same, for a request: what comes of the step belongs to it.
    pub(super) fn with_for<'a, T>(
        self: &'a Rc<Self>,
        request: Option<RequestId>,
        step: impl FnOnce(&mut WorkerGuard<'a>) -> T,
    ) -> T {
        let mut worker = self.worker.lock();
        let watched =
            self.recent.as_ref().zip(request).map(|(recent, request)| recent.step(self.name, request));
        let result = step(&mut worker);
        let Work { callouts, grpc_orders, ready, timers_changed } = worker.take_work();
        drop(watched);
        drop(worker);
        for callout in callouts {
            tokio::task::spawn_local(callout::make(Rc::clone(self), callout, request));
        }
        for GrpcOrder { call, step } in grpc_orders {
            self.follow(call, step);
        }
        let streams = self.streams.borrow();
        for wake in ready.iter().filter_map(|stream| streams.get(stream)) {
            wake.notify_one();
        }
        if timers_changed {
            self.kick.notify_one();
        }
        result
    }

    /// Takes the guest's step on a stream of gRPC.
    fn follow(self: &Rc<Self>, call: CallId, step: GrpcStep) {
        if let GrpcStep::Open { cluster, request } = step {
            if let Some(recent) = &self.recent {
                recent.called_grpc();
            }
            let (steps, receiver) = mpsc::unbounded_channel();
            self.grpc_streams.borrow_mut().insert(call, steps);
            tokio::task::spawn_local(grpc::run(Rc::clone(self), call, cluster, *request, receiver));
        } else if let Some(steps) = self.grpc_streams.borrow().get(&call) {
            // A stream that has come to its end takes no more steps.
            let _ = steps.send(step);
        }
    }

    pub(super) fn forget_grpc(&self, call: CallId) {
        self.grpc_streams.borrow_mut().remove(&call);
    }

    /// Looks at the thread's VM without running it.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut WorkerGuard<'_>) -> T) -> T {
        look(&mut self.worker.lock())
    }

    /// Has `wake` notified when the stream has something for its task.
    pub(super) fn register(&self, stream: StreamId, wake: Rc<Notify>) {
        self.streams.borrow_mut().insert(stream, wake);
    }

    pub(super) fn forget(&self, stream: StreamId) {
        self.streams.borrow_mut().remove(&stream);
    }

    /// A client that reaches a cluster under any authority.
    pub(super) fn grpc_client(&self, cluster: &str, address: &Uri) -> GrpcClient {
        let mut clients = self.grpc_clients.borrow_mut();
        let client = clients.entry(cluster.to_owned()).or_insert_with(|| {
            let connector = ToCluster::new(self.connector.clone(), address.clone());
            legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(connector)
        });
        client.clone()
    }

    /// A request is over: it is logged and kept, where that is wanted.
    pub(super) fn note(&self, id: Option<RequestId>, record: Record) {
        if let Some(Err(error)) = self.access_log.as_ref().map(|log| log.write(&record)) {
            let message = format!("the access log cannot be written: {error}");
            self.peek(|worker| worker.log(LogLevel::Error, &message));
        }
        if let (Some(recent), Some(id)) = (&self.recent, id) {
            recent.end(id, record);
        }
    }

    /// Whether requests are recorded at all.
    pub(super) fn is_recording(&self) -> bool {
        self.access_log.is_some() || self.recent.is_some()
    }

    /// The number of the thread's worker.
    pub(super) fn number(&self) -> usize {
        match self.name {
            VmName::Worker(number) => number,
            // Serves no requests.
            VmName::Base | VmName::Canary | VmName::Main => 0,
        }
    }

    /// The wall, in time since 1970.
    pub(super) fn wall(&self) -> Duration {
        self.clock.wall()
    }

    /// The gateway's monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }
}

/// Fires the VM's timers when they are due.
async fn timers(local: Rc<Local>) {
    loop {
        let next = local.with(WorkerGuard::next_event);
        let due = async {
            match next {
                Some(due) => time::sleep(due.saturating_sub(local.clock.monotonic())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => local.with(WorkerGuard::tick),
            () = local.kick.notified() => local.with(WorkerGuard::tell_ready_queues),
        }
    }
}

async fn connection(local: Rc<Local>, stream: TcpStream, peer: SocketAddr, id: u64) {
    let stats = Arc::clone(&local.stats);
    let _active = Active::new(&stats.active_connections);
    // A socket that cannot be taken over is closed by dropping it.
    let Ok(destination) = stream.local_addr() else { return };
    let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
    // Only a hint; without it answers may come a little later.
    let _ = stream.set_nodelay(true);
    let mut phase = local.phase.clone();
    let facts = Rc::new(Connection::new(peer, destination, id));
    let service = service_fn(move |request| exchange::serve(Rc::clone(&local), request, Rc::clone(&facts)));
    let mut builder = auto::Builder::new(LocalExecutor);
    builder.http2().max_header_list_size(MAX_HEADER_BYTES);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let grace = async {
        // The sender lives as long as the gateway; without it there is nothing left to wait for.
        let grace = match phase.wait_for(|phase| *phase != Phase::Serving).await.as_deref() {
            Ok(Phase::Draining { grace }) => *grace,
            Ok(Phase::Serving) | Err(_) => Duration::ZERO,
        };
        time::sleep(grace).await;
    };
    tokio::select! {
        // A connection that breaks concerns its client alone, and is counted where its streams are.
        _ = serving.as_mut() => {}
        () = grace => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}
