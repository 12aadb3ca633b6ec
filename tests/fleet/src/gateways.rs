//! Several real Envoys in front of one service.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tests::envoy::{self, Envoy, Updates, Upstream};
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
    upstream: Upstream,
    updates: Updates,
    drain: Duration,
    calls_in_flight: Option<u32>,
}

impl Setup {
    /// Two gateways with two workers each, an envoyproxy service that has the domain `weir` and nothing in it, and a durable Redis.
    /// The service is at no distance; see [`Server::set_round_trip`].
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        let service = Service::Envoyproxy("domain: weir\n".to_owned());
        Self {
            limiter,
            service,
            gateways: 2,
            workers: 2,
            memory: Memory::default(),
            upstream: Upstream::Elsewhere,
            updates: Updates::None,
            drain: Duration::from_secs(1),
            calls_in_flight: None,
        }
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

    /// With gateways that answer 200 themselves: thousands of requests at once then need no connections to an upstream.
    #[must_use]
    pub fn without_upstream(self) -> Self {
        Self { upstream: Upstream::DirectResponse, ..self }
    }

    /// With gateways in front of this upstream.
    #[must_use]
    pub fn upstream(self, address: SocketAddr) -> Self {
        Self { upstream: Upstream::At(address), ..self }
    }

    /// With a circuit breaker that opens at this number of calls to the service in flight, from each gateway.
    #[must_use]
    pub fn calls_in_flight(self, calls: u32) -> Self {
        Self { calls_in_flight: Some(calls), ..self }
    }

    /// With gateways that take another configuration in this way, whose connections drain for this long, and that hold a request
    /// before the filter for as many milliseconds as its header [`PAUSE`] says.
    #[must_use]
    pub fn updates(self, updates: Updates, drain: Duration) -> Self {
        Self { updates, drain, ..self }
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
            gateways.push(self.gateway(service.address())?);
        }
        Ok(Fleet { gateways, service, redis })
    }

    /// An Envoy as `envoy/envoy.yaml` has it, with the cluster of `envoy/fleet/envoy.yaml`, in front of an upstream that answers 200 to
    /// all.
    fn gateway(&self, service: SocketAddr) -> anyhow::Result<Envoy> {
        let policy = match &self.limiter {
            Limiter::Weir(configuration) => Policy::from(configuration.clone()),
            Limiter::Native(_) => Policy::contract()?,
        };
        let setup = envoy::Setup::new(policy, self.upstream).workers(self.workers);
        Envoy::start_amended(setup.updates(self.updates).drain(self.drain), |bootstrap, folder| {
            let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
            let mut ratelimit = ratelimit_cluster()?;
            if let Some(calls) = self.calls_in_flight {
                ratelimit["circuit_breakers"]["thresholds"][0]["max_requests"] = json!(calls);
            }
            clusters.context("envoy.yaml has no clusters")?.push(ratelimit);
            envoy::set_cluster(bootstrap, CLUSTER, service)?;
            if matches!(self.upstream, Upstream::Elsewhere) {
                answer_everything(bootstrap, &folder.join("upstream"))?;
            }
            if self.updates != Updates::None {
                pause_on_demand(bootstrap)?;
            }
            if let Limiter::Native(native) = &self.limiter {
                native.install(bootstrap)?;
            }
            Ok(())
        })
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

/// The header that holds a request in a gateway before it reaches the filter, in milliseconds. See [`Setup::updates`].
pub const PAUSE: &str = "x-envoy-fault-delay-request";

/// Puts Envoy's fault filter before all others.
fn pause_on_demand(bootstrap: &mut Value) -> anyhow::Result<()> {
    let filters = bootstrap.pointer_mut(policy::HTTP_FILTERS).and_then(Value::as_array_mut);
    let fault = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "delay": {"header_delay": {}, "percentage": {"numerator": 100}},
        },
    });
    filters.context("envoy.yaml has no HTTP filters")?.insert(0, fault);
    Ok(())
}

/// What a gateway has logged about VMs that ended, which none should.
#[must_use]
pub fn vm_failures(gateway: &Envoy) -> Vec<String> {
    let of_a_failure = |line: &String| line.contains("] Function: ") || line.contains("panicked at");
    gateway.log().lines().into_iter().filter(of_a_failure).collect()
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
