//! A scenario's filters in host-sim, as `host-sim serve` runs them.

use std::{collections::BTreeMap, net::SocketAddr};

use host_sim::{Clock, EnvoyVersion, Flavour, Host, Logs, MetricValue};
use http::Uri;

use super::{AgainstError, CONFIGURED, ChainedFilter, Contender, response_timeout, upstream::Upstream};
use crate::{
    gateway::{Gateway, Options},
    scenario::Scenario,
};

/// A gateway with one worker.
#[derive(Debug)]
pub struct Simulator {
    gateway: Gateway,
    upstream: Upstream,
    clusters: BTreeMap<String, Upstream>,
}

fn url(address: SocketAddr) -> Result<Uri, AgainstError> {
    format!("http://{address}").parse().map_err(AgainstError::message)
}

/// The lines that guests have logged.
fn told(logs: &Logs) -> Vec<String> {
    logs.lines().into_iter().filter(|line| !line.by_host).map(|line| line.message).collect()
}

impl Simulator {
    /// Starts it in front of the upstream and the clusters of a scenario.
    ///
    /// # Errors
    /// When the filters do not load, or an address is refused.
    pub fn start(
        scenario: &Scenario,
        filters: &[ChainedFilter],
        version: EnvoyVersion,
    ) -> Result<Self, AgainstError> {
        let upstream = Upstream::start(&scenario.upstream)?;
        let mut options = Options::new(url(upstream.address())?);
        let clusters = Upstream::start_all(&scenario.clusters)?;
        for (name, cluster) in &clusters {
            options.clusters.insert(name.clone(), url(cluster.address())?);
        }
        options.response_timeout = response_timeout(scenario);
        let flavour = Flavour::Envoy(version);
        let mut builder = Host::builder().clock(Clock::real()).system_randomness().flavour(flavour);
        // All of it is compared.
        builder = builder.log_capacity(usize::MAX);
        // What the configuration of the Envoy beside it says.
        builder = builder
            .property(["xds", "node"], serde_json::json!({"id": "case", "cluster": "case", "metadata": {}}));
        for (name, value) in CONFIGURED {
            builder = builder.property(["xds", name], value);
        }
        if let Some(bytes) = scenario.buffer_limit {
            builder = builder.buffer_limit(bytes);
        }
        let filters = filters.iter().map(|filter| (&filter.module, filter.plugin.clone()));
        let gateway = Gateway::start(builder.build(), filters, options)?;
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

    fn log(&self) -> Vec<String> {
        told(self.gateway.host().logs())
    }

    fn end(self) -> Result<Vec<String>, AgainstError> {
        let logs = self.gateway.host().logs().clone();
        drop(self.gateway);
        Ok(told(&logs))
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let metrics = self.gateway.host().metrics().all();
        metrics.into_iter().find(|(found, _)| found == name).and_then(|(_, value)| match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => Some(value),
            MetricValue::Histogram(_) => None,
        })
    }

    fn update(&mut self, configuration: &[u8]) -> Result<bool, AgainstError> {
        Ok(self.gateway.update(configuration.to_vec()).is_ok())
    }
}
