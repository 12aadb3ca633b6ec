//! A host's workers, driven from outside.
//!
//! [`Host::send`](crate::Host::send) and [`Host::stream`](crate::Host::stream) drive workers for tests. A gateway that has
//! connections, timers and clusters of its own drives them itself: it opens a stream for a request, feeds it headers, data and
//! trailers as they come, and sends on the [`Output`] that all filters have let go. After each step it takes the [`Work`] that
//! guests have left: callouts to make, orders for streams of gRPC, streams to look at again. When [`next_event`] is due, it ticks.
//!
//! ```
//! use host_sim::{Host, Module, Plugin, Request, Response};
//! use host_sim::driver::{Connection, Direction, Frame, Output, Part};
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
//!     source: "203.0.113.9:5000".into(),
//!     destination: "192.0.2.1:80".into(),
//!     protocol: "HTTP/1.1",
//!     id: 1,
//! });
//! let headers = |headers: &host_sim::Headers| Part::Headers { headers: headers.clone(), end: true };
//! worker.feed(stream, Frame { direction: Direction::Request, part: headers(Request::get("/links").headers()) });
//! let mut answered = false;
//! for output in worker.outputs(stream) {
//!     // The filter has let the request go on: the upstream answers.
//!     if let Output::Frame(Frame { part: Part::Headers { headers: sent, end: true }, .. }) = output {
//!         assert_eq!(sent.get(":path").unwrap(), "/links");
//!         worker.feed(stream, Frame { direction: Direction::Response, part: headers(Response::ok().headers()) });
//!         answered = true;
//!     }
//! }
//! assert!(answered && worker.take_work().callouts.is_empty());
//! let answer = worker.outputs(stream);
//! assert!(matches!(answer[..], [Output::Frame(Frame { direction: Direction::Response, .. })]));
//! worker.close(stream);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`next_event`]: WorkerGuard::next_event

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    abi::LogLevel,
    shared::{Shared, reloads::ReloadStats},
    stream::framing::Framing,
    vm::VmName,
    wire::message::{Peer, Response},
    worker,
};
pub use crate::{
    stream::{
        frame::{Direction, Frame, Output, Part},
        manager::StreamId,
        upstream::Upstream,
    },
    vm::callouts::{CONNECT_ERROR, CallId, Callout, GrpcOrder, GrpcStep, RESET_ERROR},
    wire::grpc::GrpcEvent,
};

/// The workers of a host that has loaded its filters. Made by [`Host::driver`](crate::Host::driver).
///
/// A host that loads anew has other workers, and another driver. One that replaces its filters
/// ([`Host::replace_chain`](crate::Host::replace_chain)) keeps both.
#[derive(Debug, Clone)]
pub struct Driver {
    pub(crate) shared: Arc<Shared>,
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
    pub fn reloads(&self) -> BTreeMap<String, ReloadStats> {
        let main = self.main.lock();
        main.0.plugins().map(|plugin| (plugin.to_owned(), self.shared.reloads_of(plugin))).collect()
    }

    /// How many filters the chain has.
    pub fn filters(&self) -> usize {
        self.main.lock().0.filters()
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The client's address and port, which `source.address` gives.
    pub source: Arc<str>,
    /// The address and port that the client has connected to, which `destination.address` gives.
    pub destination: Arc<str>,
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
            source: Arc::clone(&connection.source),
            destination: Arc::clone(&connection.destination),
            protocol: connection.protocol,
            connection_id: connection.id,
            properties: BTreeMap::new(),
        })
    }

    /// Feeds a stream a part of its request or response. A body comes in the pieces of the host's
    /// [`framing`](Self::framing).
    pub fn feed(&mut self, stream: StreamId, frame: Frame) {
        self.0.feed(stream, frame);
    }

    /// Tells where a stream's request goes, as soon as it is known and before its response is fed.
    pub fn set_upstream(&mut self, stream: StreamId, upstream: Upstream) {
        self.0.set_upstream(stream, upstream);
    }

    /// In which pieces bodies are to be fed.
    pub fn framing(&self) -> Framing {
        self.0.shared.framing
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

    /// `%RESPONSE_CODE_DETAILS%` of a stream that was answered, or cut, in the upstream's place.
    pub fn details(&self, stream: StreamId) -> Option<String> {
        self.0.details(stream)
    }

    /// Whether filters hold so much of a direction that no more is to be fed of it until they let go.
    pub fn is_full(&mut self, stream: StreamId, direction: Direction) -> bool {
        self.0.is_full(stream, direction)
    }

    /// Whether filters have let the whole request go on. Its [`outputs`](Self::outputs) may lack the end all the same,
    /// when its body is shorter than its `content-length`: then the upstream waits.
    pub fn is_request_sent(&self, stream: StreamId) -> bool {
        self.0.is_request_sent(stream)
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
