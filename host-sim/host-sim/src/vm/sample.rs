//! Where guests are while they run, seen from time to time.

use std::time::Duration;

use wasmtime::{AsContextMut, StoreContextMut, UpdateDeadline};

use super::{GuestBacktrace, VmName, engine::TICK, module::ticks, state::VmState};

/// Where a guest was at one moment while it ran.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The VM.
    pub vm: VmName,
    /// When, on the host's monotonic clock.
    pub at: Duration,
    /// The functions that were running, the innermost first.
    pub backtrace: GuestBacktrace,
}

impl Sample {
    /// How often a guest that runs is looked at.
    pub const INTERVAL: Duration = TICK;
}

/// A listener to the samples of all VMs.
pub(crate) struct SampleSink(pub(crate) Box<dyn Fn(Sample) + Send + Sync>);

impl std::fmt::Debug for SampleSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SampleSink")
    }
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
