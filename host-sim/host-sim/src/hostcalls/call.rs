//! What every host call begins and ends with.

use wasmtime::{Caller, Extern};

use crate::{
    abi::{LogLevel, Status},
    hostcalls::{
        guest::{Answer, Guest, Refusal},
        traced,
    },
    parameter::Raw,
    state::{Restriction, VmState, allowance},
    trace::record::CallAnswer,
};

/// Host calls that a guest may make while it initialises (proxy-wasm-cpp-host `wasm.cc`).
const DURING_INITIALIZE: [&str; 12] = [
    "proxy_log",
    "fd_write",
    "clock_time_get",
    "random_get",
    "environ_get",
    "environ_sizes_get",
    "args_get",
    "args_sizes_get",
    "fd_prestat_get",
    "fd_prestat_dir_name",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
];

/// Host calls that a guest's allocator may make when the host calls it (proxy-wasm-cpp-host `wasm.h`).
const DURING_ALLOCATION: [&str; 4] = ["proxy_log", "fd_write", "clock_time_get", "poll_oneoff"];

/// What the log says of a call that the filter may not make.
pub(super) const RESTRICTED: &str = "Attempted call to restricted proxy-wasm capability";

/// Refuses a call that may not be made now. `opens_early` says which more a guest may make while it initialises.
pub(super) fn permit(state: &VmState, name: &str, opens_early: fn(&str) -> bool) -> wasmtime::Result<()> {
    let permitted = match state.restriction {
        Restriction::None => true,
        Restriction::Initializing => DURING_INITIALIZE.contains(&name) || opens_early(name),
        Restriction::Allocating => DURING_ALLOCATION.contains(&name),
    };
    if permitted { Ok(()) } else { refuse_restricted(state, name) }
}

/// Refuses a call where not all may be made.
pub(super) fn refuse_restricted(state: &VmState, name: &str) -> wasmtime::Result<()> {
    let when = match state.restriction {
        Restriction::None => return Ok(()),
        Restriction::Initializing => "the module initialises",
        Restriction::Allocating => "memory is allocated",
    };
    Err(wasmtime::Error::msg(format!("host function not allowed while {when}: {name}")))
}

/// Opens a host call: checks that it may be made now, and lets other VMs go first where a schedule says so. Where a fault
/// was planned, it gives the status to be answered at once.
pub(super) fn open<'a>(
    mut caller: Caller<'a, VmState>,
    name: &'static str,
    opens_early: fn(&str) -> bool,
) -> Result<(Guest<'a>, Option<Status>), wasmtime::Error> {
    let state = caller.data_mut();
    permit(state, name, opens_early)?;
    state.host_calls += 1;
    if let Some(turns) = &state.turns {
        turns.offer();
        allowance::grant(&mut caller);
    }
    let state = caller.data_mut();
    let fault = state.shared.faults.strike(name, state.name);
    // A guest may call the host from its start function, before the host has looked its memory up.
    let memory = match state.memory {
        Some(memory) => memory,
        None => caller
            .get_export("memory")
            .and_then(Extern::into_memory)
            .ok_or_else(|| wasmtime::Error::msg(format!("{name}: the module exports no memory")))?,
    };
    Ok((Guest::new(caller, memory), fault))
}

/// Whether the filter may not make this call at all; then the log says so.
pub(super) fn restricted(caller: &Caller<'_, VmState>, name: &str) -> bool {
    let state = caller.data();
    let restricted = !state.plugin.allows(name);
    if restricted {
        let message = format!("{RESTRICTED}: {name}");
        state.shared.logs.tell(LogLevel::Error, state.name, message);
    }
    restricted
}

/// What a trace says of a call that was made to fail.
pub(super) const PLANNED: &str = "a planned fault";

/// Runs one call of module `env`.
pub(super) fn run<'a>(
    mut caller: Caller<'a, VmState>,
    name: &'static str,
    arguments: impl FnOnce() -> Vec<Raw>,
    call: impl FnOnce(&mut Guest<'a>) -> Answer,
) -> wasmtime::Result<u32> {
    let traced = traced::begin(&mut caller, name, arguments);
    if restricted(&caller, name) {
        let status = Status::InternalFailure;
        if traced {
            traced::end(&mut caller, CallAnswer::Status(status), Some(RESTRICTED));
        }
        return Ok(status.code());
    }
    caller.data().shared.flavour.check_call(name)?;
    let (mut guest, fault) = open(caller, name, |_| false)?;
    let answer = fault.map_or_else(|| call(&mut guest), |status| Err(status.into()));
    let status = match answer {
        Ok(()) => Status::Ok,
        Err(Refusal::Status(status)) => status,
        Err(Refusal::Trap(error)) => return Err(error),
    };
    if traced {
        traced::end(guest.caller(), CallAnswer::Status(status), fault.map(|_| PLANNED));
    }
    Ok(status.code())
}
