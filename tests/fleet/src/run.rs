//! One world, from its first request until all is idle.

use arrayvec::ArrayVec;
use fastrand::Rng;
use filter::count::holding::{Stated, Terms};
use filter::time::Timestamp;
use filter::window::Window;
use ledger_wire::Answer;

use crate::events::{Event, Events};
use crate::facts::Facts;
use crate::gateway::{Count, Gateway, Steps, true_millis};
use crate::rules::Rule;
use crate::store::{self, Key, Store};
use crate::world::{COUNTERS, END, Fault, SECOND, TERM, TIMEOUT, Time, UNTIL, World, pick};

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) gateway: usize,
    pub(crate) worker: usize,
    /// Of each counter; 0 if it is none of its quotas.
    pub(crate) costs: [u32; COUNTERS],
    pub(crate) deadline: Time,
    /// How often it has asked.
    pub(crate) asks: u32,
    /// The call whose answer it waits for.
    pub(crate) call: Option<u32>,
}

/// Statements on their way to the ledger, and their answers on the way back.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) gateway: usize,
    pub(crate) worker: usize,
    /// The gateway's name and the worker's life when it was made.
    pub(crate) id: u32,
    pub(crate) life: u32,
    /// The request that waits for it.
    pub(crate) request: Option<u32>,
    pub(crate) statements: Statements,
    pub(crate) attempt: u8,
    pub(crate) open: bool,
}

/// Statements of counters.
pub(crate) type Statements = ArrayVec<(usize, Stated), COUNTERS>;
/// The answers to them.
pub(crate) type Answers = ArrayVec<Answer, COUNTERS>;

/// A change of what a request was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settlement {
    pub(crate) gateway: usize,
    pub(crate) worker: usize,
    pub(crate) life: u32,
    /// Of each counter, the generation that was charged and the change.
    pub(crate) changes: [Option<(u32, i32)>; COUNTERS],
}

/// A world in progress.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    events: Events,
    pub(crate) gateways: Vec<Gateway>,
    /// The name of the next gateway.
    pub(crate) next_id: u32,
    pub(crate) store: Store,
    /// What survives a loss.
    pub(crate) saved: Option<Vec<store::Window>>,
    pub(crate) requests: Vec<Request>,
    pub(crate) calls: Vec<Call>,
    /// What was answered to calls, with the store's epoch.
    pub(crate) answers: Vec<(u32, Answers)>,
    pub(crate) settlements: Vec<Settlement>,
    pub(crate) steps: Steps,
    /// Whether no ledger answers.
    pub(crate) is_away: bool,
    /// Which of two replicas does not answer.
    pub(crate) replica_away: Option<usize>,
    pub(crate) is_calm: bool,
    /// By how much all clocks have jumped, in milliseconds.
    pub(crate) jumped: u64,
    pub(crate) facts: Facts,
}

impl Run {
    pub(crate) fn new(seed: u64, without: Option<Rule>, mut facts: Facts) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = World::draw(&mut rng);
        facts.most = world.costs.iter().copied().max().unwrap_or(0);
        let new = |id| Gateway::new(id as u32, world.limits.clone(), world.workers);
        let terms = Terms { timeout: TIMEOUT, term: TERM, ahead: world.ahead };
        Self {
            rng,
            now: 0,
            events: Events::default(),
            gateways: (0..world.gateways).map(new).collect(),
            next_id: world.gateways as u32,
            store: Store::default(),
            saved: None,
            requests: Vec::with_capacity(world.requests as usize),
            calls: Vec::with_capacity(256),
            answers: Vec::with_capacity(256),
            settlements: Vec::new(),
            steps: Steps { terms, without },
            is_away: false,
            replica_away: None,
            is_calm: false,
            jumped: 0,
            facts,
            world,
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Facts {
        self.begin();
        while let Some((at, event)) = self.events.pop() {
            if at >= END {
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
        self.facts
    }

    fn begin(&mut self) {
        for gateway in &mut self.gateways {
            gateway.clock = self.rng.i64(-self.world.skew..=self.world.skew);
        }
        let mut arrives = 0;
        let begins = self.within(UNTIL - self.world.span);
        for request in 0..self.world.requests {
            if request % self.world.burst == 0 {
                arrives = begins + self.within(self.world.span);
            }
            let gateway = match arrives < self.world.moves_at {
                true if self.chance(self.world.first) => 0,
                true => self.rng.usize(..self.world.gateways),
                false => self.rng.usize(1..self.world.gateways),
            };
            let mut costs = [0; COUNTERS];
            let counters = self.world.windows.len();
            let (first, several) = (self.rng.usize(..counters), self.rng.bool());
            for (counter, cost) in costs.iter_mut().enumerate().take(counters) {
                if counter == first || several && self.rng.bool() {
                    *cost = pick(&mut self.rng, self.world.costs);
                }
            }
            let worker = self.rng.usize(..self.world.workers);
            self.requests.push(Request { gateway, worker, costs, deadline: 0, asks: 0, call: None });
            self.after(arrives, Event::Request(request));
        }
        for gateway in 0..self.world.gateways {
            for worker in 0..self.world.workers {
                let after = self.within(SECOND / 2);
                self.after(after, Event::Tick(gateway, worker));
            }
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
        self.after(UNTIL, Event::Calm);
    }

    /// The worker that has to do something at an event.
    fn worker_of(&self, event: Event) -> Option<(usize, usize)> {
        match event {
            Event::Request(request) | Event::Leave(request) => {
                let Request { gateway, worker, .. } = self.requests[request as usize];
                Some((gateway, worker))
            }
            Event::Settle(settlement) => {
                let Settlement { gateway, worker, .. } = self.settlements[settlement as usize];
                Some((gateway, worker))
            }
            Event::Tick(gateway, worker) | Event::Restate(gateway, worker) | Event::Look(gateway, worker) => {
                Some((gateway, worker))
            }
            Event::Send(call, _) | Event::Answer(call, ..) | Event::Fail(call, _) => {
                let Call { gateway, worker, .. } = self.calls[call as usize];
                Some((gateway, worker))
            }
            Event::Receive(..)
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
            Event::Leave(request) => self.client_leaves(request),
            Event::Settle(settlement) => self.settle(settlement),
            Event::Tick(gateway, worker) => self.tick(gateway, worker),
            Event::Restate(gateway, worker) => self.attend(gateway, worker, false),
            Event::Look(gateway, worker) => self.look(gateway, worker),
            Event::Send(call, attempt) => self.send(call, attempt),
            Event::Receive(call, attempt) => self.receive(call, attempt),
            Event::Fail(call, attempt) => self.fail(call, attempt),
            Event::Answer(call, attempt, answers) => self.answer(call, attempt, answers),
            Event::Fault => self.fault(),
            Event::OutageEnds => self.is_away = false,
            Event::ReplicaReturns => self.replica_away = None,
            Event::Stuck(gateway, worker, until) => {
                self.gateways[gateway].workers[worker].stuck_until = until;
            }
            Event::Save => {
                self.saved = Some(self.store.windows.clone());
                self.after(SECOND, Event::Save);
            }
            Event::Settled => self.except_unstated(),
            Event::Calm => self.is_calm = true,
        }
    }

    pub(crate) fn lacks(&self, rule: Rule) -> bool {
        self.steps.without == Some(rule)
    }

    pub(crate) fn after(&mut self, after: Time, event: Event) {
        self.events.push(self.now + after, event);
    }

    /// The true clock, in milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        true_millis(self.now, self.jumped)
    }

    /// A gateway's clock.
    pub(crate) fn clock(&self, gateway: usize) -> Timestamp {
        self.gateways[gateway].clock_at(self.millis())
    }

    pub(crate) fn window(&self, counter: usize) -> Window {
        Window::from_code(self.world.windows[counter])
    }

    pub(crate) fn count(&mut self, gateway: usize, counter: usize) -> &mut Count {
        let (window, millis, now) = (self.window(counter), self.millis(), self.now);
        self.gateways[gateway].count(counter, window, millis, now)
    }

    pub(crate) fn limit(&self, gateway: usize, counter: usize) -> u32 {
        self.gateways[gateway].limits[counter]
    }

    /// The lowest limit that a gateway has.
    pub(crate) fn least_limit(&self, counter: usize) -> u32 {
        self.gateways.iter().map(|gateway| gateway.limits[counter]).min().unwrap_or(0)
    }

    /// How often a worker of a gateway has died.
    pub(crate) fn life(&self, gateway: usize, worker: usize) -> u32 {
        self.gateways[gateway].workers[worker].life
    }

    /// Takes a note of what a gateway does about a window.
    pub(crate) fn note(&mut self, key: Key, gateway: usize, note: impl FnOnce() -> String) {
        let (millis, Gateway { id, clock, .. }) = (self.millis(), &self.gateways[gateway]);
        self.facts.note(Some(key), || format!("{millis}{clock:+} gateway {id} {}", note()));
    }

    /// A time within `within`.
    pub(crate) fn within(&mut self, within: Time) -> Time {
        self.rng.u64(0..=within)
    }

    pub(crate) fn chance(&mut self, part: f64) -> bool {
        part > 0.0 && self.rng.f64() < part
    }
}
