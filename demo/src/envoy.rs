//! A real Envoy with the filter, configured by `envoy/envoy.yaml`.

mod bootstrap;
mod setup;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

pub use self::bootstrap::{cluster, cluster_address, set_cluster};
use self::bootstrap::{discover_extension, discover_listener, write_extension, write_listener};
pub use self::setup::{Setup, Updates, Upstream};
use crate::client::Client;
use crate::exchange::{Answer, get};
use crate::policy::{self, Policy};
use crate::process::Process;
use crate::{artifacts, clock, exchange};

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    setup: Setup,
    folder: TempDir,
    /// With the listener and the filter, wherever Envoy has them from.
    bootstrap: Value,
    address: SocketAddr,
    admin_address: SocketAddr,
    admin: Client,
    client: Client,
}

impl Envoy {
    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// When it refuses its configuration; its log is in the error.
    pub fn start(setup: Setup) -> anyhow::Result<Self> {
        Self::start_amended(setup, |_, _| Ok(()))
    }

    /// Starts it with a bootstrap that `amend` has changed; what it puts into the folder lives as long as the Envoy.
    ///
    /// # Errors
    /// When `amend` fails, or as [`Envoy::start`].
    pub fn start_amended(
        setup: Setup,
        amend: impl FnOnce(&mut Value, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (process, bootstrap) = launch(&setup, folder.path(), amend)?;
        process.wait_for(|line| line.contains("starting main dispatch loop").then_some(()))?;
        let admin_address = std::fs::read_to_string(folder.path().join("admin"))?.trim().parse()?;
        let admin = Client::to(admin_address)?;
        // Until the filters' modules are there, a listener is bound and does not listen.
        let listens = || stat(&admin, "listener_manager.workers_started").is_ok_and(|started| started == 1);
        let listening = || bound(&admin, |_| true).filter(|_| listens());
        let address = clock::eventually("Envoy's listener", Duration::from_secs(30), listening)?;
        let client = Client::to(address)?;
        Ok(Self { process, setup, folder, bootstrap, address, admin_address, admin, client })
    }

    /// Starts it with a configuration that it must refuse, and returns what it logged once it has ended.
    ///
    /// # Errors
    /// When it serves after all.
    pub fn refuse(setup: &Setup) -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let (mut process, _) = launch(setup, folder.path(), |_, _| Ok(()))?;
        let served =
            process.wait_for(|line| line.contains("starting main dispatch loop").then_some(())).is_ok();
        ensure!(!served, "Envoy serves with {}", setup.policy);
        let status = process.wait()?;
        ensure!(!status.success(), "Envoy ended with {status}");
        Ok(process.output().lines().join("\n"))
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it serves.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its listener of this name serves.
    ///
    /// # Errors
    /// When it has no such listener.
    pub fn listener(&self, name: &str) -> anyhow::Result<SocketAddr> {
        bound(&self.admin, |listener| listener == name).with_context(|| format!("no listener {name}"))
    }

    /// Where its statistics are.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// How many worker threads it has.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.setup.workers
    }

    /// Its log and its access log.
    #[must_use]
    pub fn log(&self) -> &crate::output::Output {
        self.process.output()
    }

    /// Sends a request over a connection of its own.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn send(&self, request: &exchange::Request) -> anyhow::Result<Answer> {
        self.client.send(request)
    }

    /// The value of a counter or gauge; one that nothing has touched is zero.
    ///
    /// # Errors
    /// When the admin address does not answer.
    pub fn stat(&self, name: &str) -> anyhow::Result<u64> {
        stat(&self.admin, name)
    }

    /// How many connections each worker has taken since the start.
    ///
    /// # Errors
    /// When the admin address does not answer.
    pub fn connections_by_worker(&self) -> anyhow::Result<Vec<u64>> {
        let stats =
            self.admin.send(&get("/stats?format=json&filter=worker_.*downstream_cx_total"))?.json()?;
        let workers = stats["stats"].as_array().context("no stats of workers")?;
        Ok(workers.iter().filter_map(|stat| stat["value"].as_u64()).collect())
    }

    /// One of the filter's counters, as Prometheus reads it. The filter reports what it has counted within a second.
    ///
    /// # Errors
    /// When the admin address does not answer, or there is no such counter.
    pub fn counter(&self, plan: &str, class: &str, outcome: &str) -> anyhow::Result<u64> {
        self.prometheus(&format!(
            r#"weir_requests_total{{plan="{plan}",class="{class}",outcome="{outcome}"}}"#
        ))
    }

    /// The value of a counter or gauge as Prometheus reads it, by its name and labels.
    ///
    /// # Errors
    /// When the admin address does not answer, or there is none of this name.
    pub fn prometheus(&self, name: &str) -> anyhow::Result<u64> {
        let stats = self.admin.send(&get("/stats/prometheus"))?;
        let stats = String::from_utf8_lossy(stats.body());
        let value = |line: &str| {
            let value = line.strip_prefix(name)?;
            // Without labels there are braces all the same.
            value.strip_prefix("{}").unwrap_or(value).strip_prefix(' ')?.parse().ok()
        };
        stats.lines().find_map(value).with_context(|| format!("no {name}"))
    }

    /// The CPU time that it has taken so far.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.process.cpu_time()
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn resident_memory(&self) -> anyhow::Result<u64> {
        let output =
            Command::new("ps").args(["-o", "rss=", "-p"]).arg(self.process.id().to_string()).output()?;
        let kibibytes: u64 = String::from_utf8(output.stdout)?.trim().parse().context("no resident size")?;
        Ok(kibibytes * 1024)
    }

    /// Replaces the filter's module, as [`Envoy::update`] does its configuration.
    ///
    /// # Errors
    /// As [`Envoy::update`].
    pub fn update_module(&mut self, module: &Path) -> anyhow::Result<bool> {
        self.setup.module = Some(module.to_owned());
        self.update(self.setup.policy.clone())
    }

    /// Replaces the filter's configuration, and waits until Envoy has accepted or refused it. Returns whether Envoy accepted it; its
    /// workers apply it a moment later.
    ///
    /// # Errors
    /// When Envoy does neither, or was started without [`Setup::updates`].
    pub fn update(&mut self, policy: Policy) -> anyhow::Result<bool> {
        let filter = policy::weir_filter(&mut self.bootstrap)?;
        self.setup.policy = policy;
        self.setup.configure(filter)?;
        let [accepted, refused] = match self.setup.updates {
            Updates::None => bail!("this Envoy takes no updates"),
            Updates::Extension => {
                let name = filter["name"].as_str().context("a filter without a name")?;
                let prefix = format!("extension_config_discovery.http_filter.{name}");
                ["config_reload", "config_fail"].map(|verdict| format!("{prefix}.{verdict}"))
            }
            Updates::Listener => {
                ["update_success", "update_rejected"].map(|verdict| format!("listener_manager.lds.{verdict}"))
            }
        };
        let before = (self.stat(&accepted)?, self.stat(&refused)?);
        if self.setup.updates == Updates::Extension {
            write_extension(self.folder.path(), policy::weir_filter(&mut self.bootstrap)?)?;
        } else {
            write_listener(self.folder.path(), &self.bootstrap)?;
        }
        clock::eventually("Envoy's verdict on an update", Duration::from_secs(30), || {
            let now = (self.stat(&accepted).ok()?, self.stat(&refused).ok()?);
            match (now.0 > before.0, now.1 > before.1) {
                (_, true) => Some(false),
                (true, false) => Some(true),
                (false, false) => None,
            }
        })
    }
}

fn stat(admin: &Client, name: &str) -> anyhow::Result<u64> {
    let stats = admin.send(&get("/stats?format=json"))?.json()?;
    let all = stats["stats"].as_array().context("no stats")?;
    let found = all.iter().find(|stat| stat["name"] == name);
    Ok(found.and_then(|stat| stat["value"].as_u64()).unwrap_or(0))
}

/// Where the first listener that is bound to an IP address listens, of those that are meant by their names.
fn bound(admin: &Client, is_meant: impl Fn(&str) -> bool) -> Option<SocketAddr> {
    let listeners = admin.send(&get("/listeners?format=json")).ok()?.json().ok()?;
    let statuses = listeners["listener_statuses"].as_array()?;
    let mut meant = statuses.iter().filter(|status| status["name"].as_str().is_some_and(&is_meant));
    let bound = meant.find_map(|status| status.pointer("/local_address/socket_address"))?;
    format!("{}:{}", bound["address"].as_str()?, bound["port_value"]).parse().ok()
}

fn launch(
    setup: &Setup,
    folder: &Path,
    amend: impl FnOnce(&mut Value, &Path) -> anyhow::Result<()>,
) -> anyhow::Result<(Process, Value)> {
    let config = folder.join("envoy.json");
    let mut bootstrap = setup.bootstrap()?;
    amend(&mut bootstrap, folder)?;
    let mut started = bootstrap.clone();
    match setup.updates {
        Updates::None => {}
        Updates::Extension => discover_extension(&mut started, folder)?,
        Updates::Listener => discover_listener(&mut started, folder)?,
    }
    std::fs::write(&config, started.to_string())?;
    let process = Process::start(
        "envoy",
        Command::new(artifacts::envoy())
            .arg("--config-path")
            .arg(config)
            .arg("--admin-address-path")
            .arg(folder.join("admin"))
            .args(["--disable-hot-restart", "--log-level", "info"])
            // Lines of the access log come within this time, instead of 10 s.
            .args(["--file-flush-interval-msec", "100"])
            .args(["--drain-time-s", &setup.drain.as_secs().to_string()])
            .args(["--concurrency", &setup.workers.to_string()])
            .envs(setup.environment())
            .envs(setup.variables.iter().map(|(name, value)| (name, value))),
    )?;
    Ok((process, bootstrap))
}
