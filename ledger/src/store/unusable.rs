//! Why a server of the store cannot be used.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::file::FileError;
use crate::error::ServeError;

/// Why a server of the store cannot be used, or, of all of them, the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the store does not answer")]
    Silent,
    #[error("the store cannot be used: {what}: {}", words(.source))]
    Failed { what: &'static str, source: RedisError },
    /// It answers and refuses what the ledger does, with these words.
    #[error("the store cannot be used: {}", words(.0))]
    Refused(RedisError),
    #[error("the store cannot be used: version {0} is too old; 7.0 or later is needed")]
    Version(String),
    #[error("the store cannot be used: it {0}")]
    Kind(&'static str),
    #[error(
        "the store cannot be used: the cluster at {seed} answers and announces masters that the ledger cannot reach: \
         {masters}; cluster-announce-ip or cluster-announce-hostname of each node has to be an address for the ledger"
    )]
    Announces { seed: String, masters: String },
    #[error("the store cannot be used: {0}")]
    Options(ServeError),
    /// The file takes nothing, for this reason.
    #[error("the store cannot be used: {0}")]
    File(FileError),
}

impl Unusable {
    /// Whether it does not answer, or not yet. Otherwise it answers, and refuses.
    pub(crate) fn is_away(&self) -> bool {
        use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown};
        match self {
            Self::Silent => true,
            Self::Failed { source, .. } | Self::Refused(source) => match source.kind() {
                ErrorKind::Server(kind) => matches!(kind, BusyLoading | ClusterDown | MasterDown),
                ErrorKind::Extension | ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
                    false
                }
                _ => true,
            },
            _ => false,
        }
    }

    /// What the log writes once in a minute.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Refused(error) => error.code().unwrap_or_default().to_owned(),
            other => other.to_string(),
        }
    }

    /// The name of its state for metrics.
    pub(crate) fn state(&self) -> &'static str {
        if self.is_away() { "away" } else { "refuses" }
    }
}

/// The server's own words, if it has said any.
pub(super) fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
