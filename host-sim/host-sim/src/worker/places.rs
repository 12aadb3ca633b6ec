//! How a worker's filters get their VMs and root contexts, and what happens when one fails.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use envoy_config::FailurePolicy;

use crate::{
    abi::LogLevel,
    shared::reloads::ReloadStats,
    vm::error::VmError,
    worker::{
        Worker,
        filter::{Filter, Place},
    },
};

/// The least time between two starts of a failed VM (`reload_config.backoff`, Envoy's default).
const RELOAD_BACKOFF: Duration = Duration::from_secs(1);

impl Worker {
    /// Puts filters in the place of those before. A filter keeps the VM of one before that it may share it with, and its root
    /// context where nothing about it has changed. Streams in progress stay with the filters that they began with.
    pub(crate) fn replace(&mut self, filters: &[Filter]) {
        let before = self.places.len();
        self.places.extend(filters.iter().map(|filter| Place {
            filter: filter.clone(),
            current: None,
            loaded_at: Duration::ZERO,
            backoff: RELOAD_BACKOFF,
        }));
        for place in before..self.places.len() {
            // The log has it.
            let _ = self.start_filter(place, self.running(place));
        }
        let old: Vec<Place> = self.places.drain(..before).collect();
        for (generation, root) in old.iter().filter_map(|place| place.current) {
            let used = self.places.iter().any(|place| place.current == Some((generation, root)));
            if !used {
                self.ask(generation, |vm| vm.retire_root(root));
            }
        }
        self.drop_drained();
    }

    /// Gives a filter a root context: in the VM that runs for it already, if there is one, or in a new one. Filters that
    /// are alike in everything have one root context, and one whose streams still keep it is used again as it is.
    fn start_filter(&mut self, index: usize, running: Option<u64>) -> Result<(), VmError> {
        let longest = RELOAD_BACKOFF.as_micros() / 2;
        let jitter = self.jitter.u64(..=u64::try_from(longest).unwrap_or(0));
        let now = self.shared.clock.monotonic();
        let Some(place) = self.places.get_mut(index) else { return Ok(()) };
        place.loaded_at = now;
        place.backoff = RELOAD_BACKOFF + Duration::from_micros(jitter);
        place.current = None;
        let filter = place.filter.clone();
        let alike = self.places.iter().filter(|other| other.filter.plugin == filter.plugin);
        let mut roots = alike.filter_map(|other| other.current);
        if let Some(current) = roots.find(|(generation, _)| Some(*generation) == running) {
            self.set_current(index, Some(current));
            return Ok(());
        }
        if let Some(generation) = running
            && let Some(root) = self.vms.get_mut(&generation).and_then(|vm| vm.live_root(&filter.plugin))
        {
            self.set_current(index, Some((generation, root)));
            return Ok(());
        }
        let started = self.start_root(&filter, running);
        match started {
            Ok(current) => self.set_current(index, Some(current)),
            Err(ref error) => {
                let message = format!("the filter is absent on {}: {error}", self.name);
                self.log(LogLevel::Error, &message);
            }
        }
        started.map(|_| ())
    }

    fn start_root(&mut self, filter: &Filter, running: Option<u64>) -> Result<(u64, u32), VmError> {
        if let Some(generation) = running
            && let Some(root) = self.ask(generation, |vm| vm.start_root(&filter.plugin))
        {
            return Ok((generation, root?));
        }
        let generation = self.next_generation;
        let mut vm = filter.start(&self.shared, self.name, generation)?;
        let root = vm.start_root(&filter.plugin)?;
        self.next_generation += 1;
        self.vms.insert(generation, vm);
        Ok((generation, root))
    }

    fn set_current(&mut self, index: usize, current: Option<(u64, u32)>) {
        if let Some(place) = self.places.get_mut(index) {
            place.current = current;
        }
    }

    /// The generation of the VM that runs for a filter, its own or of filters that share it.
    fn running(&self, index: usize) -> Option<u64> {
        let vm = self.places.get(index)?.filter.vm;
        let sharing = self.places.iter().filter(|place| place.filter.vm == vm);
        let mut generations = sharing.filter_map(|place| Some(place.current?.0));
        generations.find(|generation| self.vms.get(generation).is_some_and(|vm| vm.failure().is_none()))
    }

    /// The failure of a filter's VM, if it has failed.
    pub(super) fn failure_of(&self, index: usize) -> Option<&VmError> {
        let (generation, _) = self.places.get(index)?.current?;
        self.vms.get(&generation)?.failure()
    }

    /// The generation of the VM and the root context where a new stream of the filter begins, by the failure policy
    /// where the VM has failed; none where it passes the filter by.
    pub(super) fn ready_filter(&mut self, index: usize) -> Option<(u64, u32)> {
        let policy = self.places.get(index)?.filter.plugin.failure_policy;
        if policy == FailurePolicy::FailReload {
            self.reload(index);
        }
        let opens = matches!(policy, FailurePolicy::FailOpen | FailurePolicy::DeprecatedFailOpen);
        let passes = opens && self.failure_of(index).is_some();
        self.places.get(index)?.current.filter(|_| !passes)
    }

    /// Only a VM that trapped is started anew, and not before the filter's backoff is over.
    fn reload(&mut self, index: usize) {
        if !matches!(self.failure_of(index), Some(VmError::Trapped { .. })) {
            return;
        }
        let Some(place) = self.places.get(index) else { return };
        let (plugin, failed) = (Arc::clone(&place.filter.plugin), place.current);
        let count = |worker: &mut Self, count: fn(&mut ReloadStats)| {
            count(&mut worker.reloads);
            worker.shared.count_reload(&plugin.name, count);
        };
        if self.shared.clock.monotonic().saturating_sub(place.loaded_at) < place.backoff {
            count(self, |reloads| reloads.backoff += 1);
            return;
        }
        if self.start_filter(index, self.running(index)).is_ok() {
            count(self, |reloads| reloads.success += 1);
        } else {
            count(self, |reloads| reloads.failure += 1);
            // The one that failed goes on to answer for the filter.
            self.set_current(index, failed);
        }
        self.drop_drained();
    }

    /// VMs that no filter uses go: failed ones with their last stream, others with their last context.
    pub(super) fn drop_drained(&mut self) {
        let used: BTreeSet<u64> = self.places.iter().filter_map(|place| Some(place.current?.0)).collect();
        self.vms.retain(|generation, vm| {
            let failed = vm.failure().is_some();
            let state = vm.state();
            used.contains(generation) || if failed { state.has_streams() } else { !state.is_drained() }
        });
    }
}
