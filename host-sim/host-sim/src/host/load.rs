//! How a host gets its filters, others in their place, and new configurations for them.

use std::sync::Arc;

use bytes::Bytes;
use envoy_config::Plugin;

use crate::{
    driver::Driver,
    host::{
        Host,
        loaded::{Chain, Loaded, Verdict},
    },
    load_error::LoadError,
    vm::{error::VmError, module::Module},
    vm_name::VmName,
    worker::{SharedWorker, Worker, filter::Filter},
};

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
        let mut chain = Chain::default();
        self.try_chain(&mut chain, filters)?;
        self.loaded = None;
        let start = |name| SharedWorker::new(Worker::start(&chain.filters, &self.shared, name));
        let driver = Driver {
            main: start(VmName::Main),
            workers: (0..self.workers).map(|index| start(VmName::Worker(index))).collect(),
            shared: Arc::clone(&self.shared),
            clusters: Arc::clone(&self.clusters),
        };
        self.loaded = Some(Loaded { chain, driver });
        if !self.driven {
            self.serve_callouts();
        }
        Ok(())
    }

    /// Puts filters in the place of those that are loaded while streams go on, as an update over ECDS does. A filter keeps
    /// the VMs of a previous one if it may share them, and its root contexts if nothing about it has changed. A stream stays
    /// with the filters that it began with, and a VM that is no longer used goes with its last stream. If nothing is loaded,
    /// this is [`load_chain`](Self::load_chain).
    ///
    /// # Errors
    /// As [`load_chain`](Self::load_chain). The filters that are loaded then go on.
    pub fn replace_chain<'a>(
        &mut self,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
    ) -> Result<(), LoadError> {
        let Some(loaded) = &mut self.loaded else { return self.load_chain(filters) };
        let mut chain = std::mem::take(&mut loaded.chain);
        let tried = self.try_chain(&mut chain, filters);
        if tried.is_ok() {
            for worker in self.all_workers() {
                // Where the canary passed and a worker fails, Envoy goes on without the filter there; the worker has
                // logged it.
                worker.lock().replace(&chain.filters);
            }
        }
        if let Some(loaded) = &mut self.loaded {
            loaded.chain = chain;
        }
        tried?;
        if !self.driven {
            self.serve_callouts();
        }
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
        let Some(loaded) = &self.loaded else { return Err(LoadError::NothingLoaded) };
        let source = |filter: &Filter| (filter.source.clone(), Plugin::clone(&filter.plugin));
        let mut chain: Vec<(Module, Plugin)> = loaded.chain.filters.iter().map(source).collect();
        let filters = chain.len();
        let Some((_, plugin)) = chain.get_mut(filter) else {
            return Err(LoadError::NoSuchFilter { filter, filters });
        };
        plugin.configuration = configuration.into();
        self.replace_chain(chain.iter().map(|(module, plugin)| (module, plugin.clone())))
    }

    /// Tries filters in the base VM and the canary. If all of them pass, they take the place of the chain's.
    fn try_chain<'a>(
        &self,
        chain: &mut Chain,
        filters: impl IntoIterator<Item = (&'a Module, Plugin)>,
    ) -> Result<(), LoadError> {
        let mut next: Vec<Filter> = Vec::new();
        let mut new_vms = Vec::new();
        for (module, plugin) in filters {
            let shares = |known: &&Filter| known.source.is(module) && known.plugin.shares_vm_with(&plugin);
            let vm = match chain.filters.iter().chain(&next).find(shares) {
                Some(known) => known.vm,
                None => {
                    chain.vms += 1;
                    new_vms.push(next.len());
                    chain.vms
                }
            };
            let linked = module.link(self.shared.flavour)?;
            let plugin = Arc::new(plugin);
            next.push(Filter { source: module.clone(), module: linked, plugin, vm });
        }
        let several = next.len() > 1;
        for (index, filter) in next.iter().enumerate() {
            if new_vms.contains(&index) {
                let mark = self.log_mark();
                filter
                    .start(&self.shared, VmName::Base, 0)
                    .map_err(|reason| self.refused(filter, several, VmName::Base, reason, mark))?;
            }
            self.try_canary(filter, several, &mut chain.verdicts)?;
        }
        chain.verdicts.retain(|verdict| next.iter().any(|filter| filter.vm == verdict.vm));
        chain.filters = next;
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
        filter.start(&self.shared, VmName::Canary, 0)?.start_root(&filter.plugin)
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
