//! A VM that runs filters.

use wasmtime::InstancePre;

use crate::{
    state::VmState,
    vm::{Vm, error::VmError},
    wire::{frame::Frame, local_reply::LocalReply},
};

/// A VM that runs filters. It calls its guest through [`call`](Self::call) alone.
#[derive(Debug)]
pub(crate) struct FilterVm {
    pub(super) guest: Vm,
    released: Vec<Release>,
}

/// What a filter lets go on or asks for.
#[derive(Debug)]
pub(crate) struct Release {
    /// The stream's number on its worker.
    pub(crate) stream: u64,
    /// The stream's context in the VM.
    pub(crate) context: u32,
    /// How deep in actions of guest calls the VM was.
    pub(crate) depth: u32,
    pub(crate) what: Onward,
}

/// How a stream goes on past a filter.
#[derive(Debug)]
pub(crate) enum Onward {
    /// With a part of a message.
    Part(Frame),
    /// With a response in the upstream's place, on its way to all filters.
    Reply(LocalReply),
    /// Not at all: it is cut.
    Reset,
}

impl FilterVm {
    /// Makes a VM and runs its start.
    pub(crate) fn new(module: &InstancePre<VmState>, state: VmState) -> Result<Self, VmError> {
        Ok(Self { guest: Vm::new(module, state)?, released: Vec::new() })
    }

    pub(crate) fn state(&mut self) -> &mut VmState {
        self.guest.store.data_mut()
    }

    pub(crate) fn failure(&self) -> Option<&VmError> {
        self.guest.failure()
    }

    /// Bytes of the guest's memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.guest.memory_size()
    }

    /// Lets a stream go on past the filter that has this context of it.
    pub(super) fn release(&mut self, context: u32, what: Onward) {
        let state = self.state();
        let depth = state.depth;
        let Some(stream) = state.stream(context).map(|stream| stream.chain) else { return };
        self.released.push(Release { stream, context, depth, what });
    }

    /// Takes what filters have let go on or asked for, in its order.
    pub(crate) fn take_released(&mut self) -> Vec<Release> {
        std::mem::take(&mut self.released)
    }
}
