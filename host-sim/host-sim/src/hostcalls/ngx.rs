//! What `ngx_wasm_module` does otherwise than Envoy, beside its shared data: calls that it lacks, and uses of a call that
//! end the guest there.

use bytes::{Bytes, BytesMut};
use wasmtime::{Func, FuncType, Store, ValType};

use crate::{
    abi::{MetricKind, Status},
    flavour::Flavour,
    vm::{deferred::Deferred, state::VmState},
    wire::property::Value,
};

/// Calls that a module may import and that end the guest.
const LACKS: [&str; 13] = [
    "proxy_close_stream",
    "proxy_done",
    "proxy_get_buffer_status",
    "proxy_get_header_map_size",
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

/// The longest name of a metric (`max_metric_name_length`, as it is unless configured).
const MAX_METRIC_NAME: usize = 256;

const MILLISECOND: u64 = 1_000_000;

pub(crate) fn is_ngx(state: &VmState) -> bool {
    state.shared.shared_data.flavour() == Flavour::Ngx
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
pub(super) fn reply(state: &mut VmState, body: Bytes) -> wasmtime::Result<Bytes> {
    if !is_ngx(state) {
        return Ok(body);
    }
    let id = state.context_id();
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
