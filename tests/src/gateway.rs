//! The two gateways that every shared case runs on.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use host_sim::{EnvoyVersion, FailurePolicy, Flavour, Host, LogLevel, Module, Plugin};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;

use crate::artifacts;
use crate::client::Client;
use crate::clock;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::exchange::{Answer, Request};
use crate::mesh::{self, Proxy};
use crate::policy::Policy;
use crate::served::{self, DIRECTORY_ANSWERED, SEEN_WITHIN};

/// A gateway that has the filter and stands in front of an upstream.
///
/// Its methods panic where the gateway itself fails, which ends the test with the reason.
pub trait Gateway {
    /// Sends a request and returns the whole answer.
    fn send(&self, request: &Request) -> Answer;

    /// Goes on to where at least `story` is left of the current window, windows being aligned to the epoch: the
    /// simulator's clock is always stepped to the start of a window, and the real one waited for only if need be.
    fn make_room(&self, window: Duration, story: Duration);

    /// Lets the current window end.
    fn next_window(&self, window: Duration);

    /// Lets time pass, as a client does that was told to.
    fn wait(&self, time: Duration);

    /// The gateway's clock, since the Unix epoch.
    fn now(&self) -> Duration;

    /// Sends a request over a connection of its own, so that several of these reach every worker.
    fn send_anew(&self, request: &Request) -> Answer;

    /// One of the filter's counters; zero if it does not exist.
    fn counter(&self, name: &str) -> u64;

    /// One of the filter's gauges; zero if it does not exist.
    fn gauge(&self, name: &str) -> u64;

    /// How many lines of its log contain `text`.
    fn logged(&self, text: &str) -> usize;

    /// How many VMs it has: one for each worker and the main one.
    fn vms(&self) -> u64;
}

/// Lets time pass until the directory's list is known to every VM of a gateway that has just started.
///
/// # Panics
/// When it does not within half a minute.
pub fn wait_for_directory(gateway: &dyn Gateway) {
    const PATIENCE: Duration = Duration::from_secs(30);
    const BETWEEN: Duration = Duration::from_millis(50);
    let started = gateway.now();
    while gateway.gauge(DIRECTORY_ANSWERED) == 0 {
        assert!(gateway.now() - started < PATIENCE, "the directory has not answered within {PATIENCE:?}");
        gateway.wait(BETWEEN);
    }
    gateway.wait(SEEN_WITHIN);
}

/// Which gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The host simulator, with a virtual clock, behaving like one of the gateways.
    Simulator(Flavour),
    /// A real Envoy.
    Envoy,
    /// A real Envoy, configured as Istio configures the proxy of an ingress gateway.
    Istio,
    /// A real Envoy, configured as Envoy Gateway configures its proxies.
    EnvoyGateway,
}

impl Kind {
    /// The simulator as it behaves unless told otherwise: like Envoy.
    pub const SIMULATOR: Self = Self::Simulator(Flavour::Envoy(EnvoyVersion::V1_40));
    /// The simulator with what decides in nginx whether a module loads and counts.
    pub const NGX: Self = Self::Simulator(Flavour::Ngx);
    /// The simulator without shared data.
    pub const NO_SHARED_DATA: Self = Self::Simulator(Flavour::NoSharedData);

    /// Workers in the shared cases: more than one, so that counters are shared, but where a host has nothing to share, for
    /// there each VM counts by itself.
    #[must_use]
    pub fn workers(self) -> usize {
        if self == Self::NO_SHARED_DATA { 1 } else { 2 }
    }

    /// The gateway as a process, for clients in processes of their own.
    ///
    /// # Panics
    /// When the workspace does not build, or for a mesh.
    #[must_use]
    pub fn served(self) -> served::Gateway {
        match self {
            Self::Simulator(_) => served::Gateway::HostSim(artifacts::command("host-sim").to_owned()),
            Self::Envoy => served::Gateway::Envoy,
            Self::Istio | Self::EnvoyGateway => panic!("{self:?} is no process for clients of their own"),
        }
    }
}

/// Starts a gateway.
///
/// # Errors
/// When it does not take the policy.
pub fn start(kind: Kind, setup: Setup) -> anyhow::Result<Box<dyn Gateway>> {
    Ok(match kind {
        Kind::Simulator(flavour) => Box::new(Simulator::start(flavour, &setup)?),
        Kind::Envoy => Box::new(Envoy::start(setup)?),
        Kind::Istio => Box::new(mesh::start(Proxy::IngressGateway, setup)?),
        Kind::EnvoyGateway => Box::new(mesh::start(Proxy::EnvoyGateway, setup)?),
    })
}

/// Runs each named function, which takes a [`Kind`], as one test on each kind.
#[macro_export]
macro_rules! on_gateways {
    ($kinds:tt $cases:tt) => {
        $crate::on_gateways! { @each $kinds $cases }
    };
    (@each [$($module:ident: $kind:ident),+] $cases:tt) => {
        $($crate::on_gateways! { @one $module $kind $cases })+
    };
    (@one $module:ident $kind:ident { $($case:ident)+ }) => {
        mod $module {
            $(#[test] fn $case() { super::$case($crate::gateway::Kind::$kind) })+
        }
    };
}

/// Runs each named function, which takes a [`Kind`], as one test on the simulator and one on Envoy.
#[macro_export]
macro_rules! on_both_gateways {
    ($($case:ident)+) => {
        $crate::on_gateways! { [simulator: SIMULATOR, envoy: Envoy] { $($case)+ } }
    };
}

impl Gateway for Envoy {
    fn send(&self, request: &Request) -> Answer {
        Self::send(self, request).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn make_room(&self, window: Duration, story: Duration) {
        clock::wait_for_room(window, story);
    }

    fn next_window(&self, window: Duration) {
        clock::wait_for_room(window, window);
    }

    fn wait(&self, time: Duration) {
        clock::pass(time);
    }

    fn now(&self) -> Duration {
        clock::now()
    }

    fn send_anew(&self, request: &Request) -> Answer {
        let answer = Client::to(self.address()).and_then(|client| client.send(request));
        answer.unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn counter(&self, name: &str) -> u64 {
        self.stat(&format!("wasmcustom.{name}")).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn gauge(&self, name: &str) -> u64 {
        Gateway::counter(self, name)
    }

    fn logged(&self, text: &str) -> usize {
        self.log().lines().iter().filter(|line| line.contains(text)).count()
    }

    fn vms(&self) -> u64 {
        self.workers() as u64 + 1
    }
}

/// The simulator, forwarding what the filter lets pass to the same upstreams that Envoy has.
#[derive(Debug)]
pub struct Simulator {
    host: Host,
    upstream: Option<Client>,
    requests: AtomicUsize,
}

/// The built filter.
///
/// # Panics
/// When it cannot be built, or the build is no module.
#[must_use]
pub fn module() -> &'static Module {
    static MODULE: LazyLock<Module> = LazyLock::new(|| {
        let bytes = std::fs::read(artifacts::filter_wasm()).expect("the built filter");
        artifacts::compiled(&bytes).unwrap_or_else(|error| panic!("the built filter: {error}"))
    });
    &MODULE
}

/// Host calls of a thousand equal requests in one VM that has seen a thousand before. At debug level each decision would be logged.
#[must_use]
pub fn host_calls(policy: &Policy, send: impl Fn(&Host)) -> u64 {
    let policy = policy.clone().with("headers", json!({"ietf": false, "upstream": "absent"}));
    let mut host = Host::builder().workers(1).log_level(LogLevel::Info).build();
    host.load(module(), plugin(&policy)).expect("the policy is accepted");
    (0..1000).for_each(|_| send(&host));
    let before = host.host_calls();
    (0..1000).for_each(|_| send(&host));
    host.host_calls() - before
}

/// The filter's place in the gateway, as in `envoy.yaml`.
#[must_use]
pub fn plugin(policy: &Policy) -> Plugin {
    plugin_with(policy.to_string())
}

fn plugin_with(configuration: String) -> Plugin {
    let plugin = Plugin::new(configuration).name("weir").root_id("weir").vm_id("weir");
    plugin.failure_policy(FailurePolicy::FailReload)
}

impl Simulator {
    /// A simulator. Proxies in front of it, live updates and an address to listen on are an Envoy's.
    ///
    /// # Errors
    /// When the filter does not take the policy.
    pub fn start(flavour: Flavour, setup: &Setup) -> anyhow::Result<Self> {
        let upstream = match setup.upstream {
            Upstream::At(address) => Some(Client::to(address)?),
            Upstream::Elsewhere | Upstream::DirectResponse => None,
        };
        let mut host = Host::builder().workers(setup.workers).flavour(flavour);
        if let Some(directory) = &setup.directory {
            let client = Client::to(directory.address)?;
            host = host.cluster(setup.policy.directory_cluster()?, move |request| {
                forward(&client, request).unwrap_or_else(|_| host_sim::Response::new(503))
            });
        }
        let mut host = host.build();
        host.load(module(), plugin_with(setup.configuration()))?;
        Ok(Self { host, upstream, requests: AtomicUsize::new(0) })
    }

    /// The host, to look into.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }
}

/// Sends what the filter let pass, or asks for, over the network.
fn forward(client: &Client, request: &host_sim::Request) -> anyhow::Result<host_sim::Response> {
    let method = Method::from_bytes(request.method().as_bytes()).expect("the method of a request");
    let mut forwarded = Request::new(method, request.path());
    forwarded.headers = header_map(request.headers());
    forwarded.body = request.body_bytes().clone();
    let answer = client.send(&forwarded)?;
    let response = host_sim::Response::new(answer.status()).body(answer.body);
    Ok(answer.headers.iter().fold(response, |response, (name, value)| {
        response.header(name.as_str().to_owned(), value.as_bytes().to_vec())
    }))
}

fn header_map(headers: &host_sim::Headers) -> HeaderMap {
    let fields = headers.iter().filter(|(name, _)| !name.starts_with(b":"));
    fields
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name).expect("a header's name");
            (name, HeaderValue::from_bytes(value).expect("a header's value"))
        })
        .collect()
}

impl Gateway for Simulator {
    fn send(&self, request: &Request) -> Answer {
        let worker = self.requests.fetch_add(1, Ordering::Relaxed) % self.host.workers();
        let sent = host_sim::Request::new(request.method.as_str().to_owned(), request.path.clone());
        let sent = request.headers.iter().fold(sent, |sent, (name, value)| {
            sent.header(name.as_str().to_owned(), value.as_bytes().to_vec())
        });
        let outcome =
            self.host.worker(worker).send(sent.body(request.body.clone()), |request| match &self.upstream {
                Some(upstream) => forward(upstream, request).unwrap_or_else(|error| panic!("{error:#}")),
                None => host_sim::Response::ok(),
            });
        let status = StatusCode::from_u16(outcome.status())
            .unwrap_or_else(|_| panic!("no answer to {request:?}: {outcome:?}"));
        Answer { status, headers: header_map(outcome.headers()), body: outcome.body().clone() }
    }

    fn make_room(&self, window: Duration, _: Duration) {
        self.next_window(window);
    }

    fn next_window(&self, window: Duration) {
        self.host.advance(clock::left_of(window, self.now()));
    }

    fn wait(&self, time: Duration) {
        self.host.advance(time);
    }

    fn now(&self) -> Duration {
        self.host.clock().wall()
    }

    fn send_anew(&self, request: &Request) -> Answer {
        self.send(request)
    }

    fn counter(&self, name: &str) -> u64 {
        self.host.metrics().counter(name)
    }

    fn gauge(&self, name: &str) -> u64 {
        self.host.metrics().gauge(name)
    }

    fn logged(&self, text: &str) -> usize {
        self.host.logs().lines().iter().filter(|line| line.message.contains(text)).count()
    }

    fn vms(&self) -> u64 {
        self.host.workers() as u64 + 1
    }
}

/// Tells the story within one window of `window`, beginning with at least `room` of it left, and returns what it came
/// to. On a real clock a window may end meanwhile all the same; then the story is repeated in the next one.
///
/// # Panics
/// When the window ends again and again: the machine is too slow for the story.
pub fn within_one<T>(gateway: &dyn Gateway, window: Duration, room: Duration, story: impl Fn() -> T) -> T {
    const ATTEMPTS: usize = 4;
    let current = || gateway.now().as_nanos() / window.as_nanos();
    gateway.make_room(window, room);
    for _ in 0..ATTEMPTS {
        let before = current();
        let told = story();
        if current() == before {
            return told;
        }
        gateway.next_window(window);
    }
    panic!("a story of {room:?} does not fit into {window:?}");
}
