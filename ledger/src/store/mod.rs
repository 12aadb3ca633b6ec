//! Where the shares are kept.

mod commands;
mod master;
mod masters;
mod memory;
#[cfg(test)]
mod same_machine;
mod settings;
mod topology;
mod watch;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ledger_wire::{Answer, Hex128, ItemError, Statement};
use tokio::time::Instant;

use self::masters::Masters;
use self::memory::Memory;
use self::settings::Settings;
use crate::error::ServeError;
use crate::options::Options;
use crate::share::{SETTLING, Terms};

/// Seconds after the end of a window for which its counters are kept. A statement is accepted for 60 s, and clocks differ.
const KEPT: u64 = 180;

/// What the data of the store belong to: its processes, as long as they lose none of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    /// The same for every replica of the ledger.
    pub(crate) id: Hex128,
    /// When this replica saw it first.
    pub(crate) began: Instant,
}

impl Epoch {
    fn begin(id: Hex128) -> Self {
        Self { id, began: Instant::now() }
    }

    /// Whether nothing is granted yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.began.elapsed() < Duration::from_millis(SETTLING)
    }
}

/// A statement of a gateway, which was checked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The counter in the window, without the prefix of the store.
    name: String,
    /// Seconds after which the counter is forgotten, counted from when it is made.
    seconds: u64,
    gateway: Hex128,
    pub(crate) statement: Statement,
    terms: Terms,
}

impl Call {
    /// `now` is in milliseconds since 1970.
    pub(crate) fn new(gateway: Hex128, statement: Statement, terms: Terms, now: u64) -> Self {
        let seconds = (statement.ends + KEPT).saturating_sub(now / 1_000);
        let name = format!("{}:{}", statement.counter, statement.window);
        Self { name, seconds, gateway, statement, terms }
    }
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    /// Absent until the epoch is known.
    view: RwLock<Option<Arc<View>>>,
    /// How servers are reached. A store in memory has none.
    servers: Option<Settings>,
}

impl Store {
    /// The store that the options describe. It does not connect yet.
    pub(crate) fn new(options: &Options) -> Result<Self, ServeError> {
        match options.store.as_slice() {
            [memory] if memory == "memory" && options.cluster => {
                Err(ServeError::new("--store", "memory cannot be a cluster; leave out --cluster"))
            }
            [memory] if memory == "memory" => {
                let epoch = Epoch::begin(Hex128(rand::random()));
                let view = View { epoch, keeper: Keeper::Memory(Mutex::default()) };
                Ok(Self { view: RwLock::new(Some(Arc::new(view))), servers: None })
            }
            [_, _, ..] if !options.cluster => {
                Err(ServeError::new("--store", "several addresses need --cluster"))
            }
            _ => Ok(Self { view: RwLock::default(), servers: Some(Settings::new(options)?) }),
        }
    }

    /// The store as it is now, or `None` if nothing of it answers, or if its epoch is not known yet.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner).clone();
        view.filter(|view| view.masters_up_and_away().0 > 0)
    }

    /// Watches it until this is dropped.
    pub(crate) async fn watch(&self) {
        if let Some(settings) = &self.servers {
            watch::run(settings, &self.view).await;
        }
    }
}

/// The store as requests use it: what one request does is of one epoch.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) epoch: Epoch,
    keeper: Keeper,
}

/// What keeps the shares.
#[derive(Debug)]
enum Keeper {
    Memory(Mutex<Memory>),
    Masters(Masters),
}

impl View {
    /// How many masters answer, and how many do not.
    pub(crate) fn masters_up_and_away(&self) -> (usize, usize) {
        match &self.keeper {
            Keeper::Memory(_) => (1, 0),
            Keeper::Masters(masters) => masters.up_and_away(),
        }
    }

    /// The answer to each call, in their order, at `now` in milliseconds since 1970. A call that is an error is answered with it.
    pub(crate) async fn call(&self, calls: &[Result<Call, ItemError>], now: u64) -> Vec<Answer> {
        match &self.keeper {
            Keeper::Memory(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = |call: &Result<Call, ItemError>| match call {
                    Ok(call) => memory.call(call, now),
                    Err(error) => Answer::Refused(error.clone()),
                };
                calls.iter().map(answer).collect()
            }
            Keeper::Masters(masters) => masters.call(calls).await,
        }
    }
}
