//! The command `weir`, for platform teams.

mod commands;
mod configuration;
mod decision;
mod filter;
mod keys;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser;

/// Checks configurations of Weir, serves them in front of an upstream, and explains decisions
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    Cli::parse().command.run().unwrap_or_else(|failure| {
        output::say(&failure);
        failure.code()
    })
}
