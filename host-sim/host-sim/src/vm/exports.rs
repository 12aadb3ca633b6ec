//! The functions of a guest that the host calls.

use wasmtime::{Func, FuncType, Instance, Store, TypedFunc, ValType, WasmParams, WasmResults};

use crate::{
    rules::Flavour,
    state::VmState,
    trace::{backtrace::GuestBacktrace, callbacks::Shape},
    vm::error::VmError,
};

/// A callback. One that the module lacks is not called, but where the gateway calls it all the same.
pub(crate) struct Callback<P, R> {
    pub(crate) shape: &'static Shape,
    pub(crate) function: Option<TypedFunc<P, R>>,
}

/// The callbacks of a module by their names, with their parameters and what their answers mean. Where two directions have a callback
/// each, the request's comes first.
macro_rules! callbacks {
    ($( $field:ident: $names:tt ( $($parameter:ident),* ) $(-> $answers:ident)?; )*) => {
        pub(crate) struct Exports {
            $( pub(crate) $field: callbacks!(@field $names $($parameter)* $(=> $answers)?), )*
        }

        impl Exports {
            fn look_up(instance: &Instance, store: &mut Store<VmState>) -> Result<Self, VmError> {
                Ok(Self {
                    $( $field: callbacks!(
                        @find instance, store, $names (&[$( stringify!($parameter) ),*], callbacks!(@words $($answers)?))
                    ), )*
                })
            }
        }
    };
    (@field [$($name:literal),*] $($types:tt)*) => { [callbacks!(@callback $($types)*); [$( $name ),*].len()] };
    (@field $name:literal $($types:tt)*) => { callbacks!(@callback $($types)*) };
    (@callback $($parameter:ident)*) => { Callback<($( callbacks!(@number $parameter), )*), ()> };
    (@callback $($parameter:ident)* => $answers:ident) => { Callback<($( callbacks!(@number $parameter), )*), u32> };
    (@number $parameter:ident) => { u32 };
    (@words) => { &[] };
    (@words $answers:ident) => { $answers };
    (@find $instance:ident, $store:ident, [$($name:literal),*] $rest:tt) => {
        [$( callbacks!(@find $instance, $store, $name $rest) ),*]
    };
    (@find $instance:ident, $store:ident, $name:literal ($parameters:expr, $answers:expr)) => {
        callback($instance, $store, &Shape { name: $name, parameters: $parameters, answers: $answers })?
    };
}

const TRUTH: &[&str] = &["false", "true"];
const HEADERS: &[&str] = &[
    "Continue",
    "StopIteration",
    "ContinueAndEndStream",
    "StopAllIterationAndBuffer",
    "StopAllIterationAndWatermark",
];
const DATA: &[&str] =
    &["Continue", "StopIterationAndBuffer", "StopIterationAndWatermark", "StopIterationNoBuffer"];
const TRAILERS: &[&str] = &["Continue", "StopIteration"];

callbacks! {
    on_context_create: "proxy_on_context_create"(context, parent);
    on_vm_start: "proxy_on_vm_start"(root, size) -> TRUTH;
    on_configure: "proxy_on_configure"(root, size) -> TRUTH;
    on_tick: "proxy_on_tick"(root);
    on_queue_ready: "proxy_on_queue_ready"(root, token);
    on_http_call_response: "proxy_on_http_call_response"(root, token, headers, body_size, trailers);
    on_grpc_initial_metadata: "proxy_on_grpc_receive_initial_metadata"(root, token, entries);
    on_grpc_receive: "proxy_on_grpc_receive"(root, token, size);
    on_grpc_trailing_metadata: "proxy_on_grpc_receive_trailing_metadata"(root, token, entries);
    on_grpc_close: "proxy_on_grpc_close"(root, token, status);
    on_headers: ["proxy_on_request_headers", "proxy_on_response_headers"](context, headers, end_of_stream) -> HEADERS;
    on_body: ["proxy_on_request_body", "proxy_on_response_body"](context, size, end_of_stream) -> DATA;
    on_trailers: ["proxy_on_request_trailers", "proxy_on_response_trailers"](context, trailers) -> TRAILERS;
    on_done: "proxy_on_done"(context) -> TRUTH;
    on_log: "proxy_on_log"(context);
    on_delete: "proxy_on_delete"(context);
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
fn absent(store: &mut Store<VmState>, shape: &'static Shape) -> Option<Func> {
    if !store.data().shared.flavour.calls_unchecked(shape.name) {
        return None;
    }
    let parameters = shape.parameters.iter().map(|_| ValType::I32);
    let result = (!shape.answers.is_empty()).then_some(ValType::I32);
    let kind = FuncType::new(store.engine(), parameters, result);
    Some(Func::new(store, kind, move |_, _, _| Flavour::crash(shape.name)))
}

fn typed<P: WasmParams, R: WasmResults>(
    function: Option<Func>,
    store: &Store<VmState>,
    name: &str,
) -> Result<Option<TypedFunc<P, R>>, VmError> {
    let typed = function.map(|function| function.typed(store)).transpose();
    typed.map_err(|error| VmError::Instantiate {
        reason: format!("export {name} has another type than the ABI's: {error}"),
        backtrace: GuestBacktrace::default(),
    })
}

fn callback<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<VmState>,
    shape: &'static Shape,
) -> Result<Callback<P, R>, VmError> {
    let mut function = None;
    if store.data().plugin.allows(shape.name) {
        function = instance.get_func(&mut *store, shape.name).or_else(|| absent(store, shape));
    }
    Ok(Callback { shape, function: typed(function, store, shape.name)? })
}

/// What starts a module, and what gives memory, is no capability.
fn export<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<VmState>,
    name: &str,
) -> Result<Option<TypedFunc<P, R>>, VmError> {
    let function = instance.get_func(&mut *store, name);
    typed(function, store, name)
}

impl Exports {
    /// Looks the functions of an instance up. One of a wrong type is an error, as in Envoy.
    pub(crate) fn of(instance: &Instance, store: &mut Store<VmState>) -> Result<(Self, Start), VmError> {
        let exports = Self::look_up(instance, store)?;
        let malloc = export(instance, store, "malloc")?;
        let start = Start {
            initialize: export(instance, store, "_initialize")?,
            start: export(instance, store, "_start")?,
            main: export(instance, store, "main")?,
            main_void: export(instance, store, "__main_void")?,
            allocator: malloc.or(export(instance, store, "proxy_on_memory_allocate")?),
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
