//! The commands and what they share: which filter to run, and with what.

mod bench;
mod check;
mod echo;
mod filter;
#[cfg(feature = "scenarios")]
mod run;
mod serve;

use std::{
    fmt,
    io::{self, Write as _},
};

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use host_sim::{LogLevel, LogLine, TracedCallback};
use host_sim_cli::failure::Failure;
use serde_json::json;

use self::filter::Filter;

/// Runs, checks and serves proxy-wasm HTTP filters without a gateway.
#[derive(Debug, Parser)]
#[command(name = "host-sim", version, propagate_version = true, arg_required_else_help = true)]
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
    Bench(bench::Bench),
    /// Prints the JSON Schema of scenarios, by which editors complete and check them
    #[cfg(feature = "scenarios")]
    Schema,
    /// Prints a script that completes the command's arguments in a shell
    #[command(after_help = "Example:
  host-sim completions bash >~/.local/share/bash-completion/completions/host-sim")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What a scenario's file may hold.
#[cfg(feature = "scenarios")]
const SCHEMA: &str = include_str!("../../scenario.schema.json");

impl Cli {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Check(check) => check.run(),
            #[cfg(feature = "scenarios")]
            Command::Run(run) => run.run(),
            Command::Bench(bench) => bench.run(),
            #[cfg(feature = "scenarios")]
            Command::Schema => {
                print(SCHEMA.trim_end());
                Ok(())
            }
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "host-sim", &mut script);
                print(String::from_utf8_lossy(&script).trim_end());
                Ok(())
            }
        }
    }
}

/// A log level by its name.
fn log_level(name: &str) -> Result<LogLevel, &'static str> {
    let level = LogLevel::ALL.into_iter().find(|level| level.name() == name);
    level.ok_or("expected trace, debug, info, warn, error or critical")
}

/// The form of what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// One object of JSON
    Json,
}

/// The calls between filter and host.
#[derive(Debug, Clone, Copy, Args)]
struct Trace {
    /// Prints each callback and host call with its arguments, its status and the cause of the status, its duration and the growth
    /// of memory: as a tree, or as one JSON object per callback
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    trace: Option<TraceForm>,
}

/// How traces are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TraceForm {
    Text,
    Json,
}

impl TraceForm {
    fn of(self, callback: &TracedCallback) -> String {
        match self {
            Self::Text => callback.to_string(),
            Self::Json => json!(callback).to_string(),
        }
    }
}

/// Prints to standard output. A closed pipe is not an error.
fn print(text: impl fmt::Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a warning of the host, for commands that do not print the guest's log.
fn print_warning(line: &LogLine) {
    if line.by_host && line.level == LogLevel::Warn {
        print_log(line);
    }
}

/// Prints a line of the log to standard error.
fn print_log(line: &LogLine) {
    print_beside(line);
}

/// Prints to standard error. A failure there cannot be reported and is ignored.
fn print_beside(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
