//! Log, time, timers, contexts.

use std::time::Duration;

use crate::{
    abi::{LogLevel, Numbered as _, Status},
    hostcalls::guest::{Answer, Guest},
    parameter::{Out32, Out64, Slice, SliceOut},
    state::{
        Deferred,
        root::{RootLife, Timer},
    },
};

pub(super) fn log(guest: &mut Guest<'_>, level: u32, message: Slice) -> Answer {
    let level = LogLevel::of(level)?;
    let (memory, state) = guest.split();
    let message = message.of(memory)?;
    state.write_log(level, message);
    Ok(())
}

pub(super) fn get_log_level(guest: &mut Guest<'_>, Out32(out): Out32) -> Answer {
    let level = guest.state().shared.logs.level();
    Ok(guest.write_u32(out, level as u32)?)
}

pub(super) fn get_current_time_nanoseconds(guest: &mut Guest<'_>, Out64(out): Out64) -> Answer {
    let state = guest.state();
    let now = state.shared.clock.wall_nanos();
    Ok(guest.write_u64(out, now)?)
}

/// The timer is the root context's, whichever context asks. 0 turns it off; the last call wins.
pub(super) fn set_tick_period_milliseconds(guest: &mut Guest<'_>, period: u32) -> Answer {
    let state = guest.state();
    let (id, flavour) = (state.context_id(), state.shared.flavour);
    flavour.check_timer(state.root(id).map(|root| root.timer.is_some()))?;
    let now = state.shared.clock.monotonic();
    let period = Duration::from_millis(period.into());
    state.timers_changed = true;
    let root = state.current_root().ok_or(Status::InternalFailure)?;
    root.timer = (!period.is_zero()).then(|| Timer { period, due: now + period });
    Ok(())
}

pub(super) fn set_effective_context(guest: &mut Guest<'_>, context: u32) -> Answer {
    let state = guest.state();
    // 0 is the VM's own context, which exists and chooses nothing.
    if context != 0 && !state.contexts.contains_key(&context) {
        return Err(Status::BadArgument.into());
    }
    state.effective = context;
    Ok(())
}

pub(super) fn done(guest: &mut Guest<'_>) -> Answer {
    let state = guest.state();
    let id = state.context_id();
    let root = state.root(id).filter(|root| root.life == RootLife::PendingDone).ok_or(Status::NotFound)?;
    root.life = RootLife::Retiring;
    state.deferred.push_back(Deferred::DeleteRoot { root: id });
    Ok(())
}

pub(super) fn get_status(guest: &mut Guest<'_>, Out32(code): Out32, out: SliceOut) -> Answer {
    let (status, message) =
        guest.state().current_root().map_or((0, bytes::Bytes::new()), |root| root.status.clone());
    guest.write_u32(code, status)?;
    guest.give(&message, out)
}
