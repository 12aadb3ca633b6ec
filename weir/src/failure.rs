//! Why a command fails, and its exit code.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The filter refuses what it was given, or does not do what was asked of it.
    Refused(String),
    /// The command cannot run: a file is missing, or nothing was given.
    Unusable(String),
}

impl Failure {
    /// An error with all its causes, because of which the command cannot run.
    pub(crate) fn of(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::Unusable(message)
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Unusable(format!("{}: {error}", path.display()))
    }

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
