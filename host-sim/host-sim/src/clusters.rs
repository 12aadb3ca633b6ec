//! Clusters in memory, which answer the calls of guests.

use std::{collections::BTreeMap, fmt, sync::Mutex};

use bytes::Bytes;

use crate::{
    lock::lock,
    outcome::Outcome,
    wire::{
        callout::{Callout, GrpcOrder, GrpcStep},
        grpc::GrpcEvent,
        message::{ClusterCall, Failure, Request, Response},
    },
    worker::{SimulatedStream, Worker},
};

/// A filter that calls out again from each answer would never come to an end.
const MAX_CALLOUTS: usize = 10_000;

/// What answers the callouts to one cluster.
type Handler = Box<dyn FnMut(&Request) -> Response + Send>;

/// The clusters of a host, by name.
#[derive(Default)]
pub(crate) struct Clusters {
    handlers: BTreeMap<String, Mutex<Handler>>,
    /// What became of the last request, and how many lines the log had then.
    last: Mutex<Option<(Outcome, u64)>>,
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Clusters {
    pub(crate) fn insert(&mut self, name: String, handler: Handler) {
        self.handlers.insert(name, Mutex::new(handler));
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.handlers.keys().cloned()
    }

    /// The answer of a cluster, or `None` if there is no such cluster.
    fn call(&self, cluster: &str, request: &Request) -> Option<Response> {
        Some(lock(self.handlers.get(cluster)?)(request))
    }

    /// The answer to a call of the guest, or `None` if there is no such cluster.
    pub(crate) fn answer(&self, callout: &Callout) -> Option<Response> {
        let response = self.call(&callout.cluster, &callout.request)?;
        Some(match response.failure {
            Some(Failure::Reset) if !callout.is_grpc => Callout::unanswered(),
            Some(Failure::Malformed) if !callout.is_grpc => Callout::malformed(),
            _ => response,
        })
    }

    /// Answers the callouts that the worker's guest has made, and those it makes in answer.
    pub(crate) fn serve(&self, worker: &mut Worker) {
        let mut answered = 0;
        loop {
            worker.tell_ready_queues();
            let callouts = worker.take_callouts();
            let orders = worker.take_grpc_orders();
            if (callouts.is_empty() && orders.is_empty()) || answered > MAX_CALLOUTS {
                return;
            }
            answered += orders.len();
            for order in orders {
                self.follow(worker, order);
            }
            for callout in callouts {
                answered += 1;
                let unknown = || if callout.is_grpc { Response::reset() } else { Callout::unanswered() };
                let response = self.answer(&callout).unwrap_or_else(unknown);
                let Callout { call, cluster, request, .. } = callout.clone();
                worker.shared.record.call(worker.name, call, ClusterCall { cluster, request, answer: None });
                if response.failure == Some(Failure::Silence) || !response.delay.is_zero() {
                    worker.keep_open(&callout, response);
                } else {
                    worker.finish_callout(callout.call, response);
                }
            }
        }
    }

    /// Takes a step on a stream of gRPC. The cluster is asked once for each message, and without one at the end.
    fn follow(&self, worker: &mut Worker, GrpcOrder { call, step }: GrpcOrder) {
        let body = match step {
            GrpcStep::Open { cluster, request } => {
                let stream = SimulatedStream { cluster, request: *request, answered: false };
                worker.simulated_streams.insert(call, stream);
                return;
            }
            GrpcStep::Reset => {
                worker.simulated_streams.remove(&call);
                return;
            }
            GrpcStep::Send { message, .. } => message,
            GrpcStep::Close => Bytes::new(),
        };
        let Some(stream) = worker.simulated_streams.get_mut(&call) else { return };
        let request = stream.request.clone().body(body);
        let response = self.call(&stream.cluster, &request).unwrap_or_else(Response::reset);
        let cluster = stream.cluster.clone();
        let later = std::mem::replace(&mut stream.answered, true);
        worker.shared.record.call(
            worker.name,
            call,
            ClusterCall { cluster, request, answer: Some(response.clone()) },
        );
        for event in GrpcEvent::of_answer(response, later) {
            if matches!(event, GrpcEvent::Closed { .. }) {
                worker.simulated_streams.remove(&call);
            }
            worker.grpc_event(call, event);
        }
    }

    /// Keeps what became of a request until the next one is over.
    pub(crate) fn keep(&self, worker: &Worker, outcome: Outcome) -> Outcome {
        if !worker.shared.record.is_off() {
            let last = (outcome.clone(), worker.shared.logs.written());
            *lock(&self.last) = Some(last);
        }
        outcome
    }

    /// What became of the last request, and how many lines the log had then.
    pub(crate) fn last(&self) -> Option<(Outcome, u64)> {
        lock(&self.last).clone()
    }
}
