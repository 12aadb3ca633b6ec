//! What commands print.

use std::fmt::Display;
use std::io::{self, Write as _};

use host_sim_cli::failure::Failure;

/// Prints a result. A closed pipe is an error like any other: what is not seen was not checked.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// Prints what is said beside the result. A failure to write to standard error cannot be reported.
pub(crate) fn say(text: impl Display) {
    let _unwritten = writeln!(io::stderr().lock(), "{text}");
}
