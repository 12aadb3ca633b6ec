//! One worker's part in a fleet: the calls in flight to the rate-limit service, and the streams that are paused until one is answered.
//!
//! A request that finds nothing leased asks at once, by a call of its stream, and pauses. Calls are never serialised behind one another.
//! Every other call is the root context's, on a tick: refills, and calls for requests whose own could not be sent. A stream may end
//! before its answer arrives, and the host delivers an answer to the context that made the call.
//!
//! A request waits at most the fleet's `timeout`; then, as while the service is known not to answer, `on_unavailable` decides.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::config::{Config, FleetSettings, Limits};
use crate::count::consume::Shortage;
use crate::count::counters::Place;
use crate::count::lease::WindowTime;
use crate::count::shared_data::HostError;
use crate::decide::limiter::{Asked, Host, LeaseRequest, LeasedRequest, Limiter, LogLevel, Need, Verdict};
use crate::decide::metric;
use crate::fleet::breaker::{Breaker, Sent};
use crate::fleet::lease_size;
use crate::fleet::protocol::{Grant, Request, Response, Unusable};
use crate::time::Timestamp;
use crate::window::Window;

/// Most streams that are paused in one worker. `on_unavailable` decides further requests.
pub const MAX_PAUSED: usize = 1024;
/// Most calls in flight of one counter's quota in one worker. Further requests share the next call.
pub const MAX_CALLS: usize = 64;

/// The host as a fleet needs it.
pub trait FleetHost: Host {
    /// What identifies a paused stream to the host.
    type Stream;

    /// Sends `message` to the rate-limit service; there is no answer after `timeout` milliseconds. Returns what identifies the answer.
    ///
    /// # Errors
    /// If the host does not send it.
    fn call(&mut self, fleet: &FleetSettings, message: &[u8], timeout: u32) -> Result<u32, HostError>;

    /// Whether a stream still exists.
    fn exists(&mut self, stream: &Self::Stream) -> bool;
}

/// What becomes of calls, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call was sent.
    Called,
    /// Units were granted.
    Granted,
    /// A limit was exceeded.
    OverLimit,
    /// A call failed.
    Failed,
    /// An answer was about another window.
    Dropped,
    /// The service has no limit for the descriptor.
    Unconfigured,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 6] =
        [Self::Called, Self::Granted, Self::OverLimit, Self::Failed, Self::Dropped, Self::Unconfigured];

    /// The name of the counter.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Called => metric::FLEET_CALLS,
            Self::Granted => metric::FLEET_UNITS,
            Self::OverLimit => metric::FLEET_OVER_LIMIT,
            Self::Failed => metric::FLEET_FAILED,
            Self::Dropped => metric::FLEET_DROPPED,
            Self::Unconfigured => metric::FLEET_UNCONFIGURED,
        }
    }
}

/// What becomes of a request that asks for a lease.
#[derive(Debug)]
pub enum Wanted {
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

/// A paused stream and its request.
#[derive(Debug)]
struct PausedStream<S> {
    stream: S,
    request: LeasedRequest,
    since: Timestamp,
    /// The call that its stream made.
    call: Option<u32>,
}

/// The streams that wait for units of one quota of one counter.
#[derive(Debug)]
struct Queue<S> {
    streams: VecDeque<PausedStream<S>>,
    /// The shortage that was seen last.
    shortage: Shortage,
    /// The cost of the request that saw it.
    cost: u32,
    calls: usize,
    /// Units in flight.
    asked: u64,
    /// Calls that the gateway is taken to let through at a time.
    most_calls: usize,
}

impl<S> Queue<S> {
    fn new(shortage: Shortage, cost: u32) -> Self {
        Self { streams: VecDeque::new(), shortage, cost, calls: 0, asked: 0, most_calls: MAX_CALLS }
    }

    /// Units that the waiting requests need beyond those in flight.
    fn unasked(&self) -> u64 {
        let waiting: u64 = self.streams.iter().map(|paused| u64::from(paused.request.cost)).sum();
        // What one request lacks is its cost, more what the gateway owes, or less what it holds.
        let needed = (waiting + u64::from(self.shortage.lacking)).saturating_sub(u64::from(self.cost));
        if self.streams.is_empty() { 0 } else { needed.saturating_sub(self.asked) }
    }
}

#[derive(Debug)]
struct Call {
    subject: Subject,
    request: LeasedRequest,
    asked: Asked,
    sent: Sent,
    at: Timestamp,
}

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

    /// Notes that a call is not in flight any more.
    fn ended(&mut self, subject: Subject, asked: Asked) {
        if asked.refill {
            self.refilling.remove(&subject);
        }
        let Some(queue) = self.queues.get_mut(&subject) else { return };
        queue.calls = queue.calls.saturating_sub(1);
        queue.asked = queue.asked.saturating_sub(asked.units.into());
        if queue.streams.is_empty() && queue.calls == 0 {
            self.queues.remove(&subject);
        } else {
            self.has_unasked |= queue.unasked() > 0;
        }
    }
}

impl<S> PausedStreams<S> {
    /// Sees to a lease that the decision on the request of `stream` asks for, within a callback of that stream.
    pub fn want<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        lease: LeaseRequest,
        stream: impl FnOnce() -> S,
    ) -> Wanted {
        let LeaseRequest { request, need } = lease;
        let shortage = match need {
            Need::Refill(quota) => {
                if self.has_ticks {
                    self.refills.entry((request.counter, quota)).or_insert(request);
                }
                return Wanted::Decided(None);
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
            _ => return Wanted::Decided(Some(limiter.decide_without_service(host, &request))),
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
                return Wanted::Decided(
                    newest.map(|PausedStream { request, .. }| limiter.decide_without_service(host, &request)),
                );
            }
        };
        if let Some(newest) = self.queues.get_mut(&subject).and_then(|queue| queue.streams.back_mut()) {
            newest.call = call;
        }
        Wanted::Paused(call)
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

    /// Sends a call for the requests of `subject` that no call is in flight for.
    fn ask<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        subject: Subject,
        now: Timestamp,
    ) -> Ask {
        let config = limiter.config().clone();
        let (Some(fleet), Some(queue)) = (&config.fleet, self.queues.get_mut(&subject)) else {
            return Ask::Served;
        };
        let in_flight = u32::try_from(queue.asked).unwrap_or(u32::MAX);
        let (unasked, Shortage { quota: index, count, lacking }) = (queue.unasked(), queue.shortage);
        let Some(request) = queue.streams.back().map(|paused| paused.request.clone()) else {
            return Ask::Served;
        };
        let Some(quota) = request.quota(index) else { return Ask::Served };
        if unasked == 0 {
            return Ask::Served;
        }
        // While the stored window is ahead of the clock, the service would charge another window.
        if WindowTime::of(quota.window, count.index, now).is_none() {
            return Ask::Later;
        }
        if queue.calls >= queue.most_calls {
            return Ask::Served;
        }
        if self.breaker.is_open() {
            return Ask::Unavailable;
        }
        let Some(sent) = self.breaker.permits(now) else { return Ask::Unavailable };
        // What the gateway owes is used up already, so that it is asked for whole.
        let debt = lacking.saturating_sub(request.cost);
        let most = debt.saturating_add(lease_size::most_for_waiting(quota, request.cost));
        let mut asked = Asked {
            quota: index,
            units: u32::try_from(unasked).unwrap_or(u32::MAX).min(most),
            refill: false,
        };
        if !self.refilling.contains(&subject)
            && let Some(refill) = limiter.claim_refill(
                host,
                &request,
                index,
                fleet.call_timeout(),
                (in_flight.saturating_add(asked.units).max(1), 0),
            )
        {
            asked = Asked { units: asked.units.saturating_add(refill.units), ..refill };
            self.refilling.insert(subject);
        }
        match host.call(fleet, &message(&config, fleet, &request, asked, count.index), fleet.call_timeout()) {
            Ok(call) => {
                queue.calls += 1;
                queue.asked += u64::from(asked.units);
                self.calls.insert(call, Call { subject, request, asked, sent, at: now });
                self.tally(Event::Called, 1);
                Ask::Sent(call)
            }
            Err(error) => {
                self.ended(subject, Asked { units: 0, ..asked });
                if error.is_refused() {
                    self.overloaded(subject);
                    return Ask::Later;
                }
                self.failed(host, sent, &error);
                Ask::Unavailable
            }
        }
    }

    fn refill<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        fleet: &FleetSettings,
        subject: Subject,
        request: LeasedRequest,
        now: Timestamp,
    ) {
        if self.refilling.contains(&subject) {
            return;
        }
        let at_least = u32::from(self.breaker.is_open());
        let Some(sent) = self.breaker.permits(now) else { return };
        let (_, index) = subject;
        let in_flight = self.queues.get(&subject).map_or(0, |queue| queue.asked);
        let bounds = (u32::try_from(in_flight).unwrap_or(u32::MAX), at_least);
        let asked = limiter.claim_refill(host, &request, index, fleet.call_timeout(), bounds);
        let Some((asked, quota)) = asked.and_then(|asked| Some((asked, request.quota(index)?))) else {
            return self.breaker.withdrawn();
        };
        let window = quota.window.at(now).index;
        match host.call(
            fleet,
            &message(limiter.config(), fleet, &request, asked, window),
            fleet.call_timeout(),
        ) {
            Ok(call) => {
                self.refilling.insert(subject);
                self.calls.insert(call, Call { subject, request, asked, sent, at: now });
                self.tally(Event::Called, 1);
            }
            Err(error) => {
                self.breaker.withdrawn();
                if !error.is_refused() {
                    self.failed(host, sent, &error);
                }
            }
        }
    }

    /// Decides those who wait for `subject` while there is room: first the stream that made `call`, then those without a call in flight, in
    /// their order. The others wait for their own answers: if a stream ends before, what its call was granted is lost.
    fn serve<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        limiter: &mut Limiter,
        subject: Subject,
        call: Option<u32>,
    ) {
        let mut first = call.and_then(|call| self.take_caller(subject, call));
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
                lease => {
                    if let Some(LeaseRequest { need: Need::Refill(quota), request }) = lease {
                        self.refills.entry((request.counter, quota)).or_insert(request);
                    }
                    self.decided.push_back((paused.stream, verdict));
                }
            }
        }
        self.forget_if_empty(subject);
    }

    /// Decides those who wait for `subject` and whom no call in flight will serve, as if the service did not answer: first the stream
    /// that made `call`.
    fn decide_unserved<H: FleetHost<Stream = S>>(
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
    fn expire<H: FleetHost<Stream = S>>(
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

    fn decide_without_service<H: FleetHost<Stream = S>>(
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
        let (calls, queue) = (&self.calls, self.queues.get_mut(&subject)?);
        let has_call = |paused: &PausedStream<S>| paused.call.is_some_and(|call| calls.contains_key(&call));
        let place = queue.streams.iter().position(|paused| !has_call(paused))?;
        self.paused -= 1;
        queue.streams.remove(place)
    }

    fn take_caller(&mut self, subject: Subject, call: u32) -> Option<PausedStream<S>> {
        let streams = &mut self.queues.get_mut(&subject)?.streams;
        let place = streams.iter().position(|paused| paused.call == Some(call))?;
        let paused = streams.remove(place)?;
        self.paused -= 1;
        Some(paused)
    }

    /// Notes that the gateway did not send a call, because too many are in flight: not an outage. Those that wait for it ask again when
    /// others are answered.
    fn overloaded(&mut self, subject: Subject) {
        self.breaker.withdrawn();
        if let Some(queue) = self.queues.get_mut(&subject) {
            queue.most_calls = queue.calls.max(1);
        }
        self.has_unasked = true;
    }

    fn forget_if_empty(&mut self, subject: Subject) {
        if self.queues.get(&subject).is_some_and(|queue| queue.streams.is_empty() && queue.calls == 0) {
            self.queues.remove(&subject);
        }
    }

    fn failed<H: FleetHost<Stream = S>>(&mut self, host: &mut H, sent: Sent, error: &dyn core::fmt::Display) {
        self.tally(Event::Failed, 1);
        // Without a time the pause ends at once, and the next call tries again.
        let now = host.now().unwrap_or(Timestamp::from_seconds(0));
        if self.breaker.failed(sent, now) {
            host.log(LogLevel::Error, format_args!("weir: fleet: {error}; on_unavailable decides"));
        }
    }

    fn report_unconfigured<H: FleetHost<Stream = S>>(
        &mut self,
        host: &mut H,
        config: &Config,
        request: &LeasedRequest,
        asked: Asked,
    ) {
        if core::mem::replace(&mut self.reported_unconfigured, true) {
            return;
        }
        let window = request.quota(asked.quota).map_or(Window::CalendarMonth, |quota| quota.window);
        host.log(
            LogLevel::Error,
            format_args!(
                "weir: fleet: the rate-limit service has no limit for class {} and window {}; configure it (weir-limits prints the \
                 limits) or set fleet.limits to \"sent\"; on_unavailable decides",
                config.class_name(request.class),
                window.short_name()
            ),
        );
    }
}

/// The result of [`PausedStreams::ask`].
enum Ask {
    /// The call was sent.
    Sent(u32),
    /// A call in flight serves the requests.
    Served,
    /// It cannot be sent now.
    Later,
    /// The service does not answer.
    Unavailable,
}

fn message(
    config: &Config,
    fleet: &FleetSettings,
    request: &LeasedRequest,
    asked: Asked,
    index: u32,
) -> Vec<u8> {
    let quota = request.quota(asked.quota);
    let message = Request {
        domain: &fleet.domain,
        class: config.class_name(request.class),
        window: quota.map_or(Window::CalendarMonth, |quota| quota.window),
        plan: (fleet.limits == Limits::Configured).then(|| config.plan_name(request.plan)),
        index: fleet.window_index.then_some(index),
        who: &request.who,
        limit: quota.filter(|_| fleet.limits == Limits::Sent).map(|quota| quota.limit.get()),
        units: asked.units,
    };
    message.encode()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
