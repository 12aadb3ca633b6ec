//! Gateways that listen, for clients in processes of their own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::artifacts;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::gateway::Kind;
use crate::process::Process;

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
    /// Starts a gateway that takes its configuration from the same bootstrap, whichever it is.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(kind: Kind, setup: Setup) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (address, gateway) = match kind {
            Kind::Simulator => {
                let (address, process) = serve_with_host_sim(&setup, folder.path())?;
                (address, Running::Simulator(process))
            }
            Kind::Envoy => {
                let envoy = Envoy::start(setup)?;
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
    let process = Process::start(
        "host-sim",
        Command::new(artifacts::command("host-sim"))
            .args(["serve", "--wasm"])
            .arg(artifacts::filter_wasm())
            .arg("--config")
            .arg(config)
            .args(["--listen", &setup.listen.to_string()])
            .args(["--upstream", &format!("http://{upstream}")]),
    )?;
    let address = process.wait_for(|line| line.strip_prefix("listening on http://")?.parse().ok())?;
    Ok((address, process))
}
