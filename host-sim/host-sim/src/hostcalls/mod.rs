//! The functions that a guest may import, by family.
//!
//! Each function is listed once, in [`link`]; the lists of names that the docs and the fault injector use come from the
//! same table. The names of the arguments are those of [traces](crate::trace), which read the arguments by them.

mod buffers;
mod call;
mod callouts;
mod causes;
#[cfg(feature = "expressions")]
mod expression_bounds;
#[cfg(feature = "expressions")]
mod expression_values;
#[cfg(feature = "expressions")]
mod expression_variables;
#[cfg(feature = "expressions")]
mod expressions;
mod filter_state;
mod foreign;
mod gateway_properties;
mod general;
mod grpc;
mod guest;
mod header_maps;
mod metrics;
mod properties;
mod shared_data;
mod shared_queue;
#[cfg(feature = "signatures")]
mod signatures;
mod streams;
mod traced;
mod wasi;

use wasmtime::{Caller, Linker};

use crate::{
    hostcalls::call::{parameters, raw, run},
    rules::{EnvoyVersion, Flavour},
    signature::{Parameters, Signature, ValueType},
    state::VmState,
};

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
        _ => Signature::of(PARAMETERS, name),
    }
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
