//! The service behind the gateway, for the suites: as a process of its own, and in this one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use backend::{AddressPolicy, ClickRules, PublicUrl, Settings, SteppedClock, Store, server};
pub use demo::backend::{Backend, Directory, Keys, database_file_in, database_in};
use demo::backend::{fresh_token, run, run_json};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where short links of a test live; nothing is ever looked up there.
const PUBLIC_URL: &str = "http://links.example.test";

/// A key made later.
#[derive(Debug, Clone)]
pub struct CreatedKey {
    /// By which it is revoked.
    pub id: String,
    /// What a client sends.
    pub key: String,
}

/// A backend of a test's own, on a fresh database.
#[derive(Debug)]
pub struct Service {
    /// Its keys.
    pub keys: Keys,
    /// Its process.
    pub backend: Backend,
    folder: TempDir,
}

impl Service {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> anyhow::Result<Self> {
        Ok(Self::start_with(1)?.0)
    }

    /// Starts it with this number of workspaces. Returns the keys of those that are not its first.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_with(workspaces: usize) -> anyhow::Result<(Self, Vec<Keys>)> {
        let folder = tempfile::tempdir()?;
        let command = crate::artifacts::command("backend");
        let database = database_in(folder.path());
        let keys = Keys::seed(command, &database)?;
        let others = (1..workspaces).map(|_| Keys::seed(command, &database)).collect::<Result<_, _>>()?;
        let backend = Backend::serve(command, &database, Some(PUBLIC_URL))?;
        Ok((Self { keys, backend, folder }, others))
    }

    /// Makes one more key of the workspace, of a plan that the backend then knows, whether or not the gateway does.
    ///
    /// # Errors
    /// When that fails.
    pub fn create_key(&self, plan: &str) -> anyhow::Result<CreatedKey> {
        let created = run_json(
            crate::artifacts::command("backend"),
            &[
                "keys",
                "create",
                "--json",
                "--plan",
                plan,
                "--plans",
                plan,
                "--workspace",
                self.keys.workspace(),
            ]
            .into_iter()
            .chain(["--database", &database_in(self.folder.path())])
            .collect::<Vec<_>>(),
        )?;
        let field = |name: &str| created[name].as_str().map(str::to_owned).context("no key was created");
        Ok(CreatedKey { id: field("id")?, key: field("key")? })
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// When that fails.
    pub fn revoke_key(&self, key: &CreatedKey) -> anyhow::Result<()> {
        let database = database_in(self.folder.path());
        let command = crate::artifacts::command("backend");
        run(command, &["keys", "revoke", "--database", &database, &key.id]).map(drop)
    }

    /// The file that its database is in.
    #[must_use]
    pub fn database_file(&self) -> PathBuf {
        database_file_in(self.folder.path())
    }

    /// The keys there are now, as a configuration takes them.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn subscribers(&self) -> anyhow::Result<Value> {
        let database = database_in(self.folder.path());
        run_json(crate::artifacts::command("backend"), &["keys", "list", "--json", "--database", &database])
    }

    /// What `backend usage export` says of a month.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn exported_usage(&self, month: &str) -> anyhow::Result<Value> {
        let database = database_in(self.folder.path());
        let export = ["usage", "export", "--month", month, "--format", "json", "--database", &database];
        run_json(crate::artifacts::command("backend"), &export)
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.backend.address()
    }

    /// Where the keys are fetched.
    #[must_use]
    pub fn directory(&self) -> Directory {
        self.backend.directory()
    }
}

/// The same service in this process, its clock stepped by hand.
#[derive(Debug)]
pub struct SteppedService {
    /// Its keys.
    pub keys: Keys,
    runtime: Runtime,
    backend: backend::Backend,
    clock: SteppedClock,
    address: SocketAddr,
    directory: Directory,
    // Ends the listeners when it is dropped.
    _stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl SteppedService {
    /// Starts it at `now`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(now: Timestamp) -> anyhow::Result<Self> {
        Self::start_with(now, ClickRules::default())
    }

    /// Starts it at `now`, with rules of its own on what counts as a click.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_with(now: Timestamp, clicks: ClickRules) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let database = database_in(folder.path());
        let keys = Keys::seed(crate::artifacts::command("backend"), &database)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let clock = SteppedClock::at(now);
        let (stop, stopped) = watch::channel(false);
        let token = fresh_token()?;
        let (backend, address, internal) = runtime.block_on(async {
            let store = Store::open_or_create(&database).await?;
            let settings = Settings {
                webhook_addresses: AddressPolicy::any(),
                clicks,
                internal_token: Some(token.clone()),
                ..Settings::new(PublicUrl::parse(PUBLIC_URL)?)
            };
            let backend = backend::Backend::start(store, clock.clock(), settings);
            let public = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let internal = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let addresses = (public.local_addr()?, internal.local_addr()?);
            let bounds = server::Bounds::default();
            tokio::spawn(server::serve(public, backend.front(), bounds, stopped.clone()));
            tokio::spawn(server::serve(internal, backend.internal_router(), bounds, stopped));
            anyhow::Ok((backend, addresses.0, addresses.1))
        })?;
        let directory = Directory { address: internal, token };
        Ok(Self { keys, runtime, backend, clock, address, directory, _stop: stop, _folder: folder })
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the keys are fetched.
    #[must_use]
    pub fn directory(&self) -> Directory {
        self.directory.clone()
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Returns once all clicks so far are stored.
    pub fn flush_clicks(&self) {
        self.runtime.block_on(self.backend.flush_clicks());
    }
}
