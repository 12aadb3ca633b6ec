//! Metrics.

use super::ngx;
use crate::{
    abi::MetricKind,
    vm::memory::{Answer, Guest, slice},
};

pub(super) fn define_metric(guest: &mut Guest<'_>, kind: u32, name: u32, size: u32, out: u32) -> Answer {
    let (memory, state) = guest.split();
    let name = String::from_utf8_lossy(slice(memory, name, size)?).into_owned();
    ngx::check_metric_name(state, &name)?;
    let id = state.metric_ids.define(MetricKind::from_code(kind)?, name)?;
    Ok(guest.write_u32(out, id)?)
}

pub(super) fn increment_metric(guest: &mut Guest<'_>, id: u32, offset: i64) -> Answer {
    let state = guest.state();
    ngx::check_metric_use(state, id, false)?;
    Ok(state.metric_ids.increment(id, offset)?)
}

pub(super) fn record_metric(guest: &mut Guest<'_>, id: u32, value: u64) -> Answer {
    let state = guest.state();
    ngx::check_metric_use(state, id, true)?;
    Ok(state.metric_ids.record(id, value)?)
}

pub(super) fn get_metric(guest: &mut Guest<'_>, id: u32, out: u32) -> Answer {
    let value = guest.state().metric_ids.get(id)?;
    Ok(guest.write_u64(out, value)?)
}
