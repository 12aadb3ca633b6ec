//! The service behind the gateway, with one key for each plan.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
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

use crate::process::Process;

/// Where short links of a test live; nothing is ever looked up there.
const PUBLIC_URL: &str = "http://links.example.test";

/// A workspace with one key for each plan.
#[derive(Debug, Clone)]
pub struct Keys {
    workspace: String,
    by_plan: BTreeMap<String, String>,
}

/// A key made later.
#[derive(Debug, Clone)]
pub struct CreatedKey {
    /// By which it is revoked.
    pub id: String,
    /// What a client sends.
    pub key: String,
}

impl Keys {
    /// Makes them in a database, with `backend seed`.
    ///
    /// # Errors
    /// When the command fails.
    pub fn seed(backend: &Path, database: &str) -> anyhow::Result<Self> {
        let seeded = run_json(backend, &["seed", "--json", "--database", database])?;
        let keys = seeded["keys"].as_array().context("no keys in the seed")?;
        let by_plan = keys
            .iter()
            .filter_map(|key| Some((key["plan"].as_str()?.to_owned(), key["key"].as_str()?.to_owned())));
        Ok(Self {
            workspace: seeded["workspace"].as_str().context("no workspace in the seed")?.to_owned(),
            by_plan: by_plan.collect(),
        })
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
}

fn run(backend: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(backend).args(arguments).output().context("cannot run backend")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "backend {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).context("backend printed no UTF-8")
}

fn run_json(backend: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let printed = run(backend, arguments)?;
    serde_json::from_str(&printed)
        .with_context(|| format!("backend {} printed {printed}", arguments.join(" ")))
}

/// The database of a folder.
#[must_use]
pub fn database_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("weir.db").display())
}

/// Where a gateway's filter fetches the keys: a backend's internal listener.
#[derive(Debug, Clone)]
pub struct Directory {
    /// The listener.
    pub address: SocketAddr,
    /// What it asks for.
    pub token: String,
}

/// A running `backend serve`.
#[derive(Debug)]
pub struct Backend {
    launch: Launch,
    process: Option<Process>,
    address: SocketAddr,
    directory: Directory,
}

/// What it is started with, and started again.
#[derive(Debug)]
struct Launch {
    backend: PathBuf,
    database: String,
    public_url: Option<String>,
}

impl Launch {
    /// Starts it, and returns where it listens.
    fn start(
        &self,
        token: &str,
        [api, internal]: [SocketAddr; 2],
    ) -> anyhow::Result<(Process, SocketAddr, SocketAddr)> {
        let mut command = Command::new(&self.backend);
        command
            .arg("serve")
            .args(["--listen", &api.to_string(), "--internal-listen", &internal.to_string()])
            .args(["--database", &self.database, "--allow-private-webhooks"])
            .env("WEIR_INTERNAL_TOKEN", token);
        if let Some(url) = &self.public_url {
            command.args(["--public-url", url]);
        }
        let process = Process::start("backend", &mut command)?;
        let listener = |name: &str| {
            process.wait_for(|line| line.strip_prefix(name)?.strip_prefix(" on http://")?.parse().ok())
        };
        let (api, internal) = (listener("listening")?, listener("internal")?);
        Ok((process, api, internal))
    }
}

/// A token that nobody can guess.
fn fresh_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("no random bytes")?;
    Ok(hex::encode(bytes))
}

impl Backend {
    /// Starts it and waits until it listens. Without `public_url` short links live where it listens.
    ///
    /// # Errors
    /// When it does not start.
    pub fn serve(backend: &Path, database: &str, public_url: Option<&str>) -> anyhow::Result<Self> {
        const FREE_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let launch = Launch {
            backend: backend.to_owned(),
            database: database.to_owned(),
            public_url: public_url.map(str::to_owned),
        };
        let token = fresh_token()?;
        let (process, address, internal) = launch.start(&token, [FREE_PORT; 2])?;
        Ok(Self {
            launch,
            process: Some(process),
            address,
            directory: Directory { address: internal, token },
        })
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was, after [`Self::stop`].
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let addresses = [self.address, self.directory.address];
        let (process, ..) = self.launch.start(&self.directory.token, addresses)?;
        self.process = Some(process);
        Ok(())
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
    pub fn create_key(&self, plan: &str) -> anyhow::Result<CreatedKey> {
        let created = run_json(
            crate::artifacts::command("backend"),
            &["keys", "create", "--json", "--plan", plan, "--workspace", &self.keys.workspace]
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

    /// The keys there are now, as a configuration takes them.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn subscribers(&self) -> anyhow::Result<Value> {
        let database = database_in(self.folder.path());
        run_json(crate::artifacts::command("backend"), &["keys", "list", "--json", "--database", &database])
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
        let token = fresh_token()?;
        let settings = Settings { internal_token: Some(token.clone()), ..settings };
        let (backend, address, internal) = runtime.block_on(async {
            let store = Store::open(&database).await?;
            let options = Options {
                public_url: PublicUrl::parse(PUBLIC_URL)?,
                webhook_addresses: AddressPolicy::any(),
            };
            let backend = backend::Backend::start_with(store, clock.clock(), options, settings);
            let public = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let internal = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let addresses = (public.local_addr()?, internal.local_addr()?);
            tokio::spawn(server::serve(public, backend.front(), stopped.clone()));
            tokio::spawn(server::serve(internal, backend.internal_router(), stopped));
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
