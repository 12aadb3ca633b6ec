//! The command `backend`.

mod cli;
mod import_command;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use backend::backup::{BackupError, backup, restore};
use backend::import::ImportError;
use backend::keys::{InvalidLimits, Subscriber, check_plan, parse_limits};
use backend::server::StopSignals;
use backend::{
    AddressPolicy, Analytics, AssignedDomain, Backend, Clock, DomainConflict, InvalidPublicUrl, Limits,
    PublicUrl, Replayed, Serving, Settings, Store, StoreError, Workspace, server,
};
use clap::Parser;
#[cfg(unix)]
use rustix::fs::Mode;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::FromEnvError;

use self::cli::{Cli, Command, Database, Domains, Keys, LogFormat, Serve, SetAside};

/// The C library's allocator shares locks between threads. A preempted thread of the lowest priority could hold one while others
/// wait.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints to stdout. A closed pipe is an error instead of a panic.
macro_rules! say {
    ($($argument:tt)*) => {
        writeln!(std::io::stdout(), $($argument)*).map_err(CliError::Output)
    };
}

/// Exit code of a command that was only partly successful.
const REFUSED: u8 = 3;

#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("--database: {0}")]
    Open(StoreError),
    #[error("--listen {0}: {1}")]
    PublicUrl(SocketAddr, InvalidPublicUrl),
    #[error("--limits: {0}")]
    Limits(#[from] InvalidLimits),
    #[error("--workspace: no workspace has the id {0}")]
    UnknownWorkspace(String),
    #[error(transparent)]
    Domain(#[from] DomainConflict),
    #[error("the domain {0} is not assigned")]
    UnassignedDomain(String),
    #[error("no active key has the id {0}")]
    UnknownKey(String),
    #[error("{option} {address}: {source}")]
    Listen { option: &'static str, address: SocketAddr, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{option} {}: {source}", path.display())]
    NamedFile { option: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Import { path: PathBuf, source: ImportError },
    #[error("{}: {source}. To continue, repeat the command with --after-line {last_line}", path.display())]
    ImportStopped { path: PathBuf, last_line: u64, source: ImportError },
    #[error("{} refused", count(*.0, "line"))]
    LinesRefused(u64),
    #[error("{} still refused", count(*.0 as u64, "click"))]
    ClicksRefused(usize),
    #[error("no click with the id {0} is set aside")]
    NotSetAside(String),
    #[error(transparent)]
    Backup(BackupError),
    #[error("--internal-token-file {}: the token is empty", .0.display())]
    EmptyToken(PathBuf),
    #[error("cannot write to stdout: {0}")]
    Output(std::io::Error),
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    #[error("a second signal ended the process before it had stopped")]
    Interrupted,
}

/// A number of things, such as "1 line" or "2 lines".
fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(
                error @ (StoreError::UnknownDatabase { .. }
                | StoreError::File { .. }
                | StoreError::Open { .. }
                | StoreError::Silent { .. }
                | StoreError::Schema { .. }),
            ) => Self::Open(error),
            other => Self::Backup(other),
        }
    }
}

/// Number of worker threads per CPU. A large request occupies a thread for a while, and the operating system runs the other
/// threads in the meantime.
const THREADS_PER_PROCESSOR: usize = 4;

fn main() -> ExitCode {
    // Databases, spools and backups contain visitors' addresses and the secrets of webhooks. No other user may read them.
    #[cfg(unix)]
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = THREADS_PER_PROCESSOR * processors;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    match runtime {
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
        Command::Serve(options) => serve(*options).await,
        Command::Migrate { database } => migrate(&database).await,
        Command::Keys(Keys::Create { database, plan, plans, limits, workspace, json }) => {
            match check_plan(&plan, &plans, limits.as_ref()) {
                Ok(()) => create_key(&database, &plan, limits.as_ref(), workspace.as_deref(), json).await,
                Err(error) => Err(error.into()),
            }
        }
        Command::Keys(Keys::List { database, json }) => list_keys(&database, json).await,
        Command::Keys(Keys::Revoke { database, id }) => revoke_key(&database, id).await,
        Command::Domains(Domains::Assign { database, workspace, domain }) => {
            assign_domain(&database, workspace, &domain).await
        }
        Command::Domains(Domains::Remove { database, domain }) => remove_domain(&database, domain).await,
        Command::Domains(Domains::List { database, json }) => list_domains(&database, json).await,
        Command::Import(options) => import_command::run(*options).await,
        Command::Backup(options) => {
            backup(&options.database.url, &options.spools, &options.folder).await.map_err(CliError::from)
        }
        Command::Restore(options) => {
            restore(&options.database.url, &options.spools, &options.folder).await.map_err(CliError::from)
        }
        Command::SetAside(SetAside::List { database }) => list_set_aside(&database).await,
        Command::SetAside(SetAside::Replay { database, public_url }) => {
            replay_set_aside(&database, &public_url).await
        }
        Command::SetAside(SetAside::Delete { database, ids }) => delete_set_aside(&database, ids).await,
        Command::Seed { database, name, json } => seed(&database, &name, json).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            let is_partial = matches!(error, CliError::LinesRefused(_) | CliError::ClicksRefused(_));
            if is_partial { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
        }
    }
}

const SECONDS_PER_DAY: u64 = 86_400;

/// Lets the kernel give memory to this process in small pages only. It clears a huge page of 2 MiB when that is first used, which takes
/// milliseconds for which other requests would wait.
#[cfg(target_os = "linux")]
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "could not turn off transparent huge pages");
    }
}

async fn serve(options: Serve) -> Result<(), CliError> {
    #[cfg(target_os = "linux")]
    use_small_pages();
    let internal_token = match &options.internal_token_file {
        None => options.internal_token,
        Some(path) => Some(read_token(path)?),
    };
    let (public, public_address) = listen("--listen", options.listen)?;
    let (internal, internal_address) = listen("--internal-listen", options.internal_listen)?;
    let public_url = match options.public_url {
        Some(url) => url,
        None => PublicUrl::parse(&format!("http://{public_address}"))
            .map_err(|error| CliError::PublicUrl(public_address, error))?,
    };
    let webhook_addresses =
        if options.allow_private_webhooks { AddressPolicy::any() } else { AddressPolicy::public_only() };
    let analytics = Analytics {
        readers: options.analytics_readers,
        timeout: Duration::from_secs(options.analytics_timeout),
    };
    let mut store =
        Store::open_or_create_with(&options.database.url, analytics).await.map_err(CliError::Open)?;
    let _lock = Serving::lock(&options.database.url).map_err(CliError::Open)?;
    if let Some(spool) = options.spool {
        // Otherwise the service would record clicks without the spool that the operator asked for.
        let opened = File::options().append(true).create(true).open(&spool);
        opened.map_err(|source| CliError::NamedFile { option: "--spool", path: spool.clone(), source })?;
        store = store.with_spool(spool);
    }
    let bounds = server::Bounds {
        connections: options.max_connections,
        write_timeout: Duration::from_secs(options.write_timeout),
        ..server::Bounds::default()
    };
    let settings = Settings {
        public_url,
        webhook_addresses,
        clicks: options.clicks.into(),
        internal_token,
        request_timeout: Duration::from_secs(options.request_timeout),
        max_webhooks: options.max_webhooks,
        max_stale: Duration::from_secs(options.max_stale),
        when_full: options.when_full.into(),
        retention: options.retention.map(|days| Duration::from_secs(u64::from(days) * SECONDS_PER_DAY)),
    };
    let backend = Backend::start(store, Clock::system(), settings);
    // The first request already counts the clicks that an earlier process left in the spool.
    backend.flush_clicks().await;
    let mut signals = StopSignals::listen().map_err(CliError::Signals)?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(server::serve(public, backend.front(), bounds, stopped.clone()));
    let serving_internal = tokio::spawn(server::serve(internal, backend.internal_router(), bounds, stopped));
    // Scripts parse these two lines to find the ports.
    let said = say!("listening on http://{public_address}\ninternal on http://{internal_address}");
    if let Err(error) = said {
        tracing::warn!(%error, "could not print the addresses of the listeners");
    }
    signals.next().await;
    tracing::info!("stopping");
    stop.send_replace(true);
    let spooled = backend.spooled_clicks();
    let ended = async {
        let _ended = tokio::join!(serving, serving_internal);
        backend.shut_down().await;
    };
    let is_whole = tokio::select! {
        () = ended => true,
        () = signals.next() => false,
    };
    match spooled() {
        0 => {}
        clicks => {
            let clicks = count(clicks, "click");
            tracing::warn!("{clicks} of the spool could not be recorded. The next process records them");
        }
    }
    if is_whole { Ok(()) } else { Err(CliError::Interrupted) }
}

/// The token in a file. An empty token is refused, because every client knows it.
fn read_token(path: &Path) -> Result<String, CliError> {
    let unreadable =
        |source| CliError::NamedFile { option: "--internal-token-file", path: path.to_owned(), source };
    let token = std::fs::read_to_string(path).map_err(unreadable)?.trim().to_owned();
    if token.is_empty() { Err(CliError::EmptyToken(path.to_owned())) } else { Ok(token) }
}

fn listen(option: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let failed = |source| CliError::Listen { option, address, source };
    let listener = server::listen(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn migrate(database: &Database) -> Result<(), CliError> {
    let store = Store::open_or_create(&database.url).await.map_err(CliError::Open)?;
    store.close().await;
    Ok(())
}

async fn open(database: &Database) -> Result<Store, CliError> {
    Store::open(&database.url).await.map_err(CliError::Open)
}

async fn create_key(
    database: &Database,
    plan: &str,
    limits: Option<&Limits>,
    workspace: Option<&str>,
    as_json: bool,
) -> Result<(), CliError> {
    let store = open(database).await?;
    let now = Clock::system().now();
    let workspace = match workspace {
        Some(id) => known_workspace(&store, id.to_owned()).await?,
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
    let store = open(database).await?;
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
    let store = open(database).await?;
    let revoked = store.revoke_key(&id, Clock::system().now()).await?;
    store.close().await;
    if revoked { Ok(()) } else { Err(CliError::UnknownKey(id)) }
}

async fn assign_domain(database: &Database, workspace: String, domain: &str) -> Result<(), CliError> {
    let store = open(database).await?;
    let workspace = known_workspace(&store, workspace).await?;
    store.assign_domain(&workspace, domain, Clock::system().now()).await??;
    store.close().await;
    Ok(())
}

async fn remove_domain(database: &Database, domain: String) -> Result<(), CliError> {
    let store = open(database).await?;
    let removed = store.remove_domain(&domain).await?;
    store.close().await;
    if removed { Ok(()) } else { Err(CliError::UnassignedDomain(domain)) }
}

async fn list_domains(database: &Database, as_json: bool) -> Result<(), CliError> {
    let store = open(database).await?;
    let domains = store.assigned_domains().await?;
    if as_json {
        let domain =
            |domain: &AssignedDomain| json!({ "domain": domain.name, "workspace": domain.workspace });
        say!("{}", json!(domains.iter().map(domain).collect::<Vec<_>>()))?;
    } else {
        for domain in domains {
            say!("{}  {}", domain.workspace, domain.name)?;
        }
    }
    store.close().await;
    Ok(())
}

async fn known_workspace(store: &Store, id: String) -> Result<Workspace, CliError> {
    store.workspace(&id).await?.ok_or(CliError::UnknownWorkspace(id))
}

async fn list_set_aside(database: &Database) -> Result<(), CliError> {
    let store = open(database).await?;
    store.each_set_aside(|entry| say!("{}", entry.to_json())).await?;
    store.close().await;
    Ok(())
}

async fn replay_set_aside(database: &Database, public_url: &PublicUrl) -> Result<(), CliError> {
    let store = open(database).await?;
    let replayed = store.replay_set_aside(public_url).await?;
    store.close().await;
    for (id, reason) in &replayed.refused {
        say!("{id}: {reason}")?;
    }
    let Replayed { recorded, orphaned, refused } = replayed;
    let recorded = count(recorded as u64, "click");
    say!("{recorded} recorded, {orphaned} on deleted links, {} still refused", refused.len())?;
    match refused.len() {
        0 => Ok(()),
        clicks => Err(CliError::ClicksRefused(clicks)),
    }
}

async fn delete_set_aside(database: &Database, ids: Vec<String>) -> Result<(), CliError> {
    let store = open(database).await?;
    for id in ids {
        if !store.delete_set_aside(&id).await? {
            return Err(CliError::NotSetAside(id));
        }
    }
    store.close().await;
    Ok(())
}

/// The plans of the API. `enterprise` has no default quotas, so its key gets some.
const SEEDED: [(&str, Option<&str>); 5] = [
    ("free", None),
    ("pro", None),
    ("business", None),
    ("advanced", None),
    ("enterprise", Some("standard=5000/minute,analytics=20/second")),
];

async fn seed(database: &Database, name: &str, as_json: bool) -> Result<(), CliError> {
    let store = open(database).await?;
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
