//! The functions of a guest that the host calls.

use std::sync::Arc;

use wasmtime::{Func, FuncType, Instance, Store, TypedFunc, ValType, WasmParams, WasmResults};

use crate::vm::{GuestBacktrace, VmError, state::VmState};

/// The allocator of a module that has no `malloc`.
const ALLOCATOR: &str = "proxy_on_memory_allocate";

/// A callback; one that the module lacks is not called, but where the gateway calls it all the same.
///
/// It is shared because it is kept while the VM that has it is changed, and a [`TypedFunc`] is dear to clone.
pub(crate) type Callback<P, R> = Option<Arc<TypedFunc<P, R>>>;

/// A callback that each direction of a stream has, under its name.
pub(crate) type OfMessage<P> = (&'static str, Callback<P, u32>);

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
    pub(crate) on_headers: [OfMessage<(u32, u32, u32)>; 2],
    pub(crate) on_body: [OfMessage<(u32, u32, u32)>; 2],
    pub(crate) on_trailers: [OfMessage<(u32, u32)>; 2],
    pub(crate) on_done: Callback<u32, u32>,
    pub(crate) on_log: Callback<u32, ()>,
    pub(crate) on_delete: Callback<u32, ()>,
}

/// What a module runs when it starts, and its allocator.
pub(crate) struct Start {
    initialize: Callback<(), ()>,
    start: Callback<(), ()>,
    main: Callback<(u32, u32), u32>,
    main_void: Callback<(), u32>,
    pub(crate) allocator: Callback<u32, u32>,
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
) -> Result<Callback<P, R>, VmError> {
    // What starts a module, and what gives memory, is no capability.
    if name.starts_with("proxy_on_") && name != ALLOCATOR && !store.data().plugin.allows(name) {
        return Ok(None);
    }
    let function = instance.get_func(&mut *store, name).or_else(|| absent(store, name));
    let Some(function) = function else { return Ok(None) };
    let typed = function.typed(&*store).map(|function| Some(Arc::new(function)));
    typed.map_err(|error| VmError::Instantiate {
        reason: format!("export {name} has another type than the ABI's: {error}"),
        backtrace: GuestBacktrace::default(),
    })
}

fn of_messages<P: WasmParams>(
    instance: &Instance,
    store: &mut Store<VmState>,
    [request, response]: [&'static str; 2],
) -> Result<[OfMessage<P>; 2], VmError> {
    Ok([(request, export(instance, store, request)?), (response, export(instance, store, response)?)])
}

impl Exports {
    /// Looks the functions of an instance up. One of a wrong type is an error, as in Envoy.
    pub(crate) fn of(instance: &Instance, store: &mut Store<VmState>) -> Result<(Self, Start), VmError> {
        let exports = Self {
            on_context_create: export(instance, store, "proxy_on_context_create")?,
            on_vm_start: export(instance, store, "proxy_on_vm_start")?,
            on_configure: export(instance, store, "proxy_on_configure")?,
            on_tick: export(instance, store, "proxy_on_tick")?,
            on_queue_ready: export(instance, store, "proxy_on_queue_ready")?,
            on_http_call_response: export(instance, store, "proxy_on_http_call_response")?,
            on_grpc_initial_metadata: export(instance, store, "proxy_on_grpc_receive_initial_metadata")?,
            on_grpc_receive: export(instance, store, "proxy_on_grpc_receive")?,
            on_grpc_trailing_metadata: export(instance, store, "proxy_on_grpc_receive_trailing_metadata")?,
            on_grpc_close: export(instance, store, "proxy_on_grpc_close")?,
            on_headers: of_messages(
                instance,
                store,
                ["proxy_on_request_headers", "proxy_on_response_headers"],
            )?,
            on_body: of_messages(instance, store, ["proxy_on_request_body", "proxy_on_response_body"])?,
            on_trailers: of_messages(
                instance,
                store,
                ["proxy_on_request_trailers", "proxy_on_response_trailers"],
            )?,
            on_done: export(instance, store, "proxy_on_done")?,
            on_log: export(instance, store, "proxy_on_log")?,
            on_delete: export(instance, store, "proxy_on_delete")?,
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
