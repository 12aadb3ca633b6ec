//! What commands print.

use std::fmt::Display;
use std::io::{self, Write as _};

use clap::ValueEnum;
use host_sim_cli::failure::Failure;

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// JSON
    Json,
}

/// Prints a line. Says whether it still has a reader.
pub(crate) fn line(text: impl Display) -> io::Result<bool> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Prints a result. A reader that has seen enough, such as head, is no failure.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    line(text)?;
    Ok(())
}

/// Prints what is said beside the result. A failure to write to standard error cannot be reported.
pub(crate) fn say(text: impl Display) {
    let _unwritten = writeln!(io::stderr().lock(), "{text}");
}
