//! One thread of the gateway: its runtime, its connections, its timers.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use host_sim::{
    VmName,
    driver::{CallId, GrpcOrder, GrpcStep, SharedWorker, Worker},
};
use hyper::service::service_fn;
use hyper_util::{rt::TokioIo, server::conn::auto};
use tokio::{
    runtime::LocalOptions,
    sync::{Notify, mpsc},
    task::{JoinSet, spawn_local},
    time::{self, Instant},
};

use super::{
    admin::Admin,
    callout, grpc,
    local::{Common, Local, Order, Phase},
    service::{self, Connection, MAX_HEADER_BYTES},
};

/// How long connections are still taken that came in while the listener was told to close.
const LAST_ACCEPT: Duration = Duration::from_millis(20);

/// How long a listener rests when a connection cannot be taken: there are no descriptors left, or the client is gone already.
pub(super) const REFUSED: Duration = Duration::from_millis(100);

/// A connection for a worker: its socket, its peer and its number.
type Accepted = (TcpStream, SocketAddr, u64);

/// What a thread is started with.
pub(super) struct Thread {
    pub(super) name: VmName,
    pub(super) worker: SharedWorker,
    pub(super) common: Arc<Common>,
    /// Wakes the thread when its VM was changed from outside.
    pub(super) kick: Arc<Notify>,
}

/// Runs tasks on the thread that they come from.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

impl Thread {
    fn run<F: Future<Output = io::Result<()>>>(self, main: impl FnOnce(Rc<Local>) -> F) -> io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async {
            let (local, orders) = Local::new(self.name, self.worker, self.common, self.kick);
            let local = Rc::new(local);
            spawn_local(work(Rc::clone(&local), orders));
            main(local).await
        })
    }

    /// Serves the connections that the main thread hands over, until there are no more of them.
    pub(super) fn serve(self, mut incoming: mpsc::UnboundedReceiver<Accepted>) -> io::Result<()> {
        self.run(|local| async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    handed = incoming.recv() => match handed {
                        Some(accepted) => drop(connections.spawn_local(connection(Rc::clone(&local), accepted))),
                        None => break,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
            // Requests that take longer than this are given up with the runtime.
            let ended = async { while connections.join_next().await.is_some() {} };
            let _ = time::timeout(local.common.options.drain, ended).await;
            Ok(())
        })
    }

    /// Accepts connections and deals them out to the workers, and serves the admin address; this is also where the
    /// main VM's timers run.
    pub(super) fn accept(
        self,
        listener: TcpListener,
        workers: Vec<mpsc::UnboundedSender<Accepted>>,
        admin: Option<Admin>,
    ) -> io::Result<()> {
        self.run(|local| async move {
            let mut phase = local.common.phase.clone();
            if let Some(admin) = admin {
                spawn_local(admin.serve());
            }
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let deal = |stream: tokio::net::TcpStream, peer, workers: &[mpsc::UnboundedSender<Accepted>]| {
                let id = local.common.stats.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let index = usize::try_from(id).unwrap_or(0) % workers.len().max(1);
                if let Some(worker) = workers.get(index) {
                    // A worker that is gone closes the connection by dropping it.
                    let _ = worker.send((stream.into_std()?, peer, id));
                }
                io::Result::Ok(())
            };
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, peer)) => deal(stream, peer, &workers)?,
                        Err(_) => time::sleep(REFUSED).await,
                    },
                    _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                }
            }
            let last = Instant::now() + LAST_ACCEPT;
            while let Ok(Ok((stream, peer))) = time::timeout_at(last, listener.accept()).await {
                deal(stream, peer, &workers)?;
            }
            drop((listener, workers));
            // Whoever asks at the admin address whether the gateway is ready hears that it drains. The sender lives as long as the
            // gateway.
            let _ = phase.wait_for(|phase| *phase == Phase::Ended).await;
            Ok(())
        })
    }
}

/// Fires the VM's timers when they are due, and does what its filters ask for.
async fn work(local: Rc<Local>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut streams: HashMap<CallId, mpsc::UnboundedSender<GrpcStep>> = HashMap::new();
    loop {
        let next = local.with(Worker::next_event);
        let until = next.map(|due| due.saturating_sub(local.now()));
        tokio::select! {
            () = time::sleep(until.unwrap_or_default()), if until.is_some() => local.with(Worker::tick),
            () = local.kicked() => local.with(Worker::tell_ready_queues),
            Some(order) = orders.recv() => match order {
                Order::Call(callout, request) => {
                    spawn_local(callout::make(Rc::clone(&local), *callout, request));
                }
                Order::Grpc(GrpcOrder { call, step: GrpcStep::Open { cluster, request } }) => {
                    let (steps, receiver) = mpsc::unbounded_channel();
                    streams.retain(|_, steps| !steps.is_closed());
                    streams.insert(call, steps);
                    spawn_local(grpc::run(Rc::clone(&local), call, cluster, *request, receiver));
                }
                Order::Grpc(GrpcOrder { call, step }) => {
                    // A stream that has come to its end takes no more steps.
                    let _ = streams.get(&call).map(|steps| steps.send(step));
                }
            },
        }
    }
}

async fn connection(local: Rc<Local>, (stream, peer, id): Accepted) {
    // A socket that cannot be taken over is closed by dropping it.
    let Ok(destination) = stream.local_addr() else { return };
    let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
    // Only a hint; without it answers may come a little later.
    let _ = stream.set_nodelay(true);
    let common = Arc::clone(&local.common);
    common.stats.active_connections.fetch_add(1, Ordering::Relaxed);
    let facts = Rc::new(Connection::new(peer, destination, id));
    let service = service_fn(move |request| service::serve(Rc::clone(&local), request, Rc::clone(&facts)));
    let mut builder = auto::Builder::new(LocalExecutor);
    builder.http2().max_header_list_size(MAX_HEADER_BYTES);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut phase = common.phase.clone();
    let grace = async {
        // The sender lives as long as the gateway; without it there is nothing left to wait for.
        if phase.wait_for(|phase| *phase != Phase::Serving).await.is_ok() {
            time::sleep(common.options.grace).await;
        }
    };
    tokio::select! {
        // A connection that breaks concerns its client alone, and is counted where its streams are.
        _ = serving.as_mut() => {}
        () = grace => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
    common.stats.active_connections.fetch_sub(1, Ordering::Relaxed);
}
