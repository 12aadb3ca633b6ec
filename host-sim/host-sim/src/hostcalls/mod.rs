//! The functions that a guest may import, by family.
//!
//! Each function is listed once, with its parameters; its linking, its type, what [traces](crate::trace) show of its arguments, and
//! the lists of names that the docs and the fault injector use come from the same table.

mod buffers;
mod call;
mod callouts;
mod causes;
mod foreign;
mod gateway_properties;
mod general;
mod grpc;
mod guest;
mod header_maps;
mod properties;
mod stores;
mod streams;
mod traced;
mod wasi;

use wasmtime::Linker;

use crate::{
    hostcalls::call::run,
    parameter::{Out32, Out64, Parameter, Raw, Slice, SliceOut, define},
    rules::{EnvoyVersion, Flavour},
    signature::{Parameters, Signature, ValueType},
    state::VmState,
};

macro_rules! host_functions {
    (supported { $( $name:ident ( $($arg:ident : $ty:ident),* ) => $path:path; )* }
     unsupported { $( $missing:ident ( $($missing_ty:ident),* ); )* }) => {
        /// Names of the calls of module `env` that do their work.
        pub(crate) const SUPPORTED: &[&str] = &[$( stringify!($name), )*];

        /// Names of the calls of module `env` that a module may import and that trap when it calls them.
        pub(crate) const UNSUPPORTED: &[&str] = &[$( stringify!($missing), )*];

        /// What each call of module `env` takes; all of them answer a status.
        const PARAMETERS: &[Parameters] = &[
            $( (stringify!($name), &[$( <$ty as Parameter>::TYPES ),*]), )*
            $( (stringify!($missing), &[$( <$missing_ty as Parameter>::TYPES ),*]), )*
        ];

        fn link_env(linker: &mut Linker<VmState>) -> wasmtime::Result<()> {
            $( define!((linker, "env", $name, run, |guest| $path(guest, $($arg),*)) [] [] $($arg: $ty,)*)?; )*
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
        proxy_log(level: u32, message: Slice) => general::log;
        proxy_get_log_level(level: Out32) => general::get_log_level;
        proxy_get_current_time_nanoseconds(nanoseconds: Out64) => general::get_current_time_nanoseconds;
        proxy_set_tick_period_milliseconds(period: u32) => general::set_tick_period_milliseconds;
        proxy_set_effective_context(context: u32) => general::set_effective_context;
        proxy_done() => general::done;
        proxy_get_status(code: Out32, message: SliceOut) => general::get_status;
        proxy_get_property(path: Slice, value: SliceOut) => properties::get_property;
        proxy_set_property(path: Slice, value: Slice) => properties::set_property;
        proxy_get_shared_data(key: Slice, value: SliceOut, cas: Out32) => stores::get_shared_data;
        proxy_set_shared_data(key: Slice, value: Slice, cas: u32) => stores::set_shared_data;
        proxy_register_shared_queue(name: Slice, token: Out32) => stores::register_shared_queue;
        proxy_resolve_shared_queue(vm_id: Slice, name: Slice, token: Out32) => stores::resolve_shared_queue;
        proxy_dequeue_shared_queue(token: u32, item: SliceOut) => stores::dequeue_shared_queue;
        proxy_enqueue_shared_queue(token: u32, item: Slice) => stores::enqueue_shared_queue;
        proxy_get_header_map_value(map: u32, name: Slice, value: SliceOut) => header_maps::get_header_map_value;
        proxy_add_header_map_value(map: u32, name: Slice, value: Slice) => header_maps::add_header_map_value;
        proxy_replace_header_map_value(map: u32, name: Slice, value: Slice) => header_maps::replace_header_map_value;
        proxy_remove_header_map_value(map: u32, name: Slice) => header_maps::remove_header_map_value;
        proxy_get_header_map_pairs(map: u32, pairs: SliceOut) => header_maps::get_header_map_pairs;
        proxy_set_header_map_pairs(map: u32, pairs: Slice) => header_maps::set_header_map_pairs;
        proxy_get_header_map_size(map: u32, bytes: Out32) => header_maps::get_header_map_size;
        proxy_get_buffer_bytes(buffer: u32, start: u32, length: u32, bytes: SliceOut) => buffers::get_buffer_bytes;
        proxy_get_buffer_status(buffer: u32, length: Out32, flags: Out32) => buffers::get_buffer_status;
        proxy_set_buffer_bytes(buffer: u32, start: u32, length: u32, data: Slice) => buffers::set_buffer_bytes;
        proxy_continue_stream(stream: u32) => streams::continue_stream;
        proxy_close_stream(stream: u32) => streams::close_stream;
        proxy_send_local_response(code: u32, details: Slice, body: Slice, headers: Slice, grpc_status: i32)
            => streams::send_local_response;
        proxy_http_call(cluster: Slice, headers: Slice, body: Slice, trailers: Slice, timeout: i32, token: Out32)
            => callouts::http_call;
        proxy_grpc_call(
            service: Slice, name: Slice, method: Slice, metadata: Slice, message: Slice, timeout: u32, token: Out32
        ) => grpc::grpc_call;
        proxy_grpc_stream(service: Slice, name: Slice, method: Slice, metadata: Slice, token: Out32)
            => grpc::grpc_stream;
        proxy_grpc_send(token: u32, message: Slice, end: u32) => grpc::grpc_send;
        proxy_grpc_cancel(token: u32) => grpc::grpc_cancel;
        proxy_grpc_close(token: u32) => grpc::grpc_close;
        proxy_call_foreign_function(function: Slice, arguments: Slice, result: SliceOut)
            => foreign::call_foreign_function;
        proxy_define_metric(kind: u32, name: Slice, id: Out32) => stores::define_metric;
        proxy_increment_metric(id: u32, offset: i64) => stores::increment_metric;
        proxy_record_metric(id: u32, value: u64) => stores::record_metric;
        proxy_get_metric(id: u32, measure: Out64) => stores::get_metric;
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
        // Foreign functions are named with their call, as in `proxy_call_foreign_function("compress")`.
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
        assert_eq!(documented("no"), sorted(UNSUPPORTED, by_name(foreign::UNSUPPORTED)));
    }
}
