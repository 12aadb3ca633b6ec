//! Releases of Envoy.

use std::{fmt, str::FromStr};

use crate::abi::named;

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
