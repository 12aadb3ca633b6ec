//! A gateway with the contract's configuration in front of a backend.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::backend::{Directory, Keys, Service};
use crate::client::Client;
use crate::envoy::{Envoy, Setup, Upstream};
use crate::exchange::{Answer, Request};
use crate::gateway::{self, Gateway, Kind};
use crate::mesh::{self, Proxy};
use crate::policy::Policy;

/// A minute, the window of the standard quotas, and how much of one a story needs.
pub const MINUTE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));
/// A second, the window of the analytics quotas, and how much of one a story needs.
pub const SECOND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(600));

/// Workspaces of a shared service: more than cases have it at the same time.
const WORKSPACES: usize = 16;

/// A real gateway and its service, which cases share: starting them takes longer than most cases. A case has a workspace of its own and with it
/// all quotas but that of its address.
struct Shared {
    envoy: Envoy,
    unused: Mutex<Vec<Keys>>,
    _service: Service,
}

impl Shared {
    /// The one that is running, or a new one. It ends with the last case that has it.
    fn of(kind: Kind) -> anyhow::Result<(Arc<Self>, Keys)> {
        static RUNNING: Mutex<Vec<(Kind, Weak<Shared>)>> = Mutex::new(Vec::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let shared =
            running.iter().filter(|(of, _)| *of == kind).filter_map(|(_, shared)| shared.upgrade()).next();
        if let Some((shared, keys)) = shared.and_then(|shared| Some((Arc::clone(&shared), shared.take()?))) {
            return Ok((shared, keys));
        }
        let (shared, keys) = Self::start(kind)?;
        running.retain(|(of, _)| *of != kind);
        running.push((kind, Arc::downgrade(&shared)));
        Ok((shared, keys))
    }

    fn start(kind: Kind) -> anyhow::Result<(Arc<Self>, Keys)> {
        let (service, unused) = Service::start_with(WORKSPACES)?;
        let setup = Setup::new(Policy::deployed()?, Upstream::At(service.address()));
        let setup = setup.keys_from(service.directory()).workers(kind.workers());
        let envoy = match kind {
            Kind::Istio => mesh::start(Proxy::IngressGateway, setup)?,
            Kind::EnvoyGateway => mesh::start(Proxy::EnvoyGateway, setup)?,
            Kind::Envoy | Kind::Simulator(_) => Envoy::start(setup)?,
        };
        gateway::wait_for_directory(&envoy);
        let keys = service.keys.clone();
        Ok((Arc::new(Self { envoy, unused: Mutex::new(unused), _service: service }), keys))
    }

    /// A workspace that no case has had.
    fn take(&self) -> Option<Keys> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Where a stage is.
enum Place {
    Own { gateway: Box<dyn Gateway>, _service: Option<Service> },
    Shared { shared: Arc<Shared>, client: Client },
}

/// Both of them, for one case.
pub struct Stage {
    /// The keys that the gateway knows.
    pub keys: Keys,
    place: Place,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Stage {
    /// The contract as `envoy.yaml` has it. A real gateway has other cases, too, which may use up the quota of the address.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    pub fn contract(kind: Kind) -> Self {
        match kind {
            Kind::Simulator(_) => Self::own(kind),
            Kind::Envoy | Kind::Istio | Kind::EnvoyGateway => {
                let stage = Shared::of(kind).and_then(|(shared, keys)| {
                    let client = Client::to(shared.envoy.address())?;
                    Ok(Self { keys, place: Place::Shared { shared, client } })
                });
                stage.unwrap_or_else(|error| panic!("{error:#}"))
            }
        }
    }

    /// The contract as `envoy.yaml` has it, with nobody else's requests.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    pub fn own(kind: Kind) -> Self {
        Self::with(kind, |policy| policy)
    }

    /// The contract with changes.
    ///
    /// # Panics
    /// When anything does not start.
    #[must_use]
    pub fn with(kind: Kind, change: impl FnOnce(Policy) -> Policy) -> Self {
        let service = Service::start().unwrap_or_else(|error| panic!("{error:#}"));
        Self::of(kind, service, change)
    }

    /// The contract, in front of a service that may have more keys.
    ///
    /// # Panics
    /// When the gateway does not start.
    #[must_use]
    pub fn in_front_of(kind: Kind, service: Service) -> Self {
        Self::of(kind, service, |policy| policy)
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
        Self { keys, place: Place::Own { gateway, _service: None } }
    }

    fn of(kind: Kind, service: Service, change: impl FnOnce(Policy) -> Policy) -> Self {
        let stage = Self::before(kind, service.keys.clone(), service.address(), service.directory(), change);
        let place = match stage.place {
            Place::Own { gateway, .. } => Place::Own { gateway, _service: Some(service) },
            shared @ Place::Shared { .. } => shared,
        };
        Self { place, ..stage }
    }

    fn gateway(&self) -> &dyn Gateway {
        match &self.place {
            Place::Own { gateway, .. } => &**gateway,
            Place::Shared { shared, .. } => &shared.envoy,
        }
    }

    /// Sends a request.
    #[must_use]
    pub fn send(&self, request: &Request) -> Answer {
        match &self.place {
            Place::Own { gateway, .. } => gateway.send(request),
            Place::Shared { client, .. } => client.send(request).unwrap_or_else(|error| panic!("{error:#}")),
        }
    }

    /// Sends a request with the key of a plan.
    #[must_use]
    pub fn send_as(&self, plan: &str, request: Request) -> Answer {
        self.send(&request.key(self.keys.of(plan)))
    }

    /// Tells a story within one window; see [`gateway::within_one`].
    pub fn within_one<T>(&self, (window, room): (Duration, Duration), story: impl Fn() -> T) -> T {
        gateway::within_one(self.gateway(), window, room, story)
    }

    /// Lets the current window end.
    pub fn next_window(&self, window: Duration) {
        self.gateway().next_window(window);
    }

    /// Lets time pass.
    pub fn wait(&self, time: Duration) {
        self.gateway().wait(time);
    }

    /// The gateway's clock, in seconds since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.gateway().now().as_secs()
    }
}
