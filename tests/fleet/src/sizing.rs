//! What a fleet costs: by simulation of the shipped machines, and by the formula of the page "How large a fleet".
//!
//! Keys do not depend on each other: each counter has its own shares and statements. The cost of a fleet is the sum over its keys, of which some
//! are simulated, each for all keys of about its rate.

use fastrand::Rng;

use crate::facts::{Facts, Tally};
use crate::run::Run;
use crate::world::World;

/// How long requests of a fleet come, in seconds.
const SECONDS: u32 = 300;
/// How long the store keeps a window that has ended, in seconds.
const KEPT: f64 = 180.0;
/// Requests that a simulated key sends at least. What a slower one costs is in proportion.
const LEAST: f64 = 20.0;

/// Microseconds of CPU time that a statement takes at the gateway, the ledger and the store if each is a call: measured.
pub const GATEWAY: f64 = 80.0;
/// See [`GATEWAY`].
pub const LEDGER: f64 = 55.0;
/// See [`GATEWAY`].
pub const STORE: f64 = 15.0;

/// A key with one quota, and the gateways to any of which each of its requests goes.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// All of them serve other keys as well, so the ledger hears them all.
    pub gateways: usize,
    /// Requests a second, at random instants.
    pub per_second: f64,
    /// How many of them come at once, to one gateway.
    pub burst: u32,
    /// Of each window.
    pub limit: u32,
    /// The length of a window, in seconds.
    pub window: u32,
    /// How long requests come, from the beginning of a window on, in seconds.
    pub seconds: u32,
}

/// What keys cost, or are expected to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Requests that were admitted.
    pub admitted: f64,
    /// Statements to the ledger, each of which is one command of the store.
    pub statements: f64,
    /// Counters in the store: one for each window of a key.
    pub counters: f64,
    /// Gateways that the store knows, summed over all counters.
    pub holders: f64,
    /// Bytes in the store.
    pub bytes: f64,
    /// Part of the limit that gateways held and had not used when requests ended.
    pub held: f64,
    /// Part of the limit that was used when the first request was refused, if any was.
    pub first_429: Option<f64>,
}

/// Bytes that Redis 7 needs for a counter: measured. A hash of more than 512 fields is a table.
#[must_use]
pub fn bytes(holders: f64) -> f64 {
    190.0 + holders * if holders <= 510.0 { 50.0 } else { 97.0 }
}

/// Runs the key's requests through gateways and ledger.
///
/// # Panics
/// If the limit is exceeded, or a gateway does not give back what it held.
#[must_use]
pub fn simulated(key: &Key, seed: u64) -> Cost {
    let mut rng = Rng::with_seed(seed);
    let requests = (key.per_second * f64::from(key.seconds) + rng.f64()) as u32;
    let run = Run::new(World::of(key, requests), rng, None, Facts::default());
    let Facts { violations, tally, .. } = run.run();
    assert!(violations.is_empty(), "{key:?}, seed {seed}: {:?}", violations.first());
    let Tally { statements, admitted, first_429, held, counters, holders } = tally;
    let part = |units: u64| units as f64 / f64::from(key.limit);
    Cost {
        admitted: admitted as f64,
        statements: statements as f64,
        counters: counters as f64,
        holders: holders as f64,
        bytes: 0.0,
        held: part(held),
        first_429: first_429.map(part),
    }
}

/// What the formula says of the key's statements and of what the store has, if each burst is one request.
#[must_use]
pub fn expected(key: &Key) -> Cost {
    let [gateways, limit] = [key.gateways as f64, f64::from(key.limit)];
    let length = f64::from(key.window.min(key.seconds));
    let windows = f64::from(key.seconds) / length;
    let at_each = key.per_second / gateways;
    // Part of the time in which the key is too slow at a gateway for that to hold anything: nearly always, or hardly ever.
    let slow = 1.0 / (1.0 + (at_each / 1.25).powi(4));
    let holds_nothing = key.window >= 86_400 && key.limit < 1_000;
    let slow = if holds_nothing { 1.0 } else { slow };
    let amount = (10.0 * at_each).min(limit / 20.0);
    let admitted = (key.per_second * length).min(limit);
    let (passes, refused) = (admitted / key.per_second, length - admitted / key.per_second);
    let asks = passes * at_each * (slow + (1.0 - slow) / (1.0 + 0.75 * amount));
    // Towards the end of the limit, ever less is granted in advance.
    let granted = |free: f64| amount.min(free / (2.0 * gateways)).max(1.0);
    let near_the_end = 3.2 * (1.0 - slow) * (granted(limit) / granted(limit - admitted)).ln();
    let pause = (0.25 + 0.4 * at_each).min(1.0);
    let repeats = refused / (1.0 / at_each + pause) + 2.0 * (1.0 - slow);
    let asks = (gateways * (asks + near_the_end)).min(admitted);
    let repeats = (gateways * repeats).min(key.per_second * refused);
    let come = |requests: f64| 1.0 - (-requests).exp();
    Cost {
        admitted: windows * admitted,
        statements: windows * (asks + repeats),
        counters: windows * come(key.per_second * length),
        holders: windows * gateways * come(at_each * length),
        ..Cost::default()
    }
}

/// How the requests of a fleet are divided among its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// All keys are as fast.
    Uniform,
    /// The second key is half as fast as the first one, the third one a third, and so on.
    Zipf,
}

/// A fleet and its keys, each with the same quota.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// Gateways.
    pub gateways: usize,
    /// Keys that send requests.
    pub keys: u32,
    /// How fast each of them is.
    pub rates: Rates,
    /// Requests a second of all keys.
    pub per_second: f64,
    /// Of each window.
    pub limit: u32,
    /// The length of a window, in seconds.
    pub window: u32,
}

impl Fleet {
    /// What the fleet costs in a second by `of` a key, and what the store has when windows end: these, and those that ended in the last three
    /// minutes.
    #[must_use]
    pub fn cost(&self, of: impl Fn(&Key) -> Cost) -> Cost {
        let mut sum = Cost::default();
        for (per_second, keys) in self.sampled() {
            let sampled = per_second.max(LEAST / f64::from(SECONDS));
            let key = |per_second| Key {
                gateways: self.gateways,
                per_second,
                burst: 1,
                limit: self.limit,
                window: self.window,
                seconds: SECONDS,
            };
            let (cost, sampled) = (of(&key(sampled)), expected(&key(sampled)));
            let slower = expected(&key(per_second));
            let whole = expected(&Key { seconds: self.window, ..key(per_second) });
            let keys = f64::from(keys);
            let a_second = keys / f64::from(SECONDS);
            let kept = keys * (1.0 + KEPT / f64::from(self.window));
            sum.admitted += a_second * cost.admitted * slower.admitted / sampled.admitted;
            sum.statements += a_second * cost.statements * slower.statements / sampled.statements;
            let counters = kept * cost.counters * whole.counters / sampled.counters;
            let holders = kept * cost.holders * whole.holders / sampled.holders;
            sum.counters += counters;
            sum.holders += holders;
            sum.bytes += counters * bytes(holders / counters);
        }
        sum
    }

    /// Rates, and how many keys each of them stands for.
    fn sampled(&self) -> Vec<(f64, u32)> {
        if self.rates == Rates::Uniform {
            return vec![(self.per_second / f64::from(self.keys), self.keys)];
        }
        let inverse = |ranks: std::ops::Range<u32>| ranks.map(|rank| 1.0 / f64::from(rank)).sum::<f64>();
        let first = self.per_second / inverse(1..self.keys + 1);
        let (mut samples, mut rank) = (Vec::new(), 1);
        while rank <= self.keys {
            let next = (rank + 1 + rank / 3).min(self.keys + 1);
            samples.push((first * inverse(rank..next) / f64::from(next - rank), next - rank));
            rank = next;
        }
        samples
    }
}
