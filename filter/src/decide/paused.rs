//! One worker's part in a fleet: the calls in flight to the rate-limit service, and the streams that are paused until one is answered.
//!
//! A request that finds nothing leased asks at once, by a call of its stream, and pauses. Calls are never serialised behind one another.
//! Every other call is the root context's, on a tick: refills, and calls for requests whose own could not be sent. A stream may end
//! before its answer arrives, and the host delivers an answer to the context that made the call.
//!
//! A request waits at most the fleet's `timeout`; then, as while the service is known not to answer, `on_unavailable` decides.

use std::collections::{HashMap, HashSet, VecDeque};

use self::calls::{Ask, Call};
pub use self::event::Event;
use self::queue::{PausedStream, Queue};
use crate::config::FleetSettings;
use crate::count::counters::Place;
use crate::count::shared_data::HostError;
use crate::decide::host::{Host, LogLevel};
use crate::decide::limiter::{LeaseRequest, LeasedRequest, Limiter, Need};
use crate::decide::verdict::Verdict;
use crate::fleet::breaker::Breaker;
use crate::fleet::protocol::{Grant, Response, Unusable};

mod calls;
mod event;
mod queue;

/// Most streams that are paused in one worker. `on_unavailable` decides further requests.
pub const MAX_PAUSED: usize = 1024;
/// Most calls in flight of one counter's quota in one worker. Further requests share the next call.
pub const MAX_CALLS: usize = 64;

/// The host as a fleet needs it.
pub trait FleetHost: Host {
    /// What identifies a paused stream to the host.
    type Stream;

    /// Sends `message` to the rate-limit service. The call fails after `timeout` milliseconds. Returns the token of the answer.
    ///
    /// # Errors
    /// If the host does not send it.
    fn call(&mut self, fleet: &FleetSettings, message: &[u8], timeout: u32) -> Result<u32, HostError>;

    /// Whether a stream still exists.
    fn exists(&mut self, stream: &Self::Stream) -> bool;
}

/// What becomes of a request that asks for a lease.
#[derive(Debug)]
pub enum LeaseOutcome {
    /// Its own decision stands, or this one was made after all.
    Decided(Option<Verdict>),
    /// It is paused. The call was made for it by its stream; `None` if another call will serve it.
    Paused(Option<u32>),
}

/// When [`PausedStreams::tick`] is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// There is nothing to do.
    Idle,
    /// In this many milliseconds, or earlier.
    Within(u32),
}

/// What a call is about: a counter, and which of its quotas.
type Subject = (Place, usize);

/// The calls and paused streams of one configuration in one VM.
#[derive(Debug)]
pub struct PausedStreams<S> {
    /// Whether [`PausedStreams::tick`] will be called.
    has_ticks: bool,
    queues: HashMap<Subject, Queue<S>>,
    paused: usize,
    calls: HashMap<u32, Call>,
    /// Refills to ask for at the next tick.
    refills: HashMap<Subject, LeasedRequest>,
    /// Refills in flight.
    refilling: HashSet<Subject>,
    /// Whether requests wait that no call is in flight for.
    has_unasked: bool,
    breaker: Breaker,
    reported_unconfigured: bool,
    decided: VecDeque<(S, Verdict)>,
    /// By the events' places in [`Event::ALL`].
    tally: [u32; Event::ALL.len()],
}

impl<S> PausedStreams<S> {
    /// No calls, and no streams. Without ticks no request waits.
    #[must_use]
    pub fn new(has_ticks: bool) -> Self {
        Self {
            has_ticks,
            queues: HashMap::new(),
            paused: 0,
            calls: HashMap::new(),
            refills: HashMap::new(),
            refilling: HashSet::new(),
            has_unasked: false,
            breaker: Breaker::default(),
            reported_unconfigured: false,
            decided: VecDeque::new(),
            tally: Default::default(),
        }
    }

    /// Takes the stream that was decided first, of those that waited.
    pub fn pop_decided(&mut self) -> Option<(S, Verdict)> {
        self.decided.pop_front()
    }

    /// Takes the sum of each of [`Event::ALL`] since the last time; of [`Event::Granted`], the units.
    pub fn drain(&mut self) -> [u32; Event::ALL.len()] {
        core::mem::take(&mut self.tally)
    }

    /// Whether this worker has made the call.
    #[must_use]
    pub fn has_made(&self, call: u32) -> bool {
        self.calls.contains_key(&call)
    }

    /// When the next tick is due. While requests wait, a quarter of the `timeout` of `fleet`.
    #[must_use]
    pub fn pace(&self, fleet: &FleetSettings) -> Pace {
        if !self.decided.is_empty() || !self.refills.is_empty() || self.has_unasked {
            Pace::Within(1)
        } else if self.paused > 0 {
            Pace::Within((fleet.terms.timeout / 4).max(1))
        } else {
            Pace::Idle
        }
    }

    fn tally(&mut self, event: Event, amount: u32) {
        if let Some(sum) = self.tally.get_mut(event as usize) {
            *sum = sum.saturating_add(amount);
        }
    }
}

impl<S> PausedStreams<S> {
    /// Sees to a lease that the decision on the request of `stream` asks for, within a callback of that stream.
    pub fn request_lease<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        lease: LeaseRequest,
        stream: impl FnOnce() -> S,
    ) -> LeaseOutcome {
        let LeaseRequest { request, need } = lease;
        let shortage = match need {
            Need::Refill(quota) => {
                if self.has_ticks {
                    self.refills.entry((request.counter, quota)).or_insert(request);
                }
                return LeaseOutcome::Decided(None);
            }
            Need::Shortage(shortage) => shortage,
        };
        let subject = (request.counter, shortage.quota);
        if self.breaker.is_open() && self.has_ticks {
            // The root context tries whether the service answers again; no request waits for that.
            self.refills.entry(subject).or_insert_with(|| request.clone());
        }
        let now = match host.now() {
            Ok(now) if self.has_ticks && self.paused < MAX_PAUSED && !self.breaker.is_open() => now,
            _ => return LeaseOutcome::Decided(Some(limiter.decide_without_service(host, &request))),
        };
        let cost = request.cost;
        let queue = self.queues.entry(subject).or_insert_with(|| Queue::new(shortage, cost));
        (queue.shortage, queue.cost) = (shortage, cost);
        queue.streams.push_back(PausedStream { stream: stream(), request, since: now, call: None });
        self.paused += 1;
        let call = match self.ask(host, limiter, subject, now) {
            Ask::Sent(call) => Some(call),
            Ask::Later => {
                self.has_unasked = true;
                None
            }
            Ask::Served => None,
            Ask::Unavailable => {
                let newest = self.queues.get_mut(&subject).and_then(|queue| queue.streams.pop_back());
                self.paused -= usize::from(newest.is_some());
                self.forget_if_empty(subject);
                return LeaseOutcome::Decided(
                    newest.map(|PausedStream { request, .. }| limiter.decide_without_service(host, &request)),
                );
            }
        };
        if let Some(newest) = self.queues.get_mut(&subject).and_then(|queue| queue.streams.back_mut()) {
            newest.call = call;
        }
        LeaseOutcome::Paused(call)
    }

    /// Notes that the stream that made `call` has ended, so that the answer will not arrive. Those who shared the call ask again at the next
    /// tick. A call that was not answered within the fleet's `timeout` has failed.
    pub fn abandon<H: FleetHost<Stream = S>>(&mut self, host: &mut H, limiter: &Limiter, call: u32) {
        let Some(Call { subject, asked, sent, at, .. }) = self.calls.remove(&call) else { return };
        self.ended(subject, asked);
        let timeout = limiter.config().fleet.as_ref().map_or(0, |fleet| fleet.terms.timeout);
        if host.now().is_ok_and(|now| now.milliseconds_after(at) >= timeout) {
            self.failed(host, sent, &Unusable::None);
        }
    }

    /// Takes the answer to a call: first into the record, then for those who wait.
    pub fn answer<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        call: u32,
        response: Result<Response, Unusable>,
    ) {
        let Some(Call { subject, request, asked, sent, .. }) = self.calls.remove(&call) else { return };
        self.ended(subject, asked);
        let response = match response {
            Ok(response) => response,
            Err(Unusable::Overloaded) => return self.overloaded(subject),
            Err(error) => {
                self.failed(host, sent, &error);
                if self.breaker.is_open() {
                    self.decide_unserved(host, limiter, subject, call);
                }
                return;
            }
        };
        if self.breaker.answered() {
            host.log(LogLevel::Info, format_args!("weir: fleet: the rate-limit service answers again"));
        }
        if response.grant == Grant::Unconfigured {
            self.tally(Event::Unconfigured, 1);
            self.report_unconfigured(host, limiter.config(), &request, asked);
            return self.decide_unserved(host, limiter, subject, call);
        }
        if let Some(queue) = self.queues.get_mut(&subject) {
            queue.most_calls = MAX_CALLS.min(queue.most_calls + 1);
        }
        let credited = limiter.credit(host, &request, asked, response);
        match response.grant {
            _ if !credited => self.tally(Event::Dropped, 1),
            Grant::OverLimit { .. } => self.tally(Event::OverLimit, 1),
            Grant::Units { .. } | Grant::Unlimited | Grant::Unconfigured => {
                self.tally(Event::Granted, asked.units);
            }
        }
        self.serve(host, limiter, subject, Some(call));
        // A further call is made on a tick, so that an answer about another window is not asked for again at once, over and over.
        self.has_unasked |= self.queues.get(&subject).is_some_and(|queue| queue.unasked() > 0);
    }

    /// Decides those who have waited for `timeout`, and makes the calls that are due. Within a callback of the root context.
    pub fn tick<H: FleetHost<Stream = S>>(&mut self, host: &mut H, limiter: &mut Limiter) {
        let config = limiter.config().clone();
        let (Some(fleet), Ok(now)) = (&config.fleet, host.now()) else { return };
        if self.paused > 0 {
            self.expire(host, limiter, now, fleet.terms.timeout);
        }
        if core::mem::take(&mut self.has_unasked) {
            let subjects: Vec<Subject> = self.queues.keys().copied().collect();
            for subject in subjects {
                self.serve(host, limiter, subject, None);
                loop {
                    match self.ask(host, limiter, subject, now) {
                        Ask::Sent(_) => {}
                        Ask::Served => break,
                        Ask::Later => {
                            self.has_unasked |=
                                self.queues.get(&subject).is_some_and(|queue| queue.calls == 0);
                            break;
                        }
                        Ask::Unavailable => {
                            self.decide_unserved(host, limiter, subject, 0);
                            break;
                        }
                    }
                }
            }
        }
        for (subject, request) in core::mem::take(&mut self.refills) {
            self.refill(host, limiter, fleet, subject, request, now);
        }
    }

    /// Decides all who wait, because no answer will be taken any more.
    pub fn end<H: FleetHost<Stream = S>>(&mut self, host: &mut H, limiter: &mut Limiter) {
        self.calls.clear();
        for (_, queue) in core::mem::take(&mut self.queues) {
            for paused in queue.streams {
                self.decide_without_service(host, limiter, paused);
            }
        }
        self.paused = 0;
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
