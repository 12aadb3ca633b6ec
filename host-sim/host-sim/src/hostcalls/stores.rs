//! What outlives a request: shared data, shared queues and metrics.

use crate::{
    abi::{MetricKind, Numbered as _, Status},
    hostcalls::guest::{Answer, Guest, Refusal},
    parameter::{Out32, Out64, Slice, SliceOut},
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

/// Ends the guest where the gateway does not let a metric of this kind be recorded or incremented.
fn check_use(state: &VmState, id: u32, recorded: bool) -> Result<(), Refusal> {
    if let Ok(kind) = MetricKind::of(id & 3) {
        state.shared.flavour.check_metric_use(kind, recorded)?;
    }
    Ok(())
}

pub(super) fn define_metric(guest: &mut Guest<'_>, kind: u32, name: Slice, Out32(out): Out32) -> Answer {
    let (memory, state) = guest.split();
    let name = String::from_utf8_lossy(name.of(memory)?).into_owned();
    state.shared.flavour.check_metric_name(&name)?;
    let id = state.metric_ids.define(MetricKind::of(kind)?, name)?;
    Ok(guest.write_u32(out, id)?)
}

pub(super) fn increment_metric(guest: &mut Guest<'_>, id: u32, offset: i64) -> Answer {
    let state = guest.state();
    check_use(state, id, false)?;
    Ok(state.metric_ids.increment(id, offset)?)
}

pub(super) fn record_metric(guest: &mut Guest<'_>, id: u32, value: u64) -> Answer {
    let state = guest.state();
    check_use(state, id, true)?;
    Ok(state.metric_ids.record(id, value)?)
}

pub(super) fn get_metric(guest: &mut Guest<'_>, id: u32, Out64(out): Out64) -> Answer {
    let value = guest.state().metric_ids.get(id)?;
    Ok(guest.write_u64(out, value)?)
}

pub(super) fn get_shared_data(
    guest: &mut Guest<'_>,
    key: Slice,
    out: SliceOut,
    Out32(cas_out): Out32,
) -> Answer {
    let (memory, state) = guest.split();
    let (value, cas) = state.namespace.get(key.of(memory)?)?;
    guest.give(&value, out)?;
    Ok(guest.write_u32(cas_out, cas)?)
}

pub(super) fn set_shared_data(guest: &mut Guest<'_>, key: Slice, value: Slice, cas: u32) -> Answer {
    let (memory, state) = guest.split();
    Ok(state.namespace.set(key.of(memory)?, value.of(memory)?, cas)?)
}
