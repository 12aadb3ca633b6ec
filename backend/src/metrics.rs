//! Prometheus metrics of the service.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method};
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rustc_hash::FxHashMap;

use crate::domain::click::ClickOutcome;
use crate::domain::load::{OutboxBacklog, PoolState};

/// Bucket bounds of the request duration histogram, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

const OPENMETRICS: &str = "application/openmetrics-text";

/// Names and values of labels.
type Labels<const N: usize, V = &'static str> = [(&'static str, V); N];

/// The counters and gauges. Cheap to clone; clones share their values.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// By method, matched route and status. The method is `other` for an unknown one. Clients can therefore not create arbitrary labels.
    requests: Family<Labels<3, String>, Counter>,
    seconds: Family<Labels<1, String>, Histogram>,
    clicks: Family<Labels<1>, Counter>,
    webhook_attempts: Family<Labels<1>, Counter>,
    webhook_events_dropped: Counter,
    click_log_clicks: Gauge,
    click_log_bytes: Gauge,
    click_log_used: Gauge<f64, AtomicU64>,
    /// Without a label. A family can be without a value, too.
    webhook_lag: Family<Labels<0>, Gauge>,
    outbox_deliveries: Family<Labels<1>, Gauge>,
    outbox_oldest: Family<Labels<1>, Gauge>,
    connections: Family<Labels<2>, Gauge>,
    max_connections: Family<Labels<1>, Gauge>,
    routes: Arc<RwLock<FxHashMap<String, Arc<Counted>>>>,
    registry: Arc<Mutex<Registry>>,
}

/// The counters of one route, resolved once so that a request needs no label lookup.
#[derive(Debug)]
struct Counted {
    seconds: Histogram,
    requests: RwLock<Vec<(&'static str, u16, Counter)>>,
}

/// A text format that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// The older text format, which every reader supports.
    Prometheus,
}

impl Format {
    /// OpenMetrics if the reader asks for it, else the older format.
    pub(crate) fn accepted_by(headers: &HeaderMap) -> Self {
        let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let asks = accept.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with(OPENMETRICS));
        if asks { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts OpenMetrics to the older format. In OpenMetrics, the family of a counter has no suffix `_total`, and the text has
/// units and an end marker.
fn without_openmetrics(text: &str) -> String {
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut rewritten = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(keyword), Some(family), Some(rest)) if counters.contains(&family) => {
                rewritten.extend(["# ", keyword, " ", family, "_total ", rest]);
            }
            _ => rewritten.push_str(line),
        }
        rewritten.push('\n');
    }
    rewritten
}

fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
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
        // The counters start at zero, so that the first lost click is an increase.
        for outcome in ClickOutcome::ALL {
            drop(clicks.get_or_create(&[("outcome", outcome.label())]));
        }
        registry.register("clicks", "Clicks on short links", clicks.clone());
        let webhook_attempts = Family::default();
        registry.register("webhook_attempts", "Attempts to deliver webhook events", webhook_attempts.clone());
        let webhook_events_dropped = Counter::default();
        registry.register(
            "webhook_events_dropped",
            "Webhook events that were dropped because no attempt was made in time",
            webhook_events_dropped.clone(),
        );
        let (click_log_clicks, click_log_bytes) = (Gauge::default(), Gauge::default());
        registry.register(
            "click_log_clicks",
            "Clicks of the click log that are not in the database",
            click_log_clicks.clone(),
        );
        registry.register_with_unit(
            "click_log",
            "Size of the clicks that are not in the database",
            Unit::Bytes,
            click_log_bytes.clone(),
        );
        let click_log_used = Gauge::default();
        registry.register(
            "click_log_used_ratio",
            "Share of the maximum size of the click log that is used",
            click_log_used.clone(),
        );
        let webhook_lag = Family::default();
        registry.register_with_unit(
            "webhook_lag",
            "Age of the oldest click of which an enabled webhook has not heard",
            Unit::Seconds,
            webhook_lag.clone(),
        );
        let (outbox_deliveries, outbox_oldest) = (Family::default(), Family::default());
        registry.register("outbox_deliveries", "Pending webhook deliveries", outbox_deliveries.clone());
        registry.register_with_unit(
            "outbox_oldest",
            "Time since the oldest delivery fell due",
            Unit::Seconds,
            outbox_oldest.clone(),
        );
        let (connections, max_connections) = (Family::default(), Family::default());
        registry.register("connections", "Connections to the database", connections.clone());
        registry.register("connections_max", "Maximum number of connections", max_connections.clone());
        Self {
            requests,
            seconds,
            clicks,
            webhook_attempts,
            webhook_events_dropped,
            click_log_clicks,
            click_log_bytes,
            click_log_used,
            webhook_lag,
            outbox_deliveries,
            outbox_oldest,
            connections,
            max_connections,
            routes: Arc::default(),
            registry: Arc::new(Mutex::new(registry)),
        }
    }

    pub(crate) fn request(&self, method: &Method, route: &str, status: u16, took: Duration) {
        let method = name(method);
        let counted = self.route(route);
        counted.seconds.observe(took.as_secs_f64());
        let is_same = |(of_method, of_status, _): &&(&'static str, u16, Counter)| {
            *of_method == method && *of_status == status
        };
        {
            let requests = counted.requests.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, _, counter)) = requests.iter().find(is_same) {
                counter.inc();
                return;
            }
        }
        let labels =
            [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        let counter = self.requests.get_or_create_owned(&labels);
        counter.inc();
        let mut requests = counted.requests.write().unwrap_or_else(PoisonError::into_inner);
        if !requests.iter().any(|request| is_same(&request)) {
            requests.push((method, status, counter));
        }
    }

    fn route(&self, route: &str) -> Arc<Counted> {
        if let Some(counted) = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(route) {
            return Arc::clone(counted);
        }
        let seconds = self.seconds.get_or_create_owned(&[("route", route.to_owned())]);
        let counted = Arc::new(Counted { seconds, requests: RwLock::default() });
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(routes.entry(route.to_owned()).or_insert(counted))
    }

    pub(crate) fn clicks(&self, outcome: ClickOutcome, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.clicks.get_or_create(&[("outcome", outcome.label())]).inc_by(count);
    }

    pub(crate) fn webhook_attempt(&self, outcome: &'static str) {
        self.webhook_attempts.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn webhook_events_dropped(&self, count: usize) {
        self.webhook_events_dropped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Sets the gauges of the click log. `used` is the share of its maximum size, from 0 to 1.
    pub(crate) fn click_log(&self, clicks: u64, bytes: u64, used: f64) {
        self.click_log_clicks.set(clicks.cast_signed());
        self.click_log_bytes.set(bytes.cast_signed());
        self.click_log_used.set(used);
    }

    /// Sets the gauges of the outbox. If the database does not answer, the series are absent.
    pub(crate) fn outbox(&self, waiting: Option<&OutboxBacklog>, now: Timestamp) {
        let Some(waiting) = waiting else {
            self.outbox_deliveries.clear();
            self.outbox_oldest.clear();
            self.webhook_lag.clear();
            return;
        };
        let seconds_since = |at: Option<Timestamp>| now.duration_since(at.unwrap_or(now)).as_secs().max(0);
        self.webhook_lag.get_or_create(&[]).set(seconds_since(waiting.oldest_unattempted));
        for (state, deliveries) in waiting.by_state() {
            self.outbox_deliveries.get_or_create(&[("state", state)]).set(deliveries.count);
            self.outbox_oldest.get_or_create(&[("state", state)]).set(seconds_since(deliveries.oldest));
        }
    }

    /// Sets the gauges of the database connections.
    pub(crate) fn connections(&self, pools: &[PoolState]) {
        for PoolState { pool, max, idle, used } in pools {
            for (state, count) in [("idle", *idle), ("used", *used)] {
                self.connections.get_or_create(&[("pool", *pool), ("state", state)]).set(gauge(count));
            }
            self.max_connections.get_or_create(&[("pool", *pool)]).set(i64::from(*max));
        }
    }

    /// Encodes all counters and gauges.
    pub(crate) fn text(&self, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry)?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Prometheus => without_openmetrics(&text),
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}
