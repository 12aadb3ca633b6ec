//! The command `weir`, for platform teams.

mod commands;
mod configuration;
mod decision;
mod filter;
mod keys;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    commands::Command::parse().run().unwrap_or_else(|failure| {
        output::say(&failure);
        failure.code()
    })
}
