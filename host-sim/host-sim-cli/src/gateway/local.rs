//! What the threads of a gateway share, and what the tasks of one thread do.

use std::{cell::RefCell, collections::HashMap, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use host_sim::{
    Clock, LogLevel, VmName,
    driver::{Callout, Driver, GrpcOrder, SharedWorker, StreamId, Work, Worker},
};
use tokio::sync::{Notify, mpsc, watch};

use super::{
    Options,
    client::Clients,
    history::{Record, RequestId},
    stats::Stats,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// No new connection; each one closes with its next answer, or when it stays idle for the grace.
    Draining,
    /// The workers' threads have ended.
    Ended,
}

/// What all threads of a gateway share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) options: Options,
    /// The upstream's address; a name has one once it is connected to.
    pub(super) upstream_address: Option<SocketAddr>,
    pub(super) driver: Driver,
    pub(super) clock: Clock,
    pub(super) stats: Stats,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Common {
    pub(super) fn is_draining(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }
}

/// What a filter asks of its thread.
#[derive(Debug)]
pub(super) enum Order {
    /// A call to a cluster, for a request if it was made in one.
    Call(Box<Callout>, Option<RequestId>),
    /// A step of a stream of gRPC.
    Grpc(GrpcOrder),
}

/// What the tasks of a thread share.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) name: VmName,
    worker: SharedWorker,
    pub(super) common: Arc<Common>,
    pub(super) clients: Clients,
    streams: RefCell<HashMap<StreamId, Rc<Notify>>>,
    orders: mpsc::UnboundedSender<Order>,
    /// Wakes the thread when its VM has other timers, or was changed from outside.
    kick: Arc<Notify>,
}

impl Local {
    /// What a thread's tasks share, and where its filters' orders come from.
    pub(super) fn new(
        name: VmName,
        worker: SharedWorker,
        common: Arc<Common>,
        kick: Arc<Notify>,
    ) -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (clients, streams) = (Clients::new(), RefCell::default());
        (Self { name, worker, common, clients, streams, orders, kick }, receiver)
    }

    /// Takes a step on the thread's VM, and follows what comes of it: calls to make, streams to wake, timers to set.
    pub(super) fn with<T>(&self, step: impl FnOnce(&mut Worker) -> T) -> T {
        self.with_for(None, step)
    }

    /// The same, for a request: what comes of the step belongs to it.
    pub(super) fn with_for<T>(&self, request: Option<RequestId>, step: impl FnOnce(&mut Worker) -> T) -> T {
        let mut worker = self.worker.lock();
        let recent = self.common.options.recent.as_ref();
        let watched = recent.zip(request).map(|(recent, request)| recent.step(self.name, request));
        let result = step(&mut worker);
        let Work { callouts, grpc_orders, ready, timers_changed } = worker.take_work();
        drop(watched);
        drop(worker);
        let callouts = callouts.into_iter().map(|callout| Order::Call(Box::new(callout), request));
        for order in callouts.chain(grpc_orders.into_iter().map(Order::Grpc)) {
            // A thread that ends takes no more of them.
            let _ = self.orders.send(order);
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

    /// Looks at the thread's VM without running it.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut Worker) -> T) -> T {
        look(&mut self.worker.lock())
    }

    /// The VM was changed from outside.
    pub(super) async fn kicked(&self) {
        self.kick.notified().await;
    }

    /// Has `wake` notified when the stream has something for its task.
    pub(super) fn register(&self, stream: StreamId, wake: Rc<Notify>) {
        self.streams.borrow_mut().insert(stream, wake);
    }

    pub(super) fn forget(&self, stream: StreamId) {
        self.streams.borrow_mut().remove(&stream);
    }

    /// The number of the thread's worker.
    pub(super) fn number(&self) -> usize {
        match self.name {
            VmName::Worker(number) => number,
            // Serves no requests.
            VmName::Base | VmName::Canary | VmName::Main => 0,
        }
    }

    /// Whether requests are recorded at all.
    pub(super) fn is_recording(&self) -> bool {
        self.common.options.access_log.is_some() || self.common.options.recent.is_some()
    }

    /// A request is over: it is logged and kept, where that is wanted.
    pub(super) fn note(&self, id: Option<RequestId>, record: Record) {
        let Options { access_log, recent, .. } = &self.common.options;
        if let Some(Err(error)) = access_log.as_ref().map(|log| log.write(&record)) {
            let message = format!("the access log cannot be written: {error}");
            self.peek(|worker| worker.log(LogLevel::Error, &message));
        }
        if let (Some(recent), Some(id)) = (recent, id) {
            recent.end(id, record);
        }
    }

    /// The gateway's monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.common.clock.monotonic()
    }
}
