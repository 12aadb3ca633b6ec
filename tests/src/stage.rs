//! A gateway with the contract's configuration in front of a backend of its own.

use std::net::SocketAddr;
use std::time::Duration;

use crate::backend::{Directory, Keys, Service};
use crate::envoy::{Setup, Upstream};
use crate::exchange::{Answer, Request};
use crate::gateway::{self, Gateway, Kind};
use crate::policy::Policy;

/// A minute, the window of the standard quotas, and how much of one a story needs.
pub const MINUTE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));
/// A second, the window of the analytics quotas, and how much of one a story needs.
pub const SECOND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(600));

/// Both of them, for one case.
pub struct Stage {
    /// The keys that the gateway knows.
    pub keys: Keys,
    gateway: Box<dyn Gateway>,
    _service: Option<Service>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Stage {
    /// The contract as `envoy.yaml` has it.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    pub fn contract(kind: Kind) -> Self {
        Self::with(kind, |policy| policy)
    }

    /// The contract with changes.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    pub fn with(kind: Kind, change: impl FnOnce(Policy) -> Policy) -> Self {
        let service = Service::start().unwrap_or_else(|error| panic!("{error:#}"));
        let stage = Self::before(kind, service.keys.clone(), service.address(), service.directory(), change);
        Self { _service: Some(service), ..stage }
    }

    /// The contract, in front of a service that may have more keys.
    ///
    /// # Panics
    /// When the gateway does not start.
    #[must_use]
    pub fn in_front_of(kind: Kind, service: Service) -> Self {
        let policy = |policy| policy;
        let stage = Self::before(kind, service.keys.clone(), service.address(), service.directory(), policy);
        Self { _service: Some(service), ..stage }
    }

    /// The contract with changes, in front of a backend that the case has started: requests go to `api`.
    ///
    /// # Panics
    /// When the gateway does not start.
    #[must_use]
    pub fn before(
        kind: Kind,
        keys: Keys,
        api: SocketAddr,
        directory: Directory,
        change: impl FnOnce(Policy) -> Policy,
    ) -> Self {
        let gateway = Policy::deployed().map(change).and_then(|policy| {
            let setup = Setup::new(policy, Upstream::At(api)).keys_from(directory).workers(kind.workers());
            gateway::start(kind, setup)
        });
        let gateway = gateway.unwrap_or_else(|error| panic!("{error:#}"));
        gateway::wait_for_directory(&*gateway);
        Self { keys, gateway, _service: None }
    }

    /// Sends a request.
    #[must_use]
    pub fn send(&self, request: &Request) -> Answer {
        self.gateway.send(request)
    }

    /// Sends a request with the key of a plan.
    #[must_use]
    pub fn send_as(&self, plan: &str, request: Request) -> Answer {
        self.gateway.send(&request.key(self.keys.of(plan)))
    }

    /// Tells a story within one window; see [`gateway::within_one`].
    pub fn within_one<T>(&self, (window, room): (Duration, Duration), story: impl Fn() -> T) -> T {
        gateway::within_one(&*self.gateway, window, room, story)
    }

    /// Lets the current window end.
    pub fn next_window(&self, window: Duration) {
        self.gateway.next_window(window);
    }

    /// Lets time pass.
    pub fn wait(&self, time: Duration) {
        self.gateway.wait(time);
    }

    /// The gateway's clock, in seconds since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.gateway.now().as_secs()
    }
}
