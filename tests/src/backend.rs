//! The service behind the gateway, with one key for each plan.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use backend::{AddressPolicy, Options, PublicUrl, Settings, SteppedClock, Store, server};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::policy::Policy;
use crate::process::Process;

/// Where short links of a test live; nothing is ever looked up there.
const PUBLIC_URL: &str = "http://links.example.test";

/// A workspace with one key for each plan, and the configuration that knows them.
#[derive(Debug, Clone)]
pub struct Keys {
    workspace: String,
    by_plan: BTreeMap<String, String>,
    subscribers: Value,
}

impl Keys {
    /// Makes them in a database, with `backend seed`.
    ///
    /// # Errors
    /// When the command fails.
    pub fn seed(backend: &Path, database: &str) -> anyhow::Result<Self> {
        let seeded = run(backend, &["seed", "--json", "--database", database])?;
        let keys = seeded["keys"].as_array().context("no keys in the seed")?;
        let by_plan = keys
            .iter()
            .filter_map(|key| Some((key["plan"].as_str()?.to_owned(), key["key"].as_str()?.to_owned())));
        let mut keys = Self {
            workspace: seeded["workspace"].as_str().context("no workspace in the seed")?.to_owned(),
            by_plan: by_plan.collect(),
            subscribers: Value::Null,
        };
        keys.reread(backend, database)?;
        Ok(keys)
    }

    /// Makes one more key of the workspace, which the next configuration will know.
    ///
    /// # Errors
    /// When the command fails.
    pub fn create(&mut self, backend: &Path, database: &str, plan: &str) -> anyhow::Result<String> {
        let workspace = self.workspace.clone();
        let created = run(
            backend,
            &["keys", "create", "--json", "--plan", plan, "--workspace", &workspace, "--database", database],
        )?;
        self.reread(backend, database)?;
        Ok(created["key"].as_str().context("no key was created")?.to_owned())
    }

    fn reread(&mut self, backend: &Path, database: &str) -> anyhow::Result<()> {
        self.subscribers = run(backend, &["keys", "list", "--json", "--database", database])?;
        Ok(())
    }

    /// The workspace's key of a plan.
    ///
    /// # Panics
    /// When there is no such plan.
    #[must_use]
    pub fn of(&self, plan: &str) -> &str {
        self.by_plan.get(plan).unwrap_or_else(|| panic!("no key of plan {plan}"))
    }

    /// The plans and their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_plan.iter().map(|(plan, key)| (plan.as_str(), key.as_str()))
    }

    /// `policy` with these keys for subscribers.
    #[must_use]
    pub fn known_to(&self, policy: Policy) -> Policy {
        policy.with("subscribers", self.subscribers.clone())
    }
}

fn run(backend: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(backend).args(arguments).output().context("cannot run backend")?;
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "backend {}: {said}", arguments.join(" "));
    serde_json::from_str(&printed)
        .with_context(|| format!("backend {} printed {printed}", arguments.join(" ")))
}

/// The database of a folder.
#[must_use]
pub fn database_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("weir.db").display())
}

/// A running `backend serve`.
#[derive(Debug)]
pub struct Backend {
    process: Process,
    address: SocketAddr,
}

impl Backend {
    /// Starts it and waits until it listens. Without `public_url` short links live where it listens.
    ///
    /// # Errors
    /// When it does not start.
    pub fn serve(backend: &Path, database: &str, public_url: Option<&str>) -> anyhow::Result<Self> {
        let mut command = Command::new(backend);
        command.args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"]).args([
            "--database",
            database,
            "--allow-private-webhooks",
        ]);
        if let Some(url) = public_url {
            command.args(["--public-url", url]);
        }
        let process = Process::start("backend", &mut command)?;
        let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())?;
        Ok(Self { process, address })
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> &crate::process::Output {
        self.process.output()
    }
}

/// A backend of a test's own, on a fresh database.
#[derive(Debug)]
pub struct Service {
    /// Its keys.
    pub keys: Keys,
    backend: Backend,
    folder: TempDir,
}

impl Service {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let command = crate::artifacts::command("backend");
        let database = database_in(folder.path());
        let keys = Keys::seed(command, &database)?;
        let backend = Backend::serve(command, &database, Some(PUBLIC_URL))?;
        Ok(Self { keys, backend, folder })
    }

    /// Makes one more key of the workspace.
    ///
    /// # Errors
    /// When that fails.
    pub fn create_key(&mut self, plan: &str) -> anyhow::Result<String> {
        let database = database_in(self.folder.path());
        self.keys.create(crate::artifacts::command("backend"), &database, plan)
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.backend.address()
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
    // Ends the listener when it is dropped.
    _stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl SteppedService {
    /// Starts it at `now`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(now: Timestamp) -> anyhow::Result<Self> {
        Self::start_with(now, Settings::default())
    }

    /// Starts it at `now`, with settings of its own.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_with(now: Timestamp, settings: Settings) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let database = database_in(folder.path());
        let keys = Keys::seed(crate::artifacts::command("backend"), &database)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let clock = SteppedClock::at(now);
        let (stop, stopped) = watch::channel(false);
        let (backend, address) = runtime.block_on(async {
            let store = Store::open(&database).await?;
            let options = Options {
                public_url: PublicUrl::parse(PUBLIC_URL)?,
                webhook_addresses: AddressPolicy::any(),
            };
            let backend = backend::Backend::start_with(store, clock.clock(), options, settings);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            tokio::spawn(server::serve(listener, backend.router(), stopped));
            anyhow::Ok((backend, address))
        })?;
        Ok(Self { keys, runtime, backend, clock, address, _stop: stop, _folder: folder })
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
