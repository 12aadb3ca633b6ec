//! A host's workers, driven from outside.
//!
//! [`Host::send`](crate::Host::send) and [`Host::stream`](crate::Host::stream) drive workers for tests. A gateway that has
//! connections, timers and clusters of its own drives them itself: it opens a stream for a request, feeds it headers, data and
//! trailers as they come, and sends on the [`Output`] that all filters have let go. After each step it takes the [`Work`] that
//! guests have left: callouts to make, orders for streams of gRPC, streams to look at again. When [`next_event`] is due, it ticks.
//!
//! ```
//! use host_sim::{Host, Module, Plugin, Request, Response};
//! use host_sim::driver::{Connection, Direction, Output};
//!
//! # let wasm = wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
//! #   (func (export "malloc") (param i32) (result i32) (i32.const 64)))"#)?;
//! let mut host = Host::builder().build();
//! host.load(&Module::compile(&wasm)?, Plugin::default())?;
//! let driver = host.driver().ok_or("no filter is loaded")?;
//!
//! // A thread for each worker holds it while it takes a step.
//! let mut worker = driver.workers()[0].lock();
//! let stream = worker.open(&Connection {
//!     source: "203.0.113.9:5000".parse()?,
//!     destination: "192.0.2.1:80".parse()?,
//!     protocol: "HTTP/1.1",
//!     id: 1,
//! });
//! worker.headers(stream, Direction::Request, Request::get("/links").headers().clone(), true);
//! let mut answered = false;
//! for output in worker.outputs(stream) {
//!     // The filter has let the request go on: the upstream answers.
//!     if let Output::RequestHeaders { headers, end: true } = output {
//!         assert_eq!(headers.get(":path").unwrap(), "/links");
//!         worker.headers(stream, Direction::Response, Response::ok().headers().clone(), true);
//!         answered = true;
//!     }
//! }
//! assert!(answered && worker.take_work().callouts.is_empty());
//! assert!(matches!(worker.outputs(stream)[..], [Output::ResponseHeaders { end: true, .. }]));
//! worker.close(stream);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`next_event`]: WorkerGuard::next_event

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    abi::LogLevel,
    headers::Headers,
    message::{Peer, Response},
    state::Shared,
    vm::VmName,
    worker::{self, ReloadStats},
};
pub use crate::{
    chain::{Held, StreamId},
    grpc::GrpcEvent,
    state::{CallId, Callout, Direction, GrpcOrder, GrpcStep, Output},
};

/// The workers of a host that has loaded its filters. Made by [`Host::driver`](crate::Host::driver).
///
/// A host that loads anew has other workers, and another driver.
#[derive(Debug, Clone)]
pub struct Driver {
    pub(crate) shared: Arc<Shared>,
    /// The names of the filters' plugins.
    pub(crate) plugins: Vec<String>,
    pub(crate) main: Worker,
    pub(crate) workers: Vec<Worker>,
}

impl Driver {
    /// The main thread's VMs, which serve no streams but have timers and queues.
    pub fn main(&self) -> &Worker {
        &self.main
    }

    /// The workers, by their number.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Lets guests call clusters of these names, beside those of the [`Builder`](crate::Builder). A call to one becomes
    /// [`Work`].
    pub fn name_clusters(&self, names: impl IntoIterator<Item = String>) {
        self.shared.clusters.write().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// Has `waker` told whose guests have to hear of a queue: that worker is to
    /// [`tell_ready_queues`](WorkerGuard::tell_ready_queues). The first waker of a host stays. It may be called while any
    /// worker is locked, so it locks none.
    pub fn on_queue_ready(&self, waker: impl Fn(VmName) + Send + Sync + 'static) {
        self.shared.shared_queues.on_ready(waker);
    }

    /// How often filters got new VMs, over all workers, by the plugin's name.
    pub fn reloads(&self) -> BTreeMap<&str, ReloadStats> {
        self.plugins.iter().map(|plugin| (plugin.as_str(), self.shared.reloads_of(plugin))).collect()
    }
}

/// A worker of a host.
#[derive(Debug, Clone)]
pub struct Worker(pub(crate) Arc<Mutex<worker::Worker>>);

impl Worker {
    /// Takes the worker for a step; whoever else wants it waits, methods of the [`Host`](crate::Host) among them.
    pub fn lock(&self) -> WorkerGuard<'_> {
        // A step that panicked has left its VM as a trap would.
        WorkerGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is known of the connection that a stream belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The client's address, which `source.address` gives.
    pub source: SocketAddr,
    /// The address that the client has connected to, which `destination.address` gives.
    pub destination: SocketAddr,
    /// `HTTP/1.1` and the like, which `request.protocol` gives.
    pub protocol: &'static str,
    /// The connection's number, which `connection.id` gives.
    pub id: u64,
}

/// What guests have left to do.
#[derive(Debug, Default)]
pub struct Work {
    /// Calls to make; their answers go to [`finish_callout`](WorkerGuard::finish_callout).
    pub callouts: Vec<Callout>,
    /// Steps to take on streams of gRPC, in order; what comes of them goes to [`grpc_event`](WorkerGuard::grpc_event).
    pub grpc_orders: Vec<GrpcOrder>,
    /// Streams that have [`outputs`](WorkerGuard::outputs).
    pub ready: Vec<StreamId>,
    /// Timers were set: [`next_event`](WorkerGuard::next_event) may be another.
    pub timers_changed: bool,
}

/// A worker that its holder has to itself.
#[derive(Debug)]
pub struct WorkerGuard<'a>(MutexGuard<'a, worker::Worker>);

impl WorkerGuard<'_> {
    /// Begins a stream: every filter gets a context for it, as the failure policies say. It lasts until it is
    /// [closed](Self::close).
    pub fn open(&mut self, connection: &Connection) -> StreamId {
        self.0.open(Peer {
            source: connection.source.to_string(),
            destination: connection.destination.to_string(),
            protocol: connection.protocol,
            connection_id: connection.id,
            ..Peer::default()
        })
    }

    /// Feeds a stream the headers of its request or response; `end` when nothing follows.
    pub fn headers(&mut self, stream: StreamId, direction: Direction, headers: Headers, end: bool) {
        self.0.headers(stream, direction, headers, end);
    }

    /// Feeds a stream a piece of a body; `end` when nothing follows.
    pub fn data(&mut self, stream: StreamId, direction: Direction, data: Bytes, end: bool) {
        self.0.data(stream, direction, data, end);
    }

    /// Feeds a stream trailers, which end its request or response.
    pub fn trailers(&mut self, stream: StreamId, direction: Direction, trailers: Headers) {
        self.0.trailers(stream, direction, trailers);
    }

    /// Answers in the upstream's place, as Envoy's router does where there is no upstream. The reply passes through the
    /// filters as a response. Once a reply was made it is not replaced.
    pub fn reply(&mut self, stream: StreamId, status: u16, body: &'static str, details: &str) {
        self.0.reply(stream, status.into(), body, details);
    }

    /// Takes what all filters have let go on, in its order.
    pub fn outputs(&mut self, stream: StreamId) -> Vec<Output> {
        self.0.outputs(stream).into()
    }

    /// Whether a reply has been made in the upstream's place: nothing more of the request goes there, and nothing more
    /// is to be fed of its response.
    pub fn is_local_reply(&self, stream: StreamId) -> bool {
        self.0.is_local_reply(stream)
    }

    /// What filters hold of a direction.
    pub fn held(&mut self, stream: StreamId, direction: Direction) -> Held {
        self.0.held(stream, direction)
    }

    /// Ends a stream, whole or not: filters log it, and their contexts end.
    pub fn close(&mut self, stream: StreamId) {
        self.0.close(stream);
    }

    /// Takes what guests have left to do since the last time.
    pub fn take_work(&mut self) -> Work {
        Work {
            callouts: self.0.take_callouts(),
            grpc_orders: self.0.take_grpc_orders(),
            ready: self.0.take_ready(),
            timers_changed: self.0.timers_changed(),
        }
    }

    /// Hands a guest the answer to its callout. A guest that is gone, or has cancelled the call, hears nothing.
    pub fn finish_callout(&mut self, call: CallId, response: Response) {
        self.0.finish_callout(call, response);
    }

    /// Tells a guest what came of its stream of gRPC. A guest that is gone, or has reset the stream, hears nothing.
    pub fn grpc_event(&mut self, call: CallId, event: GrpcEvent) {
        self.0.grpc_event(call, event);
    }

    /// When the next timer is due, on the host's monotonic clock; never while none is set.
    pub fn next_event(&mut self) -> Option<Duration> {
        self.0.next_event()
    }

    /// Fires the timers that are due.
    pub fn tick(&mut self) {
        self.0.tick();
    }

    /// Tells guests of queues that have something for them.
    pub fn tell_ready_queues(&mut self) {
        self.0.tell_ready_queues();
    }

    /// Writes a line of the driver's own to the host's log.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.0.log(level, message);
    }
}
