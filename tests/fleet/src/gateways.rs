//! Several real Envoys in front of one service.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use tests::envoy::{self, Envoy, Upstream};
use tests::policy::{self, Policy};

use crate::envoyproxy::{Configuration, Envoyproxy};
use crate::limitador::{Limitador, limits_from_yaml};
use crate::native::Native;
use crate::redis::{Memory, Redis};
use crate::server::Server;

/// The cluster that gateways find the service in.
pub const CLUSTER: &str = "ratelimit";

/// What limits requests in the gateways; nothing else differs between them.
#[derive(Clone, Debug)]
pub enum Limiter {
    /// The wasm filter with this configuration.
    Weir(Value),
    /// Envoy's own filter.
    Native(Native),
}

/// Which service they ask, with its YAML.
#[derive(Clone, Debug)]
pub enum Service {
    /// [`Envoyproxy`]
    Envoyproxy(String),
    /// [`Limitador`]
    Limitador(String),
}

/// A fleet to start.
#[derive(Clone, Debug)]
pub struct Setup {
    limiter: Limiter,
    service: Service,
    gateways: usize,
    workers: usize,
    memory: Memory,
}

impl Setup {
    /// Two gateways with two workers each, an envoyproxy service that has the domain `weir` and nothing in it, and a durable Redis.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        let service = Service::Envoyproxy("domain: weir\n".to_owned());
        Self { limiter, service, gateways: 2, workers: 2, memory: Memory::default() }
    }

    /// With this service.
    #[must_use]
    pub fn service(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// With so many gateways.
    #[must_use]
    pub fn gateways(self, gateways: usize) -> Self {
        Self { gateways, ..self }
    }

    /// With so many workers in each.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// With such a Redis.
    #[must_use]
    pub fn memory(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// Starts it all.
    ///
    /// # Errors
    /// When any part does not start; the part's log is in the error.
    pub fn start(self) -> anyhow::Result<Fleet> {
        let redis = Redis::start(self.memory)?;
        let service = serve(&self.service, &redis.url())?;
        let mut gateways = Vec::new();
        for _ in 0..self.gateways {
            gateways.push(gateway(&self.limiter, self.workers, service.address())?);
        }
        Ok(Fleet { gateways, service, redis })
    }
}

/// Starts a service on a free port, counting in the Redis at `redis`.
///
/// # Errors
/// When its YAML or the URL is wrong.
pub fn serve(service: &Service, redis: &str) -> anyhow::Result<Server> {
    serve_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), service, redis)
}

/// Starts a service there.
///
/// # Errors
/// As [`serve`], or when it cannot listen there.
pub fn serve_at(address: SocketAddr, service: &Service, redis: &str) -> anyhow::Result<Server> {
    match service {
        Service::Envoyproxy(yaml) => {
            let configuration = Configuration::from_yaml(yaml)?;
            Server::listen(address, async || Envoyproxy::new(redis, configuration))
        }
        Service::Limitador(yaml) => {
            let limits = limits_from_yaml(yaml)?;
            Server::listen(address, async || Limitador::new(redis, limits))
        }
    }
}

/// Gateways, their service and its Redis. Whatever a test does to one of them, the others stay.
#[derive(Debug)]
pub struct Fleet {
    /// The Envoys; dropped first, so that none asks a service that is gone.
    pub gateways: Vec<Envoy>,
    /// The service.
    pub service: Server,
    /// Where it counts.
    pub redis: Redis,
}

/// An Envoy as `envoy/envoy.yaml` has it, with the cluster of `envoy/fleet/envoy.yaml`, in front of an upstream that answers 200 to all.
fn gateway(limiter: &Limiter, workers: usize, service: SocketAddr) -> anyhow::Result<Envoy> {
    let policy = match limiter {
        Limiter::Weir(configuration) => Policy::from(configuration.clone()),
        Limiter::Native(_) => Policy::contract()?,
    };
    let setup = envoy::Setup::new(policy, Upstream::Elsewhere).workers(workers);
    Envoy::start_amended(setup, |bootstrap, folder| {
        let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
        clusters.context("envoy.yaml has no clusters")?.push(ratelimit_cluster()?);
        envoy::set_cluster(bootstrap, CLUSTER, service)?;
        answer_everything(bootstrap, &folder.join("upstream"))?;
        if let Limiter::Native(native) = limiter {
            native.install(bootstrap)?;
        }
        Ok(())
    })
}

/// The cluster as it is recommended.
fn ratelimit_cluster() -> anyhow::Result<Value> {
    let deployed = policy::yaml("envoy/fleet/envoy.yaml")?;
    let clusters = deployed.pointer("/static_resources/clusters").and_then(Value::as_array);
    let found = clusters.and_then(|clusters| clusters.iter().find(|cluster| cluster["name"] == CLUSTER));
    found.cloned().context("envoy/fleet/envoy.yaml has no cluster ratelimit")
}

/// Puts an upstream into the Envoy itself, at a Unix socket. A route that answers by itself would not do: Envoy's own filter passes
/// over those.
fn answer_everything(bootstrap: &mut Value, socket: &Path) -> anyhow::Result<()> {
    let listener = json!({
        "name": "upstream",
        "address": {"pipe": {"path": socket}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "upstream",
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
                }],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
                ]}]},
            },
        }]}],
    });
    let listeners = bootstrap.pointer_mut("/static_resources/listeners").and_then(Value::as_array_mut);
    listeners.context("envoy.yaml has no listeners")?.push(listener);
    let address = envoy::cluster_address(bootstrap, "backend")?;
    *address = json!({"pipe": {"path": socket}});
    Ok(())
}
