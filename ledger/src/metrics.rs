//! Prometheus metrics of the service, in the text format that every reader supports.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ledger_wire::Hex128;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The content type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bucket bounds of the store's latency, in seconds. The last is its time limit.
const SECONDS: [f64; 10] = [0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2];

/// What can become of a statement: an ask that the share now covers, or for more than is free; a return; one with a lower reset number
/// than the counter; one whose use was noted while nothing is granted; one with another window than the present; one that is invalid;
/// one about a counter whose part of the store is away.
const RESULTS: [&str; 8] =
    ["granted", "exhausted", "returned", "reset", "settling", "clock", "invalid", "store"];

type Label<T = &'static str> = [(&'static str, T); 1];

/// The state of the service when it is asked for its metrics.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) epoch: Option<Hex128>,
    pub(crate) is_settling: bool,
    /// Masters that answer, and others.
    pub(crate) masters: (usize, usize),
    /// Gateways that were heard in this epoch, and in an earlier one alone.
    pub(crate) gateways: (usize, usize),
}

/// The counters and gauges.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<Label<u16>, Counter>,
    statements: Family<Label, Counter>,
    /// How long the store took for a request, in seconds.
    pub(crate) store: Histogram,
    epoch: Family<Label<String>, Gauge>,
    settling: Gauge,
    masters: Family<Label, Gauge>,
    gateways: Family<Label, Gauge>,
    registry: Mutex<Registry>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("weir_ledger");
        let requests = Family::default();
        registry.register("requests", "Requests by status", requests.clone());
        let statements = Family::<Label, Counter>::default();
        registry.register("statements", "Statements of gateways by result", statements.clone());
        for result in RESULTS {
            drop(statements.get_or_create(&[("result", result)]));
        }
        let store = Histogram::new(SECONDS);
        let help = "Time that the store took for the statements of a request";
        registry.register_with_unit("store_duration", help, Unit::Seconds, store.clone());
        let epoch = Family::default();
        registry.register("epoch_info", "The epoch of the store, the same for every replica", epoch.clone());
        let settling = Gauge::default();
        let help = "1 while nothing is granted in windows that began before the epoch";
        registry.register("settling", help, settling.clone());
        let masters = Family::default();
        registry.register("store_masters", "Masters of the store by state", masters.clone());
        let gateways = Family::default();
        let help = "Gateways heard in the last 10 seconds, in the current epoch or only in an earlier one";
        registry.register("gateways", help, gateways.clone());
        let registry = Mutex::new(registry);
        Self { requests, statements, store, epoch, settling, masters, gateways, registry }
    }

    pub(crate) fn request(&self, status: u16) {
        self.requests.get_or_create(&[("status", status)]).inc();
    }

    /// Counts a statement by one of the results.
    pub(crate) fn statement(&self, result: &'static str) {
        self.statements.get_or_create(&[("result", result)]).inc();
    }

    /// All metrics.
    pub(crate) fn text(&self, state: &State) -> Result<String, fmt::Error> {
        self.epoch.clear();
        if let Some(epoch) = state.epoch {
            self.epoch.get_or_create(&[("epoch", epoch.to_string())]).set(1);
        }
        self.settling.set(state.is_settling.into());
        for (family, label, count) in [
            (&self.masters, ("state", "up"), state.masters.0),
            (&self.masters, ("state", "away"), state.masters.1),
            (&self.gateways, ("epoch", "current"), state.gateways.0),
            (&self.gateways, ("epoch", "earlier"), state.gateways.1),
        ] {
            family.get_or_create(&[label]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(without_openmetrics(&text))
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
