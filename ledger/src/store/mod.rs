//! Where the shares are kept.

mod commands;
mod master;
mod masters;
mod memory;
#[cfg(test)]
mod same_machine;
mod settings;
mod topology;
mod unusable;
mod watch;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ledger_wire::{Answer, Hex128, ItemError, Statement};
use tokio::time::Instant;

use self::masters::Masters;
use self::memory::Memory;
use self::settings::Settings;
pub(crate) use self::unusable::Unusable;
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
    view: RwLock<Result<Arc<View>, Arc<Unusable>>>,
    /// How servers are reached. A store in memory has none.
    servers: Option<Arc<Settings>>,
}

impl Store {
    /// The store that the options describe. It does not connect yet.
    pub(crate) fn new(options: &Options) -> Result<Self, ServeError> {
        if options.store == ["memory"] {
            if options.cluster {
                return Err(ServeError::new("--store", "memory cannot be a cluster; leave out --cluster"));
            }
            let epoch = Epoch::begin(Hex128(rand::random()));
            let view = View { epoch, keeper: Keeper::Memory(Mutex::default()) };
            return Ok(Self { view: RwLock::new(Ok(Arc::new(view))), servers: None });
        }
        let settings = Settings::new(options)?;
        if settings.seeds.len() > 1 && !options.cluster {
            return Err(ServeError::new("--store", "several addresses need --cluster"));
        }
        Ok(Self { view: RwLock::new(Err(Arc::new(Unusable::Silent))), servers: Some(Arc::new(settings)) })
    }

    /// The store as it is now.
    ///
    /// # Errors
    /// If nothing of it can be used, or if its epoch is not known yet.
    pub(crate) fn view(&self) -> Result<Arc<View>, Arc<Unusable>> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        view.unusable().map_or(Ok(view), Err)
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
    /// Why no master can be used, if so: the words of one that answers, before the silence of others.
    pub(crate) fn unusable(&self) -> Option<Arc<Unusable>> {
        let Keeper::Masters(masters) = &self.keeper else { return None };
        let all = masters.unusable().collect::<Option<Vec<_>>>()?;
        Some(
            all.into_iter()
                .min_by_key(|unusable| unusable.is_away())
                .unwrap_or_else(|| Arc::new(Unusable::Silent)),
        )
    }

    /// The state of each master, as metrics name it.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        match &self.keeper {
            Keeper::Memory(_) => vec!["up"],
            Keeper::Masters(masters) => masters
                .unusable()
                .map(|unusable| unusable.map_or("up", |unusable| unusable.state()))
                .collect(),
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
