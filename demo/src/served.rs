//! Gateways that listen, for clients in processes of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::client::Client;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::exchange::get;
use crate::process::Process;
use crate::{artifacts, clock, ledger};

/// The filter's gauge of the directory's last good answer, which is 0 until the list is complete.
pub const DIRECTORY_ANSWERED: &str = "weir.directory.answered_timestamp_seconds";

/// Time after which every VM has seen a list that is complete: each looks ten times a second.
pub const SEEN_WITHIN: Duration = Duration::from_millis(300);

/// Which gateway.
#[derive(Debug, Clone)]
pub enum Gateway {
    /// The simulator, serving: this command.
    HostSim(PathBuf),
    /// A real Envoy.
    Envoy,
}

/// A gateway that ends with this value.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    admin_address: SocketAddr,
    _gateway: Running,
    _folder: TempDir,
}

#[expect(dead_code, reason = "held so that it ends with its owner")]
#[derive(Debug)]
enum Running {
    HostSim(Process),
    Envoy(Box<Envoy>),
}

impl Served {
    /// Starts a gateway that takes its configuration from the same bootstrap, whichever it is, and waits until the list of its
    /// directory, if it has one, is known to each of its VMs.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(gateway: &Gateway, setup: Setup) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let asks_directory = setup.directory.is_some();
        let (address, admin, running) = match gateway {
            Gateway::HostSim(command) => {
                let (process, address, admin) = serve_with_host_sim(command, &setup, folder.path())?;
                (address, admin, Running::HostSim(process))
            }
            Gateway::Envoy => {
                let envoy = Envoy::start(setup)?;
                (envoy.address(), envoy.admin_address(), Running::Envoy(Box::new(envoy)))
            }
        };
        if asks_directory {
            wait_for_directory(admin)?;
        }
        Ok(Self { address, admin_address: admin, _gateway: running, _folder: folder })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its statistics are.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }
}

/// Returns once the directory's list is complete, and every VM has seen it. Both gateways tell it in the same line.
fn wait_for_directory(admin: SocketAddr) -> anyhow::Result<()> {
    let admin = Client::to(admin)?;
    clock::eventually("the directory's list", Duration::from_secs(30), || {
        let stats = admin.send(&get("/stats")).ok()?;
        let stats = String::from_utf8_lossy(stats.body());
        let answered = stats.lines().find_map(|line| {
            line.strip_prefix("wasmcustom.")?.strip_prefix(DIRECTORY_ANSWERED)?.strip_prefix(": ")
        })?;
        (answered != "0").then_some(())
    })?;
    clock::pass(SEEN_WITHIN);
    Ok(())
}

/// Starts it, and returns where it listens and where its admin address is.
fn serve_with_host_sim(
    command: &Path,
    setup: &Setup,
    folder: &Path,
) -> anyhow::Result<(Process, SocketAddr, SocketAddr)> {
    let Upstream::At(upstream) = setup.upstream else { anyhow::bail!("host-sim needs an upstream") };
    let config = folder.join("envoy.json");
    std::fs::write(&config, setup.bootstrap()?.to_string())
        .with_context(|| format!("cannot write {}", config.display()))?;
    let mut command = Command::new(command);
    command
        .args(["serve", "--wasm"])
        .arg(artifacts::filter_wasm())
        .arg("--config")
        .arg(config)
        .args(["--listen", &setup.listen.to_string()])
        .args(["--upstream", &format!("http://{upstream}")])
        .args(["--workers", &setup.workers.to_string(), "--admin", "127.0.0.1:0"])
        .envs(setup.environment());
    if let Some(directory) = &setup.directory {
        command.args([
            "--cluster",
            &format!("{}=http://{}", setup.policy.directory_cluster()?, directory.address),
        ]);
    }
    if let Some(address) = setup.ledger {
        command.args(["--cluster", &format!("{}=http://{address}", ledger::CLUSTER)]);
    }
    let process = Process::start("host-sim", &mut command)?;
    let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())?;
    let admin = process.wait_for(|line| line.strip_prefix("admin on http://")?.parse().ok())?;
    Ok((process, address, admin))
}
