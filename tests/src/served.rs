//! Gateways that listen, for clients in processes of their own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::client::Client;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::exchange::get;
use crate::gateway::{DIRECTORY_UPDATED, Kind, wait_for_directory};
use crate::process::Process;
use crate::{artifacts, clock};

/// A gateway that ends with this value.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    _gateway: Running,
    _folder: TempDir,
}

#[expect(dead_code, reason = "held so that it ends with its owner")]
#[derive(Debug)]
enum Running {
    Simulator(Process),
    Envoy(Box<Envoy>),
}

impl Served {
    /// Starts a gateway that takes its configuration from the same bootstrap, whichever it is, and waits until its directory, if it has one,
    /// has answered each of its VMs.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(kind: Kind, setup: Setup) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (address, gateway) = match kind {
            Kind::Simulator(_) => {
                let (address, process) = serve_with_host_sim(&setup, folder.path())?;
                (address, Running::Simulator(process))
            }
            Kind::Envoy => {
                let asks_directory = setup.directory.is_some();
                let envoy = Envoy::start(setup)?;
                if asks_directory {
                    wait_for_directory(&envoy);
                }
                (envoy.address(), Running::Envoy(Box::new(envoy)))
            }
        };
        Ok(Self { address, _gateway: gateway, _folder: folder })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn serve_with_host_sim(setup: &Setup, folder: &Path) -> anyhow::Result<(SocketAddr, Process)> {
    let Upstream::At(upstream) = setup.upstream else { anyhow::bail!("host-sim needs an upstream") };
    let config = folder.join("envoy.json");
    std::fs::write(&config, setup.bootstrap(folder)?.to_string())
        .with_context(|| format!("cannot write {}", config.display()))?;
    let mut command = Command::new(artifacts::command("host-sim"));
    command
        .args(["serve", "--wasm"])
        .arg(artifacts::filter_wasm())
        .arg("--config")
        .arg(config)
        .args(["--listen", &setup.listen.to_string()])
        .args(["--upstream", &format!("http://{upstream}")])
        .args(["--workers", &setup.workers.to_string(), "--admin", "127.0.0.1:0"]);
    if let Some(directory) = &setup.directory {
        command.args([
            "--cluster",
            &format!("{}=http://{}", setup.policy.directory_cluster()?, directory.address),
        ]);
    }
    let process = Process::start("host-sim", &mut command)?;
    let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())?;
    if setup.directory.is_some() {
        let admin = process.wait_for(|line| line.strip_prefix("admin on http://")?.parse().ok())?;
        let admin = Client::to(admin)?;
        clock::eventually("the directory's answer to each VM", Duration::from_secs(30), || {
            let stats = admin.send(&get("/stats")).ok()?;
            let stats = String::from_utf8_lossy(stats.body()).into_owned();
            let updates = stats.lines().find_map(|line| {
                line.strip_prefix("wasmcustom.")?.strip_prefix(DIRECTORY_UPDATED)?.strip_prefix(": ")
            })?;
            // The main VM asks as well.
            (updates.parse::<usize>().ok()? > setup.workers).then_some(())
        })?;
    }
    Ok((address, process))
}
