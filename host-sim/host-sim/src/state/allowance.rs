//! How long a guest may run.

use std::time::Duration;

use wasmtime::AsContextMut;

use crate::state::VmState;

/// How often an engine looks whether a guest has run for too long.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Lets a guest run for as long as a callback may, from now on.
pub(crate) fn grant(mut store: impl AsContextMut<Data = VmState>) {
    let mut store = store.as_context_mut();
    let limit = store.data().shared.callback_limit;
    let ticks = u64::try_from(limit.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX / 2);
    store.set_epoch_deadline(ticks.saturating_add(1));
}
