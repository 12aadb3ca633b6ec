//! The module that a test is about, built by the test itself.

use std::{
    fmt, fs, io,
    process::{Command, ExitStatus},
    sync::OnceLock,
};

use crate::vm::module::{Module, ModuleError};

/// Builds the module that tests are about, once in a process, with a command that its author names.
///
/// The command runs without a shell in the current folder, which is that of the package in `cargo test`. It runs each time that
/// tests are run, so it should be one that builds only what has changed, as Cargo, Go and make do.
///
/// ```no_run
/// use host_sim::{Host, ModuleBuild, Plugin, Request, Response};
///
/// static FILTER: ModuleBuild = ModuleBuild::new(
///     &["cargo", "build", "--release", "--target", "wasm32-wasip1"],
///     "target/wasm32-wasip1/release/my_filter.wasm",
/// );
///
/// # fn example() {
/// let mut host = Host::builder().build();
/// host.load(&FILTER.module().unwrap(), Plugin::default()).unwrap();
/// let answer = host.send(Request::get("/"), |_| Response::ok());
/// assert_eq!(answer.status(), 401);
/// # }
/// ```
#[derive(Debug)]
pub struct ModuleBuild {
    command: &'static [&'static str],
    artefact: &'static str,
    built: OnceLock<Result<Module, ModuleBuildError>>,
}

/// Why there is no module. `Debug` says the same as `Display`, so that `unwrap` shows what the command has printed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ModuleBuildError {
    /// The command names no program.
    #[error("a command without a program")]
    NoProgram,
    /// The program cannot be started.
    #[error("`{command}` cannot be started: {source}")]
    Start {
        /// The command.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// The command has failed.
    #[error("`{command}` failed, {status}:\n{output}")]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Its standard error, or its standard output where that is empty.
        output: String,
    },
    /// The artefact cannot be read.
    #[error("`{command}` has succeeded, and {artefact} cannot be read: {source}")]
    Read {
        /// The command.
        command: String,
        /// The path of the artefact.
        artefact: String,
        /// Why not.
        source: io::Error,
    },
    /// The artefact is not a module that the host takes.
    #[error("{artefact}: {source}")]
    Module {
        /// The path of the artefact.
        artefact: String,
        /// Why not.
        source: ModuleError,
    },
}

impl fmt::Debug for ModuleBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ModuleBuild {
    /// A module that `command`, a program and its arguments, writes to the file `artefact`.
    pub const fn new(command: &'static [&'static str], artefact: &'static str) -> Self {
        Self { command, artefact, built: OnceLock::new() }
    }

    /// The module. The first call builds it, and others wait for that.
    ///
    /// # Errors
    /// When the command fails or does not write the artefact, or the artefact is not a module that the host takes.
    pub fn module(&self) -> Result<Module, &ModuleBuildError> {
        match self.built.get_or_init(|| self.build()) {
            Ok(module) => Ok(module.clone()),
            Err(error) => Err(error),
        }
    }

    fn build(&self) -> Result<Module, ModuleBuildError> {
        let (program, arguments) = self.command.split_first().ok_or(ModuleBuildError::NoProgram)?;
        let command = || self.command.join(" ");
        let artefact = || self.artefact.to_owned();
        let output = Command::new(program)
            .args(arguments)
            .output()
            .map_err(|source| ModuleBuildError::Start { command: command(), source })?;
        if !output.status.success() {
            let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            let said = String::from_utf8_lossy(said).trim_end().to_owned();
            return Err(ModuleBuildError::Failed { command: command(), status: output.status, output: said });
        }
        let wasm = fs::read(self.artefact).map_err(|source| ModuleBuildError::Read {
            command: command(),
            artefact: artefact(),
            source,
        })?;
        Module::compile(wasm).map_err(|source| ModuleBuildError::Module { artefact: artefact(), source })
    }
}
