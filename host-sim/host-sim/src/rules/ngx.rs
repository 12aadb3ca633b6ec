//! What decides whether a module loads and counts in nginx with `ngx_wasm_module`.

use super::Flavour;
use crate::{
    abi::MetricKind,
    signature::{Signature, ValueType},
};

/// Exports without which a module is not loaded (`ngx_proxy_wasm.c:1781`).
const REQUIRED: [&str; 3] = ["proxy_on_context_create", "proxy_on_vm_start", "proxy_on_configure"];

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

/// Callbacks that the gateway calls without a look at whether the module exports them. A call of one that is absent follows a null
/// pointer (`ngx_wavm.c:1283`).
const UNCHECKED: [&str; 9] = [
    "proxy_on_request_headers",
    "proxy_on_request_body",
    "proxy_on_response_headers",
    "proxy_on_response_body",
    "proxy_on_done",
    "proxy_on_log",
    "proxy_on_delete",
    "proxy_on_tick",
    "proxy_on_http_call_response",
];

/// The gRPC status of a reply that has none.
const NO_GRPC_STATUS: i32 = -1;

/// The longest name of a metric (`max_metric_name_length`, as it is unless configured).
const MAX_METRIC_NAME: usize = 256;

/// The most pairs of a header map that a guest gets, pseudo-headers among them (`NGX_HTTP_WASM_MAX_REQ_HEADERS`).
pub(super) const MAX_PAIRS: usize = 100;

/// The guest ends.
fn trap(why: &str) -> wasmtime::Result<()> {
    Err(wasmtime::Error::msg(format!("ngx_wasm_module: {why}")))
}

impl Flavour {
    /// The exports without which a module does not load.
    pub(crate) fn required_exports(self) -> &'static [&'static str] {
        if self.is_ngx() { &REQUIRED } else { &[] }
    }

    /// The type that the gateway declares for a function which Envoy declares with this one.
    pub(crate) fn declares_of(
        self,
        module: &str,
        name: &str,
        in_envoy: Option<Signature>,
    ) -> Option<Signature> {
        match module {
            _ if !self.is_ngx() => in_envoy,
            // Envoy's takes one: the address of the answer.
            "env" if name == "proxy_get_log_level" => Some(Signature::with_status(&[ValueType::I32; 2])),
            "env" if UNDECLARED.contains(&name) => None,
            // WASI is there whole, under the one name by which wasmtime's C library defines it.
            "wasi_unstable" => None,
            _ => in_envoy,
        }
    }

    /// Whether the gateway calls a callback even if the module does not export it. Then its worker crashes.
    pub(crate) fn calls_unchecked(self, callback: &str) -> bool {
        self.is_ngx() && UNCHECKED.contains(&callback)
    }

    /// What comes of such a call.
    pub(crate) fn crash(callback: &str) -> wasmtime::Result<()> {
        trap(&format!("the module does not export {callback}, and nginx's worker crashes here"))
    }

    /// An error where a call ends the guest.
    pub(crate) fn check_call(self, call: &str) -> wasmtime::Result<()> {
        if self.is_ngx() && LACKS.contains(&call) {
            return trap(&format!("{call} is not implemented"));
        }
        Ok(())
    }

    /// An error where setting a timer ends the guest: one is set once, by a root context. `has_timer` is of the root context that
    /// asks, if one does.
    pub(crate) fn check_timer(self, has_timer: Option<bool>) -> wasmtime::Result<()> {
        match has_timer {
            _ if !self.is_ngx() => Ok(()),
            None => trap("a tick period can only be set on a root context"),
            Some(true) => trap("the tick period is already set"),
            Some(false) => Ok(()),
        }
    }

    /// An error where a metric of this name ends the guest.
    pub(crate) fn check_metric_name(self, name: &str) -> wasmtime::Result<()> {
        if self.is_ngx() && name.len() > MAX_METRIC_NAME {
            trap("a metric's name is too long")
        } else {
            Ok(())
        }
    }

    /// An error where recording or incrementing a metric of this kind ends the guest: counters and gauges are incremented, gauges and
    /// histograms are recorded.
    pub(crate) fn check_metric_use(self, kind: MetricKind, recorded: bool) -> wasmtime::Result<()> {
        match (kind, recorded) {
            _ if !self.is_ngx() => Ok(()),
            (MetricKind::Counter, true) => trap("a counter cannot be recorded"),
            (MetricKind::Gauge, false) => trap("a gauge cannot be incremented"),
            _ => Ok(()),
        }
    }

    /// An error where a reply with this gRPC status ends the guest. A stream gets one reply.
    pub(crate) fn check_reply(
        self,
        is_grpc: bool,
        grpc_status: i32,
        has_replied: bool,
    ) -> wasmtime::Result<()> {
        if !self.is_ngx() {
            return Ok(());
        }
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
}
