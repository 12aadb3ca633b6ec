//! Shared data.

use crate::{
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Slice, SliceOut},
};

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
