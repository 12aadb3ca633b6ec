//! A case's guest in the simulator, as `host-sim serve` runs it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context as _;
use host_sim::{Clock, EnvoyVersion, Host, Module};
use host_sim_cli::gateway::{Gateway, Options};

use super::upstream::Upstream;
use super::{Case, Contender, RESPONSE_TIMEOUT};

/// A gateway with one worker.
pub(super) struct Simulator {
    gateway: Gateway,
    upstream: Upstream,
    clusters: BTreeMap<String, Upstream>,
}

fn url(address: SocketAddr) -> anyhow::Result<http::Uri> {
    format!("http://{address}").parse().context("an upstream's address")
}

impl Simulator {
    pub(super) fn start(case: &Case, version: EnvoyVersion) -> anyhow::Result<Self> {
        let upstream = Upstream::start(&case.scenario.upstream)?;
        let mut options = Options::new(url(upstream.address())?);
        let mut clusters = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (name, answer) in &case.scenario.clusters {
            let cluster = Upstream::start(answer)?;
            names.insert(name.clone(), url(cluster.address())?);
            clusters.insert(name.clone(), cluster);
        }
        options.clusters = names;
        options.response_timeout = RESPONSE_TIMEOUT;
        let mut builder = Host::builder().clock(Clock::real()).envoy_version(version);
        // What Envoy's configuration says.
        let named = [("cluster_name", "upstream"), ("virtual_host_name", "all")];
        builder = builder
            .property(["xds", "node"], serde_json::json!({"id": "case", "cluster": "case", "metadata": {}}));
        for (name, value) in named {
            builder = builder.property(["xds", name], value);
        }
        if let Some(bytes) = case.scenario.buffer_limit {
            builder = builder.buffer_limit(bytes);
        }
        let mut host = builder.build();
        let module = Module::compile(&case.wasm)?;
        host.load_chain(case.plugins()?.into_iter().map(|plugin| (&module, plugin)))?;
        let gateway = Gateway::start(host, options)?;
        Ok(Self { gateway, upstream, clusters })
    }
}

impl Contender for Simulator {
    fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    fn clusters(&self) -> &BTreeMap<String, Upstream> {
        &self.clusters
    }

    /// What the guest has logged.
    fn log(&self) -> Vec<String> {
        let lines = self.gateway.host().logs().lines().into_iter();
        lines.filter(|line| !line.by_host).map(|line| line.message).collect()
    }

    fn update(&mut self, configuration: String) -> anyhow::Result<bool> {
        Ok(self.gateway.update(configuration).is_ok())
    }
}
