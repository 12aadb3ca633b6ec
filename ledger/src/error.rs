//! Why the service cannot run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address of the store cannot be used.
    #[error("--store: expected memory or redis[s]://[<user>:<password>@]<host>[:<port>][/<database>]: {0}")]
    Address(redis::RedisError),
    /// The addresses of the store do not go together, or not with `--cluster`.
    #[error("--store: {0}")]
    Store(&'static str),
    /// A file cannot be used.
    #[error("{option} {}: {source}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: InvalidFile,
    },
    /// The service cannot listen on an address, which an option names.
    #[error("{0} {1}: {2}")]
    Listen(&'static str, SocketAddr, io::Error),
    /// The signals that end the service cannot be caught.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    /// The metrics contradict each other.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Why a file that an option names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidFile {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// It should have a certificate.
    #[error("the file has no certificate in PEM")]
    NoCertificate,
    /// The line with this number, from 1, cannot be a token.
    #[error("line {0}: {1}")]
    Line(usize, &'static str),
    /// A file without a token would lock everybody out.
    #[error("the file has no token")]
    NoToken,
}
