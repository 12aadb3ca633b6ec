//! What a seed draws: how large a world is, what clients do in it, and what goes wrong.

use core::num::NonZeroU32;

use arrayvec::ArrayVec;
use fastrand::Rng;
use filter::count::holding::{Beyond, Sharing};
use filter::quota::{Mode, Quota, QuotaSet};
use filter::window::Window;
use ledger_wire::Hex128;

use crate::gateway;
use crate::sizing::Key;

/// Most quotas of the class.
pub(crate) const QUOTAS: usize = 3;
/// Most callers, and their organisation.
pub(crate) const RECORDS: usize = 3;
/// Most windows of records.
pub(crate) const SUBJECTS: usize = RECORDS * QUOTAS;
/// Most workers of a gateway.
const WORKERS: usize = 3;

/// Microseconds.
pub(crate) type Time = u64;
pub(crate) const MILLI: Time = 1_000;
pub(crate) const SECOND: Time = 1_000 * MILLI;

/// How long a request waits for the ledger, and a term, in milliseconds.
pub(crate) const TIMEOUT: u32 = 250;
pub(crate) const TERM: u32 = 1_000;
/// Requests of a drawn world arrive until then.
const UNTIL: Time = 6 * SECOND;
/// How much later a world ends: then everything has had time to be idle.
pub(crate) const CALM: Time = 4 * SECOND;
/// Lengths of windows that outlast a world, in seconds: less than a day, from which on little is held in advance.
const LONG: [u32; QUOTAS] = [80_000, 70_000, 60_000];
/// Lengths of windows that end within a world.
const SHORT: [u32; 2] = [1, 3];
/// Part of a limit, in percent, that `on_unavailable: local` allows.
const LOCAL: u8 = 10;

/// What goes wrong from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A gateway's clock steps.
    Clock,
    /// All clocks but one gateway's step beyond the time for which the store keeps what has ended.
    FarClock,
    /// No ledger answers for a while, perhaps for seconds.
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
    /// Another configuration follows at a gateway.
    Push,
    /// The same, and what is enforced there is in shadow mode then, or the other way round.
    Mode,
}

/// One window of one record: what the ledger knows as a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// The caller, or the number of callers: their organisation.
    pub(crate) record: usize,
    /// The quota's place in the class.
    pub(crate) place: usize,
    pub(crate) window: Window,
    /// Its name in the fleet.
    pub(crate) name: Hex128,
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) gateways: usize,
    pub(crate) workers: usize,
    /// Callers that share an organisation's quotas.
    pub(crate) callers: usize,
    /// The length of each quota's window, in seconds, and its limit.
    pub(crate) quotas: ArrayVec<(u32, u32), QUOTAS>,
    /// How many of them are the caller's. The rest are its organisation's.
    pub(crate) own: usize,
    pub(crate) subjects: ArrayVec<Subject, SUBJECTS>,
    /// The costs that requests have.
    pub(crate) costs: &'static [u32],
    pub(crate) requests: u32,
    /// The time in which they come.
    pub(crate) span: Time,
    /// Until when they come. Then all is calm.
    pub(crate) until: Time,
    /// How much later than usual the world begins.
    pub(crate) begins: Time,
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
    pub(crate) on_unavailable: Beyond,
    pub(crate) faults: &'static [Fault],
    /// Whether refusals are checked, for which one has to look at every gateway.
    pub(crate) checks_refusals: bool,
}

impl World {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        use Fault::{
            Clock, Evicts, FarClock, GatewayDies, LosesAll, LosesSecond, Mode, Outage, Plan, Push, Replica,
            Reset, WorkerDies, WorkerStuck,
        };
        const FAULTS: [&[Fault]; 27] = [
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
            &[Outage],
            &[Push],
            &[Push, Outage],
            &[Push, LosesAll],
            &[Push, Mode, Plan],
            &[Mode],
            &[Mode, Reset, WorkerStuck],
        ];
        let many_quotas = rng.usize(1..=QUOTAS);
        let own = if rng.u8(..3) == 0 { rng.usize(..many_quotas) } else { many_quotas };
        let mut windows: ArrayVec<u32, { QUOTAS + SHORT.len() }> = LONG.into_iter().collect();
        if rng.bool() {
            windows.extend(SHORT);
        }
        rng.shuffle(&mut windows);
        let many = pick(rng, &[2, 2, 2, 3, 3, 4, 4, 5, 8, 16]);
        let mut world = Self {
            gateways: many,
            workers: rng.usize(1..=WORKERS),
            callers: if own < many_quotas { rng.usize(1..RECORDS) } else { 1 },
            quotas: windows
                .into_iter()
                .take(many_quotas)
                .map(|window| (window, pick(rng, &[5, 20, 40, 80, 160])))
                .collect(),
            own,
            subjects: ArrayVec::new(),
            costs: pick(rng, &[&[1], &[1], &[1, 2, 5]]),
            requests: pick(rng, &[20, 60, 150]),
            span: pick(rng, &[UNTIL, UNTIL, SECOND]),
            until: UNTIL,
            begins: 0,
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
            on_unavailable: pick(rng, &[Beyond::Percent(LOCAL), Beyond::All, Beyond::Nothing]),
            faults: pick(rng, &FAULTS),
            checks_refusals: true,
        };
        if rng.bool() {
            (world.loss, world.late) = (0.0, 0.0);
        }
        world.name_subjects();
        world
    }

    /// The world of one key, in which nothing goes wrong. It begins with a window.
    pub(crate) fn of(key: &Key, requests: u32) -> Self {
        let until = Time::from(key.seconds) * SECOND;
        let window = Time::from(key.window) * SECOND;
        let mut world = Self {
            gateways: key.gateways,
            workers: 1,
            callers: 1,
            quotas: [(key.window, key.limit)].into_iter().collect(),
            own: 1,
            subjects: ArrayVec::new(),
            costs: &[1],
            requests,
            span: until,
            until,
            begins: (window - gateway::START % window) % window,
            burst: key.burst,
            first: 0.0,
            moves_at: until,
            distance: 2 * MILLI,
            skew: 0,
            jitter: 1.0,
            loss: 0.0,
            repeats: 0.0,
            late: 0.0,
            leave: 0.0,
            die: 0.0,
            settle: 0.0,
            ahead: 10_000,
            looks: false,
            on_unavailable: Beyond::Nothing,
            faults: &[],
            checks_refusals: false,
        };
        world.name_subjects();
        world
    }

    fn name_subjects(&mut self) {
        let subjects = (0..=self.callers).flat_map(|record| {
            let is_caller = record < self.callers;
            let places = if is_caller { 0..self.own } else { self.own..self.quotas.len() };
            places.map(move |place| (record, place))
        });
        self.subjects = subjects
            .map(|(record, place)| {
                let window = Window::from_code(self.quotas[place].0);
                let name = Hex128(gateway::name(self.callers, record).0 ^ u128::from(window.code()));
                Subject { record, place, window, name }
            })
            .collect();
    }

    /// The quotas of the class with these limits.
    pub(crate) fn quota_set(&self, limits: &[u32]) -> QuotaSet {
        let quotas = self.quotas.iter().zip(limits).map(|((window, _), limit)| Quota {
            name: String::new(),
            limit: NonZeroU32::new(*limit).unwrap_or(NonZeroU32::MIN),
            window: Window::from_code(*window),
            mode: Mode::Enforced,
            refundable: false,
        });
        let mut own: Vec<_> = quotas.collect();
        let shared = own.split_off(self.own);
        QuotaSet::with_shared(own, shared)
    }

    /// How gateways share them.
    pub(crate) fn sharing(&self) -> Sharing {
        Sharing {
            timeout: TIMEOUT,
            term: TERM,
            ahead: self.ahead,
            beyond: self.on_unavailable,
            in_shadow: false,
        }
    }

    /// The subjects that a request of a caller is charged to, in the order of its quotas.
    pub(crate) fn subjects_of(&self, caller: usize) -> impl Iterator<Item = usize> {
        let is_of = move |subject: &Subject| subject.record == caller || subject.record == self.callers;
        (0..self.subjects.len()).filter(move |subject| is_of(&self.subjects[*subject]))
    }

    /// The limit of a subject.
    pub(crate) fn limit(&self, subject: usize) -> u32 {
        self.quotas[self.subjects[subject].place].1
    }

    /// Whether the window of a subject outlasts the world.
    pub(crate) fn is_long(&self, subject: usize) -> bool {
        LONG.contains(&self.subjects[subject].window.code())
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether every message arrives in time, at a ledger that knows all.
    pub(crate) fn is_reachable(&self) -> bool {
        use Fault::{FarClock, LosesAll, LosesSecond, Outage, WorkerStuck};
        let away = [Outage, LosesAll, LosesSecond, WorkerStuck, FarClock];
        (self.is_near() || self.is_steady())
            && self.has_good_network()
            && !away.into_iter().any(|fault| self.has(fault))
    }

    /// Whether who has to ask again and again has time to: others take what was granted, and so do settlements.
    fn is_near(&self) -> bool {
        8.0 * self.round_trip() < f64::from(TIMEOUT)
    }

    /// Whether no count begins again, none settles, and nothing takes what others wait for: shadow mode, or `on_unavailable`.
    pub(crate) fn is_steady(&self) -> bool {
        use Fault::{Clock, Evicts, Mode, Replica, Reset};
        let begins_again = [Clock, Reset, Evicts, Mode, Replica].into_iter().any(|fault| self.has(fault));
        !begins_again && self.settle == 0.0 && (0..self.subjects.len()).all(|subject| self.is_long(subject))
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
        // A tick's call that a silent replica gets is not made again at once.
        let is_kept = self.has(Fault::Clock) || self.has(Fault::Replica);
        self.is_reachable() && !self.is_mortal() && !is_kept
    }

    /// Whether workers die, with all that waits in them.
    pub(crate) fn is_mortal(&self) -> bool {
        self.die > 0.0 || self.has(Fault::WorkerDies) || self.has(Fault::GatewayDies)
    }

    /// Whether nothing but an outage keeps the ledger from deciding.
    pub(crate) fn is_whole_again(&self) -> bool {
        use Fault::{Outage, Plan, Push};
        self.is_near()
            && self.has_good_network()
            && self.faults.iter().all(|fault| [Outage, Plan, Push].contains(fault))
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
