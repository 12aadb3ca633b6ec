//! Metrics.

use crate::{
    abi::{MetricKind, Numbered as _},
    hostcalls::guest::{Answer, Guest, Refusal},
    parameter::{Out32, Out64, Slice},
    state::VmState,
};

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
