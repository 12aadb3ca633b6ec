//! The two gateways that every shared case runs on.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use host_sim::{FailurePolicy, Host, Module, Plugin};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::artifacts;
use crate::client::Client;
use crate::clock;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::exchange::{Answer, Request};
use crate::policy::Policy;

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
}

/// Which gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The host simulator, with a virtual clock.
    Simulator,
    /// A real Envoy.
    Envoy,
}

/// Workers of a gateway in the shared cases. More than one, so that counters are shared.
const WORKERS: usize = 2;

/// Starts a gateway with `policy` in front of `upstream`.
///
/// # Errors
/// When it does not take the policy.
pub fn start(kind: Kind, policy: Policy, upstream: Upstream) -> anyhow::Result<Box<dyn Gateway>> {
    Ok(match kind {
        Kind::Simulator => Box::new(Simulator::start(&policy, upstream)?),
        Kind::Envoy => Box::new(Envoy::start(Setup::new(policy, upstream).workers(WORKERS))?),
    })
}

/// Runs each named function, which takes a [`Kind`], as one test on the simulator and one on Envoy.
#[macro_export]
macro_rules! on_both_gateways {
    ($($case:ident)+) => {
        mod simulator {
            $(#[test] fn $case() { super::$case($crate::gateway::Kind::Simulator) })+
        }
        mod envoy {
            $(#[test] fn $case() { super::$case($crate::gateway::Kind::Envoy) })+
        }
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
}

/// The simulator, forwarding what the filter lets pass to the same upstreams that Envoy has.
#[derive(Debug)]
pub struct Simulator {
    host: Host,
    upstream: Option<Client>,
    requests: AtomicUsize,
}

/// The built filter, compiled once per test process.
///
/// # Panics
/// When it cannot be built, or the build is no module.
#[must_use]
pub fn module() -> &'static Module {
    static MODULE: LazyLock<Module> = LazyLock::new(|| {
        let bytes = std::fs::read(artifacts::filter_wasm()).expect("the built filter");
        Module::compile(&bytes).unwrap_or_else(|error| panic!("the built filter: {error}"))
    });
    &MODULE
}

/// The filter's place in the gateway, as in `envoy.yaml`.
#[must_use]
pub fn plugin(policy: &Policy) -> Plugin {
    Plugin {
        name: "weir".into(),
        root_id: "weir".into(),
        vm_id: "weir".into(),
        configuration: policy.to_string().into(),
        failure_policy: FailurePolicy::FailReload,
        ..Plugin::default()
    }
}

impl Simulator {
    /// A simulator with `policy`.
    ///
    /// # Errors
    /// When the filter does not take the policy.
    pub fn start(policy: &Policy, upstream: Upstream) -> anyhow::Result<Self> {
        let upstream = match upstream {
            Upstream::At(address) => Some(Client::to(address)?),
            Upstream::DirectResponse => None,
        };
        let mut host = Host::builder().workers(WORKERS).build();
        host.load(module(), plugin(policy))?;
        Ok(Self { host, upstream, requests: AtomicUsize::new(0) })
    }

    /// The host, to look into.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn forward(&self, request: &host_sim::Request) -> host_sim::Response {
        let Some(upstream) = &self.upstream else { return host_sim::Response::ok() };
        let method = Method::from_bytes(request.method().as_bytes()).expect("the method of a request");
        let mut forwarded = Request::new(method, request.path());
        forwarded.headers = header_map(request.headers());
        forwarded.body = request.body_bytes().clone();
        let answer = upstream.send(&forwarded).unwrap_or_else(|error| panic!("{error:#}"));
        let response = host_sim::Response::new(answer.status()).body(answer.body);
        answer.headers.iter().fold(response, |response, (name, value)| {
            response.header(name.as_str().to_owned(), value.as_bytes().to_vec())
        })
    }
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
            self.host.send(worker, sent.body(request.body.clone()), |request| self.forward(request));
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
}

/// Tells the story within one window of `window`, beginning with at least `room` of it left, and returns what it came
/// to. On a real clock a window may end meanwhile all the same; then the story is told again in the next one.
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
