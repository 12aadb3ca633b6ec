//! Shared data.

use crate::{
    abi::slice,
    hostcalls::guest::{Answer, Guest},
};

pub(super) fn get_shared_data(
    guest: &mut Guest<'_>,
    key: u32,
    size: u32,
    ptr: u32,
    len: u32,
    cas_out: u32,
) -> Answer {
    let (memory, state) = guest.split();
    let (value, cas) = state.namespace.get(slice(memory, key, size)?)?;
    guest.give(&value, ptr, len)?;
    Ok(guest.write_u32(cas_out, cas)?)
}

pub(super) fn set_shared_data(
    guest: &mut Guest<'_>,
    key: u32,
    size: u32,
    value: u32,
    value_size: u32,
    cas: u32,
) -> Answer {
    let (memory, state) = guest.split();
    let key = slice(memory, key, size)?;
    let value = slice(memory, value, value_size)?;
    Ok(state.namespace.set(key, value, cas)?)
}
