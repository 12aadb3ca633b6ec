//! One of a host's workers, as tests use it.

use std::{mem, sync::Arc, time::Duration};

use super::{Host, SharedWorker, lock};
use crate::{
    outcome::Outcome,
    shared::reloads::ReloadStats,
    stream::{by_hand::Stream, exchange},
    vm::VmError,
    wire::message::{Failure, Request, Response},
};

/// How long an upstream may take for its answer: Envoy's time-out of a route.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a request waits for answers to callouts: Envoy's time-out of an idle stream.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A worker of a host. Made by [`Host::worker`].
#[derive(Debug, Clone, Copy)]
pub struct HostWorker<'a> {
    pub(super) host: &'a Host,
    pub(super) worker: &'a SharedWorker,
}

impl HostWorker<'_> {
    /// Sends a request through the worker's filters to `upstream`, which is called when they let the whole request go on. Callouts
    /// are answered at once by the clusters of the builder.
    pub fn send(self, request: Request, mut upstream: impl FnMut(&Request) -> Response) -> Outcome {
        let outcome = exchange::send(&mut lock(self.worker), &self.host.clusters, request, &mut upstream);
        self.host.tell_ready_queues();
        outcome
    }

    /// Begins a stream whose every step the caller takes: the headers are sent, body and trailers are not.
    pub fn stream(self, request: &Request, end_of_stream: bool) -> Stream {
        Stream::open(Arc::clone(self.worker), Arc::clone(&self.host.clusters), request, end_of_stream)
    }

    /// As [`send`](Self::send), and time passes while answers are late ([`Response::after`]): those of the upstream, which is
    /// answered for after 15 s, and those to callouts, for 5 minutes in all. Timers fire on the way.
    pub fn send_and_wait(self, request: Request, mut upstream: impl FnMut(&Request) -> Response) -> Outcome {
        let host = self.host;
        let mut stream = match Stream::send(Arc::clone(self.worker), Arc::clone(&host.clusters), request) {
            Ok(stream) => stream,
            Err(refused) => return refused,
        };
        host.tell_ready_queues();
        let patience = host.shared.clock.monotonic() + IDLE_TIMEOUT;
        let mut asked = false;
        while !stream.is_over() {
            let forwarded = stream.forwarded().filter(|_| stream.is_forwarded() && !asked);
            if let Some(forwarded) = forwarded.filter(|_| !stream.is_local_reply()) {
                let response = upstream(forwarded);
                asked = true;
                self.answer(&mut stream, response);
            } else if !asked && stream.is_request_sent() && !stream.is_forwarded() && !stream.is_local_reply()
            {
                // The upstream waits for the rest of a body that was declared longer than it is.
                asked = true;
                stream.time_out();
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

    /// Waits for the upstream, and hands its answer on.
    fn answer(self, stream: &mut Stream, mut response: Response) {
        let delay = mem::take(&mut response.delay);
        let silent = response.failure == Some(Failure::Silence);
        if silent || delay >= ROUTE_TIMEOUT {
            self.host.advance(ROUTE_TIMEOUT);
            stream.poll();
            stream.time_out();
            return;
        }
        self.host.advance(delay);
        stream.poll();
        stream.respond(response);
    }

    /// When the next answer to a callout of any worker is due, or its time is up.
    fn next_answer(self) -> Option<Duration> {
        self.host.all_workers().iter().filter_map(|worker| lock(worker).next_answer()).min()
    }

    /// Why a VM has failed, or `None` while all run.
    pub fn vm_failure(self) -> Option<VmError> {
        lock(self.worker).failure()
    }

    /// How many VMs the filters run in, those among them that have failed and still have streams.
    pub fn vms(self) -> usize {
        lock(self.worker).vms().count()
    }

    /// How often a filter got a new VM.
    pub fn reloads(self) -> ReloadStats {
        lock(self.worker).reloads()
    }
}
