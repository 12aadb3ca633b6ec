//! The command `backend`.

mod command {
    pub(crate) mod arguments;
    pub(crate) mod database;
    pub(crate) mod domains;
    pub(crate) mod error;
    pub(crate) mod keys;
    pub(crate) mod serve;
    pub(crate) mod usage;
}

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
#[cfg(unix)]
use rustix::fs::Mode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::FromEnvError;

use self::command::arguments::{Cli, Command, Domains, Keys, LogFormat, Usage};
use self::command::{database, domains, keys, serve, usage};

/// The C library's allocator shares locks between threads. A preempted thread of the lowest priority could hold one while others
/// wait.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Databases, click logs and backups contain visitors' addresses and the secrets of webhooks. No other user may read them.
    #[cfg(unix)]
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let code = runtime.block_on(run());
            // What still runs, such as the resolution of a webhook's host, is not waited for.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            let _unwritten = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The log level that RUST_LOG sets.
fn log_filter() -> Result<EnvFilter, FromEnvError> {
    match std::env::var_os(EnvFilter::DEFAULT_ENV) {
        Some(_) => EnvFilter::try_from_default_env(),
        None => Ok(EnvFilter::new("info,sqlx=warn")),
    }
}

async fn run() -> ExitCode {
    let cli = Cli::parse();
    let filter = match log_filter() {
        Ok(filter) => filter,
        Err(error) => {
            let _unwritten = writeln!(std::io::stderr(), "error: {}: {error}", EnvFilter::DEFAULT_ENV);
            return ExitCode::FAILURE;
        }
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // The subscriber would report its own errors on stderr too, and panic if stderr cannot be written, for example
        // on a full disk.
        .log_internal_errors(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    let done = match cli.command {
        Command::Serve(options) => serve::serve(*options).await,
        Command::Migrate { database } => database::migrate(&database).await,
        Command::Keys(Keys::Create(options)) => keys::create(options).await,
        Command::Keys(Keys::List { database, json }) => keys::list(&database, json).await,
        Command::Keys(Keys::Revoke { database, id }) => keys::revoke(&database, id).await,
        Command::Domains(Domains::Assign { database, workspace, domain }) => {
            domains::assign(&database, workspace, &domain).await
        }
        Command::Domains(Domains::Remove { database, domain }) => domains::remove(&database, domain).await,
        Command::Domains(Domains::List { database, json }) => domains::list(&database, json).await,
        Command::Usage(Usage::Export(options)) => usage::export(options).await,
        Command::Usage(Usage::List(options)) => usage::list(options).await,
        Command::Backup { database, file } => database::backup(&database, &file).await,
        Command::Seed { database, name, json } => keys::seed(&database, &name, json).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
