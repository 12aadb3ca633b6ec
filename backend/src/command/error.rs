//! What can go wrong in a command, and what commands print.

use std::net::SocketAddr;
use std::path::PathBuf;

use backend::keys::InvalidLimits;
use backend::{ClickLogError, InvalidPublicUrl, StoreError};

/// Prints to stdout. A closed pipe is an error instead of a panic.
macro_rules! say {
    ($($argument:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($argument)*)))
            .map_err($crate::command::error::CliError::Output)
    };
}
pub(crate) use say;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("--database: {0}")]
    Open(StoreError),
    #[error("--listen {0}: {1}")]
    PublicUrl(SocketAddr, InvalidPublicUrl),
    #[error(transparent)]
    Limits(#[from] InvalidLimits),
    #[error("--limits-file {}: {problem}", path.display())]
    LimitsFile { path: PathBuf, problem: InvalidLimits },
    #[error("--workspace: no workspace has the id {0}")]
    UnknownWorkspace(String),
    #[error("the domain {0} is not assigned")]
    UnassignedDomain(String),
    #[error("no active key has the id {0}")]
    UnknownKey(String),
    #[error("{option} {address}: {source}")]
    Listen { option: &'static str, address: SocketAddr, source: std::io::Error },
    #[error("{option} {}: {source}", path.display())]
    NamedFile { option: &'static str, path: PathBuf, source: std::io::Error },
    #[error("--click-log: {0}")]
    ClickLog(#[from] ClickLogError),
    #[error("--internal-token-file {}: the token is empty", .0.display())]
    EmptyToken(PathBuf),
    #[error("cannot write to stdout: {0}")]
    Output(std::io::Error),
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    #[error("a second signal ended the process before it had stopped")]
    Interrupted,
}
