//! The service behind the gateway, with one key for each plan.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::process::Process;

/// A workspace with one key for each plan.
#[derive(Debug, Clone)]
pub struct Keys {
    workspace: String,
    by_plan: BTreeMap<String, String>,
}

impl Keys {
    /// Makes them in a database, with `backend seed`.
    ///
    /// # Errors
    /// When the command fails.
    pub fn seed(backend: &Path, database: &str) -> anyhow::Result<Self> {
        run(backend, &["migrate", "--database", database])?;
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

    /// The workspace's id.
    #[must_use]
    pub fn workspace(&self) -> &str {
        &self.workspace
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

/// Runs the command and returns what it printed.
///
/// # Errors
/// When it fails; what it said is in the error.
pub fn run(backend: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(backend).args(arguments).output().context("cannot run backend")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "backend {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).context("backend printed no UTF-8")
}

/// Runs the command and reads the JSON that it printed.
///
/// # Errors
/// When it fails or prints something else.
pub fn run_json(backend: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let printed = run(backend, arguments)?;
    serde_json::from_str(&printed)
        .with_context(|| format!("backend {} printed {printed}", arguments.join(" ")))
}

/// The database of a folder.
#[must_use]
pub fn database_in(folder: &Path) -> String {
    format!("sqlite:{}", database_file_in(folder).display())
}

/// The file of the database of a folder.
#[must_use]
pub fn database_file_in(folder: &Path) -> PathBuf {
    folder.join("weir.db")
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
            // The gateway.
            .args(["--trusted-hops", "1"])
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
///
/// # Errors
/// When the system has no random bytes.
pub fn fresh_token() -> anyhow::Result<String> {
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

    /// Its process, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Waits until it has ended after a signal.
    ///
    /// # Errors
    /// When its status cannot be had.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.wait().map(drop))
    }

    /// Starts it again where it was, after it has ended.
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
