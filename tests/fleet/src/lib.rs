//! A seeded simulation of fleets.
//!
//! Each seed draws a world: gateways of several workers that share counters through a ledger, clients, distances, and what goes wrong. The
//! gateways' and the ledger's side are the product's own ([`filter::fleet`], [`ledger::share`]); the simulation has the clocks, the
//! messages and the faults between them. [`Check`] says what must hold, and [`Rule`] what the protocol cannot do without.

mod calls;
mod checks;
mod events;
mod facts;
mod faults;
mod gateway;
mod requests;
mod rules;
mod run;
mod store;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use facts::Facts;
pub use facts::Violation;
pub use rules::{Check, Rule};
use run::Run;

/// Notes of a trace that are shown.
const SHOWN: usize = 40;

/// Runs the world of a seed, without one of the rules if there is one.
#[must_use]
pub fn run(seed: u64, without: Option<Rule>) -> Vec<Violation> {
    Run::new(seed, without, Facts::default()).run().violations
}

/// What happened to a window in the world of a seed.
#[must_use]
pub fn trace(seed: u64, without: Option<Rule>, key: (usize, u32)) -> String {
    let run = Run::new(seed, without, Facts { noted: Some(key), ..Facts::default() });
    let world = format!("{:?}", run.world);
    let notes = run.run().notes;
    let until = notes.iter().position(|note| note.starts_with("---")).map_or(notes.len(), |at| at + 1);
    let shown = &notes[until.saturating_sub(SHOWN)..until];
    format!("seed {seed}, counter {} in window {}: {world}\n{}", key.0, key.1, shown.join("\n"))
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
