//! A service that is told what callers have used, as the filter's `usage` posts it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::envoy::{self, Envoy, Setup};
use crate::policy::Policy;
use crate::server::{Response, Server};
use crate::way::Way;

/// The cluster of `envoy.yaml` that it stands in for.
pub const CLUSTER: &str = "backend-internal";
/// The token that it asks for.
pub const TOKEN: &str = "a-token-of-the-usage-service";

/// What it was told, and what it answers.
#[derive(Debug, Default)]
struct Told {
    /// Statuses of the next answers; 202 after the last.
    answers: Vec<u16>,
    /// All bodies, with the status that each was answered.
    posted: Vec<(Bytes, u16)>,
    /// The events that it has taken, by their ids.
    events: BTreeMap<String, Value>,
    /// Events that came again.
    again: usize,
}

/// What a caller has used of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Requests that went on.
    pub requests: u64,
    /// What they cost.
    pub units: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// What callers have used, by subscriber and class.
pub type Usage = BTreeMap<(String, String), Used>;

/// A collector that listens until it is dropped.
#[derive(Debug)]
pub struct Collector {
    /// To it. A test may cut it.
    pub way: Way,
    _server: Server,
    told: Arc<Mutex<Told>>,
}

impl Collector {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start() -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let sink = Arc::clone(&told);
        let server = Server::start(move |request| {
            let status = lock(&sink).take(&request);
            let mut response = Response::default();
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
            response
        });
        let server = server.expect("a collector");
        let way = Way::to(server.address(), Duration::ZERO).expect("a way to the collector");
        Self { way, _server: server, told }
    }

    /// Has it answer the next batches with these statuses.
    pub fn answer(&self, statuses: impl IntoIterator<Item = u16>) {
        let mut told = lock(&self.told);
        told.answers = statuses.into_iter().collect();
        told.answers.reverse();
    }

    /// Whether the answers that were asked for were given.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        lock(&self.told).answers.is_empty()
    }

    /// The bodies that were posted, with the status that each was answered.
    #[must_use]
    pub fn posted(&self) -> Vec<(Bytes, u16)> {
        lock(&self.told).posted.clone()
    }

    /// The events of a type, each once.
    #[must_use]
    pub fn events(&self, kind: &str) -> Vec<Value> {
        lock(&self.told).events.values().filter(|event| event["type"] == kind).cloned().collect()
    }

    /// How often an event came again that it had taken.
    #[must_use]
    pub fn again(&self) -> usize {
        lock(&self.told).again
    }

    /// What it was told that subscribers have used; strangers are those of the subject `strangers`.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::new();
        for event in ["weir.usage", "weir.usage.strangers"].into_iter().flat_map(|kind| self.events(kind)) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let number = |field: &str| event["data"][field].as_u64().unwrap_or_default();
            let used = usage.entry((text(&event["subject"]), text(&event["data"]["class"]))).or_default();
            used.requests += number("requests");
            used.units += number("units");
            used.refused += number("refused");
        }
        usage
    }

    /// A real Envoy that reports to it.
    ///
    /// # Panics
    /// When Envoy does not start.
    #[must_use]
    pub fn envoy(&self, setup: Setup) -> Envoy {
        let address = self.way.address();
        Envoy::start_amended(setup, |bootstrap, _| envoy::set_cluster(bootstrap, CLUSTER, address))
            .expect("an Envoy that reports usage")
    }
}

impl Told {
    /// Takes a batch. Returns the status to answer.
    fn take(&mut self, request: &http::Request<Bytes>) -> u16 {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let is_one = request.method() == "POST"
            && request.uri().path() == "/internal/usage"
            && header("content-type") == Some("application/cloudevents-batch+json")
            && header("authorization") == Some(&format!("Bearer {TOKEN}"))
            && request.body().len() <= 256 << 10;
        let events: Option<Vec<Value>> = serde_json::from_slice(request.body()).ok().filter(|_| is_one);
        let status = match &events {
            None => 422,
            Some(_) => self.answers.pop().unwrap_or(202),
        };
        self.posted.push((request.body().clone(), status));
        for event in events.into_iter().flatten().filter(|_| (200..300).contains(&status)) {
            let id = event["id"].as_str().unwrap_or_default().to_owned();
            if self.events.insert(id, event).is_some() {
                self.again += 1;
            }
        }
        status
    }
}

/// This policy with reports once a second.
#[must_use]
pub fn reporting(policy: Policy) -> Policy {
    policy.with(
        "usage",
        serde_json::json!({"cluster": CLUSTER, "path": "/internal/usage", "interval": "1s", "bearer": TOKEN}),
    )
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}
