//! The command `weir-ledger`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use ledger::{Options, serve};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The ledger of a fleet of gateways: it gives each gateway its share of every quota.
#[derive(Debug, Parser)]
#[command(
    name = "weir-ledger",
    version,
    after_help = "\
Examples:
  weir-ledger serve
  weir-ledger serve --listen 0.0.0.0:8083 --store rediss://weir@redis.internal:6380 --token-file /run/secrets/ledger"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log format on stderr. RUST_LOG sets the log level, for example RUST_LOG=ledger=debug.
    #[arg(long, global = true, env = "WEIR_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answers the statements of gateways until SIGINT or SIGTERM.
    Serve(Box<Options>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env() {
        Ok(filter) => filter,
        Err(error) => {
            let _unwritten = writeln!(std::io::stderr(), "error: {}: {error}", EnvFilter::DEFAULT_ENV);
            return ExitCode::FAILURE;
        }
    };
    // The subscriber would report its own errors on stderr too, and panic if stderr cannot be written.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    let Command::Serve(options) = cli.command;
    match serve(*options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
