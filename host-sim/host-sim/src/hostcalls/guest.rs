//! A guest's memory, seen from a host call: every pointer is checked, none is trusted.

use wasmtime::Memory;

use crate::{
    abi::{Status, slice},
    parameter::SliceOut,
    state::{Restriction, VmState},
};

/// A host call in progress.
pub(crate) struct Guest<'a> {
    caller: wasmtime::Caller<'a, VmState>,
    memory: Memory,
}

/// Why a host call does not succeed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The guest gets the status.
    Status(Status),
    /// The guest ends.
    Trap(wasmtime::Error),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<wasmtime::Error> for Refusal {
    fn from(error: wasmtime::Error) -> Self {
        Self::Trap(error)
    }
}

/// What a host call answers.
pub(crate) type Answer = Result<(), Refusal>;

impl<'a> Guest<'a> {
    pub(crate) fn new(caller: wasmtime::Caller<'a, VmState>, memory: Memory) -> Self {
        Self { caller, memory }
    }

    pub(crate) fn caller(&mut self) -> &mut wasmtime::Caller<'a, VmState> {
        &mut self.caller
    }

    pub(crate) fn state(&mut self) -> &mut VmState {
        self.caller.data_mut()
    }

    /// The memory and the state side by side, so that what the guest points at need not be copied.
    pub(crate) fn split(&mut self) -> (&mut [u8], &mut VmState) {
        self.memory.data_and_store_mut(&mut self.caller)
    }

    pub(crate) fn read_u32(&self, ptr: u32) -> Result<u32, Status> {
        let bytes = slice(self.memory.data(&self.caller), ptr, 4)?;
        bytes.try_into().map(u32::from_le_bytes).map_err(|_| Status::InvalidMemoryAccess)
    }

    pub(crate) fn write(&mut self, ptr: u32, bytes: &[u8]) -> Result<(), Status> {
        let start = usize::try_from(ptr).map_err(|_| Status::InvalidMemoryAccess)?;
        self.memory.write(&mut self.caller, start, bytes).map_err(|_| Status::InvalidMemoryAccess)
    }

    pub(crate) fn write_u32(&mut self, ptr: u32, number: u32) -> Result<(), Status> {
        self.write(ptr, &number.to_le_bytes())
    }

    pub(crate) fn write_u64(&mut self, ptr: u32, number: u64) -> Result<(), Status> {
        self.write(ptr, &number.to_le_bytes())
    }

    /// Hands `bytes` to the guest: into memory that its allocator gives, the address and length to where it asked.
    /// Nothing is handed over as address 0 and length 0, without an allocation.
    pub(crate) fn give(&mut self, bytes: &[u8], out: SliceOut) -> Answer {
        let address = if bytes.is_empty() { 0 } else { self.place(bytes)? };
        let len = u32::try_from(bytes.len()).map_err(|_| Status::InvalidMemoryAccess)?;
        self.write_u32(out.at, address)?;
        Ok(self.write_u32(out.length, len)?)
    }

    /// Copies `bytes` into memory that the guest's allocator gives, and answers the address.
    ///
    /// The allocator is guest code: it may give nothing, or an address outside the memory, or call the host; all but a
    /// few host calls are closed to it.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> Result<u32, Refusal> {
        let size = u32::try_from(bytes.len()).map_err(|_| Status::InvalidMemoryAccess)?;
        let allocate = self.state().allocator.clone().ok_or(Status::InvalidMemoryAccess)?;
        if let Some(trace) = &mut self.state().trace {
            trace.allocate(size);
        }
        let before = std::mem::replace(&mut self.state().restriction, Restriction::Allocating);
        let address = allocate.call(&mut self.caller, size);
        self.state().restriction = before;
        let address = address.map_err(Refusal::Trap)?;
        if address == 0 {
            return Err(Status::InvalidMemoryAccess.into());
        }
        self.write(address, bytes)?;
        Ok(address)
    }
}
