//! Where the shares are kept.

mod master;
mod memory;
mod redis;
#[cfg(test)]
mod same_machine;
mod settings;
mod topology;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use ledger_wire::{Answer, Hex128, ItemError, Statement};
use serde::Serialize;
use tokio::time::Instant;

use self::memory::Memory;
use self::settings::Settings;
use self::watch::{View, Watch};
use crate::clock;
use crate::options::Options;
use crate::serve::ServeError;
use crate::share::{SETTLING, Terms};

/// Seconds after the end of a window for which its counters are kept. A statement is accepted for 60 s, and clocks differ.
const KEPT: u64 = 180;

/// What the data of the store belong to: its processes, as long as they lose none of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    /// The same for every replica of the ledger.
    pub(crate) id: Hex128,
    /// When this replica saw it first, in milliseconds since 1970.
    pub(crate) began: u64,
    /// When it has settled, whatever becomes of the clock that says how late it is.
    settled: Instant,
}

impl Epoch {
    fn begin(id: Hex128) -> Self {
        Self { id, began: clock::now(), settled: Instant::now() + Duration::from_millis(SETTLING) }
    }

    /// Whether nothing is granted yet.
    pub(crate) fn is_settling(&self) -> bool {
        Instant::now() < self.settled
    }
}

/// A counter in a window, and how long it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its name without the prefix of the store.
    pub(crate) name: String,
    /// Seconds after which it is forgotten, counted from when it is made.
    pub(crate) seconds: u64,
}

impl Place {
    /// `ends` is the end of the window in seconds since 1970, `now` in milliseconds.
    pub(crate) fn new(counter: Hex128, window: u32, ends: u64, now: u64) -> Self {
        Self { name: Self::name(counter, window), seconds: (ends + KEPT).saturating_sub(now / 1_000) }
    }

    /// The name of a counter in a window.
    pub(crate) fn name(counter: Hex128, window: u32) -> String {
        format!("{counter}:{window}")
    }
}

/// A statement that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) place: Place,
    pub(crate) gateway: Hex128,
    pub(crate) statement: Statement,
    pub(crate) terms: Terms,
}

/// A counter to be reset.
#[derive(Clone, Debug)]
pub(crate) struct Reset {
    pub(crate) place: Place,
    pub(crate) reset: u64,
}

/// The reset number that stands for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Standing {
    pub(crate) reset: u64,
}

/// The state of a counter: its reset number, and the share of each holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Holders {
    pub(crate) reset: u64,
    pub(crate) holders: Vec<HolderShare>,
}

/// The share of one count of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct HolderShare {
    pub(crate) gateway: Hex128,
    pub(crate) generation: u32,
    pub(crate) share: u32,
}

/// The store.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(Memory),
    Redis(Box<Watch>),
}

impl Store {
    /// The store that the options describe. It does not connect yet.
    pub(crate) fn new(options: &Options) -> Result<Self, ServeError> {
        match options.store.as_slice() {
            [memory] if memory == "memory" && options.cluster => Err(ServeError::MemoryCluster),
            [memory] if memory == "memory" => Ok(Self::Memory(Memory::new())),
            [_, _, ..] if !options.cluster => Err(ServeError::Several),
            _ => Ok(Self::Redis(Box::new(Watch::new(Settings::new(options)?)))),
        }
    }

    /// The store as it is now, or `None` if nothing of it answers, or if its epoch is not known yet.
    pub(crate) fn session(&self) -> Option<Session<'_>> {
        match self {
            Self::Memory(memory) => Some(Session::Memory(memory)),
            Self::Redis(watch) => watch.view().map(Session::Redis),
        }
    }

    /// Watches it until this is dropped.
    pub(crate) async fn watch(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(watch) => watch.run().await,
        }
    }
}

/// What one request does with the store, all of it in one epoch.
#[derive(Debug)]
pub(crate) enum Session<'a> {
    Memory(&'a Memory),
    Redis(Arc<View>),
}

impl Session<'_> {
    pub(crate) fn epoch(&self) -> &Epoch {
        match self {
            Self::Memory(memory) => &memory.epoch,
            Self::Redis(view) => &view.epoch,
        }
    }

    /// How many masters answer, and how many do not.
    pub(crate) fn masters_up_and_away(&self) -> (usize, usize) {
        match self {
            Self::Memory(_) => (1, 0),
            Self::Redis(view) => view.masters_up_and_away(),
        }
    }

    /// The answer to each statement, in their order.
    pub(crate) async fn state(&self, orders: &[&Order], now: u64) -> Vec<Result<Answer, ItemError>> {
        match self {
            Self::Memory(memory) => orders.iter().map(|order| Ok(memory.state(order, now))).collect(),
            Self::Redis(view) => view.state(orders).await,
        }
    }

    /// What stands for each counter after its reset.
    pub(crate) async fn reset(&self, resets: &[&Reset], now: u64) -> Vec<Result<Standing, ItemError>> {
        match self {
            Self::Memory(memory) => resets.iter().map(|reset| Ok(memory.reset(reset, now))).collect(),
            Self::Redis(view) => view.reset(resets).await,
        }
    }

    /// The state of each counter.
    pub(crate) async fn read(&self, names: &[&str], now: u64) -> Vec<Result<Holders, ItemError>> {
        match self {
            Self::Memory(memory) => names.iter().map(|name| Ok(memory.read(name, now))).collect(),
            Self::Redis(view) => view.read(names).await,
        }
    }
}
