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
//! [`next_event`]: Worker::next_event

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    clusters::Clusters,
    shared::{Shared, reloads::ReloadStats},
    vm_name::VmName,
    wire::message::Response,
};
pub use crate::{
    state::stream::Upstream,
    wire::{
        callout::{CONNECT_ERROR, CallId, Callout, GrpcOrder, GrpcStep, PROTOCOL_ERROR, RESET_ERROR},
        frame::Direction,
        frame::{Frame, Output, Part},
        grpc::GrpcEvent,
        message::Connection,
    },
    worker::{SharedWorker, Work, Worker, chain::StreamId},
};

/// The workers of a host that has loaded its filters. Made by [`Host::driver`](crate::Host::driver).
///
/// A host that loads anew has other workers, and another driver. One that replaces its filters
/// ([`Host::replace_chain`](crate::Host::replace_chain)) keeps both.
#[derive(Debug, Clone)]
pub struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clusters: Arc<Clusters>,
    pub(crate) main: SharedWorker,
    pub(crate) workers: Vec<SharedWorker>,
}

impl Driver {
    /// The main thread's VMs, which serve no streams but have timers and queues.
    pub fn main(&self) -> &SharedWorker {
        &self.main
    }

    /// The workers, by their number.
    pub fn workers(&self) -> &[SharedWorker] {
        &self.workers
    }

    /// Has `waker` told whose guests have to hear of a queue: that worker is to
    /// [`tell_ready_queues`](Worker::tell_ready_queues). The first waker of a host stays. It may be called while any
    /// worker is locked, so it locks none.
    pub fn on_queue_ready(&self, waker: impl Fn(VmName) + Send + Sync + 'static) {
        self.shared.shared_queues.on_ready(waker);
    }

    /// How often filters got new VMs, over all workers, by the plugin's name.
    pub fn reloads(&self) -> BTreeMap<String, ReloadStats> {
        let main = self.main.lock();
        main.plugins().map(|plugin| (plugin.to_owned(), self.shared.reloads_of(plugin))).collect()
    }

    /// What a cluster of the [`Builder`](crate::Builder) answers to a call; none where the builder has no cluster of this name.
    pub fn answer(&self, callout: &Callout) -> Option<Response> {
        self.clusters.answer(callout)
    }
}
