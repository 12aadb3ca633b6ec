//! Shared queues.

use crate::{
    abi::{Status, slice},
    hostcalls::guest::{Answer, Guest},
    shared::queues::Listener,
    state::VmState,
};

fn available(state: &VmState) -> Result<(), Status> {
    if state.shared.flavour.has_shared_data() { Ok(()) } else { Err(Status::Unimplemented) }
}

/// Readiness is told to the root context, whichever context registers.
pub(super) fn register_shared_queue(guest: &mut Guest<'_>, name: u32, size: u32, out: u32) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let listener = Listener { vm: state.name, number: state.number, root: state.root_id() };
    let token =
        state.shared.shared_queues.register(&state.plugin.vm_id, slice(memory, name, size)?, listener)?;
    Ok(guest.write_u32(out, token)?)
}

/// An empty `vm_id` is the caller's own.
pub(super) fn resolve_shared_queue(
    guest: &mut Guest<'_>,
    vm_id: u32,
    vm_id_size: u32,
    name: u32,
    size: u32,
    out: u32,
) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let given = String::from_utf8_lossy(slice(memory, vm_id, vm_id_size)?).into_owned();
    let vm_id = if given.is_empty() { &state.plugin.vm_id } else { &given };
    let token = state.shared.shared_queues.resolve(vm_id, slice(memory, name, size)?)?;
    Ok(guest.write_u32(out, token)?)
}

pub(super) fn dequeue_shared_queue(guest: &mut Guest<'_>, token: u32, ptr: u32, len: u32) -> Answer {
    available(guest.state())?;
    let item = guest.state().shared.shared_queues.dequeue(token)?;
    guest.give(&item, ptr, len)
}

pub(super) fn enqueue_shared_queue(guest: &mut Guest<'_>, token: u32, item: u32, size: u32) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let item = slice(memory, item, size)?.to_vec();
    Ok(state.shared.shared_queues.enqueue(token, item)?)
}
