//! Why a command fails, and its exit code.

use std::{error::Error, fmt, io, path::Path, process::ExitCode};

/// Why a command fails. `Display` writes what the command prints.
///
/// Any other error turns into one because of which the command cannot run, with all its causes.
#[derive(Debug)]
pub enum Failure {
    /// The filter does not do what is expected of it: it refuses a configuration, or misses an expectation. Exit code 1.
    Missed(String),
    /// The command cannot run: a file is missing, a port is taken, or an argument is wrong. Exit code 2, which is clap's, too.
    Unusable(String),
    /// Every expectation was met, but some steps could not be compared with Envoy. Exit code 3.
    NotComparable(String),
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
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
}

impl Failure {
    /// A file that cannot be read or written.
    pub fn file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Unusable(format!("{}: {error}", path.display()))
    }

    /// The same, and it is the filter that has failed.
    #[must_use]
    pub fn of_filter(self) -> Self {
        Self::Missed(self.into_message())
    }

    /// The same, with what it is about before its message.
    #[must_use]
    pub fn about(self, what: impl fmt::Display) -> Self {
        let add = |message: String| format!("{what}: {message}");
        match self {
            Self::Missed(message) => Self::Missed(add(message)),
            Self::Unusable(message) => Self::Unusable(add(message)),
            Self::NotComparable(message) => Self::NotComparable(add(message)),
        }
    }

    /// The message alone.
    pub fn into_message(self) -> String {
        match self {
            Self::Missed(message) | Self::Unusable(message) | Self::NotComparable(message) => message,
        }
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Missed(_) => 1,
            Self::Unusable(_) => 2,
            Self::NotComparable(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missed(message) | Self::NotComparable(message) => f.write_str(message),
            Self::Unusable(message) => write!(f, "error: {message}"),
        }
    }
}
