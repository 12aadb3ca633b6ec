//! A case's guest in the simulator, as `host-sim serve` runs it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context as _;
use host_sim::{Clock, Host, LogLevel, Module};
use host_sim_cli::gateway::{Gateway, Options};

use super::upstream::Upstream;
use super::{Case, Contender};
use crate::client::Client;

/// What lines of the host itself begin with.
const OF_THE_HOST: [&str; 3] = ["proc_exit(", "Attempted call to restricted", "expr_create "];

/// A gateway with one worker.
pub(super) struct Simulator {
    gateway: Gateway,
    client: Client,
    upstream: Upstream,
    // They answer as long as they live.
    _clusters: Vec<Upstream>,
}

fn url(address: SocketAddr) -> anyhow::Result<http::Uri> {
    format!("http://{address}").parse().context("an upstream's address")
}

impl Simulator {
    pub(super) fn start(case: &Case) -> anyhow::Result<Self> {
        let upstream = Upstream::start(&case.scenario.upstream)?;
        let mut options = Options::new(url(upstream.address())?);
        let mut clusters = Vec::new();
        let mut names = BTreeMap::new();
        for (name, answer) in &case.scenario.clusters {
            let cluster = Upstream::start(answer)?;
            names.insert(name.clone(), url(cluster.address())?);
            clusters.push(cluster);
        }
        options.clusters = names;
        let mut host = Host::builder().clock(Clock::real()).build();
        let module = Module::compile(&case.wasm)?;
        host.load_chain(case.plugins().into_iter().map(|plugin| (&module, plugin)))?;
        let gateway = Gateway::start(host, options)?;
        let client = Client::to(gateway.address())?;
        Ok(Self { gateway, client, upstream, _clusters: clusters })
    }
}

impl Contender for Simulator {
    fn client(&self) -> &Client {
        &self.client
    }

    fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// What the guest has logged. What the host itself says of a failed VM is at the level critical, which no guest of
    /// these uses.
    fn log(&self) -> Vec<String> {
        let lines = self.gateway.host().logs().lines().into_iter();
        lines
            .filter(|line| {
                line.level != LogLevel::Critical
                    && !OF_THE_HOST.iter().any(|own| line.message.starts_with(own))
            })
            .map(|line| line.message)
            .collect()
    }

    fn update(&mut self, configuration: String) -> anyhow::Result<bool> {
        Ok(self.gateway.update(configuration).is_ok())
    }
}
