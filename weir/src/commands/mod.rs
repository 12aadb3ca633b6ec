//! The commands.

mod check;
mod explain;
mod hash;
mod replay;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;
use host_sim_cli::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(check::Check),
    Serve(serve::Serve),
    Explain(explain::Explain),
    Replay(replay::Replay),
    Hash(hash::Hash),
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let done = match self {
            Self::Check(check) => check.run(),
            Self::Serve(serve) => serve.run(),
            Self::Explain(explain) => explain.run(),
            Self::Replay(replay) => return replay.run(),
            Self::Hash(hash) => hash.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
