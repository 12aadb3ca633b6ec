//! Which gateway the host behaves like.

/// The gateway by whose rules the host plays; they differ most in shared data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Flavour {
    /// Envoy and all that embed it. A key that does not exist is created whatever the `cas`; a `cas` of 0 overwrites.
    #[default]
    Envoy,
    /// `ngx_wasm_module`: the `cas` is always compared, 0 standing for "does not exist"; a null value deletes. Beyond shared
    /// data: calls that it lacks end the guest (`proxy_get_status`, `proxy_get_log_level`, `proxy_done`,
    /// `proxy_close_stream`, `proxy_get_header_map_size`, `proxy_get_buffer_status`, gRPC, foreign functions,
    /// `proxy_resolve_shared_queue`), and nobody is told that a queue is ready; so do a second tick period and one from a
    /// stream, a second reply, a counter that is recorded, a gauge that is incremented, and a metric's name beyond 256
    /// bytes. A module without a callback of the start is not loaded; one without another callback ends where nginx calls it,
    /// as nginx's worker crashes there. `proxy_set_effective_context` does nothing, every property is text, clocks go in
    /// milliseconds, a reply's body ends with a line's end, and streams end with done, log, delete.
    Ngx,
    /// MOSN's proxy-wasm-go-host: a key that does not exist is created whatever the `cas`, one that does is always
    /// compared; the data of all `vm_id`s is one; an empty key is a bad argument.
    Mosn,
    /// Every call of shared data and queues answers [`Status::Unimplemented`](crate::Status::Unimplemented), as in
    /// APISIX's wasm-nginx-module.
    NoSharedData,
}

impl Flavour {
    /// What streams end with there.
    pub(crate) fn stream_end(self) -> StreamEnd {
        match self {
            Self::Ngx => StreamEnd::DoneLogDelete,
            Self::Envoy | Self::Mosn | Self::NoSharedData => StreamEnd::LogDoneDelete,
        }
    }
}

/// Which callbacks a filter's stream ends with, in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamEnd {
    /// `proxy_on_log`, `proxy_on_done`, `proxy_on_delete`: Envoy's for HTTP/1 and HTTP/2.
    #[default]
    LogDoneDelete,
    /// `proxy_on_done`, `proxy_on_log`, `proxy_on_delete`: the specification's and `ngx_wasm_module`'s.
    DoneLogDelete,
    /// `proxy_on_done`, `proxy_on_delete`: without a log, as streams of Envoy may end over HTTP/3.
    DoneDelete,
}

/// The Envoy release whose set of WASI functions the host offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum EnvoyVersion {
    /// 1.38 and before.
    V1_38,
    /// 1.39 and after: the rest of `wasi_snapshot_preview1` can be imported too.
    #[default]
    V1_39,
}
