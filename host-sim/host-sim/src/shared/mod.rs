//! What the VMs of one host share.

pub(crate) mod data;
pub(crate) mod faults;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod queues;
pub(crate) mod record;
pub(crate) mod reloads;
pub(crate) mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    abi::LogLevel,
    clock::Clock,
    lock::lock,
    rules::Flavour,
    shared::{
        data::SharedData,
        faults::Faults,
        logs::Logs,
        metrics::Metrics,
        queues::SharedQueues,
        record::Record,
        reloads::{ReloadStats, ReloadTotals},
    },
    sink::Sink,
    trace::record::TracedCallback,
    wire::{framing::Framing, property::Value},
};

/// What the VMs of one host share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) flavour: Flavour,
    pub(crate) clock: Clock,
    pub(crate) logs: Logs,
    pub(crate) record: Arc<Record>,
    /// Where traces go, if VMs are traced.
    pub(crate) trace: Option<Sink<TracedCallback>>,
    pub(crate) metrics: Metrics,
    pub(crate) shared_data: SharedData,
    pub(crate) shared_queues: SharedQueues,
    pub(crate) faults: Faults,
    /// Names of the clusters that callouts may name.
    pub(crate) clusters: Mutex<BTreeSet<String>>,
    /// They may name any other too.
    pub(crate) any_cluster: bool,
    pub(crate) callback_limit: Duration,
    pub(crate) memory_limit: usize,
    pub(crate) reloads: ReloadTotals,
    /// Whether streams end with `proxy_on_log` first.
    pub(crate) logs_streams: bool,
    pub(crate) framing: Framing,
    /// Bytes of a body that a filter may hold; without limit when 0.
    pub(crate) buffer_limit: usize,
    /// Values of properties for all streams, by their parts joined with zero bytes.
    pub(crate) properties: BTreeMap<Vec<u8>, Value>,
    /// Properties that depend on what the host does not know.
    pub(crate) undecided: BTreeSet<Vec<u8>>,
    /// Properties that a gateway knows and the host does not, of which it was told already.
    pub(crate) unknown_properties: Mutex<BTreeSet<String>>,
    /// Of the guests' random bytes; `None` takes the system's.
    pub(crate) seed: Option<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        let record = Arc::<Record>::default();
        Self {
            flavour: Flavour::default(),
            clock: Clock::default(),
            logs: Logs::new(LogLevel::Trace, 0, None, Arc::clone(&record)),
            record,
            trace: None,
            metrics: Metrics::default(),
            shared_data: SharedData::new(Flavour::default()),
            shared_queues: SharedQueues::default(),
            faults: Faults::default(),
            clusters: Mutex::default(),
            any_cluster: false,
            callback_limit: Duration::from_secs(10),
            memory_limit: 1 << 30,
            reloads: ReloadTotals::default(),
            logs_streams: true,
            framing: Framing::default(),
            buffer_limit: 1 << 20,
            properties: BTreeMap::new(),
            undecided: BTreeSet::new(),
            unknown_properties: Mutex::default(),
            seed: Some(0),
        }
    }
}

impl Shared {
    /// Whether callouts may name this cluster.
    pub(crate) fn knows_cluster(&self, name: &str) -> bool {
        self.any_cluster || lock(&self.clusters).contains(name)
    }

    /// Counts what becomes of a plugin's failed VM.
    pub(crate) fn count_reload(&self, plugin: &str, count: impl FnOnce(&mut ReloadStats)) {
        let mut totals = lock(&self.reloads);
        count(totals.entry(plugin.to_owned()).or_default());
    }

    /// The counts of a plugin's failed VMs.
    pub(crate) fn reloads_of(&self, plugin: &str) -> ReloadStats {
        let totals = lock(&self.reloads);
        totals.get(plugin).copied().unwrap_or_default()
    }
}
