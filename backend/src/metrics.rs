//! Prometheus metrics of the service.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use jiff::Timestamp;
use prometheus::{
    Error, Gauge, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    register_gauge_with_registry, register_histogram_vec_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
    register_int_gauge_vec_with_registry, register_int_gauge_with_registry,
};

use crate::domain::click::ClickOutcome;
use crate::domain::load::{OutboxBacklog, PoolState, Waiting};

/// Bucket bounds of the request duration histogram, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// The text format, which every reader supports.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters and gauges. Cheap to clone; clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// The method is `other` for an unknown one. Clients can therefore not create arbitrary labels.
    requests: IntCounterVec,
    seconds: HistogramVec,
    clicks: IntCounterVec,
    webhook_attempts: IntCounterVec,
    webhook_events_dropped: IntCounter,
    click_log_clicks: IntGauge,
    click_log_bytes: IntGauge,
    click_log_used: Gauge,
    /// Without a label. A vector can be without a value, too.
    webhook_lag: IntGaugeVec,
    outbox_deliveries: IntGaugeVec,
    outbox_oldest: IntGaugeVec,
    connections: IntGaugeVec,
    max_connections: IntGaugeVec,
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

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

impl Metrics {
    #[expect(
        clippy::expect_used,
        reason = "names and labels are constants, and every test of the service uses them"
    )]
    pub(crate) fn new() -> Self {
        Self::registered().expect("valid metrics")
    }

    fn registered() -> Result<Self, Error> {
        let registry = Registry::new_custom(Some("weir_backend".to_owned()), None)?;
        let counters = |name, help, labels: &[&str]| {
            register_int_counter_vec_with_registry!(name, help, labels, registry)
        };
        let gauges =
            |name, help, labels: &[&str]| register_int_gauge_vec_with_registry!(name, help, labels, registry);
        let clicks = counters("clicks_total", "Clicks on short links", &["outcome"])?;
        // The counters start at zero, so that the first lost click is an increase.
        for label in ClickOutcome::LABELS {
            clicks.with_label_values(&[label]);
        }
        Ok(Self {
            requests: counters("requests_total", "Requests answered", &["method", "route", "status"])?,
            seconds: register_histogram_vec_with_registry!(
                "request_duration_seconds",
                "Time to answer",
                &["route"],
                SECONDS.to_vec(),
                registry
            )?,
            clicks,
            webhook_attempts: counters(
                "webhook_attempts_total",
                "Attempts to deliver webhook events",
                &["outcome"],
            )?,
            webhook_events_dropped: register_int_counter_with_registry!(
                "webhook_events_dropped_total",
                "Webhook events that were dropped because no attempt was made in time",
                registry
            )?,
            click_log_clicks: register_int_gauge_with_registry!(
                "click_log_clicks",
                "Clicks of the click log that are not in the database",
                registry
            )?,
            click_log_bytes: register_int_gauge_with_registry!(
                "click_log_bytes",
                "Size of the clicks that are not in the database",
                registry
            )?,
            click_log_used: register_gauge_with_registry!(
                "click_log_used_ratio",
                "Share of the maximum size of the click log that is used",
                registry
            )?,
            webhook_lag: gauges(
                "webhook_lag_seconds",
                "Age of the oldest click of which an enabled webhook has not heard",
                &[],
            )?,
            outbox_deliveries: gauges("outbox_deliveries", "Pending webhook deliveries", &["state"])?,
            outbox_oldest: gauges(
                "outbox_oldest_seconds",
                "Time since the oldest delivery fell due",
                &["state"],
            )?,
            connections: gauges("connections", "Connections to the database", &["pool", "state"])?,
            max_connections: gauges("connections_max", "Maximum number of connections", &["pool"])?,
            registry,
        })
    }

    pub(crate) fn request(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        self.requests.with_label_values(&[name(method), route, status.as_str()]).inc();
        self.seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    pub(crate) fn clicks(&self, outcome: ClickOutcome, count: usize) {
        self.clicks.with_label_values(&[outcome.label()]).inc_by(count as u64);
    }

    pub(crate) fn webhook_attempt(&self, outcome: &'static str) {
        self.webhook_attempts.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn webhook_events_dropped(&self, count: usize) {
        self.webhook_events_dropped.inc_by(count as u64);
    }

    /// Sets the gauges of the click log. `used` is the share of its maximum size, from 0 to 1.
    pub(crate) fn click_log(&self, clicks: u64, bytes: u64, used: f64) {
        self.click_log_clicks.set(number(clicks));
        self.click_log_bytes.set(number(bytes));
        self.click_log_used.set(used);
    }

    /// Sets the gauges of the outbox. If the database does not answer, the series are absent.
    pub(crate) fn outbox(&self, waiting: Option<&OutboxBacklog>, now: Timestamp) {
        let Some(waiting) = waiting else {
            self.outbox_deliveries.reset();
            self.outbox_oldest.reset();
            self.webhook_lag.reset();
            return;
        };
        let seconds_since = |at: Option<Timestamp>| now.duration_since(at.unwrap_or(now)).as_secs().max(0);
        self.webhook_lag.with_label_values::<&str>(&[]).set(seconds_since(waiting.oldest_unattempted));
        for Waiting { state, count, oldest } in &waiting.deliveries {
            self.outbox_deliveries.with_label_values(&[state]).set(*count);
            self.outbox_oldest.with_label_values(&[state]).set(seconds_since(*oldest));
        }
    }

    /// Sets the gauges of the database connections.
    pub(crate) fn connections(&self, pools: &[PoolState]) {
        for PoolState { pool, max, idle, used } in pools {
            for (state, count) in [("idle", *idle), ("used", *used)] {
                self.connections.with_label_values(&[*pool, state]).set(number(count));
            }
            self.max_connections.with_label_values(&[*pool]).set(i64::from(*max));
        }
    }

    /// All counters and gauges as text.
    pub(crate) fn text(&self) -> Result<String, Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
