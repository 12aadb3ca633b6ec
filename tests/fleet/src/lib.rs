//! A seeded simulation of fleets.
//!
//! Each seed draws a world: gateways of several workers that share quotas through a ledger, clients, distances, and what goes wrong. The
//! gateways' side is the product's own, with its records ([`filter::fleet::client::Client`] on [`filter::count::counters::Counters`]), and so
//! is the ledger's ([`ledger::share`]). The simulation has the clocks, the shared data, the messages and the faults between them.
//! [`Check`] says what must hold, and [`MISSED_BY`] which rules the protocol cannot do without.

mod calls;
mod checks;
mod events;
mod facts;
mod faults;
mod gateway;
mod run;
mod shared;
mod sizing;
mod store;
mod streams;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

pub use checks::{Check, MISSED_BY};
use facts::Facts;
pub use facts::Violation;
use fastrand::Rng;
pub use filter::rules::Rule;
use filter::rules::take_away;
use run::Run;
pub use sizing::{Cost, Fleet, GATEWAY, Key, LEDGER, Rates, STORE, bytes, expected, simulated};
use world::World;

/// Notes of a trace that are shown.
const SHOWN: usize = 40;

/// Runs the world of a seed, without one of the rules if there is one.
#[must_use]
pub fn run(seed: u64, without: Option<Rule>) -> Vec<Violation> {
    run_with(seed, without, Facts::default()).1.violations
}

/// Runs a world, in which this thread does without the rule.
fn run_with(seed: u64, without: Option<Rule>, facts: Facts) -> (String, Facts) {
    take_away(without);
    let mut rng = Rng::with_seed(seed);
    let run = Run::new(World::draw(&mut rng), rng, without, facts);
    let world = if run.facts.noted.is_some() { format!("{:?}", run.world) } else { String::new() };
    let facts = run.run();
    take_away(None);
    (world, facts)
}

/// What happened to a window in the world of a seed.
#[must_use]
pub fn trace(seed: u64, without: Option<Rule>, key: (usize, u32)) -> String {
    let (world, Facts { notes, .. }) =
        run_with(seed, without, Facts { noted: Some(key), ..Facts::default() });
    let until = notes.iter().position(|note| note.starts_with("---")).map_or(notes.len(), |at| at + 1);
    let shown = &notes[until.saturating_sub(SHOWN)..until];
    format!("seed {seed}, subject {} in window {}: {world}\n{}", key.0, key.1, shown.join("\n"))
}

/// Looks for something in the worlds of `seeds`, on as many threads as there are processors. Returns the first seed for which there is
/// something.
#[must_use]
pub fn search<T: Send>(seeds: Range<u64>, of: impl Fn(u64) -> Option<T> + Sync) -> Option<(u64, T)> {
    let (next, first) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(found) = of(seed) {
                first.fetch_min(seed, Ordering::Relaxed);
                return Some((seed, found));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let found = workers.into_iter().filter_map(|worker| match worker.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        found.min_by_key(|(seed, _)| *seed)
    })
}
