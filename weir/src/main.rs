//! The command `weir`, for those who use Weir.

mod check;
mod failure;
mod hash;
mod table;
mod unclosed;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks what configures Weir
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
    Hash(hash::Hash),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check(check) => check.run(),
        Command::Hash(hash) => hash.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A failure to write to standard error cannot be reported.
            let _unwritten = writeln!(io::stderr(), "{failure}");
            failure.code()
        }
    }
}
