//! Takes a host call down where its VM is traced.

use wasmtime::{Caller, Extern};

use crate::{
    hostcalls::causes,
    parameter::Raw,
    state::VmState,
    trace::{backtrace::GuestBacktrace, record::CallAnswer},
};

/// The guest's memory, and the state of its VM.
fn split<'c>(caller: &'c mut Caller<'_, VmState>) -> Option<(&'c [u8], &'c mut VmState)> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => caller.get_export("memory").and_then(Extern::into_memory)?,
    };
    let (memory, state) = memory.data_and_store_mut(caller);
    Some((memory, state))
}

/// A guest makes a host call. Says whether it is traced: then it is to be [ended](end), but where the guest traps.
pub(crate) fn begin(
    caller: &mut Caller<'_, VmState>,
    call: &'static str,
    raw: impl FnOnce() -> Vec<Raw>,
) -> bool {
    if caller.data().trace.is_none() {
        return false;
    }
    if let Some((memory, state)) = split(caller)
        && let Some(recorder) = &mut state.trace
    {
        recorder.call(call, raw(), memory);
    }
    true
}

/// The host call that was begun last has this answer. `why` is the cause where the call itself has not run.
pub(crate) fn end(caller: &mut Caller<'_, VmState>, answer: CallAnswer, why: Option<&str>) {
    let Some(mut recorder) = caller.data_mut().trace.take() else { return };
    let Some((mut open, raw)) = recorder.take_call() else {
        caller.data_mut().trace = Some(recorder);
        return;
    };
    if let Some((memory, state)) = split(caller) {
        open.what.why = match why {
            Some(why) => Some(why.to_owned()),
            None => causes::why(open.what.call, &raw, (memory, state), recorder.callback(), answer),
        };
    }
    if open.what.why.is_some() && causes::deserves_a_look(answer) {
        open.what.at = GuestBacktrace::of_caller(&*caller).place().cloned();
    }
    if let Some((memory, _)) = split(caller) {
        recorder.put(open, &raw, answer, memory, memory.len());
    }
    caller.data_mut().trace = Some(recorder);
}
