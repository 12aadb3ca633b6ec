//! What the service counts about itself, in Prometheus' text form.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of the histogram of request times, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// The counters. Cheap to clone; clones count together.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    seconds: Family<Route, Histogram>,
    clicks: Family<Clicks, Counter>,
    webhook_attempts: Family<Attempts, Counter>,
    registry: std::sync::Arc<Mutex<Registry>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    method: String,
    /// The pattern that matched, so that there are as many as there are routes.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Clicks {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempts {
    outcome: &'static str,
}

/// What became of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClickOutcome {
    Recorded,
    /// Made by a bot.
    Bot,
    /// Counted before, within the hour.
    Repeated,
    /// Its link was deleted meanwhile.
    Orphaned,
    /// Could not be stored before the process had to end.
    Lost,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("weir_backend");
        let requests = Family::default();
        registry.register("requests", "Requests answered", requests.clone());
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register_with_unit("request_duration", "Time to answer", Unit::Seconds, seconds.clone());
        let clicks = Family::default();
        registry.register("clicks", "Clicks on short links", clicks.clone());
        let webhook_attempts = Family::default();
        registry.register("webhook_attempts", "Attempts to deliver webhook events", webhook_attempts.clone());
        let registry = std::sync::Arc::new(Mutex::new(registry));
        Self { requests, seconds, clicks, webhook_attempts, registry }
    }

    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = Request { method: method.to_owned(), route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&Route { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    pub(crate) fn clicks(&self, outcome: ClickOutcome, count: usize) {
        let outcome = match outcome {
            ClickOutcome::Recorded => "recorded",
            ClickOutcome::Bot => "bot",
            ClickOutcome::Repeated => "repeated",
            ClickOutcome::Orphaned => "orphaned",
            ClickOutcome::Lost => "lost",
        };
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.clicks.get_or_create(&Clicks { outcome }).inc_by(count);
    }

    pub(crate) fn webhook_attempt(&self, outcome: &'static str) {
        self.webhook_attempts.get_or_create(&Attempts { outcome }).inc();
    }

    /// All counters, in the OpenMetrics text format.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}
