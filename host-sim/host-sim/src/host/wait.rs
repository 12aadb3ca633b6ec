//! Requests whose answers are late: the clock goes on while they wait.

use std::{mem, sync::Arc, time::Duration};

use super::{Host, lock};
use crate::{
    stream::by_hand::Stream,
    wire::{
        message::{Failure, Request, Response},
        outcome::Outcome,
    },
};

/// How long an upstream may take for its answer: Envoy's time-out of a route.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a request waits for answers to callouts: Envoy's time-out of an idle stream.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

impl Host {
    /// As [`send`](Self::send), and time passes while answers are late ([`Response::after`]): those of the upstream, which is
    /// answered for after 15 s, and those to callouts, for 5 minutes in all. Timers fire on the way.
    ///
    /// # Panics
    /// When no filter is loaded or there is no such worker: both are mistakes of the test.
    pub fn send_and_wait(
        &self,
        worker: usize,
        request: Request,
        mut upstream: impl FnMut(&Request) -> Response,
    ) -> Outcome {
        let mut stream = match Stream::send(self.worker(worker), Arc::clone(&self.clusters), request) {
            Ok(stream) => stream,
            Err(refused) => return *refused,
        };
        self.tell_ready_queues();
        let patience = self.shared.clock.monotonic() + IDLE_TIMEOUT;
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
                self.advance(due.saturating_sub(self.shared.clock.monotonic()));
                stream.poll();
            } else {
                break;
            }
        }
        let outcome = stream.finish();
        self.tell_ready_queues();
        outcome
    }

    /// Waits for the upstream, and hands its answer on.
    fn answer(&self, stream: &mut Stream, mut response: Response) {
        let delay = mem::take(&mut response.delay);
        let silent = response.failure == Some(Failure::Silence);
        if silent || delay >= ROUTE_TIMEOUT {
            self.advance(ROUTE_TIMEOUT);
            stream.poll();
            stream.time_out();
            return;
        }
        self.advance(delay);
        stream.poll();
        stream.respond(response);
    }

    /// When the next answer to a callout is due, or its time is up.
    fn next_answer(&self) -> Option<Duration> {
        self.all_workers().iter().filter_map(|worker| lock(worker).next_answer()).min()
    }
}
