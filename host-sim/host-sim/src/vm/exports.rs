//! The functions of a guest that the host calls.

use wasmtime::{Func, FuncType, Instance, Store, TypedFunc, ValType, WasmParams, WasmResults};

use crate::{state::VmState, trace::backtrace::GuestBacktrace, vm::error::VmError};

/// The allocator of a module that has no `malloc`.
const ALLOCATOR: &str = "proxy_on_memory_allocate";

/// A callback under its name. One that the module lacks is not called, but where the gateway calls it all the same.
pub(crate) struct Callback<P, R> {
    pub(crate) name: &'static str,
    pub(crate) function: Option<TypedFunc<P, R>>,
}

/// The callbacks of a module.
///
/// Where two directions have a callback each, the request's comes first.
pub(crate) struct Exports {
    pub(crate) on_context_create: Callback<(u32, u32), ()>,
    pub(crate) on_vm_start: Callback<(u32, u32), u32>,
    pub(crate) on_configure: Callback<(u32, u32), u32>,
    pub(crate) on_tick: Callback<u32, ()>,
    pub(crate) on_queue_ready: Callback<(u32, u32), ()>,
    pub(crate) on_http_call_response: Callback<(u32, u32, u32, u32, u32), ()>,
    pub(crate) on_grpc_initial_metadata: Callback<(u32, u32, u32), ()>,
    pub(crate) on_grpc_receive: Callback<(u32, u32, u32), ()>,
    pub(crate) on_grpc_trailing_metadata: Callback<(u32, u32, u32), ()>,
    pub(crate) on_grpc_close: Callback<(u32, u32, u32), ()>,
    pub(crate) on_headers: [Callback<(u32, u32, u32), u32>; 2],
    pub(crate) on_body: [Callback<(u32, u32, u32), u32>; 2],
    pub(crate) on_trailers: [Callback<(u32, u32), u32>; 2],
    pub(crate) on_done: Callback<u32, u32>,
    pub(crate) on_log: Callback<u32, ()>,
    pub(crate) on_delete: Callback<u32, ()>,
}

/// What a module runs when it starts, and its allocator.
pub(crate) struct Start {
    initialize: Option<TypedFunc<(), ()>>,
    start: Option<TypedFunc<(), ()>>,
    main: Option<TypedFunc<(u32, u32), u32>>,
    main_void: Option<TypedFunc<(), u32>>,
    pub(crate) allocator: Option<TypedFunc<u32, u32>>,
}

/// What stands in for a callback that the module does not export, where the gateway calls it all the same.
fn absent(store: &mut Store<VmState>, name: &str) -> Option<Func> {
    let (parameters, results) = store.data().shared.flavour.calls_unchecked(name)?;
    let numbers = |count| std::iter::repeat_n(ValType::I32, count);
    let kind = FuncType::new(store.engine(), numbers(parameters), numbers(results));
    let (flavour, name) = (store.data().shared.flavour, name.to_owned());
    Some(Func::new(store, kind, move |_, _, _| flavour.crash(&name)))
}

fn export<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<VmState>,
    name: &str,
) -> Result<Option<TypedFunc<P, R>>, VmError> {
    // What starts a module, and what gives memory, is no capability.
    if name.starts_with("proxy_on_") && name != ALLOCATOR && !store.data().plugin.allows(name) {
        return Ok(None);
    }
    let function = instance.get_func(&mut *store, name).or_else(|| absent(store, name));
    let Some(function) = function else { return Ok(None) };
    function.typed(&*store).map(Some).map_err(|error| VmError::Instantiate {
        reason: format!("export {name} has another type than the ABI's: {error}"),
        backtrace: GuestBacktrace::default(),
    })
}

fn callback<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<VmState>,
    name: &'static str,
) -> Result<Callback<P, R>, VmError> {
    Ok(Callback { name, function: export(instance, store, name)? })
}

impl Exports {
    /// Looks the functions of an instance up. One of a wrong type is an error, as in Envoy.
    pub(crate) fn of(instance: &Instance, store: &mut Store<VmState>) -> Result<(Self, Start), VmError> {
        let exports = Self {
            on_context_create: callback(instance, store, "proxy_on_context_create")?,
            on_vm_start: callback(instance, store, "proxy_on_vm_start")?,
            on_configure: callback(instance, store, "proxy_on_configure")?,
            on_tick: callback(instance, store, "proxy_on_tick")?,
            on_queue_ready: callback(instance, store, "proxy_on_queue_ready")?,
            on_http_call_response: callback(instance, store, "proxy_on_http_call_response")?,
            on_grpc_initial_metadata: callback(instance, store, "proxy_on_grpc_receive_initial_metadata")?,
            on_grpc_receive: callback(instance, store, "proxy_on_grpc_receive")?,
            on_grpc_trailing_metadata: callback(instance, store, "proxy_on_grpc_receive_trailing_metadata")?,
            on_grpc_close: callback(instance, store, "proxy_on_grpc_close")?,
            on_headers: [
                callback(instance, store, "proxy_on_request_headers")?,
                callback(instance, store, "proxy_on_response_headers")?,
            ],
            on_body: [
                callback(instance, store, "proxy_on_request_body")?,
                callback(instance, store, "proxy_on_response_body")?,
            ],
            on_trailers: [
                callback(instance, store, "proxy_on_request_trailers")?,
                callback(instance, store, "proxy_on_response_trailers")?,
            ],
            on_done: callback(instance, store, "proxy_on_done")?,
            on_log: callback(instance, store, "proxy_on_log")?,
            on_delete: callback(instance, store, "proxy_on_delete")?,
        };
        let malloc = export(instance, store, "malloc")?;
        let start = Start {
            initialize: export(instance, store, "_initialize")?,
            start: export(instance, store, "_start")?,
            main: export(instance, store, "main")?,
            main_void: export(instance, store, "__main_void")?,
            allocator: malloc.or(export(instance, store, ALLOCATOR)?),
        };
        Ok((exports, start))
    }
}

impl Start {
    /// Runs `_initialize` and then `main`, or `_start` where there is no `_initialize`.
    pub(crate) fn run(&self, store: &mut Store<VmState>) -> wasmtime::Result<()> {
        match (&self.initialize, &self.start) {
            (Some(initialize), _) => {
                initialize.call(&mut *store, ())?;
                if let Some(main) = &self.main {
                    main.call(&mut *store, (0, 0))?;
                } else if let Some(main) = &self.main_void {
                    main.call(&mut *store, ())?;
                }
            }
            (None, Some(start)) => start.call(&mut *store, ())?,
            (None, None) => {}
        }
        Ok(())
    }
}
