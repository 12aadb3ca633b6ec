//! A filter of a worker's chain, and its place there.

use std::{sync::Arc, time::Duration};

use envoy_config::Plugin;
use wasmtime::InstancePre;

use crate::{
    shared::Shared,
    state::VmState,
    stream::filter_vm::FilterVm,
    vm::{error::VmError, module::Module},
    vm_name::VmName,
};

/// A filter of the chain as a worker is given it.
#[derive(Clone)]
pub(crate) struct Filter {
    /// What it was loaded from.
    pub(crate) source: Module,
    /// The same, linked to the host's calls.
    pub(crate) module: InstancePre<VmState>,
    pub(crate) plugin: Arc<Plugin>,
    /// Which VM it runs in: filters of one number share it, those among them that it takes the place of.
    pub(crate) vm: usize,
}

impl Filter {
    /// A VM for the filter, which has run its start.
    pub(crate) fn start(
        &self,
        shared: &Arc<Shared>,
        name: VmName,
        generation: u64,
    ) -> Result<FilterVm, VmError> {
        FilterVm::new(&self.module, VmState::new(shared, &self.plugin, name, generation, self.vm))
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("plugin", &self.plugin.name).field("vm", &self.vm).finish()
    }
}

/// A filter's place in the chain of a worker.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) filter: Filter,
    /// The generation of its VM, and its root context there; none when the filter could not be started here.
    pub(super) current: Option<(u64, u32)>,
    pub(super) loaded_at: Duration,
    pub(super) backoff: Duration,
}
