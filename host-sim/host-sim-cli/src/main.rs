//! The command `host-sim`: proxy-wasm filters without a gateway.

mod cli;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

/// A request allocates about a hundred small pieces of memory, which the system's allocator gives and takes slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The filter does not do what is expected of it: it refuses a configuration, or misses an expectation.
const MISSED: u8 = 1;

/// The command cannot run: a file is missing, a port is taken, or an argument is wrong (clap's exit code, too).
const FAILED: u8 = 2;

/// Every expectation was met, but some steps could not be compared with Envoy.
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
    // A failure to write to standard error cannot be reported.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(code)
}
