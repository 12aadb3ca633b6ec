//! One of a host's workers, as tests use it.

use std::time::Duration;

use crate::{
    host::{Host, stream::Stream},
    outcome::Outcome,
    shared::reloads::ReloadStats,
    vm::error::VmError,
    wire::message::{Failure, Request, Response},
    worker::SharedWorker,
};

/// How long an upstream may take for its answer: Envoy's time-out of a route.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a request waits for answers to callouts: Envoy's time-out of an idle stream.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A worker of a host. Made by [`Host::worker`].
#[derive(Debug, Clone, Copy)]
pub struct HostWorker<'a> {
    host: &'a Host,
    worker: &'a SharedWorker,
}

impl Host {
    /// A worker, counted from 0.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn worker(&self, index: usize) -> HostWorker<'_> {
        HostWorker { host: self, worker: self.shared_worker(index) }
    }

    /// As [`HostWorker::send`], on the first worker.
    ///
    /// # Panics
    /// When no filter is loaded: that is a mistake of the test.
    pub fn send(&self, request: Request, upstream: impl FnMut(&Request) -> Response) -> Outcome {
        self.worker(0).send(request, upstream)
    }

    /// As [`HostWorker::send_and_wait`], on the first worker.
    ///
    /// # Panics
    /// When no filter is loaded: that is a mistake of the test.
    pub fn send_and_wait(&self, request: Request, upstream: impl FnMut(&Request) -> Response) -> Outcome {
        self.worker(0).send_and_wait(request, upstream)
    }

    /// As [`HostWorker::stream`], on the first worker.
    ///
    /// # Panics
    /// When no filter is loaded: that is a mistake of the test.
    pub fn stream(&self, request: &Request, end_of_stream: bool) -> Stream {
        self.worker(0).stream(request, end_of_stream)
    }
}

impl HostWorker<'_> {
    /// Sends a request through the worker's filters to `upstream`, which is called when they let the whole request go on. Callouts
    /// are answered at once by the clusters of the builder.
    pub fn send(self, request: Request, upstream: impl FnMut(&Request) -> Response) -> Outcome {
        let outcome = Stream::exchange(self.worker, &self.host.clusters, request, upstream);
        self.host.tell_ready_queues();
        outcome
    }

    /// Begins a stream whose every step the caller takes: the headers are sent, body and trailers are not.
    pub fn stream(self, request: &Request, end_of_stream: bool) -> Stream {
        Stream::open(self.worker, &self.host.clusters, request, end_of_stream)
    }

    /// As [`send`](Self::send), and time passes while answers are late ([`Response::after`]): those of the upstream, which is
    /// answered for after 15 s, and those to callouts, for 5 minutes in all. Timers fire on the way.
    pub fn send_and_wait(self, request: Request, mut upstream: impl FnMut(&Request) -> Response) -> Outcome {
        let host = self.host;
        let mut stream = match Stream::send(self.worker, &host.clusters, request) {
            Ok(stream) => stream,
            Err(refused) => return refused,
        };
        host.tell_ready_queues();
        let patience = host.shared.clock.monotonic() + IDLE_TIMEOUT;
        while !stream.is_over() {
            if let Some(response) = stream.ask(&mut upstream) {
                let late = response.failure == Some(Failure::Silence) || response.delay >= ROUTE_TIMEOUT;
                host.advance(if late { ROUTE_TIMEOUT } else { response.delay });
                stream.poll();
                stream.respond(if late { Response::silence() } else { response });
            } else if let Some(due) = self.next_answer().filter(|due| *due <= patience) {
                host.advance(due.saturating_sub(host.shared.clock.monotonic()));
                stream.poll();
            } else {
                break;
            }
        }
        let outcome = stream.finish();
        host.tell_ready_queues();
        outcome
    }

    /// When the next answer to a callout of any worker is due, or its time is up.
    fn next_answer(self) -> Option<Duration> {
        self.host.all_workers().iter().filter_map(|worker| worker.lock().next_answer()).min()
    }

    /// Why a VM has failed, or `None` while all run.
    pub fn vm_failure(self) -> Option<VmError> {
        self.worker.lock().failure()
    }

    /// How many VMs the filters run in, those among them that have failed and still have streams.
    pub fn vms(self) -> usize {
        self.worker.lock().vms().count()
    }

    /// How often a filter got a new VM.
    pub fn reloads(self) -> ReloadStats {
        self.worker.lock().reloads()
    }
}
