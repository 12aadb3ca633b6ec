//! The command `host-sim`: proxy-wasm filters without a gateway.

mod cli;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

/// The filter does not do what was asked of it: a configuration refused, an expectation missed.
const MISSED: u8 = 1;

/// The command cannot do its work: a file missing, a port taken, a wrong argument (as clap has it).
const FAILED: u8 = 2;

/// Nothing was missed, and something could not be compared with Envoy.
#[cfg(feature = "scenarios")]
const NOT_COMPARABLE: u8 = 3;

fn main() -> ExitCode {
    let (code, message) = match cli::Cli::parse().run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(cli::Error::Missed(message)) => (MISSED, message),
        Err(cli::Error::Failed(message)) => (FAILED, format!("error: {message}")),
        #[cfg(feature = "scenarios")]
        Err(cli::Error::NotComparable(message)) => (NOT_COMPARABLE, message),
    };
    // Without standard error there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(code)
}
