//! The functions that a guest may import, by family.
//!
//! Each function is listed once, in [`link`]; the lists of names that the docs and the fault injector use come from the
//! same table. The names of the arguments are those of [traces](crate::trace), which read the arguments by them.

mod buffers;
mod callouts;
#[cfg(feature = "expressions")]
mod expression_bounds;
#[cfg(feature = "expressions")]
mod expression_variables;
#[cfg(feature = "expressions")]
pub(crate) mod expressions;
mod filter_state;
mod foreign;
mod gateway_properties;
mod general;
mod grpc;
mod header_maps;
mod metrics;
mod properties;
mod shared_data;
mod shared_queue;
#[cfg(feature = "signatures")]
mod signatures;
mod streams;
pub(crate) mod wasi;

use wasmtime::{Caller, Extern, Linker};

use crate::{
    abi::{LogLevel, Status},
    rules::{EnvoyVersion, Flavour},
    signature::{Signature, ValueType},
    trace::{self, CallAnswer, Raw},
    vm::{
        memory::{Answer, Guest, Refusal},
        sample,
        state::{Restriction, VmState},
    },
};

/// Host calls that a guest may make while it initialises (proxy-wasm-cpp-host `wasm.cc`), beside those of WASI since Envoy 1.39.
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
const RESTRICTED: &str = "Attempted call to restricted proxy-wasm capability";

/// Refuses a call that may not be made now.
fn permit(state: &VmState, name: &str) -> wasmtime::Result<()> {
    let permitted = match state.restriction {
        Restriction::None => true,
        Restriction::Initializing => DURING_INITIALIZE.contains(&name) || wasi::is_open_since_1_39(name),
        Restriction::Allocating => DURING_ALLOCATION.contains(&name),
    };
    if permitted { Ok(()) } else { refuse_restricted(state, name) }
}

/// Refuses a call where not all may be made.
fn refuse_restricted(state: &VmState, name: &str) -> wasmtime::Result<()> {
    let when = match state.restriction {
        Restriction::None => return Ok(()),
        Restriction::Initializing => "the module initialises",
        Restriction::Allocating => "memory is allocated",
    };
    Err(wasmtime::Error::msg(format!("host function not allowed while {when}: {name}")))
}

/// Opens a host call: checks that it may be made now, and lets other VMs go first where a schedule says so. Where a fault
/// was planned, it gives the status to be answered at once.
fn open<'a>(
    mut caller: Caller<'a, VmState>,
    name: &'static str,
) -> Result<(Guest<'a>, Option<Status>), wasmtime::Error> {
    let state = caller.data_mut();
    permit(state, name)?;
    state.host_calls += 1;
    if let Some(turns) = &state.turns {
        turns.offer();
        sample::grant(&mut caller);
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
fn restricted(caller: &Caller<'_, VmState>, name: &str) -> bool {
    let state = caller.data();
    let restricted = !state.plugin.allows(name);
    if restricted {
        let message = format!("{RESTRICTED}: {name}");
        state.shared.logs.tell(LogLevel::Error, state.name, message);
    }
    restricted
}

/// What a trace says of a call that was made to fail.
const PLANNED: &str = "a planned fault";

/// Runs one call of module `env`.
fn run<'a>(
    mut caller: Caller<'a, VmState>,
    name: &'static str,
    arguments: impl FnOnce() -> Vec<Raw>,
    call: impl FnOnce(&mut Guest<'a>) -> Answer,
) -> wasmtime::Result<u32> {
    let traced = trace::begin(&mut caller, name, arguments);
    if restricted(&caller, name) {
        let status = Status::InternalFailure;
        if traced {
            trace::end(&mut caller, CallAnswer::Status(status), Some(RESTRICTED));
        }
        return Ok(status.code());
    }
    caller.data().shared.flavour.check_call(name)?;
    let (mut guest, fault) = open(caller, name)?;
    let answer = fault.map_or_else(|| call(&mut guest), |status| Err(status.into()));
    let status = match answer {
        Ok(()) => Status::Ok,
        Err(Refusal::Status(status)) => status,
        Err(Refusal::Trap(error)) => return Err(error),
    };
    if traced {
        trace::end(guest.caller(), CallAnswer::Status(status), fault.map(|_| PLANNED));
    }
    Ok(status.code())
}

/// The arguments of a call with their names, for a trace.
macro_rules! raw {
    ($($arg:ident),*) => {
        || vec![$( $crate::trace::Raw { name: stringify!($arg), bits: $crate::trace::Bits::bits($arg) } ),*]
    };
}
pub(crate) use raw;

/// A call's name with the types of what it takes.
type Parameters = (&'static str, &'static [ValueType]);

/// The types of these parameters.
macro_rules! parameters {
    ($($ty:ty),*) => { &[$( <$ty as $crate::trace::Bits>::TYPE ),*] };
}
pub(crate) use parameters;

macro_rules! host_functions {
    (supported { $( $name:ident ( $($arg:ident : $ty:ty),* ) => $path:path; )* }
     composed { $( $other:ident ( $($part:ident : $part_ty:ty),* ) => |$guest:ident| $call:expr; )* }
     unsupported { $( $missing:ident ( $($missing_ty:ty),* ); )* }) => {
        /// Names of the calls of module `env` that do their work.
        pub(crate) const SUPPORTED: &[&str] = &[$( stringify!($name), )* $( stringify!($other), )*];

        /// Names of the calls of module `env` that a module may import and that trap when it calls them.
        pub(crate) const UNSUPPORTED: &[&str] = &[$( stringify!($missing), )*];

        /// What each call of module `env` takes; all of them answer a status.
        const PARAMETERS: &[Parameters] = &[
            $( (stringify!($name), parameters!($($ty),*)), )*
            $( (stringify!($other), parameters!($($part_ty),*)), )*
            $( (stringify!($missing), parameters!($($missing_ty),*)), )*
        ];

        fn link_env(linker: &mut Linker<VmState>) -> wasmtime::Result<()> {
            $(
                linker.func_wrap("env", stringify!($name), |caller: Caller<'_, VmState>, $($arg: $ty),*| {
                    run(caller, stringify!($name), raw!($($arg),*), |guest| $path(guest, $($arg),*))
                })?;
            )*
            $(
                linker.func_wrap("env", stringify!($other), |caller: Caller<'_, VmState>, $($part: $part_ty),*| {
                    run(caller, stringify!($other), raw!($($part),*), |$guest| $call)
                })?;
            )*
            $(
                linker.func_wrap("env", stringify!($missing), |$(_: $missing_ty),*| -> wasmtime::Result<u32> {
                    Err(wasmtime::Error::msg(concat!("host function not supported: ", stringify!($missing))))
                })?;
            )*
            Ok(())
        }
    };
}

host_functions! {
    supported {
        proxy_log(level: u32, message: u32, message_size: u32) => general::log;
        proxy_get_log_level(level_out: u32) => general::get_log_level;
        proxy_get_current_time_nanoseconds(nanoseconds_out: u32) => general::get_current_time_nanoseconds;
        proxy_set_tick_period_milliseconds(period: u32) => general::set_tick_period_milliseconds;
        proxy_set_effective_context(context: u32) => general::set_effective_context;
        proxy_done() => general::done;
        proxy_get_status(code_out: u32, message_out: u32, message_out_size: u32) => general::get_status;
        proxy_get_property(path: u32, path_size: u32, value_out: u32, value_out_size: u32)
            => properties::get_property;
        proxy_set_property(path: u32, path_size: u32, value: u32, value_size: u32) => properties::set_property;
        proxy_get_shared_data(key: u32, key_size: u32, value_out: u32, value_out_size: u32, cas_out: u32)
            => shared_data::get_shared_data;
        proxy_set_shared_data(key: u32, key_size: u32, value: u32, value_size: u32, cas: u32)
            => shared_data::set_shared_data;
        proxy_register_shared_queue(name: u32, name_size: u32, token_out: u32)
            => shared_queue::register_shared_queue;
        proxy_resolve_shared_queue(vm_id: u32, vm_id_size: u32, name: u32, name_size: u32, token_out: u32)
            => shared_queue::resolve_shared_queue;
        proxy_dequeue_shared_queue(token: u32, item_out: u32, item_out_size: u32)
            => shared_queue::dequeue_shared_queue;
        proxy_enqueue_shared_queue(token: u32, item: u32, item_size: u32) => shared_queue::enqueue_shared_queue;
        proxy_get_header_map_value(map: u32, name: u32, name_size: u32, value_out: u32, value_out_size: u32)
            => header_maps::get_header_map_value;
        proxy_add_header_map_value(map: u32, name: u32, name_size: u32, value: u32, value_size: u32)
            => header_maps::add_header_map_value;
        proxy_replace_header_map_value(map: u32, name: u32, name_size: u32, value: u32, value_size: u32)
            => header_maps::replace_header_map_value;
        proxy_remove_header_map_value(map: u32, name: u32, name_size: u32) => header_maps::remove_header_map_value;
        proxy_get_header_map_pairs(map: u32, pairs_out: u32, pairs_out_size: u32)
            => header_maps::get_header_map_pairs;
        proxy_set_header_map_pairs(map: u32, pairs: u32, pairs_size: u32) => header_maps::set_header_map_pairs;
        proxy_get_header_map_size(map: u32, bytes_out: u32) => header_maps::get_header_map_size;
        proxy_get_buffer_bytes(buffer: u32, start: u32, length: u32, bytes_out: u32, bytes_out_size: u32)
            => buffers::get_buffer_bytes;
        proxy_get_buffer_status(buffer: u32, length_out: u32, flags_out: u32) => buffers::get_buffer_status;
        proxy_set_buffer_bytes(buffer: u32, start: u32, length: u32, data: u32, data_size: u32)
            => buffers::set_buffer_bytes;
        proxy_continue_stream(stream: u32) => streams::continue_stream;
        proxy_close_stream(stream: u32) => streams::close_stream;
        proxy_send_local_response(
            code: u32, details: u32, details_size: u32, body: u32, body_size: u32, headers: u32, headers_size: u32,
            grpc_status: u32
        ) => streams::send_local_response;
        proxy_http_call(
            cluster: u32, cluster_size: u32, headers: u32, headers_size: u32, body: u32, body_size: u32, trailers: u32,
            trailers_size: u32, timeout: u32, token_out: u32
        ) => callouts::http_call;
        proxy_grpc_send(token: u32, message: u32, message_size: u32, end: u32) => grpc::grpc_send;
        proxy_grpc_cancel(token: u32) => grpc::grpc_cancel;
        proxy_grpc_close(token: u32) => grpc::grpc_close;
        proxy_call_foreign_function(
            function: u32, function_size: u32, arguments: u32, arguments_size: u32, result_out: u32,
            result_out_size: u32
        ) => foreign::call_foreign_function;
        proxy_define_metric(kind: u32, name: u32, name_size: u32, id_out: u32) => metrics::define_metric;
        proxy_increment_metric(id: u32, offset: i64) => metrics::increment_metric;
        proxy_record_metric(id: u32, value: u64) => metrics::record_metric;
        proxy_get_metric(id: u32, measure_out: u32) => metrics::get_metric;
    }
    composed {
        proxy_grpc_call(
            service: u32, service_size: u32, name: u32, name_size: u32, method: u32, method_size: u32, metadata: u32,
            metadata_size: u32, message: u32, message_size: u32, timeout: u32, token_out: u32
        ) => |guest| {
            let spans =
                [(service, service_size), (name, name_size), (method, method_size), (metadata, metadata_size)];
            grpc::grpc_call(guest, spans, (message, message_size), timeout, token_out)
        };
        proxy_grpc_stream(
            service: u32, service_size: u32, name: u32, name_size: u32, method: u32, method_size: u32, metadata: u32,
            metadata_size: u32, token_out: u32
        ) => |guest| {
            let spans =
                [(service, service_size), (name, name_size), (method, method_size), (metadata, metadata_size)];
            grpc::grpc_stream(guest, spans, token_out)
        };
    }
    unsupported {
        envoy_resolve_dns(u32, u32, u32);
    }
}

/// Whether `name` is a host call, supported or not.
pub(crate) fn is_host_function(name: &str) -> bool {
    SUPPORTED.contains(&name) || UNSUPPORTED.contains(&name) || wasi::is_host_function(name)
}

impl Flavour {
    /// The type that the gateway declares for a function that modules of ABI 0.2.1 import, or nothing where it has no such
    /// function.
    pub fn declares(self, module: &str, name: &str) -> Option<Signature> {
        self.declares_of(module, name, declared(self.version(), module, name))
    }
}

/// The type that this version of Envoy declares for a function; nothing where it has none.
fn declared(version: EnvoyVersion, module: &str, name: &str) -> Option<Signature> {
    if module != "env" {
        return wasi::declared(version, module, name);
    }
    // What Emscripten's runtime asks for, and no call of the ABI.
    match name {
        "pthread_equal" => Some(Signature::with_status(&[ValueType::I32; 2])),
        "emscripten_notify_memory_growth" => {
            Some(Signature { parameters: vec![ValueType::I32], results: Vec::new() })
        }
        _ => signature_in(PARAMETERS, name),
    }
}

/// The type of a call that a table has.
fn signature_in(table: &[Parameters], name: &str) -> Option<Signature> {
    let (_, parameters) = table.iter().find(|(known, _)| *known == name)?;
    Some(Signature::with_status(parameters))
}

/// Defines every function that a module may import with this version of Envoy.
pub(crate) fn link(linker: &mut Linker<VmState>, version: EnvoyVersion) -> wasmtime::Result<()> {
    link_env(linker)?;
    linker.func_wrap("env", "pthread_equal", |left: u32, right: u32| u32::from(left == right))?;
    linker.func_wrap("env", "emscripten_notify_memory_growth", |_: u32| {})?;
    wasi::link(linker, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_crates_docs_names_every_host_call() {
        // Foreign functions are named with their call, as in `proxy_call_foreign_function("sign")`.
        let by_name = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("proxy_call_foreign_function({name:?})")).collect()
        };
        let documented = |answer: &str| {
            let rows = include_str!("../support.md").lines().filter_map(|line| {
                let mut cells = line.split('|').map(str::trim);
                let name = cells.nth(1)?.strip_prefix('`')?.strip_suffix('`')?;
                (cells.next()? == answer).then(|| name.to_owned())
            });
            let mut names: Vec<_> = rows.collect();
            names.sort_unstable();
            names
        };
        let sorted = |names: &[&str], more: Vec<String>| {
            let mut names: Vec<_> = names.iter().map(|name| (*name).to_owned()).chain(more).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(documented("yes"), sorted(SUPPORTED, by_name(foreign::SUPPORTED)));
        assert_eq!(documented("no"), sorted(UNSUPPORTED, Vec::new()));
    }
}
