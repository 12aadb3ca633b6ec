//! What a seed draws: how large a world is, what clients do in it, and what goes wrong.

use arrayvec::ArrayVec;
use fastrand::Rng;

/// Most counters of a world, and so of a request.
pub(crate) const COUNTERS: usize = 3;
/// Most workers of a gateway.
pub(crate) const WORKERS: usize = 3;

/// Microseconds.
pub(crate) type Time = u64;
pub(crate) const MILLI: Time = 1_000;
pub(crate) const SECOND: Time = 1_000 * MILLI;

/// How long a request waits for the ledger, and a term, in milliseconds.
pub(crate) const TIMEOUT: u32 = 250;
pub(crate) const TERM: u32 = 1_000;
/// Requests arrive until then, and all is calm a second before.
pub(crate) const UNTIL: Time = 6 * SECOND;
/// Then everything has had time to be idle.
pub(crate) const END: Time = 10 * SECOND;
/// The length of windows that outlast a world, in seconds: less than a day, from which on little is held in advance.
pub(crate) const LONG: u32 = 80_000;

/// What decides while the ledger is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnUnavailable {
    Local,
    Allow,
    Deny,
}

/// What goes wrong from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A gateway's clock steps.
    Clock,
    /// All clocks but one gateway's step beyond the time for which the store keeps what has ended.
    FarClock,
    /// No ledger answers for a while.
    Outage,
    /// One of two replicas of the ledger does not answer for a while.
    Replica,
    /// A plan changes at a gateway.
    Plan,
    /// An operator resets a counter.
    Reset,
    /// The store loses all.
    LosesAll,
    /// The store loses what it took in since up to a second.
    LosesSecond,
    /// A count begins again.
    Evicts,
    /// A gateway dies and comes back as another.
    GatewayDies,
    /// A worker dies with all that waits in it, and comes back.
    WorkerDies,
    /// A worker is stuck for up to three seconds.
    WorkerStuck,
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) gateways: usize,
    pub(crate) workers: usize,
    /// The length of each counter's window, in seconds.
    pub(crate) windows: ArrayVec<u32, COUNTERS>,
    pub(crate) limits: ArrayVec<u32, COUNTERS>,
    /// The costs that requests have.
    pub(crate) costs: &'static [u32],
    pub(crate) requests: u32,
    /// The time in which they come.
    pub(crate) span: Time,
    /// How many requests come at once.
    pub(crate) burst: u32,
    /// Part of the requests that the first gateway gets.
    pub(crate) first: f64,
    /// When it gets no more, and the others get all.
    pub(crate) moves_at: Time,
    /// From a gateway to the ledger and back.
    pub(crate) distance: Time,
    /// How far clocks are from the true one at most, in milliseconds.
    pub(crate) skew: i64,
    /// A message takes up to this many times longer.
    pub(crate) jitter: f64,
    /// Parts of the messages that are lost, come twice, and are late by up to two seconds.
    pub(crate) loss: f64,
    pub(crate) repeats: f64,
    pub(crate) late: f64,
    /// Parts of the waiting requests whose clients leave, and whose workers die.
    pub(crate) leave: f64,
    pub(crate) die: f64,
    /// Part of the requests that are settled.
    pub(crate) settle: f64,
    /// How much use is held in advance, in milliseconds.
    pub(crate) ahead: u32,
    /// Whether a client of the first gateway asks again and again where it stands.
    pub(crate) looks: bool,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) faults: &'static [Fault],
}

impl World {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        use Fault::{
            Clock, Evicts, FarClock, GatewayDies, LosesAll, LosesSecond, Outage, Plan, Replica, Reset,
            WorkerDies, WorkerStuck,
        };
        const FAULTS: [&[Fault]; 20] = [
            &[],
            &[],
            &[],
            &[Clock],
            &[Clock, Evicts],
            &[FarClock],
            &[Outage, Plan],
            &[Outage],
            &[Replica],
            &[Reset],
            &[Reset, Clock, Plan],
            &[LosesSecond],
            &[LosesAll],
            &[LosesAll, Outage, Reset],
            &[GatewayDies, WorkerDies],
            &[WorkerStuck],
            &[WorkerStuck, Reset],
            &[WorkerStuck, Plan],
            &[WorkerStuck, Evicts, WorkerDies],
            &[Clock, LosesSecond, WorkerStuck],
        ];
        let counters = rng.usize(1..=COUNTERS);
        let windows: &[u32] = if rng.bool() { &[LONG] } else { &[1, 3, LONG] };
        let many = pick(rng, &[2, 2, 2, 3, 3, 4, 4, 5, 8, 16]);
        let mut world = Self {
            gateways: many,
            workers: rng.usize(1..=WORKERS),
            windows: (0..counters).map(|_| pick(rng, windows)).collect(),
            limits: (0..counters).map(|_| pick(rng, &[5, 20, 40, 80, 160])).collect(),
            costs: pick(rng, &[&[1], &[1], &[1, 2, 5]]),
            requests: pick(rng, &[20, 60, 150]),
            span: pick(rng, &[UNTIL, UNTIL, SECOND]),
            burst: pick(rng, &[1, 1, 5]),
            first: pick(rng, &[0.2, 0.5, 0.9]),
            moves_at: if rng.bool() { rng.u64(SECOND..UNTIL) } else { UNTIL },
            distance: pick(rng, &[2, 40, 80]) * MILLI,
            skew: pick(rng, &[0, 100, 400]),
            jitter: pick(rng, &[0.0, 1.0, 4.0]),
            loss: pick(rng, &[0.0, 0.1, 0.4]),
            repeats: pick(rng, &[0.0, 0.2]),
            late: pick(rng, &[0.0, 0.3]),
            leave: pick(rng, &[0.0, 0.2]),
            die: pick(rng, &[0.0, 0.0, 0.02]),
            settle: pick(rng, &[0.0, 0.3]),
            ahead: pick(rng, &[0, 10_000, 10_000]),
            looks: pick(rng, &[false, false, true]),
            on_unavailable: pick(rng, &[OnUnavailable::Local, OnUnavailable::Allow, OnUnavailable::Deny]),
            faults: pick(rng, &FAULTS),
        };
        if rng.bool() {
            (world.loss, world.late) = (0.0, 0.0);
        }
        world
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether every message arrives in time, at a ledger that knows all.
    pub(crate) fn is_reachable(&self) -> bool {
        use Fault::{FarClock, LosesAll, LosesSecond, Outage, WorkerStuck};
        let away = [Outage, LosesAll, LosesSecond, WorkerStuck, FarClock];
        // Who has to ask again and again may run out of time: others take what was granted, and so do settlements.
        let is_near = 8.0 * self.round_trip() < f64::from(TIMEOUT);
        (is_near || self.is_steady())
            && self.has_good_network()
            && !away.into_iter().any(|fault| self.has(fault))
    }

    /// Whether no count begins again, and none settles.
    pub(crate) fn is_steady(&self) -> bool {
        use Fault::{Clock, Evicts, Reset};
        let begins_again = [Clock, Reset, Evicts].into_iter().any(|fault| self.has(fault));
        !begins_again && self.settle == 0.0 && self.windows.iter().all(|window| *window == LONG)
    }

    /// Whether gateways know how old an answer is: by a clock that has stepped back, an old one looks young.
    pub(crate) fn knows_ages(&self) -> bool {
        !self.has(Fault::Clock)
    }

    /// Whether gateways can state what they have used before a store that has lost it grants again.
    pub(crate) fn restates_in_time(&self) -> bool {
        self.has_good_network() && self.die == 0.0 && self.faults.len() == 1
    }

    /// Whether nothing keeps a count that is idle from giving back what it holds.
    pub(crate) fn is_prompt(&self) -> bool {
        let dies = [Fault::WorkerDies, Fault::GatewayDies, Fault::Clock];
        self.is_reachable() && self.die == 0.0 && !dies.into_iter().any(|fault| self.has(fault))
    }

    /// Whether every message arrives, and in time.
    pub(crate) fn has_good_network(&self) -> bool {
        self.loss == 0.0 && self.late == 0.0 && 2.0 * self.round_trip() < f64::from(TIMEOUT)
    }

    /// From a gateway to the ledger and back at most, in milliseconds.
    fn round_trip(&self) -> f64 {
        self.distance as f64 * (1.0 + self.jitter) / MILLI as f64
    }
}

pub(crate) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}
