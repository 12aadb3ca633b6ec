//! The command `backend`.

mod cli;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use backend::import::{ImportError, Refused, import_csv};
use backend::keys::{InvalidLimits, Subscriber, check_limits, parse_limits};
use backend::{
    AddressPolicy, Analytics, Backend, Clock, InvalidPublicUrl, Limits, PublicUrl, Settings, Store,
    StoreError, server,
};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use self::cli::{Cli, Command, Database, Keys, LogFormat, Serve};

/// Prints a line on stdout; that nobody reads it any more is an error, not a panic.
macro_rules! say {
    ($($argument:tt)*) => {
        writeln!(std::io::stdout(), $($argument)*).map_err(CliError::Output)
    };
}

#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    PublicUrl(#[from] InvalidPublicUrl),
    #[error("--limits: {0}")]
    Limits(#[from] InvalidLimits),
    #[error("no workspace has the id {0}")]
    UnknownWorkspace(String),
    #[error("no key has the id {0}, or it was revoked before")]
    UnknownKey(String),
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Import { path: PathBuf, source: ImportError },
    #[error("{lines} lines were refused")]
    LinesRefused { lines: usize },
    #[error("output: {0}")]
    Output(std::io::Error),
    #[error("signals: {0}")]
    Signals(std::io::Error),
}

/// Threads that work on requests, for each processor. A large request keeps one busy for a while; the system lets the others
/// run meanwhile.
const THREADS_PER_PROCESSOR: usize = 4;

fn main() -> ExitCode {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = THREADS_PER_PROCESSOR * processors;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run()),
        Err(error) => {
            let _unwritten = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let cli = Cli::parse();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Told on stderr too, and by a panic if that cannot be written, such as to a file on a disk that is full.
        .log_internal_errors(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    let done = match cli.command {
        Command::Serve(options) => serve(*options).await,
        Command::Keys(Keys::Create { database, plan, limits, workspace, json }) => {
            create_key(&database, &plan, limits.as_ref(), workspace.as_deref(), json).await
        }
        Command::Keys(Keys::List { database, json }) => list_keys(&database, json).await,
        Command::Keys(Keys::Revoke { database, id }) => revoke_key(&database, id).await,
        Command::Import { database, workspace, public_url, domains, file } => {
            import(&database, workspace, &public_url, domains, &file).await
        }
        Command::Seed { database, name, json } => seed(&database, &name, json).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Serve) -> Result<(), CliError> {
    let (public, public_address) = listen(options.listen).await?;
    let (internal, internal_address) = listen(options.internal_listen).await?;
    let public_url = options.public_url.unwrap_or_else(|| format!("http://{public_address}"));
    let webhook_addresses =
        if options.allow_private_webhooks { AddressPolicy::any() } else { AddressPolicy::public_only() };
    let analytics = Analytics {
        readers: options.analytics_readers,
        timeout: Duration::from_secs(options.analytics_timeout),
    };
    let mut store = Store::open_with(&options.database.url, analytics).await?;
    if let Some(spool) = options.spool {
        store = store.with_spool(spool);
    }
    let public_url = PublicUrl::parse(&public_url)?.with_domains(options.domains);
    let bounds = server::Bounds {
        connections: options.max_connections,
        write_timeout: Duration::from_secs(options.write_timeout),
    };
    let settings = Settings {
        public_url,
        webhook_addresses,
        clicks: options.clicks.into(),
        internal_token: options.internal_token,
        request_timeout: Duration::from_secs(options.request_timeout),
        max_webhooks: options.max_webhooks,
        max_stale: Duration::from_secs(options.max_stale),
        when_full: options.when_full.into(),
    };
    let backend = Backend::start(store, Clock::system(), settings);
    // What an earlier process has left in the spool counts from the first request on.
    backend.flush_clicks().await;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(server::serve(public, backend.front(), bounds, stopped.clone()));
    let serving_internal = tokio::spawn(server::serve(internal, backend.internal_router(), bounds, stopped));
    // Scripts read these two lines to learn which ports were taken.
    let said = say!("listening on http://{public_address}\ninternal on http://{internal_address}");
    if let Err(error) = said {
        tracing::warn!(%error, "nobody hears where the service listens");
    }
    server::stop_signal().await.map_err(CliError::Signals)?;
    tracing::info!("stopping");
    stop.send_replace(true);
    let _ended = tokio::join!(serving, serving_internal);
    backend.shut_down().await;
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let failed = |source| CliError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn create_key(
    database: &Database,
    plan: &str,
    limits: Option<&Limits>,
    workspace: Option<&str>,
    as_json: bool,
) -> Result<(), CliError> {
    check_limits(plan, limits)?;
    let store = Store::open(&database.url).await?;
    let now = Clock::system().now();
    let workspace = match workspace {
        Some(id) => store.workspace(id).await?.ok_or_else(|| CliError::UnknownWorkspace(id.to_owned()))?,
        None => store.create_workspace(plan, now).await?,
    };
    let (id, key) = store.create_key(&workspace, plan, limits, now).await?;
    if as_json {
        say!("{}", json!({ "id": id, "workspace": workspace.id, "plan": plan, "key": key }))?;
    } else {
        say!("id         {id}\nworkspace  {}\nplan       {plan}\nkey        {key}", workspace.id)?;
    }
    store.close().await;
    Ok(())
}

async fn list_keys(database: &Database, as_json: bool) -> Result<(), CliError> {
    let store = Store::open(&database.url).await?;
    let keys = store.keys().await?;
    if as_json {
        let subscribers: Vec<Subscriber> = keys.into_iter().map(Subscriber::from).collect();
        say!("{}", json!(subscribers))?;
    } else {
        for key in keys {
            say!("{}  {}  {:<12}  sha256:{}", key.id, key.workspace, key.plan, key.sha256)?;
        }
    }
    store.close().await;
    Ok(())
}

async fn revoke_key(database: &Database, id: String) -> Result<(), CliError> {
    let store = Store::open(&database.url).await?;
    let revoked = store.revoke_key(&id, Clock::system().now()).await?;
    store.close().await;
    if revoked { Ok(()) } else { Err(CliError::UnknownKey(id)) }
}

async fn import(
    database: &Database,
    workspace: String,
    public_url: &str,
    domains: Vec<String>,
    path: &Path,
) -> Result<(), CliError> {
    let store = Store::open(&database.url).await?;
    let public_url = PublicUrl::parse(public_url)?.with_domains(domains);
    let found = store.workspace(&workspace).await?;
    let workspace = found.ok_or(CliError::UnknownWorkspace(workspace))?;
    let unreadable = |source| CliError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    // Drawn on stderr, and only where that is a terminal.
    let bar = ProgressBar::new(file.metadata().map_err(unreadable)?.len());
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {eta} left") {
        bar.set_style(style);
    }
    let now = Clock::system().now();
    let imported = import_csv(&store, &workspace, &public_url, file, now, |imported| {
        bar.set_position(imported.bytes);
        bar.set_message(format!("{} links", imported.made));
    });
    let imported = imported.await.map_err(|source| CliError::Import { path: path.to_owned(), source })?;
    bar.finish_and_clear();
    store.close().await;
    for Refused { line, message } in &imported.refused {
        say!("line {line}: {message}")?;
    }
    say!("{} links made, {} lines refused", imported.made, imported.refused.len())?;
    match imported.refused.len() {
        0 => Ok(()),
        lines => Err(CliError::LinesRefused { lines }),
    }
}

/// The plans of the contract; Enterprise has no quotas of its own, so its key brings them.
const SEEDED: [(&str, Option<&str>); 5] = [
    ("free", None),
    ("pro", None),
    ("business", None),
    ("advanced", None),
    ("enterprise", Some("standard=5000/minute,analytics=20/second")),
];

async fn seed(database: &Database, name: &str, as_json: bool) -> Result<(), CliError> {
    let store = Store::open(&database.url).await?;
    let now = Clock::system().now();
    let workspace = store.create_workspace(name, now).await?;
    let mut keys = Vec::new();
    for (plan, limits) in SEEDED {
        let limits = limits.map(parse_limits).transpose()?;
        let (id, key) = store.create_key(&workspace, plan, limits.as_ref(), now).await?;
        keys.push(json!({ "id": id, "plan": plan, "key": key }));
        if !as_json {
            say!("{plan:<10}  {key}")?;
        }
    }
    if as_json {
        say!("{}", json!({ "workspace": workspace.id, "keys": keys }))?;
    }
    store.close().await;
    Ok(())
}
