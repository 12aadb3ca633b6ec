//! The commands and what they share: which filter to run, and with what.

mod bench;
mod check;
#[cfg(feature = "replay")]
mod replay;
#[cfg(feature = "scenarios")]
mod run;
mod serve;

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use host_sim::{FailurePolicy, Host, LoadError, LogLevel, LogLine, Module, Plugin, configuration};

/// Runs, checks and serves proxy-wasm HTTP filters without a gateway.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    #[cfg(feature = "scenarios")]
    Run(run::Run),
    #[cfg(feature = "replay")]
    Replay(replay::Replay),
    Bench(bench::Bench),
}

/// Why a command does not succeed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The filter does not do what was asked of it.
    Missed(String),
    /// The command cannot do its work.
    Failed(String),
}

impl Error {
    /// An error with all its causes.
    fn failed(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.contains(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Self::Failed(message)
    }
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Check(check) => check.run(),
            #[cfg(feature = "scenarios")]
            Command::Run(run) => run.run(),
            #[cfg(feature = "replay")]
            Command::Replay(replay) => replay.run(),
            Command::Bench(bench) => bench.run(),
        }
    }
}

/// The filter and how it is configured; or several filters, which requests pass in the order in which they are given.
#[derive(Debug, Args)]
struct Filter {
    /// The filter's module; given several times, one after the other in a chain
    #[arg(long, value_name = "FILE", required = true)]
    wasm: Vec<PathBuf>,
    /// Its configuration: JSON, YAML, or an Envoy configuration that holds the filter, whatever the file is named; one
    /// for each filter, or one for all
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Which filter, where the Envoy configuration holds several; one for each filter
    #[arg(long, value_name = "NAME", requires = "config")]
    plugin: Vec<String>,
    /// The vm_id, in place of the configuration's
    #[arg(long, value_name = "ID")]
    vm_id: Option<String>,
    /// The root_id, in place of the configuration's
    #[arg(long, value_name = "ID")]
    root_id: Option<String>,
    /// What happens when a VM fails, in place of the configuration's
    #[arg(long, value_enum)]
    failure_policy: Option<Policy>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// 503 for every request of that worker
    Closed,
    /// Later requests pass the filter by
    Open,
    /// A new VM after a backoff
    Reload,
}

/// The least serious lines of the log to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Critical,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
            Level::Critical => Self::Critical,
        }
    }
}

/// Loads filters into a host, in their order.
fn load(host: &mut Host, chain: &[(Module, Plugin)]) -> Result<(), LoadError> {
    host.load_chain(chain.iter().map(|(module, plugin)| (module, plugin.clone())))
}

/// The value for a filter of several: its own, or the one that is for all.
fn of<T>(values: &[T], filter: usize) -> Option<&T> {
    if values.len() == 1 { values.first() } else { values.get(filter) }
}

fn compile(file: &Path) -> Result<Module, Error> {
    let path = file.display();
    let wasm = fs::read(file).map_err(|error| {
        Error::Failed(format!("{path}: {error} (build the filter first, or give its path with --wasm)"))
    })?;
    Module::compile(wasm).map_err(|error| match Error::failed(&error) {
        Error::Failed(message) | Error::Missed(message) => Error::Failed(format!("{path}: {message}")),
    })
}

impl Filter {
    /// The filters in their order.
    fn chain(&self) -> Result<Vec<(Module, Plugin)>, Error> {
        let counts = [self.wasm.len(), self.config.len(), self.plugin.len()];
        let filters = counts.into_iter().max().unwrap_or(0);
        if counts.into_iter().any(|count| count > 1 && count != filters) {
            return Err(Error::Failed(format!(
                "{filters} filters need --wasm, --config and --plugin once for all of them or {filters} times: they \
                 were given {} times",
                counts.map(|count| count.to_string()).join(", ")
            )));
        }
        let mut modules: BTreeMap<&Path, Module> = BTreeMap::new();
        let mut chain = Vec::new();
        for filter in 0..filters {
            let Some(file) = of(&self.wasm, filter) else { continue };
            let module = match modules.get(file.as_path()) {
                Some(module) => module.clone(),
                None => modules.entry(file).or_insert(compile(file)?).clone(),
            };
            chain.push((module, self.plugin(filter)?));
        }
        Ok(chain)
    }

    /// The filter, where a command takes one alone.
    #[cfg(feature = "scenarios")]
    fn only(&self) -> Result<(Module, Plugin), Error> {
        let mut chain = self.chain()?;
        let several = chain.len() > 1;
        chain.pop().filter(|_| !several).ok_or_else(|| {
            Error::Failed("one filter is run: a scenario names those after it under \"then\"".to_owned())
        })
    }

    fn plugin(&self, filter: usize) -> Result<Plugin, Error> {
        let name = of(&self.plugin, filter).map(String::as_str);
        let mut plugin = match of(&self.config, filter) {
            Some(path) => configuration::read(path, name).map_err(|error| match error {
                configuration::ConfigurationError::Read { .. } => Error::Failed(error.to_string()),
                other => Error::Failed(format!("{}: {other}", path.display())),
            })?,
            None => Plugin::default(),
        };
        if let Some(vm_id) = &self.vm_id {
            plugin.vm_id.clone_from(vm_id);
        }
        if let Some(root_id) = &self.root_id {
            plugin.root_id.clone_from(root_id);
        }
        match self.failure_policy {
            Some(Policy::Closed) => plugin.failure_policy = FailurePolicy::FailClosed,
            Some(Policy::Open) => plugin.failure_policy = FailurePolicy::FailOpen,
            Some(Policy::Reload) => plugin.failure_policy = FailurePolicy::FailReload,
            None => {}
        }
        Ok(plugin)
    }
}

/// Prints to standard output. A reader that has gone away wants no more.
fn print(text: impl fmt::Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a line of the log to standard error.
fn print_log(line: &LogLine) {
    // Without standard error there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
