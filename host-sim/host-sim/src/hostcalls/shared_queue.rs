//! Shared queues.

use crate::{
    abi::Status,
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Slice, SliceOut},
    shared::queues::Listener,
    state::VmState,
};

fn available(state: &VmState) -> Result<(), Status> {
    if state.shared.flavour.has_shared_data() { Ok(()) } else { Err(Status::Unimplemented) }
}

/// The callback goes to the root context, whichever context registers.
pub(super) fn register_shared_queue(guest: &mut Guest<'_>, name: Slice, Out32(out): Out32) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let listener = Listener { vm: state.name, number: state.number, root: state.root_id() };
    let token = state.shared.shared_queues.register(&state.plugin.vm_id, name.of(memory)?, listener)?;
    Ok(guest.write_u32(out, token)?)
}

/// An empty `vm_id` is the caller's own.
pub(super) fn resolve_shared_queue(
    guest: &mut Guest<'_>,
    vm_id: Slice,
    name: Slice,
    Out32(out): Out32,
) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let given = String::from_utf8_lossy(vm_id.of(memory)?).into_owned();
    let vm_id = if given.is_empty() { &state.plugin.vm_id } else { &given };
    let token = state.shared.shared_queues.resolve(vm_id, name.of(memory)?)?;
    Ok(guest.write_u32(out, token)?)
}

pub(super) fn dequeue_shared_queue(guest: &mut Guest<'_>, token: u32, out: SliceOut) -> Answer {
    available(guest.state())?;
    let item = guest.state().shared.shared_queues.dequeue(token)?;
    guest.give(&item, out)
}

pub(super) fn enqueue_shared_queue(guest: &mut Guest<'_>, token: u32, item: Slice) -> Answer {
    let (memory, state) = guest.split();
    available(state)?;
    let item = item.of(memory)?.to_vec();
    Ok(state.shared.shared_queues.enqueue(token, item)?)
}
