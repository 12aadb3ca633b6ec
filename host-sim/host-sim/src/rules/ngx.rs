//! What decides whether a module loads and counts in nginx with `ngx_wasm_module`.

use crate::{
    abi::MetricKind,
    signature::{Signature, ValueType},
};

/// Exports without which a module is not loaded (`ngx_proxy_wasm.c:1781`).
pub(super) const REQUIRED: [&str; 3] = ["proxy_on_context_create", "proxy_on_vm_start", "proxy_on_configure"];

/// Functions of `env` that Envoy has and this gateway does not declare (`ngx_proxy_wasm_host.c:1911`).
const UNDECLARED: [&str; 5] = [
    "proxy_get_header_map_size",
    "proxy_get_buffer_status",
    "envoy_resolve_dns",
    "pthread_equal",
    "emscripten_notify_memory_growth",
];

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

/// WASI is there whole, under the one name by which wasmtime's C library defines it.
pub(super) fn declares(module: &str, name: &str, in_envoy: Option<Signature>) -> Option<Signature> {
    match module {
        // Envoy's takes one: the address of the answer.
        "env" if name == "proxy_get_log_level" => Some(Signature::with_status(&[ValueType::I32; 2])),
        "env" if UNDECLARED.contains(&name) => None,
        "wasi_unstable" => None,
        _ => in_envoy,
    }
}

pub(super) fn calls_unchecked(callback: &str) -> Option<(usize, usize)> {
    let unchecked = UNCHECKED.into_iter().find(|(name, ..)| *name == callback);
    unchecked.map(|(_, parameters, results)| (parameters, results))
}

/// The guest ends.
fn trap(why: &str) -> wasmtime::Result<()> {
    Err(wasmtime::Error::msg(format!("ngx_wasm_module: {why}")))
}

pub(super) fn crash(callback: &str) -> wasmtime::Result<()> {
    trap(&format!("the module does not export {callback}, and nginx's worker crashes here"))
}

pub(super) fn check_call(call: &str) -> wasmtime::Result<()> {
    if LACKS.contains(&call) { trap(&format!("{call} is not implemented")) } else { Ok(()) }
}

/// A timer is set once, by a root context.
pub(super) fn check_timer(has_timer: Option<bool>) -> wasmtime::Result<()> {
    match has_timer {
        None => trap("a tick period can only be set on a root context"),
        Some(true) => trap("the tick period is already set"),
        Some(false) => Ok(()),
    }
}

pub(super) fn check_metric_name(name: &str) -> wasmtime::Result<()> {
    if name.len() > MAX_METRIC_NAME { trap("a metric's name is too long") } else { Ok(()) }
}

/// Counters and gauges are incremented, gauges and histograms are recorded.
pub(super) fn check_metric_use(kind: MetricKind, recorded: bool) -> wasmtime::Result<()> {
    match (kind, recorded) {
        (MetricKind::Counter, true) => trap("a counter cannot be recorded"),
        (MetricKind::Gauge, false) => trap("a gauge cannot be incremented"),
        _ => Ok(()),
    }
}

/// A stream gets one reply.
pub(super) fn check_reply(is_grpc: bool, grpc_status: u32, has_replied: bool) -> wasmtime::Result<()> {
    // `ngx_wa_assert` of a debug build, which no reply with a gRPC status survives. A release build does not look at it; of
    // what it ignores, the one for plain HTTP is a filter's mistake.
    if grpc_status != NO_GRPC_STATUS && !is_grpc {
        return trap(
            "a reply to plain HTTP has a gRPC status: Assertion `grpc_status == -1' failed in a debug build of nginx, and \
             its worker ends",
        );
    }
    if has_replied { trap("a response was already sent") } else { Ok(()) }
}
