//! How long a guest may run.

use std::time::Duration;

use wasmtime::{AsContextMut, StoreContextMut, UpdateDeadline};

use crate::{
    state::VmState,
    trace::{
        backtrace::GuestBacktrace,
        sample::{Sample, SampleSink, TICK},
    },
};

/// Ticks after which a guest that began now has run for `limit`.
fn ticks(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX / 2).saturating_add(1)
}

/// Lets a guest run for as long as a callback may, from now on. One that is sampled is stopped at each tick on the way.
pub(crate) fn grant(mut store: impl AsContextMut<Data = VmState>) {
    let mut store = store.as_context_mut();
    let state = store.data_mut();
    let limit = ticks(state.shared.callback_limit);
    if state.shared.samples.is_some() {
        state.ticks_left = limit;
        store.set_epoch_deadline(1);
    } else {
        store.set_epoch_deadline(limit);
    }
}

/// Looks at a guest at a tick, and ends it where its time is up.
pub(crate) fn take(mut store: StoreContextMut<'_, VmState>) -> wasmtime::Result<UpdateDeadline> {
    let backtrace = GuestBacktrace::of_caller(&store);
    let state = store.data_mut();
    if let Some(SampleSink(sink)) = &state.shared.samples {
        sink(Sample { vm: state.name, at: state.shared.clock.monotonic(), backtrace });
    }
    state.ticks_left = state.ticks_left.saturating_sub(1);
    Ok(if state.ticks_left == 0 { UpdateDeadline::Interrupt } else { UpdateDeadline::Continue(1) })
}
