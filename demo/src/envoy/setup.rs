//! How an Envoy differs from `envoy/envoy.yaml`, and the bootstrap that follows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::bootstrap::{add_ledger, cluster, set, set_cluster};
use crate::artifacts;
use crate::backend::Directory;
use crate::ledger::Ledger;
use crate::policy::{self, Policy};

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

    /// The filter's configuration with the directory's token in it, also for reports, unless it has a token.
    #[must_use]
    pub fn configuration(&self) -> String {
        let Some(directory) = &self.directory else { return self.policy.to_string() };
        let with_token = |policy: Policy, service: &str| {
            let has = |pointer: &str| policy.as_value().pointer(pointer);
            let bearer = format!("/{service}/bearer");
            match has(&format!("/{service}")).is_none() || has(&bearer).is_some_and(Value::is_string) {
                true => policy,
                false => policy.with_at(&bearer, json!(directory.token)),
            }
        };
        ["directory", "usage"].into_iter().fold(self.policy.clone(), with_token).to_string()
    }

    /// The variable of the gateway's environment that has the directory's token, if the configuration names one.
    pub(crate) fn environment(&self) -> Option<(&str, &str)> {
        let name = self.policy.as_value().pointer("/directory/bearer/env")?.as_str()?;
        Some((name, &self.directory.as_ref()?.token))
    }

    /// Gives the filter its module and its configuration.
    pub(super) fn configure(&self, filter: &mut Value) -> anyhow::Result<()> {
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
