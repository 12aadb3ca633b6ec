//! The rules of gateways. Whatever one does otherwise than the others is a question that the rest of the host asks its
//! [`Flavour`].

mod nginx_uri;
mod ngx;

use std::{fmt, str::FromStr, sync::Arc};

pub(crate) use self::nginx_uri::NginxUri;
use crate::{abi::named, wire::headers::Headers};

/// The gateway by whose rules the host plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// Envoy of a release, and all that embed it.
    Envoy(EnvoyVersion),
    /// nginx with `ngx_wasm_module`: what decides whether a module loads and counts there. All else is as in Envoy.
    ///
    /// - **Loading.** A module is refused that lacks a callback of the start, that imports a function which the gateway does not
    ///   declare, or that imports one with another type than the gateway's ([`declares`](Self::declares)). A module without
    ///   another callback ends where nginx calls it, as nginx's worker crashes there.
    /// - **What ends the guest.** A call that is declared and not implemented (`proxy_get_status`, `proxy_get_log_level`,
    ///   `proxy_done`, `proxy_close_stream`, gRPC, foreign functions, `proxy_resolve_shared_queue`), a second tick period and
    ///   one from a stream, a second reply, a reply to plain HTTP with a gRPC status, a counter that is recorded, a gauge that
    ///   is incremented, and a metric's name beyond 256 bytes.
    /// - **Shared data.** The `cas` is always compared; 0 stands for "does not exist".
    /// - **Headers.** Names come as they were written, and are found in any case. `:path` is decoded, without dot segments and
    ///   repeated slashes; the property `ngx.request_uri` has what was sent, and the upstream gets that.
    /// - **Properties.** `plugin_vm_id` is not found, and a filter sets none.
    Ngx,
    /// Envoy, but every call of shared data and queues answers [`Status::Unimplemented`](crate::Status::Unimplemented), as
    /// in APISIX's wasm-nginx-module.
    NoSharedData,
}

impl Default for Flavour {
    /// The newest Envoy.
    fn default() -> Self {
        Self::Envoy(EnvoyVersion::default())
    }
}

impl Flavour {
    /// Those that stand for a gateway as it is.
    pub const ALL: [Self; 6] = [
        Self::Envoy(EnvoyVersion::V1_36),
        Self::Envoy(EnvoyVersion::V1_37),
        Self::Envoy(EnvoyVersion::V1_38),
        Self::Envoy(EnvoyVersion::V1_39),
        Self::Envoy(EnvoyVersion::V1_40),
        Self::Ngx,
    ];

    /// The release of Envoy whose functions there are, where the gateway does not say otherwise.
    pub(crate) fn version(self) -> EnvoyVersion {
        match self {
            Self::Envoy(version) => version,
            Self::Ngx | Self::NoSharedData => EnvoyVersion::default(),
        }
    }

    fn is_ngx(self) -> bool {
        self == Self::Ngx
    }

    /// Whether a module is refused, with a message of the gateway's own, for an import that has another type than
    /// [declared](Self::declares). Everywhere else linking tells.
    pub(crate) fn compares_imports(self) -> bool {
        self.is_ngx()
    }

    /// Whether there are shared data and queues.
    pub(crate) fn has_shared_data(self) -> bool {
        self != Self::NoSharedData
    }

    /// Whether shared data with this number, or none that is there, is written with `cas`.
    pub(crate) fn may_write(self, current: Option<u32>, cas: u32) -> bool {
        match (self.is_ngx(), current) {
            (true, current) => cas == current.unwrap_or(0),
            (false, Some(current)) => cas == 0 || cas == current,
            (false, None) => true,
        }
    }

    /// Whether a guest gets the names of headers in the case in which they were written.
    pub(crate) fn keeps_names(self) -> bool {
        self.is_ngx()
    }

    /// The most pairs of a header map that a guest gets. Those behind them are left out.
    pub(crate) fn most_pairs(self) -> usize {
        if self.is_ngx() { ngx::MAX_PAIRS } else { usize::MAX }
    }

    /// The request's URI where filters are shown another `:path` than was sent, which `headers` have from now on. One that the
    /// gateway cannot read stays as it is.
    pub(crate) fn read_uri(self, headers: &mut Headers) -> Option<Arc<NginxUri>> {
        let uri = headers.get(":path").filter(|_| self.is_ngx()).and_then(NginxUri::parse)?;
        headers.set(":path", uri.shown());
        Some(Arc::new(uri))
    }

    /// Whether the property `plugin_vm_id` is implemented.
    pub(crate) fn tells_vm_id(self) -> bool {
        !self.is_ngx()
    }

    /// Whether filters can set properties.
    pub(crate) fn sets_properties(self) -> bool {
        !self.is_ngx()
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Envoy(version) => write!(f, "envoy-{version}"),
            Self::Ngx => f.write_str("ngx"),
            Self::NoSharedData => f.write_str("no-shared-data"),
        }
    }
}

/// What is no gateway that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no host is named {0:?}: there are {names}", names = Flavour::ALL.map(|host| host.to_string()).join(", "))]
pub struct UnknownFlavour(String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(text: &str) -> Result<Self, UnknownFlavour> {
        let known = Self::ALL.into_iter().find(|flavour| flavour.to_string() == text);
        known.ok_or_else(|| UnknownFlavour(text.to_owned()))
    }
}

named! {
    /// A release of Envoy: what a module may import, and how values are encoded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
    pub enum EnvoyVersion {
        /// 1.36
        V1_36 = "1.36",
        /// 1.37
        V1_37 = "1.37",
        /// 1.38
        V1_38 = "1.38",
        /// 1.39: the rest of `wasi_snapshot_preview1` can be imported too.
        V1_39 = "1.39",
        /// 1.40
        #[default]
        V1_40 = "1.40",
    }
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is no version of Envoy that the host knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no Envoy {0:?}: there are 1.36, 1.37, 1.38, 1.39 and 1.40")]
pub struct UnknownVersion(String);

impl FromStr for EnvoyVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|version| version.name() == text);
        known.ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_found_by_its_name() {
        for flavour in Flavour::ALL {
            assert_eq!(flavour.to_string().parse(), Ok(flavour));
        }
        assert_eq!("envoy-1.40".parse(), Ok(Flavour::default()));
        for name in ["", "envoy", "envoy-1.0", "mosn", "no-shared-data"] {
            assert_eq!(name.parse::<Flavour>(), Err(UnknownFlavour(name.to_owned())));
        }
    }
}
