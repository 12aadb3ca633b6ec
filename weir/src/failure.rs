//! Why a command fails, and its exit code.

use std::fmt;
use std::process::ExitCode;

/// Why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The filter refuses what was checked.
    Refused(String),
    /// The command cannot run: a file is missing, or nothing was given.
    Unusable(String),
}

impl Failure {
    /// 1 and 2; clap's own for wrong arguments is 2, too.
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(1),
            Self::Unusable(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(message) => f.write_str(message),
            Self::Unusable(message) => write!(f, "error: {message}"),
        }
    }
}
