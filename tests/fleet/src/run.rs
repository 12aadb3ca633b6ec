//! One world, from its first request until all is idle.

use fastrand::Rng;
use filter::count::entry::Count;
use filter::time::Timestamp;

use crate::calls::Call;
use crate::events::{Event, Events};
use crate::facts::Facts;
use crate::gateway::{Gateway, Place, Version, true_micros};
use crate::shared::Host;
use crate::store::{self, Key, Store};
use crate::streams::{Arrival, Settlement, Stream};
use crate::world::{CALM, Fault, MILLI, SECOND, Time, World, pick};
use crate::{Check, Rule};
use ledger_wire::Response;

/// A world in progress.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) without: Option<Rule>,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    events: Events,
    pub(crate) gateways: Vec<Gateway>,
    /// The number of the next gateway, and of the next configuration at a worker.
    next_gateway: u32,
    next_version: u32,
    pub(crate) store: Store,
    /// What survives a loss.
    pub(crate) saved: Option<Vec<store::Window>>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) calls: Vec<Call>,
    pub(crate) answers: Vec<Response>,
    pub(crate) settlements: Vec<Settlement>,
    /// Whether no ledger answers, and since when one does again.
    pub(crate) is_away: bool,
    pub(crate) returned_at: Option<Time>,
    /// Which of two replicas does not answer.
    pub(crate) replica_away: Option<usize>,
    pub(crate) is_calm: bool,
    /// By how much all clocks have jumped, in microseconds.
    pub(crate) jumped: Time,
    pub(crate) facts: Facts,
}

impl Run {
    pub(crate) fn new(world: World, rng: Rng, without: Option<Rule>, mut facts: Facts) -> Self {
        facts.most = world.costs.iter().copied().max().unwrap_or(0);
        let gateways: Vec<_> = (0..world.gateways as u32).map(|id| Gateway::new(id, &world)).collect();
        Self {
            without,
            rng,
            now: 0,
            events: Events::default(),
            next_gateway: world.gateways as u32,
            next_version: 0,
            gateways,
            store: Store::default(),
            saved: None,
            arrivals: Vec::with_capacity(world.requests as usize),
            streams: Vec::with_capacity(world.requests as usize),
            calls: Vec::with_capacity(256),
            answers: Vec::with_capacity(256),
            settlements: Vec::new(),
            is_away: false,
            returned_at: None,
            replica_away: None,
            is_calm: false,
            jumped: world.begins,
            facts,
            world,
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Facts {
        self.begin();
        let end = self.world.until + CALM;
        while let Some((at, event)) = self.events.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            let of = self.worker_of(event);
            let stuck_until =
                of.map_or(0, |(gateway, worker)| self.gateways[gateway].workers[worker].stuck_until);
            if stuck_until > at {
                // What a stuck worker finds when it goes on has no order.
                let tie = self.rng.u32(..);
                self.events.push_anywhere(stuck_until, tie, event);
            } else {
                self.take(event);
            }
        }
        self.check_end();
        self.facts.tally.counters = self.store.windows.len();
        self.facts.tally.holders = self.store.windows.iter().map(|window| window.holders.len()).sum();
        self.facts
    }

    /// Requests have ended, and messages are not late any more.
    fn calm(&mut self) {
        self.is_calm = true;
        let key = self.store.windows.last().map(|window| window.key);
        self.facts.tally.held =
            key.map_or(0, |key| self.store.shares(key).saturating_sub(self.facts.units(key)));
    }

    fn begin(&mut self) {
        for gateway in 0..self.world.gateways {
            let skew = self.rng.i64(-self.world.skew..=self.world.skew);
            self.gateways[gateway].clock = skew * MILLI as i64 + self.rng.i64(0..MILLI as i64);
            for worker in 0..self.world.workers {
                self.configure(gateway, worker);
            }
        }
        let mut arrives = 0;
        let begins = self.within(self.world.until - self.world.span);
        for request in 0..self.world.requests {
            if request % self.world.burst == 0 {
                arrives = begins + self.within(self.world.span);
            }
            let gateway = match arrives < self.world.moves_at {
                true if self.chance(self.world.first) => 0,
                true => self.rng.usize(..self.world.gateways),
                false => self.rng.usize(1..self.world.gateways),
            };
            let worker = self.rng.usize(..self.world.workers);
            let caller = self.rng.usize(..self.world.callers);
            let cost = pick(&mut self.rng, self.world.costs);
            self.arrivals.push(Arrival { gateway, worker, caller, cost });
            self.after(arrives, Event::Request(request));
        }
        if !self.world.faults.is_empty() {
            let after = self.within(2 * SECOND);
            self.after(after, Event::Fault);
        }
        if self.world.has(Fault::LosesSecond) {
            self.after(0, Event::Save);
        }
        if self.world.looks {
            self.after(0, Event::Look(0, 0));
        }
        self.after(self.world.until, Event::Calm);
    }

    /// The worker that has to do something at an event.
    fn worker_of(&self, event: Event) -> Option<(usize, usize)> {
        let of = |place: Place| Some((place.gateway, place.worker));
        match event {
            Event::Request(request) => {
                let Arrival { gateway, worker, .. } = self.arrivals[request as usize];
                Some((gateway, worker))
            }
            Event::Leave(stream) => of(self.streams[stream as usize].place),
            Event::Settle(settlement) => {
                of(self.streams[self.settlements[settlement as usize].stream as usize].place)
            }
            Event::Tick(place) | Event::Drained(place) => of(place),
            Event::Configure(gateway, worker)
            | Event::Look(gateway, worker)
            | Event::Reset(gateway, worker, _) => Some((gateway, worker)),
            Event::Answer(call, _) | Event::Fail(call) => of(self.calls[call as usize].place),
            Event::Receive(_)
            | Event::Fault
            | Event::OutageEnds
            | Event::ReplicaReturns
            | Event::Stuck(..)
            | Event::Save
            | Event::Settled
            | Event::Calm => None,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.arrive(request),
            Event::Leave(stream) => self.client_leaves(stream),
            Event::Settle(settlement) => self.settle(settlement),
            Event::Tick(place) => self.tick(place),
            Event::Drained(place) => self.let_go(place),
            Event::Configure(gateway, worker) => self.configure(gateway, worker),
            Event::Look(gateway, worker) => self.look(gateway, worker),
            Event::Reset(gateway, worker, subject) => self.reset(gateway, worker, subject),
            Event::Receive(call) => self.receive(call),
            Event::Fail(call) => self.fail(call),
            Event::Answer(call, answer) => self.answer(call, answer),
            Event::Fault => self.fault(),
            Event::OutageEnds => (self.is_away, self.returned_at) = (false, Some(self.now)),
            Event::ReplicaReturns => self.replica_away = None,
            Event::Stuck(gateway, worker, until) => {
                self.gateways[gateway].workers[worker].stuck_until = until;
            }
            Event::Save => {
                self.saved = Some(self.store.windows.clone());
                self.after(SECOND, Event::Save);
            }
            Event::Settled => self.except_unstated(),
            Event::Calm => self.calm(),
        }
    }

    /// A worker takes up its gateway's configuration. Those that it follows live on while they drain.
    fn configure(&mut self, gateway: usize, worker: usize) {
        let now = self.clock(gateway);
        let serves = if self.rng.bool() { self.within(SECOND) } else { 0 };
        let lives = if self.rng.bool() { serves + self.within(2 * SECOND) } else { serves };
        for old in &self.gateways[gateway].workers[worker].versions {
            let place = Place { gateway, worker, version: old.number };
            self.events.push(self.now + lives, Event::Drained(place));
        }
        let version = self.next_version;
        self.next_version += 1;
        let drains = (self.now + serves, self.now + lives);
        self.gateways[gateway].configure(worker, version, drains, now);
        let after = self.within(SECOND / 4);
        self.after(after, Event::Tick(Place { gateway, worker, version }));
    }

    /// A worker dies with all that waits in it, and begins again.
    pub(crate) fn worker_dies(&mut self, gateway: usize, worker: usize) {
        let now = self.now;
        let of = &mut self.gateways[gateway].workers[worker];
        of.versions.clear();
        of.called_at = now;
        self.configure(gateway, worker);
    }

    /// A gateway dies and comes back as another.
    pub(crate) fn gateway_dies(&mut self, gateway: usize) {
        self.gateways[gateway].restart(self.next_gateway);
        self.next_gateway += 1;
        for worker in 0..self.world.workers {
            self.worker_dies(gateway, worker);
        }
    }

    /// The host keeps a configuration until its last stream has ended, at least. The newest then takes over what is left to state.
    pub(crate) fn let_go(&mut self, Place { gateway, worker, version }: Place) {
        let (now, versions) = (self.now, &mut self.gateways[gateway].workers[worker].versions);
        let is_over = |other: &mut Version| {
            other.number == version
                && other.streams == 0
                && other.drains.is_some_and(|(_, until)| now >= until)
        };
        let ended = versions.extract_if(.., is_over).next();
        if let Some((mut ended, newest)) = ended.zip(versions.last_mut()) {
            newest.client.take_over(&mut ended.client);
        }
    }

    pub(crate) fn after(&mut self, after: Time, event: Event) {
        self.events.push(self.now + after, event);
    }

    /// The true clock, in microseconds.
    pub(crate) fn micros(&self) -> Time {
        true_micros(self.now, self.jumped)
    }

    /// A gateway's clock.
    pub(crate) fn clock(&self, gateway: usize) -> Timestamp {
        self.gateways[gateway].clock_at(self.micros())
    }

    /// A configuration at a worker, unless it is gone, and what the worker works with now.
    pub(crate) fn version(&mut self, place: Place) -> Option<(&mut Version, Host<'_>)> {
        let now = self.clock(place.gateway);
        self.gateways[place.gateway].version((place.worker, place.version), now)
    }

    /// The count of a subject at a gateway, as it is stored.
    pub(crate) fn count(&self, gateway: usize, subject: usize) -> Option<Count> {
        self.gateways[gateway].count(self.world.callers, &self.world.subjects[subject])
    }

    /// The lowest limit that a gateway has.
    pub(crate) fn least_limit(&self, subject: usize) -> u32 {
        let place = self.world.subjects[subject].place;
        self.gateways.iter().map(|gateway| gateway.limits[place]).min().unwrap_or(0)
    }

    pub(crate) fn violated(&mut self, check: Check, key: Key, what: &'static str) {
        self.facts.violated(check, key, what);
    }

    /// Takes a note of what a gateway does about a window.
    pub(crate) fn note(&mut self, key: Key, gateway: usize, note: impl FnOnce() -> String) {
        let (micros, Gateway { clock, .. }) = (self.micros(), &self.gateways[gateway]);
        self.facts.note(Some(key), || {
            let (seconds, micros) = (micros / SECOND, micros % SECOND);
            format!("{seconds}.{micros:06}{:+} ms gateway {gateway} {}", clock / 1_000, note())
        });
    }

    /// A time within `within`.
    pub(crate) fn within(&mut self, within: Time) -> Time {
        self.rng.u64(0..=within)
    }

    pub(crate) fn chance(&mut self, part: f64) -> bool {
        part > 0.0 && self.rng.f64() < part
    }
}
