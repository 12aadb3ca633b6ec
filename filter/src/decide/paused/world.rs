//! A fleet in miniature: gateways of some workers each, one rate-limit service, and the clock between them.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::config::{Config, digest};
use crate::count::counters::CounterHost;
use crate::count::shared_data::{Cas, SharedData, Swap, VmLocalData};
use crate::fleet::protocol::tests::{Received, receive};
use crate::request::header_pairs::serialize;
use crate::time::Timestamp;

pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
/// The start of a minute.
pub(super) const START: u64 = 1_700_000_040 * SECOND;

/// A worker's host: shared data of its gateway, its clock, and the calls that it has made.
pub(super) struct Worker {
    data: Rc<RefCell<VmLocalData>>,
    now: Rc<Cell<u64>>,
    /// Nanoseconds by which this gateway's clock is ahead.
    pub(super) ahead: i64,
    pub(super) calls: Vec<(u32, Received, u32)>,
    pub(super) next_call: u32,
    /// Calls in flight.
    in_flight: usize,
    /// The cluster's circuit breaker: the most calls in flight.
    pub(super) max_requests: usize,
    /// The status of `proxy_http_call`.
    pub(super) status: u32,
    pub(super) tells_time: bool,
    pub(super) gone: Option<u32>,
    pub(super) logged: Vec<String>,
}

impl SharedData for Worker {
    type Value = Vec<u8>;

    fn get(&mut self, name: &[u8]) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        self.data.borrow_mut().get(name)
    }
    fn set(&mut self, name: &[u8], value: &[u8], cas: Cas) -> Result<Swap, HostError> {
        self.data.borrow_mut().set(name, value, cas)
    }
}

impl CounterHost for Worker {
    fn now(&mut self) -> Result<Timestamp, HostError> {
        match self.tells_time {
            true => Ok(Timestamp::from_nanos(self.now.get().saturating_add_signed(self.ahead))),
            false => Err(HostError { call: "proxy_get_current_time_nanoseconds", status: 10 }),
        }
    }
}

impl Host for Worker {
    fn property(&mut self, _: &[u8]) -> Result<Option<Vec<u8>>, HostError> {
        Ok(None)
    }
    fn random(&mut self) -> Result<[u8; 16], HostError> {
        Ok([7; 16])
    }
    fn log(&mut self, _: LogLevel, message: fmt::Arguments<'_>) {
        self.logged.push(message.to_string());
    }
}

impl FleetHost for Worker {
    type Stream = u32;

    fn call(&mut self, _: &FleetSettings, message: &[u8], timeout: u32) -> Result<u32, HostError> {
        let status = if self.in_flight < self.max_requests { self.status } else { 10 };
        if status != 0 {
            return Err(HostError { call: "proxy_http_call", status });
        }
        self.next_call += 1;
        self.in_flight += 1;
        self.calls.push((self.next_call, receive(message), timeout));
        Ok(self.next_call)
    }
    fn exists(&mut self, stream: &u32) -> bool {
        Some(*stream) != self.gone
    }
}

pub(super) struct Vm {
    pub(super) limiter: Limiter,
    pub(super) fleet: PausedStreams<u32>,
    pub(super) host: Worker,
    /// When the next tick is scheduled.
    tick: Option<u64>,
}

/// envoyproxy/ratelimit's algorithm: it adds first, and then looks at the limit.
#[derive(Default)]
pub(super) struct Service {
    pub(super) counters: HashMap<(Vec<(String, String)>, u64), u64>,
    pub(super) calls: u64,
    /// Overrides the grants of all answers.
    pub(super) grants: Option<Grant>,
}

impl Service {
    fn answer(&mut self, received: &Received, now: u64) -> Response {
        self.calls += 1;
        let (limit, unit) = received.limit.unwrap();
        let length = [0, 1, 60, 3600, 86_400][usize::try_from(unit).unwrap()];
        let seconds = now / SECOND;
        let until_reset = Some(length - seconds % length);
        if let Some(grant) = self.grants {
            return Response { grant, until_reset };
        }
        let used = self.counters.entry((received.entries.clone(), seconds / length)).or_default();
        *used += received.units;
        let left = Some(u32::try_from(limit.saturating_sub(*used)).unwrap());
        let grant = if *used > limit { Grant::OverLimit { left } } else { Grant::Units { left } };
        Response { grant, until_reset }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrives,
    IsServed(u32),
    IsAnswered(u32),
    TimesOut(u32),
    Ends(u32),
    Ticks,
}

/// When, in which order, at which gateway and worker, and what.
type Event = (u64, u64, (usize, usize), What);

/// Calls between a worker and the service, by the worker's gateway and place and the call.
type InFlight = HashMap<((usize, usize), u32), (Received, Option<Response>)>;

/// Gateways of some workers each, one service, and what became of the requests of one key.
pub(super) struct World {
    pub(super) now: Rc<Cell<u64>>,
    pub(super) gateways: Vec<Vec<Vm>>,
    pub(super) service: Service,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    in_flight: InFlight,
    /// Nanoseconds of each request's decision, its status (0: admitted) and what it waited.
    pub(super) decided: Vec<(u64, u16, u64)>,
    /// Milliseconds from gateway to service, and as many back, drawn from this range.
    pub(super) way: Range<u64>,
    /// On average, one message in this number is lost.
    pub(super) loses_one_of: Option<u64>,
    /// Milliseconds after which a stream that was resumed ends, and with it its call.
    pub(super) upstream: u64,
    pub(super) random: u64,
    /// When each waiting stream arrived, and its call.
    waiting: HashMap<u32, (u64, Option<u32>)>,
    next_stream: u32,
}

pub(super) fn config(quota: &str, fields: &str) -> Arc<Config> {
    let hash = digest(b"key").map(|byte| format!("{byte:02x}")).concat();
    let json = format!(
        r#"{{"plans": {{"pro": {{"standard": ["{quota}"]}}}}, "subscribers": [{{"id": "s", "plan": "pro", "keys": ["sha256:{hash}"]}}],
            "fleet": {{"cluster": "ratelimit"{fields}}}}}"#
    );
    Arc::new(Config::from_json(json.as_bytes()).unwrap())
}

impl World {
    pub(super) fn new(gateways: usize, workers: usize, quota: &str, fields: &str) -> Self {
        let (now, config) = (Rc::new(Cell::new(START)), config(quota, fields));
        let gateway = |_| {
            let data = Rc::new(RefCell::new(VmLocalData::default()));
            let worker = |_| Vm {
                limiter: Limiter::new(Arc::clone(&config)),
                fleet: PausedStreams::new(true),
                host: Worker {
                    data: Rc::clone(&data),
                    now: Rc::clone(&now),
                    ahead: 0,
                    calls: Vec::new(),
                    next_call: 0,
                    in_flight: 0,
                    max_requests: usize::MAX,
                    status: 0,
                    tells_time: true,
                    gone: None,
                    logged: Vec::new(),
                },
                tick: None,
            };
            (0..workers).map(worker).collect()
        };
        Self {
            gateways: (0..gateways).map(gateway).collect(),
            now,
            service: Service::default(),
            events: BinaryHeap::new(),
            order: 0,
            in_flight: HashMap::new(),
            decided: Vec::new(),
            way: 1..2,
            loses_one_of: None,
            upstream: 1,
            random: 0x9E37_79B9_7F4A_7C15,
            waiting: HashMap::new(),
            next_stream: 0,
        }
    }

    /// A number below `bound`, by xorshift.
    fn random(&mut self, bound: u64) -> u64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.random ^= if left { self.random << by } else { self.random >> by };
        }
        self.random % bound
    }

    fn at(&mut self, when: u64, vm: (usize, usize), what: What) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, vm, what)));
    }

    /// Requests at a rate per second to a gateway, for some seconds from `start`, to its workers in turn.
    pub(super) fn offer(&mut self, gateway: usize, rate: u64, start: u64, seconds: u64) {
        let workers = u64::try_from(self.gateways[gateway].len()).unwrap();
        for place in 0..rate * seconds {
            let worker = usize::try_from(place % workers).unwrap();
            self.at(start + place * SECOND / rate, (gateway, worker), What::Arrives);
        }
    }

    /// Sends `requests` at once, to a gateway's workers in turn.
    pub(super) fn burst(&mut self, gateway: usize, requests: usize, when: u64) {
        let workers = self.gateways[gateway].len();
        for request in 0..requests {
            self.at(when, (gateway, request % workers), What::Arrives);
        }
    }

    /// Sends `requests` to each gateway, one every `apart` microseconds, and goes on until all are decided, as a client that sends
    /// its next burst then.
    pub(super) fn burst_until_decided(&mut self, requests: usize, apart: u64) {
        let decided = self.decided.len() + requests * self.gateways.len();
        for place in 0..requests {
            for gateway in 0..self.gateways.len() {
                let when = self.now.get() + apart * 1000 * u64::try_from(place).unwrap();
                let worker = place % self.gateways[gateway].len();
                self.at(when, (gateway, worker), What::Arrives);
            }
        }
        while self.decided.len() < decided {
            self.step();
        }
    }

    /// Goes on until nothing happens any more.
    pub(super) fn run(&mut self) {
        while self.step() {}
        assert!(self.waiting.is_empty(), "requests hang: {:?}", self.waiting);
    }

    /// Lets the next event happen. Whether there was one.
    fn step(&mut self) -> bool {
        let Some(Reverse((when, _, vm, what))) = self.events.pop() else { return false };
        {
            self.now.set(when);
            let way = self.way.start + self.random(self.way.end - self.way.start);
            let is_lost = self.loses_one_of.is_some_and(|many| self.random(many) == 0);
            let Vm { limiter, fleet, host, tick } = &mut self.gateways[vm.0][vm.1];
            match what {
                What::Arrives => drop(self.arrive(vm)),
                What::IsServed(call) => {
                    // The gateway may have given up; the service does not know.
                    if let Some((received, response)) = self.in_flight.get_mut(&(vm, call)) {
                        *response = Some(self.service.answer(received, when));
                        if !is_lost {
                            self.at(when + way * MILLISECOND, vm, What::IsAnswered(call));
                        }
                    }
                }
                What::IsAnswered(call) => {
                    if let Some((_, response)) = self.in_flight.remove(&(vm, call)) {
                        host.in_flight = host.in_flight.saturating_sub(1);
                        fleet.answer(host, limiter, call, response.ok_or(Unusable::None));
                    }
                }
                What::TimesOut(call) => {
                    if self.in_flight.remove(&(vm, call)).is_some() {
                        host.in_flight = host.in_flight.saturating_sub(1);
                        fleet.answer(host, limiter, call, Err(Unusable::None));
                    }
                }
                What::Ends(call) => {
                    if self.in_flight.remove(&(vm, call)).is_some() {
                        host.in_flight = host.in_flight.saturating_sub(1);
                        fleet.abandon(host, limiter, call);
                    }
                }
                What::Ticks if *tick == Some(when) => {
                    *tick = None;
                    fleet.tick(host, limiter);
                }
                What::Ticks => {}
            }
            self.look_at(vm);
        }
        true
    }

    /// A request arrives; the call that its stream makes.
    pub(super) fn arrive(&mut self, vm: (usize, usize)) -> Option<u32> {
        let Vm { limiter, fleet, host, .. } = &mut self.gateways[vm.0][vm.1];
        let headers = serialize(&[(":method", b"GET"), (":path", b"/"), ("authorization", b"Bearer key")]);
        let mut verdict = limiter.decide(host, &headers);
        self.next_stream += 1;
        let stream = self.next_stream;
        if let Some(lease) = verdict.lease.take() {
            match fleet.request_lease(host, limiter, *lease, || stream) {
                LeaseOutcome::Decided(Some(decided)) => verdict = decided,
                LeaseOutcome::Decided(None) => {}
                LeaseOutcome::Paused(call) => {
                    self.waiting.insert(stream, (self.now.get(), call));
                    return call;
                }
            }
        }
        self.count(vm.0, &verdict, 0);
        None
    }

    fn count(&mut self, gateway: usize, verdict: &Verdict, waited: u64) {
        let now = self.now.get().saturating_add_signed(self.gateways[gateway][0].host.ahead);
        self.decided.push((now, verdict.reply.as_ref().map_or(0, |reply| reply.status), waited));
        if let (Some(reply), Some(report)) = (&verdict.reply, &verdict.report) {
            let x = report.x_ratelimit(crate::config::LimitHeader::PerWindow).unwrap();
            assert!(reply.status != 429 || x.remaining == 0, "429 with {} remaining", x.remaining);
        }
    }

    /// Sees to what a worker has sent and decided.
    pub(super) fn look_at(&mut self, vm: (usize, usize)) {
        let worker = &mut self.gateways[vm.0][vm.1];
        let calls = std::mem::take(&mut worker.host.calls);
        while let Some((stream, verdict)) = self.gateways[vm.0][vm.1].fleet.pop_decided() {
            let (since, call) = self.waiting.remove(&stream).unwrap();
            self.count(vm.0, &verdict, self.now.get() - since);
            if let Some(call) = call {
                self.at(self.now.get() + self.upstream * MILLISECOND, vm, What::Ends(call));
            }
        }
        for (call, received, timeout) in calls {
            self.in_flight.insert((vm, call), (received, None));
            let way = self.way.start + self.random(self.way.end - self.way.start);
            let is_lost = self.loses_one_of.is_some_and(|many| self.random(many) == 0);
            if !is_lost {
                self.at(self.now.get() + way * MILLISECOND, vm, What::IsServed(call));
            }
            self.at(self.now.get() + u64::from(timeout) * MILLISECOND, vm, What::TimesOut(call));
        }
        let Vm { limiter, fleet, tick, .. } = &mut self.gateways[vm.0][vm.1];
        if let Pace::Within(milliseconds) = fleet.pace(limiter.config().fleet.as_ref().unwrap()) {
            let when = self.now.get() + u64::from(milliseconds) * MILLISECOND;
            if tick.is_none_or(|tick| when < tick) {
                *tick = Some(when);
                self.at(when, vm, What::Ticks);
            }
        }
    }

    /// Admitted requests by window; `window` is its length in nanoseconds.
    pub(super) fn admitted_in(&self, window: u64) -> BTreeMap<u64, usize> {
        let mut admitted = BTreeMap::new();
        for (now, _, _) in self.decided.iter().filter(|(_, status, _)| *status == 0) {
            *admitted.entry(now / window).or_default() += 1;
        }
        admitted
    }

    pub(super) fn is_waiting(&self, stream: u32) -> bool {
        self.waiting.contains_key(&stream)
    }

    pub(super) fn admitted(&self) -> usize {
        self.with_status(0)
    }

    pub(super) fn with_status(&self, status: u16) -> usize {
        self.decided.iter().filter(|(_, found, _)| *found == status).count()
    }

    /// The longest wait of a request, in milliseconds.
    pub(super) fn longest_wait(&self) -> u64 {
        self.decided.iter().map(|(_, _, waited)| waited / MILLISECOND).max().unwrap_or(0)
    }
}
