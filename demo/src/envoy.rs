//! A real Envoy with the filter, configured by `envoy/envoy.yaml`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::backend::Directory;
use crate::client::Client;
use crate::clock;
use crate::exchange::{Answer, get};
use crate::ledger::{self, Ledger};
use crate::policy::{self, Policy};
use crate::process::Process;
use crate::{artifacts, exchange};

const CONNECTION_MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
/// Loopback only.
const FREE_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const ROUTES: &str = "/route_config/virtual_hosts/0/routes";
/// The cluster of the directory in `envoy.yaml`.
const DIRECTORY: &str = "backend-internal";

/// Where requests go that the filter lets pass.
#[derive(Debug, Clone, Copy)]
pub enum Upstream {
    /// The cluster `backend`.
    At(SocketAddr),
    /// The cluster `backend`, whose address the case sets itself.
    Elsewhere,
    /// Nowhere: Envoy answers 200 itself.
    DirectResponse,
}

/// How a running Envoy gets another configuration of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updates {
    /// Not at all.
    None,
    /// From a file with the filter's configuration (ECDS). New streams on all connections have it.
    Extension,
    /// From a file with the listener (LDS). New connections have it; connections that were open drain.
    Listener,
}

/// How an Envoy differs from `envoy/envoy.yaml`.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The filter's configuration.
    pub policy: Policy,
    /// Where requests go.
    pub upstream: Upstream,
    /// Where the filter fetches the keys, if its configuration says that it does.
    pub directory: Option<Directory>,
    /// Where the ledger of its fleet is, if its configuration has a fleet.
    pub ledger: Option<SocketAddr>,
    /// Worker threads.
    pub workers: usize,
    /// Proxies in front whose X-Forwarded-For is believed.
    pub trusted_hops: u32,
    /// How it gets another configuration.
    pub updates: Updates,
    /// How long connections drain after a listener update.
    pub drain: Duration,
    /// Where it listens; port 0 is a free one.
    pub listen: SocketAddr,
    /// The filter's module, if it is another than the built filter.
    pub module: Option<PathBuf>,
    /// Environment variables of its process.
    pub variables: Vec<(&'static str, String)>,
}

impl Setup {
    /// As the repository's file has it, with `policy` and in front of `upstream`.
    #[must_use]
    pub fn new(policy: Policy, upstream: Upstream) -> Self {
        Self {
            policy,
            upstream,
            directory: None,
            ledger: None,
            workers: 2,
            trusted_hops: 0,
            updates: Updates::None,
            drain: Duration::from_secs(1),
            listen: FREE_PORT,
            module: None,
            variables: Vec::new(),
        }
    }

    /// With the keys from there.
    #[must_use]
    pub fn keys_from(self, directory: Directory) -> Self {
        Self { directory: Some(directory), ..self }
    }

    /// Sharing quotas through this ledger.
    #[must_use]
    pub fn sharing_through(self, ledger: &Ledger) -> Self {
        let policy = self.policy.with("fleet", ledger.fleet());
        Self { policy, ledger: Some(ledger.address()), ..self }
    }

    /// With this number of worker threads.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Believing this number of proxies.
    #[must_use]
    pub fn trusted_hops(self, trusted_hops: u32) -> Self {
        Self { trusted_hops, ..self }
    }

    /// With a configuration that can be replaced while it runs, for new streams on all connections.
    #[must_use]
    pub fn live_updates(self) -> Self {
        self.updates(Updates::Extension)
    }

    /// With a configuration that can be replaced in this way while it runs.
    #[must_use]
    pub fn updates(self, updates: Updates) -> Self {
        Self { updates, ..self }
    }

    /// With this drain time, in whole seconds.
    #[must_use]
    pub fn drain(self, drain: Duration) -> Self {
        Self { drain, ..self }
    }

    /// Listening there.
    #[must_use]
    pub fn listen(self, listen: SocketAddr) -> Self {
        Self { listen, ..self }
    }

    /// The bootstrap with everything put in, as JSON, which Envoy reads as well.
    ///
    /// # Errors
    /// When `envoy.yaml` lacks what is to be replaced.
    pub fn bootstrap(&self) -> anyhow::Result<Value> {
        let mut bootstrap = policy::bootstrap()?;
        set(&mut bootstrap, "/admin/address/socket_address/port_value", json!(0))?;
        let listener = "/static_resources/listeners/0/address/socket_address";
        set(
            &mut bootstrap,
            listener,
            json!({"address": self.listen.ip(), "port_value": self.listen.port()}),
        )?;
        // Dealt out in turn, not by a hash of addresses, so that every worker has its connections.
        bootstrap["static_resources"]["listeners"][0]["connection_balance_config"] =
            json!({"exact_balance": {}});
        set(&mut bootstrap, &format!("{CONNECTION_MANAGER}/xff_num_trusted_hops"), json!(self.trusted_hops))?;
        if let Some(directory) = &self.directory {
            let name = self.policy.directory_cluster()?;
            let cluster = cluster(&mut bootstrap, DIRECTORY)?;
            cluster["name"] = json!(name);
            cluster["load_assignment"]["cluster_name"] = json!(name);
            set_cluster(&mut bootstrap, name, directory.address)?;
        }
        if let Some(ledger) = self.ledger {
            add_ledger(&mut bootstrap, ledger)?;
        }
        match self.upstream {
            Upstream::At(address) => set_cluster(&mut bootstrap, "backend", address)?,
            Upstream::Elsewhere => {}
            Upstream::DirectResponse => set(
                &mut bootstrap,
                &format!("{CONNECTION_MANAGER}{ROUTES}"),
                json!([{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]),
            )?,
        }
        self.configure(policy::weir_filter(&mut bootstrap)?)?;
        Ok(bootstrap)
    }

    /// The filter's configuration with the directory's token in it.
    #[must_use]
    pub fn configuration(&self) -> String {
        let policy = self.policy.clone();
        let policy = match &self.directory {
            Some(directory) => policy.with_at("/directory/bearer", json!(directory.token)),
            None => policy,
        };
        policy.to_string()
    }

    /// The variable of the gateway's environment that has the directory's token, if the configuration names one.
    pub(crate) fn environment(&self) -> Option<(&str, &str)> {
        let name = self.policy.as_value().pointer("/directory/bearer/env")?.as_str()?;
        Some((name, &self.directory.as_ref()?.token))
    }

    /// Gives the filter its module and its configuration.
    fn configure(&self, filter: &mut Value) -> anyhow::Result<()> {
        let configuration = match self.environment() {
            Some(_) => self.policy.to_string(),
            None => self.configuration(),
        };
        let module = self.module.as_deref().unwrap_or_else(|| artifacts::filter_wasm());
        // One that a control plane serves stays.
        if filter.pointer("/typed_config/config/vm_config/code/remote").is_none() {
            set(filter, "/typed_config/config/vm_config/code/local/filename", json!(module))?;
        }
        set(filter, "/typed_config/config/configuration/value", json!(configuration))
    }
}

/// Adds the ledger's cluster, which `envoy.yaml` lacks.
fn add_ledger(bootstrap: &mut Value, address: SocketAddr) -> anyhow::Result<()> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    let endpoint =
        json!({"address": {"socket_address": {"address": address.ip(), "port_value": address.port()}}});
    clusters.context("envoy.yaml has no clusters")?.push(json!({
        "name": ledger::CLUSTER,
        "load_assignment": {"cluster_name": ledger::CLUSTER, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }));
    Ok(())
}

/// Has a cluster of a bootstrap lead to `address`.
///
/// # Errors
/// When it has no such cluster.
pub fn set_cluster(bootstrap: &mut Value, name: &str, address: SocketAddr) -> anyhow::Result<()> {
    let socket = json!({"address": address.ip(), "port_value": address.port()});
    *cluster_address(bootstrap, name)? = json!({"socket_address": socket});
    Ok(())
}

/// Where a cluster of a bootstrap leads.
///
/// # Errors
/// When it has no such cluster.
pub fn cluster_address<'b>(bootstrap: &'b mut Value, name: &str) -> anyhow::Result<&'b mut Value> {
    cluster(bootstrap, name)?
        .pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address")
        .with_context(|| format!("the bootstrap's cluster {name} has no address"))
}

/// A cluster of a bootstrap.
///
/// # Errors
/// When it has no such cluster.
pub fn cluster<'b>(bootstrap: &'b mut Value, name: &str) -> anyhow::Result<&'b mut Value> {
    let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    clusters
        .and_then(|clusters| clusters.iter_mut().find(|cluster| cluster["name"] == name))
        .with_context(|| format!("the bootstrap has no cluster {name}"))
}

/// Replaces the value at a pointer that envoy.yaml must have.
fn set(bootstrap: &mut Value, pointer: &str, value: Value) -> anyhow::Result<()> {
    *bootstrap.pointer_mut(pointer).with_context(|| format!("envoy.yaml has no {pointer}"))? = value;
    Ok(())
}

fn extension_file(folder: &Path) -> PathBuf {
    folder.join("weir.json")
}

fn listener_file(folder: &Path) -> PathBuf {
    folder.join("listener.json")
}

fn write_extension(folder: &Path, filter: &Value) -> anyhow::Result<()> {
    let extension = json!({"name": filter["name"], "typed_config": filter["typed_config"]});
    write_resource(
        &extension_file(folder),
        "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        extension,
    )
}

fn write_listener(folder: &Path, bootstrap: &Value) -> anyhow::Result<()> {
    let listener = bootstrap["static_resources"]["listeners"][0].clone();
    write_resource(&listener_file(folder), "type.googleapis.com/envoy.config.listener.v3.Listener", listener)
}

/// Writes a discovery response with one resource, in one step, which is what Envoy watches for.
fn write_resource(file: &Path, type_url: &str, mut resource: Value) -> anyhow::Result<()> {
    resource["@type"] = json!(type_url);
    let next = file.with_extension("next");
    std::fs::write(&next, json!({"resources": [resource]}).to_string())?;
    std::fs::rename(next, file)?;
    Ok(())
}

/// Has the filter's configuration come from a file instead of the bootstrap.
fn discover_extension(bootstrap: &mut Value, folder: &Path) -> anyhow::Result<()> {
    let filter = policy::weir_filter(bootstrap)?;
    write_extension(folder, filter)?;
    *filter = json!({
        "name": filter["name"],
        "config_discovery": {
            "config_source": {"path_config_source": {"path": extension_file(folder)}, "resource_api_version": "V3"},
            "type_urls": [filter["typed_config"]["@type"]],
        },
    });
    Ok(())
}

/// Has the first listener come from a file instead of the bootstrap.
fn discover_listener(bootstrap: &mut Value, folder: &Path) -> anyhow::Result<()> {
    write_listener(folder, bootstrap)?;
    let listeners = bootstrap.pointer_mut("/static_resources/listeners").and_then(Value::as_array_mut);
    listeners.context("envoy.yaml has no listeners")?.remove(0);
    bootstrap["dynamic_resources"]["lds_config"] = json!({
        "path_config_source": {"path": listener_file(folder)},
        "resource_api_version": "V3",
    });
    Ok(())
}

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
