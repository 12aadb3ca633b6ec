//! The commands.

mod check;
mod explain;
mod hash;
mod replay;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use host_sim_cli::failure::Failure;

/// Checks configurations of Weir, serves them in front of an upstream, and explains decisions
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) enum Command {
    Check(check::Check),
    Serve(serve::Serve),
    Explain(explain::Explain),
    Replay(replay::Replay),
    Hash(hash::Hash),
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run()?,
            Self::Serve(serve) => serve.run()?,
            Self::Explain(explain) => explain.run()?,
            Self::Replay(replay) => return replay.run(),
            Self::Hash(hash) => hash.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A header and its value or the field that it was logged as: `authorization: Bearer k`, `authorization=api_key`.
fn pair(text: &str) -> Result<(String, String), String> {
    let parts =
        text.split_once([':', '=']).map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    parts.ok_or_else(|| "expected NAME:VALUE, or NAME=FIELD for the field of an access log".to_owned())
}
