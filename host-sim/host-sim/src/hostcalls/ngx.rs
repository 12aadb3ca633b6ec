//! What `ngx_wasm_module` does otherwise than Envoy, beside its shared data: calls that it lacks, and uses of a call that
//! end the guest there.

use bytes::{Bytes, BytesMut};
use wasmtime::{Func, FuncType, Store, ValType};

use super::wasi;
use crate::{
    abi::{LogLevel, MetricKind, Status},
    flavour::{EnvoyVersion, Flavour},
    signature::{
        Import, Signature,
        ValueType::{self, I32, I64},
    },
    stream::half::StreamContext,
    vm::{deferred::Deferred, module::ModuleError, state::VmState},
    wire::property::Value,
};

/// The calls of ABI 0.2.1 that the gateway declares, with what each takes (`ngx_proxy_wasm_host.c:1911`). All of them answer a
/// status.
const DECLARED: [(&str, &[ValueType]); 37] = [
    ("proxy_log", &[I32; 3]),
    // Envoy's takes one: the address of the answer.
    ("proxy_get_log_level", &[I32; 2]),
    ("proxy_get_current_time_nanoseconds", &[I32]),
    ("proxy_set_effective_context", &[I32]),
    ("proxy_done", &[]),
    ("proxy_set_tick_period_milliseconds", &[I32]),
    ("proxy_get_buffer_bytes", &[I32; 5]),
    ("proxy_set_buffer_bytes", &[I32; 5]),
    ("proxy_get_header_map_pairs", &[I32; 3]),
    ("proxy_get_header_map_value", &[I32; 5]),
    ("proxy_set_header_map_pairs", &[I32; 3]),
    ("proxy_add_header_map_value", &[I32; 5]),
    ("proxy_replace_header_map_value", &[I32; 5]),
    ("proxy_remove_header_map_value", &[I32; 3]),
    ("proxy_get_property", &[I32; 4]),
    ("proxy_set_property", &[I32; 4]),
    ("proxy_continue_stream", &[I32]),
    ("proxy_close_stream", &[I32]),
    ("proxy_send_local_response", &[I32; 8]),
    ("proxy_http_call", &[I32; 10]),
    ("proxy_grpc_call", &[I32; 12]),
    ("proxy_grpc_stream", &[I32; 9]),
    ("proxy_grpc_send", &[I32; 4]),
    ("proxy_grpc_cancel", &[I32]),
    ("proxy_grpc_close", &[I32]),
    ("proxy_get_status", &[I32; 3]),
    ("proxy_get_shared_data", &[I32; 5]),
    ("proxy_set_shared_data", &[I32; 5]),
    ("proxy_register_shared_queue", &[I32; 3]),
    ("proxy_dequeue_shared_queue", &[I32; 3]),
    ("proxy_enqueue_shared_queue", &[I32; 3]),
    ("proxy_resolve_shared_queue", &[I32; 5]),
    ("proxy_define_metric", &[I32; 4]),
    ("proxy_get_metric", &[I32; 2]),
    ("proxy_record_metric", &[I32, I64]),
    ("proxy_increment_metric", &[I32, I64]),
    ("proxy_call_foreign_function", &[I32; 6]),
];

/// The one name under which wasmtime's C library defines WASI there, whole.
const WASI: &str = "wasi_snapshot_preview1";

/// Calls that a module may import and that end the guest.
const LACKS: [&str; 11] = [
    "proxy_close_stream",
    "proxy_done",
    "proxy_get_log_level",
    "proxy_get_status",
    "proxy_grpc_call",
    "proxy_grpc_cancel",
    "proxy_grpc_close",
    "proxy_grpc_send",
    "proxy_grpc_stream",
    "proxy_resolve_shared_queue",
    "proxy_call_foreign_function",
];

/// Exports without which a module is not loaded (`ngx_proxy_wasm.c:1781`).
const REQUIRED: [&str; 3] = ["proxy_on_context_create", "proxy_on_vm_start", "proxy_on_configure"];

/// Callbacks that the gateway calls without a look at whether the module exports them, and how many numbers each takes and
/// gives. A call of one that is absent follows a null pointer (`ngx_wavm.c:1283`).
const UNCHECKED: [(&str, usize, usize); 9] = [
    ("proxy_on_request_headers", 3, 1),
    ("proxy_on_request_body", 3, 1),
    ("proxy_on_response_headers", 3, 1),
    ("proxy_on_response_body", 3, 1),
    ("proxy_on_done", 1, 1),
    ("proxy_on_log", 1, 0),
    ("proxy_on_delete", 1, 0),
    ("proxy_on_tick", 1, 0),
    ("proxy_on_http_call_response", 5, 0),
];

/// The gRPC status of a reply that has none: -1.
const NO_GRPC_STATUS: u32 = u32::MAX;

/// The longest name of a metric (`max_metric_name_length`, as it is unless configured).
const MAX_METRIC_NAME: usize = 256;

const MILLISECOND: u64 = 1_000_000;

pub(crate) fn is_ngx(state: &VmState) -> bool {
    state.shared.shared_data.flavour() == Flavour::Ngx
}

/// The type that the gateway declares for a function; nothing where it has none.
pub(crate) fn declared(module: &str, name: &str) -> Option<Signature> {
    match module {
        "env" => super::signature_in(&DECLARED, name),
        WASI => wasi::declared(EnvoyVersion::default(), module, name),
        _ => None,
    }
}

/// Whether a function that a module imports is there, with the same type.
pub(crate) fn check_import(import: Import) -> Result<(), ModuleError> {
    match declared(&import.module, &import.name) {
        None if import.module == "env" => Err(ModuleError::MissingFunction { name: import.name }),
        None => {
            let message =
                format!("unknown import: `{}::{}` has not been defined", import.module, import.name);
            Err(ModuleError::Import(message.into()))
        }
        Some(declared) if declared != import.signature => {
            Err(ModuleError::IncompatibleImport { import: Box::new(import), declared: Box::new(declared) })
        }
        Some(_) => Ok(()),
    }
}

/// The exports that a module lacks and must have to be loaded.
pub(crate) fn missing(flavour: Flavour, exports: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let required = if flavour == Flavour::Ngx { REQUIRED.as_slice() } else { &[] };
    required.iter().copied().filter(|name| !exports(name)).collect()
}

/// What stands in for a callback that the module does not export: the gateway's worker crashes when it calls it.
pub(crate) fn absent(store: &mut Store<VmState>, callback: &str) -> Option<Func> {
    let unchecked = UNCHECKED.into_iter().filter(|_| is_ngx(store.data()));
    let (name, parameters, results) = unchecked.into_iter().find(|(name, ..)| *name == callback)?;
    let numbers = |count| std::iter::repeat_n(ValType::I32, count);
    let kind = FuncType::new(store.engine(), numbers(parameters), numbers(results));
    Some(Func::new(store, kind, move |_, _, _| {
        Err(trap(&format!("the module does not export {name}, and nginx's worker crashes here")))
    }))
}

/// The guest ends.
pub(super) fn trap(why: &str) -> wasmtime::Error {
    wasmtime::Error::msg(format!("ngx_wasm_module: {why}"))
}

/// An error where the gateway does not have this call.
pub(super) fn check(state: &VmState, call: &str) -> wasmtime::Result<()> {
    if is_ngx(state) && LACKS.contains(&call) {
        return Err(trap(&format!("{call} is not implemented")));
    }
    Ok(())
}

/// A timer is set once, by a root context.
pub(super) fn check_timer(state: &mut VmState) -> wasmtime::Result<()> {
    if !is_ngx(state) {
        return Ok(());
    }
    let context = state.context_id();
    match state.root(context) {
        None => Err(trap("a tick period can only be set on a root context")),
        Some(root) if root.timer.is_some() => Err(trap("the tick period is already set")),
        Some(_) => Ok(()),
    }
}

/// A metric's name fits.
pub(super) fn check_metric_name(state: &VmState, name: &str) -> wasmtime::Result<()> {
    if is_ngx(state) && name.len() > MAX_METRIC_NAME {
        return Err(trap("a metric's name is too long"));
    }
    Ok(())
}

/// Counters and gauges are incremented, gauges and histograms are recorded.
pub(super) fn check_metric_use(state: &VmState, id: u32, recorded: bool) -> wasmtime::Result<()> {
    let kind = MetricKind::from_code(id & 3);
    match (is_ngx(state), recorded, kind) {
        (true, true, Ok(MetricKind::Counter)) => Err(trap("a counter cannot be recorded")),
        (true, false, Ok(MetricKind::Gauge)) => Err(trap("a gauge cannot be incremented")),
        _ => Ok(()),
    }
}

/// A stream gets one reply, and its body a line's end.
pub(super) fn reply(state: &mut VmState, body: Bytes, grpc_status: u32) -> wasmtime::Result<Bytes> {
    if !is_ngx(state) {
        return Ok(body);
    }
    let id = state.context_id();
    // `ngx_wa_assert` of a debug build, which no reply with a gRPC status survives. A release build does not look at it; of
    // what it ignores, the one for plain HTTP is a filter's mistake.
    if grpc_status != NO_GRPC_STATUS && !state.stream(id).is_some_and(|stream| stream.is_grpc) {
        return Err(trap(
            "a reply to plain HTTP has a gRPC status: Assertion `grpc_status == -1' failed in a debug build of nginx, and \
             its worker ends",
        ));
    }
    let sent = |action: &Deferred| matches!(action, Deferred::LocalReply { stream, .. } if *stream == id);
    if state.deferred.iter().any(sent) || state.stream(id).is_some_and(|stream| stream.replied) {
        return Err(trap("a response was already sent"));
    }
    if body.is_empty() {
        return Ok(body);
    }
    let mut line = BytesMut::from(body.as_ref());
    line.extend_from_slice(b"\n");
    Ok(line.freeze())
}

/// Whether a headers callback hears that its message ends with the headers (`ngx_http_proxy_wasm.c:41`, `:200`).
pub(crate) fn shows_end(state: &VmState, end: bool) -> bool {
    end && !is_ngx(state)
}

/// The time as the gateway tells it: in whole milliseconds.
pub(super) fn time(state: &VmState, nanos: u64) -> u64 {
    if is_ngx(state) { nanos - nanos % MILLISECOND } else { nanos }
}

/// A property of the request's URI, which is nginx's variable of that name. Parts of the path are joined by zero bytes or dots.
pub(super) fn of_uri(stream: &StreamContext, path: &[u8]) -> Option<Value> {
    let uri = stream.nginx_uri.as_ref()?;
    let dotted: Vec<u8> = path.iter().map(|byte| if *byte == 0 { b'.' } else { *byte }).collect();
    let value = match dotted.as_slice() {
        b"ngx.request_uri" | b"request.path" => &uri.sent,
        b"ngx.uri" | b"request.url_path" => &uri.path,
        b"ngx.args" | b"request.query" => uri.args.as_ref()?,
        _ => return None,
    };
    Some(Value::Bytes(value.clone()))
}

/// What is answered for a property that is not there. Those with several parts belong to requests, and a root context that asks
/// for one is refused.
pub(super) fn not_found(state: &VmState, path: &[u8], has_stream: bool) -> Status {
    if !is_ngx(state) || has_stream || !path.iter().any(|byte| matches!(byte, 0 | b'.')) {
        return Status::NotFound;
    }
    let message = "cannot get scoped properties outside of a request".to_owned();
    state.shared.logs.tell(LogLevel::Error, state.name, message);
    Status::InternalFailure
}

/// Whether a filter may set a property of this path: the gateway keeps those of one namespace, and has no filter state.
pub(super) fn keeps_property(state: &VmState, path: &[u8]) -> bool {
    !is_ngx(state) || path.starts_with(b"wasmx.") || path.starts_with(b"wasmx\0")
}

/// A property's bytes: every property is text.
pub(super) fn encode(state: &VmState, value: &Value) -> Result<Bytes, Status> {
    if !is_ngx(state) {
        return value.encode();
    }
    Ok(match value {
        Value::Int(number) | Value::Timestamp(number) | Value::Duration(number) => number.to_string().into(),
        Value::Uint(number) => number.to_string().into(),
        Value::Double(number) => number.to_string().into(),
        Value::Bool(yes) => yes.to_string().into(),
        other => other.encode()?,
    })
}
