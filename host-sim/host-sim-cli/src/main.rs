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

fn main() -> ExitCode {
    let Err(failure) = cli::Cli::parse().run() else { return ExitCode::SUCCESS };
    // A failure to write to standard error cannot be reported.
    let _ = writeln!(io::stderr(), "{failure}");
    failure.code()
}
