//! Where the shares are kept.

mod commands;
mod file;
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

use self::file::File;
use self::masters::Masters;
use self::memory::Memory;
use self::settings::Settings;
pub(crate) use self::unusable::Unusable;
use crate::clock;
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
    /// The store that the options describe. It opens a file, and does not connect to servers yet.
    pub(crate) async fn open(options: &Options) -> Result<Self, ServeError> {
        if let [store] = options.store.as_slice()
            && let Some(keeper) = Keeper::embedded(store).await?
        {
            if options.cluster {
                let reason = format!("{store} cannot be a cluster; leave out --cluster");
                return Err(ServeError::new("--store", reason));
            }
            let view = View { epoch: Epoch::begin(Hex128(rand::random())), keeper };
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
            return watch::run(settings, &self.view).await;
        }
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Ok(view) = view
            && let Keeper::File(file) = &view.keeper
        {
            file.follow().await;
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
    File(File),
    Masters(Masters),
}

impl Keeper {
    /// The keeper within this process that the store's option names, if it names one.
    async fn embedded(store: &str) -> Result<Option<Self>, ServeError> {
        if store == "memory" {
            return Ok(Some(Self::Memory(Mutex::default())));
        }
        let Some(path) = store.strip_prefix("file:") else { return Ok(None) };
        if path.is_empty() {
            return Err(ServeError::new("--store file:", "a path is missing"));
        }
        let file = File::open(path.as_ref(), clock::now()).await;
        file.map(|file| Some(Self::File(file)))
            .map_err(|error| ServeError::new(format!("--store {store}"), error))
    }
}

impl View {
    /// Why no part of the store can be used, if so: the words of a master that answers, before the silence of others.
    pub(crate) fn unusable(&self) -> Option<Arc<Unusable>> {
        let masters = match &self.keeper {
            Keeper::Memory(_) => return None,
            Keeper::File(file) => return file.unusable(),
            Keeper::Masters(masters) => masters,
        };
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
            Keeper::Memory(_) | Keeper::File(_) => vec!["up"],
            Keeper::Masters(masters) => masters
                .unusable()
                .map(|unusable| unusable.map_or("up", |unusable| unusable.state()))
                .collect(),
        }
    }

    /// The answer to each call, in their order, at `now` in milliseconds since 1970. A call that is an error is answered with it.
    ///
    /// # Errors
    /// If nothing of the store can be used.
    pub(crate) async fn call(
        &self,
        calls: &[Result<Call, ItemError>],
        now: u64,
    ) -> Result<Vec<Answer>, Arc<Unusable>> {
        match &self.keeper {
            Keeper::Memory(memory) => {
                Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).call_all(calls, now))
            }
            Keeper::File(file) => file.call(calls.to_vec(), now).await,
            Keeper::Masters(masters) => {
                let answers = masters.call(calls).await;
                self.unusable().map_or(Ok(answers), Err)
            }
        }
    }
}
