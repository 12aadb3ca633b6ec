//! Which gateway the host behaves like.

use std::{fmt, str::FromStr};

use crate::{
    hostcalls::{self, ngx},
    signature::Signature,
};

/// The gateway by whose rules the host plays; they differ most in shared data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Flavour {
    /// Envoy and all that embed it. A key that does not exist is created whatever the `cas`; a `cas` of 0 overwrites.
    #[default]
    Envoy,
    /// `ngx_wasm_module`: the `cas` is always compared, 0 standing for "does not exist"; a null value deletes.
    ///
    /// - **Loading.** A module is refused that lacks a callback of the start, that imports a function which the gateway does not
    ///   declare (`proxy_get_header_map_size`, `proxy_get_buffer_status`), or that imports one with another type than the
    ///   gateway's ([`HostKind::declares`]): `proxy_get_log_level` takes two numbers there. A module without another callback
    ///   ends where nginx calls it, as nginx's worker crashes there.
    /// - **What ends the guest.** A call that is declared and not implemented (`proxy_get_status`, `proxy_get_log_level`,
    ///   `proxy_done`, `proxy_close_stream`, gRPC, foreign functions, `proxy_resolve_shared_queue`), a second tick period and
    ///   one from a stream, a second reply, a reply to plain HTTP with a gRPC status, a counter that is recorded, a gauge that
    ///   is incremented, and a metric's name beyond 256 bytes.
    /// - **Headers.** Names come as they were written, and are found in any case. `:path` is decoded, without dot segments and
    ///   repeated slashes; the property `ngx.request_uri` has what was sent, and the upstream gets that.
    /// - **Properties.** Every property is text, `plugin_vm_id` is not found, a filter sets none but those that begin with
    ///   `wasmx.`, and a root context that asks for one with several parts is refused.
    /// - **Otherwise.** `proxy_set_effective_context` does nothing, nobody is told that a queue is ready, clocks go in
    ///   milliseconds, a reply's body ends with a line's end, and streams end with done, log, delete.
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

/// A release of Envoy: what a module may import, and how values are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum EnvoyVersion {
    /// 1.36
    V1_36,
    /// 1.37
    V1_37,
    /// 1.38
    V1_38,
    /// 1.39: the rest of `wasi_snapshot_preview1` can be imported too.
    V1_39,
    /// 1.40
    #[default]
    V1_40,
}

impl EnvoyVersion {
    /// All of them, the oldest first.
    pub const ALL: [Self; 5] = [Self::V1_36, Self::V1_37, Self::V1_38, Self::V1_39, Self::V1_40];
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
            Self::V1_38 => "1.38",
            Self::V1_39 => "1.39",
            Self::V1_40 => "1.40",
        })
    }
}

/// What is no version of Envoy that the host knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no Envoy {0:?}: there are 1.36, 1.37, 1.38, 1.39 and 1.40")]
pub struct UnknownVersion(String);

impl FromStr for EnvoyVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|version| version.to_string() == text);
        known.ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

/// A host of filters: a gateway, of a release where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// Envoy, and all that embed it.
    Envoy(EnvoyVersion),
    /// `ngx_wasm_module`
    Ngx,
    /// MOSN
    Mosn,
}

impl HostKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Envoy(EnvoyVersion::V1_36),
        Self::Envoy(EnvoyVersion::V1_37),
        Self::Envoy(EnvoyVersion::V1_38),
        Self::Envoy(EnvoyVersion::V1_39),
        Self::Envoy(EnvoyVersion::V1_40),
        Self::Ngx,
        Self::Mosn,
    ];

    pub(crate) fn flavour(self) -> Flavour {
        match self {
            Self::Envoy(_) => Flavour::Envoy,
            Self::Ngx => Flavour::Ngx,
            Self::Mosn => Flavour::Mosn,
        }
    }

    pub(crate) fn version(self) -> EnvoyVersion {
        match self {
            Self::Envoy(version) => version,
            Self::Ngx | Self::Mosn => EnvoyVersion::default(),
        }
    }
}

impl HostKind {
    /// The type that this host declares for a function that modules of ABI 0.2.1 import, or nothing where it has no such
    /// function. MOSN has none for modules of that ABI.
    pub fn declares(self, module: &str, name: &str) -> Option<Signature> {
        match self {
            Self::Envoy(version) => hostcalls::declared(version, module, name),
            Self::Ngx => ngx::declared(module, name),
            Self::Mosn => None,
        }
    }
}

impl Default for HostKind {
    fn default() -> Self {
        Self::Envoy(EnvoyVersion::default())
    }
}

impl fmt::Display for HostKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Envoy(version) => write!(f, "envoy-{version}"),
            Self::Ngx => f.write_str("ngx"),
            Self::Mosn => f.write_str("mosn"),
        }
    }
}

/// What is no host that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no host is named {0:?}: there are {names}", names = HostKind::ALL.map(|kind| kind.to_string()).join(", "))]
pub struct UnknownHost(String);

impl FromStr for HostKind {
    type Err = UnknownHost;

    fn from_str(text: &str) -> Result<Self, UnknownHost> {
        let known = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        known.ok_or_else(|| UnknownHost(text.to_owned()))
    }
}
