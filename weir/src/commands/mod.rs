//! The commands.

mod check;
mod explain;
mod hash;
mod replay;
mod serve;

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
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Serve(serve) => serve.run(),
            Self::Explain(explain) => explain.run(),
            Self::Replay(replay) => replay.run(),
            Self::Hash(hash) => hash.run(),
        }
    }
}
