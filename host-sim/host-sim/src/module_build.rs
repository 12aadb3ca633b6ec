//! The module that a test is about, built by the test itself.

use std::{
    env, fmt, fs,
    io::{self, Read as _, Seek as _, Write as _},
    process::{Command, ExitStatus},
    sync::OnceLock,
};

use sha2::{Digest as _, Sha256};

use crate::{
    module_error::ModuleError,
    vm::{code_cache::CodeCache, engine::Compiler, module::Module},
};

/// Builds the module that tests are about, with a command that its author names.
///
/// The command runs without a shell in the current folder, which is that of the package in `cargo test`. It runs each time that
/// tests are run, so it should be one that builds only what has changed, as Cargo, Go and make do: once in a process, and under
/// `cargo nextest`, which gives each test a process, once in a run. Processes wait for each other. What the module is compiled to
/// stays in the [user's cache](CodeCache::of_user), so that it is compiled when it has changed.
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
        let cache = CodeCache::of_user();
        // Without a cache to write to, each process builds for itself.
        let mut turn = cache.as_ref().and_then(|cache| cache.lock(&self.lock_name()).ok());
        let run = env::var("NEXTEST_RUN_ID").unwrap_or_default();
        if run.is_empty() || !turn.as_mut().is_some_and(|turn| is_built_in(turn, &run)) {
            self.run()?;
            if let Some(turn) = &mut turn {
                // Where it cannot be written, the next process builds again.
                let _ = turn
                    .set_len(0)
                    .and_then(|()| turn.rewind())
                    .and_then(|()| turn.write_all(run.as_bytes()));
            }
        }
        let artefact = || self.artefact.to_owned();
        let wasm = fs::read(self.artefact).map_err(|source| ModuleBuildError::Read {
            command: self.command.join(" "),
            artefact: artefact(),
            source,
        })?;
        let module = match &cache {
            Some(cache) => Module::compile_cached(wasm, Compiler::Plain, cache).map(|(module, _)| module),
            None => Module::compile(wasm),
        };
        module.map_err(|source| ModuleBuildError::Module { artefact: artefact(), source })
    }

    /// The name of the lock that processes share which build the same.
    fn lock_name(&self) -> String {
        let folder = env::current_dir().unwrap_or_default();
        let what = format!("{folder:?} {:?} {}", self.command, self.artefact);
        let digest = Sha256::digest(what);
        format!("{}.lock", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    fn run(&self) -> Result<(), ModuleBuildError> {
        let (program, arguments) = self.command.split_first().ok_or(ModuleBuildError::NoProgram)?;
        let command = || self.command.join(" ");
        let output = Command::new(program)
            .args(arguments)
            .output()
            .map_err(|source| ModuleBuildError::Start { command: command(), source })?;
        if !output.status.success() {
            let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            let said = String::from_utf8_lossy(said).trim_end().to_owned();
            return Err(ModuleBuildError::Failed { command: command(), status: output.status, output: said });
        }
        Ok(())
    }
}

/// Whether the command has run in this run of nextest, as the file says that was locked for it.
fn is_built_in(turn: &mut fs::File, run: &str) -> bool {
    let mut known = String::new();
    turn.read_to_string(&mut known).is_ok() && known == run
}
