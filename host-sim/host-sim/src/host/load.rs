//! How a host gets its filters, and new configurations for them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use envoy_config::Plugin;

use super::{Host, SharedWorker, lock};
use crate::{
    load_error::LoadError,
    vm::{Vm, VmError, VmName, module::Module},
    worker::{Filter, Worker},
};

/// The filters of a host, and the workers that run them.
pub(super) struct Loaded {
    pub(super) filters: Vec<Filter>,
    verdicts: Vec<Verdict>,
    pub(super) main: SharedWorker,
    pub(super) workers: Vec<SharedWorker>,
}

/// What the canary has made of a plugin, which it runs once; Envoy keeps that as long as the base VM (`wasm.cc`).
struct Verdict {
    vm: usize,
    plugin: Arc<Plugin>,
    refusal: Option<VmError>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("filters", &self.filters)
            .field("workers", &self.workers.len())
            .finish()
    }
}

impl Host {
    /// Loads a filter as Envoy does: a base VM, a canary that is configured and thrown away, then the main VM and the
    /// workers'. Filters that were loaded before go; shared data, metrics and the log stay.
    ///
    /// A worker whose VM fails where the canary's did not serves without the filter, as in Envoy, and the log tells why.
    ///
    /// # Errors
    /// When the module does not fit, or the filter traps or refuses its configuration in the base VM or the canary.
    pub fn load(&mut self, module: &Module, plugin: Plugin) -> Result<(), LoadError> {
        self.load_chain([(module, plugin)])
    }

    /// Loads filters that a request passes in this order, and its response in reverse. Filters of the same module,
    /// `vm_id`, VM configuration, environment and capabilities share their VMs, with a root context each; filters that
    /// are alike in everything share that too.
    ///
    /// # Errors
    /// As [`load`](Self::load), for any of them; then none is loaded.
    pub fn load_chain<'a>(
        &mut self,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
    ) -> Result<(), LoadError> {
        let mut loaded: Vec<(&Module, Filter)> = Vec::new();
        for (module, plugin) in filters {
            self.kind.map_or(Ok(()), |kind| module.taken_by(kind))?;
            let shared = loaded
                .iter()
                .find(|(other, filter)| other.is(module) && filter.plugin.shares_vm_with(&plugin));
            let vm = shared.map_or(loaded.len(), |(_, filter)| filter.vm);
            let linked = module.link(self.version, self.shared.shared_data.flavour())?;
            loaded.push((module, Filter { module: linked, plugin: Arc::new(plugin), vm }));
        }
        let filters: Vec<Filter> = loaded.into_iter().map(|(_, filter)| filter).collect();
        let mut verdicts = Vec::new();
        let several = filters.len() > 1;
        for (index, filter) in filters.iter().enumerate() {
            if filter.vm == index {
                let mark = self.log_mark();
                Vm::new(&filter.module, &self.shared, &filter.plugin, VmName::Base, 0)
                    .map_err(|reason| self.refused(filter, several, VmName::Base, reason, mark))?;
            }
            self.try_canary(filter, several, &mut verdicts)?;
        }

        self.loaded = None;
        let start = |name| Arc::new(Mutex::new(Worker::start(&filters, &self.shared, name)));
        let main = start(VmName::Main);
        let workers = (0..self.workers).map(|index| start(VmName::Worker(index))).collect();
        self.loaded = Some(Loaded { filters, verdicts, main, workers });
        self.serve_callouts();
        Ok(())
    }

    /// Gives the filter, the first where there are several, a new configuration in the VMs that it has, as an update
    /// over ECDS does: each gets a new root context, and the old one ends with its last stream. A configuration that the
    /// canary refuses changes nothing.
    ///
    /// # Errors
    /// When nothing is loaded, or the filter traps or refuses the configuration in the canary.
    pub fn update(&mut self, configuration: impl Into<Bytes>) -> Result<(), LoadError> {
        self.update_filter(0, configuration)
    }

    /// As [`update`](Self::update), for a filter of the chain, counted from 0.
    ///
    /// # Errors
    /// As [`update`](Self::update), and when there is no such filter.
    pub fn update_filter(&mut self, filter: usize, configuration: impl Into<Bytes>) -> Result<(), LoadError> {
        let Some(loaded) = &mut self.loaded else { return Err(LoadError::NothingLoaded) };
        let filters = loaded.filters.len();
        let Some(before) = loaded.filters.get(filter) else {
            return Err(LoadError::NoSuchFilter { filter, filters });
        };
        let plugin = Plugin { configuration: configuration.into(), ..Plugin::clone(&before.plugin) };
        let updated = Filter { plugin: Arc::new(plugin), ..before.clone() };
        let mut verdicts = std::mem::take(&mut loaded.verdicts);
        let tried = self.try_canary(&updated, filters > 1, &mut verdicts);
        if let Some(loaded) = &mut self.loaded {
            loaded.verdicts = verdicts;
        }
        tried?;
        for worker in self.all_workers() {
            // Where the canary passed and a worker fails, Envoy goes on without the filter there; the worker has
            // logged it.
            let _ = lock(&worker).update(filter, &updated.plugin);
        }
        if let Some(place) = self.loaded.as_mut().and_then(|loaded| loaded.filters.get_mut(filter)) {
            *place = updated;
        }
        self.serve_callouts();
        Ok(())
    }

    fn try_canary(
        &self,
        filter: &Filter,
        several: bool,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<(), LoadError> {
        let mark = self.log_mark();
        let known = verdicts.iter().find(|known| known.vm == filter.vm && known.plugin == filter.plugin);
        let refusal = match known {
            Some(known) => known.refusal.clone(),
            None => {
                let refusal = self.run_canary(filter).err();
                // One that did not come as far as its configuration is tried again.
                if matches!(
                    refusal,
                    None | Some(
                        VmError::ConfigureRefused | VmError::Trapped { callback: "proxy_on_configure", .. }
                    )
                ) {
                    let (vm, plugin) = (filter.vm, Arc::clone(&filter.plugin));
                    verdicts.push(Verdict { vm, plugin, refusal: refusal.clone() });
                }
                refusal
            }
        };
        match refusal {
            None => Ok(()),
            Some(reason) => Err(self.refused(filter, several, VmName::Canary, reason, mark)),
        }
    }

    fn run_canary(&self, filter: &Filter) -> Result<u32, VmError> {
        Vm::new(&filter.module, &self.shared, &filter.plugin, VmName::Canary, 0)?.start_root(&filter.plugin)
    }

    /// How many lines the log has seen.
    fn log_mark(&self) -> u64 {
        self.shared.logs.written()
    }

    fn refused(&self, filter: &Filter, several: bool, vm: VmName, reason: VmError, mark: u64) -> LoadError {
        let log = self.shared.logs.since(mark).into_iter().filter(|line| line.vm == vm).collect();
        LoadError::Refused { plugin: several.then(|| filter.plugin.name.clone()), vm, reason, log }
    }
}
