//! The streams that wait for units of one quota, and how they are served.

use std::collections::VecDeque;

use super::{FleetHost, MAX_CALLS, PausedStreams, Subject};
use crate::count::consume::Shortage;
use crate::decide::limiter::{LeaseRequest, LeasedRequest, Limiter, Need};
use crate::time::Timestamp;

/// A paused stream and its request.
#[derive(Debug)]
pub(super) struct PausedStream<S> {
    pub(super) stream: S,
    pub(super) request: LeasedRequest,
    pub(super) since: Timestamp,
    /// The call that its stream made.
    pub(super) call: Option<u32>,
}

/// The streams that wait for units of one quota of one counter.
#[derive(Debug)]
pub(super) struct Queue<S> {
    pub(super) streams: VecDeque<PausedStream<S>>,
    /// The shortage that was seen last.
    pub(super) shortage: Shortage,
    /// The cost of the request that saw it.
    pub(super) cost: u32,
    pub(super) calls: usize,
    /// Units in flight.
    pub(super) asked: u64,
    /// Calls that the gateway is taken to let through at a time.
    pub(super) most_calls: usize,
}

impl<S> Queue<S> {
    pub(super) fn new(shortage: Shortage, cost: u32) -> Self {
        Self { streams: VecDeque::new(), shortage, cost, calls: 0, asked: 0, most_calls: MAX_CALLS }
    }

    /// Units that the waiting requests need beyond those in flight.
    pub(super) fn unasked(&self) -> u64 {
        let waiting: u64 = self.streams.iter().map(|paused| u64::from(paused.request.cost)).sum();
        // What one request lacks is its cost, more what the gateway owes, or less what it holds.
        let needed = (waiting + u64::from(self.shortage.lacking)).saturating_sub(u64::from(self.cost));
        if self.streams.is_empty() { 0 } else { needed.saturating_sub(self.asked) }
    }
}

impl<S> PausedStreams<S> {
    /// Decides those who wait for `subject` while there is room: first the stream that made `call`, then those without a call in flight, in
    /// their order. The others wait for their own answers: if a stream ends before, what its call was granted is lost. A request is not
    /// refused while a call in flight may be granted units for it, because answers arrive in any order.
    pub(super) fn serve<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        subject: Subject,
        call: Option<u32>,
    ) {
        let mut first = call.and_then(|call| self.take_caller(subject, call));
        let mut spare = self.spare(subject);
        let mut kept = Vec::new();
        while let Some(paused) = first.take().or_else(|| self.take_uncalled(subject)) {
            if !host.exists(&paused.stream) {
                continue;
            }
            let mut verdict = limiter.decide_leased(host, &paused.request);
            match verdict.lease.take().map(|lease| *lease) {
                Some(LeaseRequest { need: Need::Shortage(shortage), request }) => {
                    let other = (request.counter, shortage.quota);
                    let cost = request.cost;
                    let queue = self.queues.entry(other).or_insert_with(|| Queue::new(shortage, cost));
                    (queue.shortage, queue.cost) = (shortage, cost);
                    queue.streams.push_front(paused);
                    self.paused += 1;
                    if other == subject {
                        break;
                    }
                    self.has_unasked = true;
                }
                None if verdict.reply.is_some() && spare >= u64::from(paused.request.cost) => {
                    spare -= u64::from(paused.request.cost);
                    kept.push(paused);
                }
                lease => {
                    if let Some(LeaseRequest { need: Need::Refill(quota), request }) = lease {
                        self.refills.entry((request.counter, quota)).or_insert(request);
                    }
                    self.decided.push_back((paused.stream, verdict));
                }
            }
        }
        if let Some(queue) = self.queues.get_mut(&subject) {
            self.paused += kept.len();
            kept.into_iter().rev().for_each(|paused| queue.streams.push_front(paused));
        }
        self.forget_if_empty(subject);
    }

    /// Units in flight beyond those for the streams that made the calls.
    fn spare(&self, subject: Subject) -> u64 {
        let Some(queue) = self.queues.get(&subject) else { return 0 };
        let called = queue.streams.iter().filter(|paused| self.is_called(paused));
        let own: u64 = called.map(|paused| u64::from(paused.request.cost)).sum();
        queue.asked.saturating_sub(own)
    }

    fn is_called(&self, paused: &PausedStream<S>) -> bool {
        paused.call.is_some_and(|call| self.calls.contains_key(&call))
    }

    /// Decides those who wait for `subject` and whom no call in flight will serve, as if the service did not answer: first the stream
    /// that made `call`.
    pub(super) fn decide_unserved<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        subject: Subject,
        call: u32,
    ) {
        let mut caller = self.take_caller(subject, call);
        while let Some(paused) = caller.take().or_else(|| {
            let queue = self.queues.get(&subject)?;
            if queue.unasked() > 0 { self.take_front(subject) } else { None }
        }) {
            self.decide_without_service(host, limiter, paused);
        }
        self.forget_if_empty(subject);
    }

    /// Decides those who have waited for `timeout` milliseconds.
    pub(super) fn expire<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        now: Timestamp,
        timeout: u32,
    ) {
        let mut expired = Vec::new();
        for queue in self.queues.values_mut() {
            // A clock that steps back must not let them wait for longer.
            let is_over = |since: Timestamp| now < since || now.milliseconds_after(since) >= timeout;
            let (over, waiting): (VecDeque<_>, _) =
                queue.streams.drain(..).partition(|paused| is_over(paused.since));
            queue.streams = waiting;
            expired.extend(over);
        }
        self.queues.retain(|_, queue| !queue.streams.is_empty() || queue.calls > 0);
        self.paused -= expired.len();
        for paused in expired {
            self.decide_without_service(host, limiter, paused);
        }
    }

    pub(super) fn decide_without_service<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        PausedStream { stream, request, .. }: PausedStream<S>,
    ) {
        if host.exists(&stream) {
            let mut verdict = limiter.decide_without_service(host, &request);
            verdict.lease = None;
            self.decided.push_back((stream, verdict));
        }
    }

    fn take_front(&mut self, subject: Subject) -> Option<PausedStream<S>> {
        let paused = self.queues.get_mut(&subject)?.streams.pop_front()?;
        self.paused -= 1;
        Some(paused)
    }

    fn take_uncalled(&mut self, subject: Subject) -> Option<PausedStream<S>> {
        let place = self.queues.get(&subject)?.streams.iter().position(|paused| !self.is_called(paused))?;
        self.paused -= 1;
        self.queues.get_mut(&subject)?.streams.remove(place)
    }

    fn take_caller(&mut self, subject: Subject, call: u32) -> Option<PausedStream<S>> {
        let streams = &mut self.queues.get_mut(&subject)?.streams;
        let place = streams.iter().position(|paused| paused.call == Some(call))?;
        let paused = streams.remove(place)?;
        self.paused -= 1;
        Some(paused)
    }

    pub(super) fn forget_if_empty(&mut self, subject: Subject) {
        if self.queues.get(&subject).is_some_and(|queue| queue.streams.is_empty() && queue.calls == 0) {
            self.queues.remove(&subject);
        }
    }
}
