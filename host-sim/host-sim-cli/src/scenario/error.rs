//! Why a scenario cannot be run.

use std::path::PathBuf;

use host_sim::{ConfigurationError, LoadError, ModuleError, Status, UnknownHostCall};

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no scenario.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// A step says nothing that can be done, or several things.
    #[error(
        "step {step}: give exactly one of request, interleave, advance, wall, fault, clear_faults, update"
    )]
    Step {
        /// The step, counted from 1.
        step: usize,
    },
    /// A step asks for a worker that there is not.
    #[error("step {step}: worker {worker} of {workers}: workers are counted from 0")]
    Worker {
        /// The step, counted from 1.
        step: usize,
        /// The worker asked for.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// Time goes back in `advance`.
    #[error("step {step}: advance: time goes forward only; set the wall back with wall")]
    Advance {
        /// The step, counted from 1.
        step: usize,
    },
    /// A status has another name.
    #[error("step {step}: no status is named {status:?}: there are {}", names())]
    Status {
        /// The step, counted from 1.
        step: usize,
        /// The name as given.
        status: String,
    },
    /// A fault names no host call.
    #[error("step {step}: {source}")]
    Fault {
        /// The step, counted from 1.
        step: usize,
        /// What is wrong.
        source: UnknownHostCall,
    },
    /// The configuration cannot be read.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The module of a filter of the chain cannot be run.
    #[error("{}: {source}", path.display())]
    Module {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: ModuleError,
    },
    /// The filter does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
}

fn names() -> String {
    Status::ALL.map(Status::name).join(", ")
}
