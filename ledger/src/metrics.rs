//! Prometheus metrics of the service.

use prometheus::core::Collector;
use prometheus::{Error, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, TextEncoder};

use crate::store::{Unusable, View};

/// Bucket bounds of the store's latency, in seconds. The last is its time limit.
const SECONDS: [f64; 10] = [0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2];

/// What can become of a statement: an ask that the share now covers, or for more than is free; a return; one with a lower reset number
/// than the counter; one whose use was noted while nothing is granted; one with another window than the present; one that is invalid;
/// one about a counter whose part of the store is away.
const RESULTS: [&str; 8] =
    ["granted", "exhausted", "returned", "reset", "settling", "clock", "invalid", "store"];

/// What is counted between two scrapes.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: IntCounterVec,
    statements: IntCounterVec,
    /// How long the store took for a request, in seconds.
    pub(crate) store: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, Error> {
        let requests = Opts::new("weir_ledger_requests_total", "Requests by status");
        let statements = Opts::new("weir_ledger_statements_total", "Statements of gateways by result");
        let statements = IntCounterVec::new(statements, &["result"])?;
        for result in RESULTS {
            statements.with_label_values(&[result]);
        }
        let help = "Time that the store took for the statements of a request";
        let store = HistogramOpts::new("weir_ledger_store_duration_seconds", help).buckets(SECONDS.to_vec());
        let (requests, store) = (IntCounterVec::new(requests, &["status"])?, Histogram::with_opts(store)?);
        Ok(Self { requests, statements, store })
    }

    pub(crate) fn request(&self, status: &str) {
        self.requests.with_label_values(&[status]).inc();
    }

    /// Counts a statement by one of the results.
    pub(crate) fn statement(&self, result: &'static str) {
        self.statements.with_label_values(&[result]).inc();
    }

    /// All metrics, in the text format that every reader supports. `gateways` were heard in this epoch, and in an earlier one alone.
    pub(crate) fn text(
        &self,
        view: Result<&View, &Unusable>,
        gateways: (usize, usize),
    ) -> Result<String, Error> {
        let mut families = self.requests.collect();
        families.extend(self.statements.collect());
        families.extend(self.store.collect());
        let mut gauge = |name: &str, help: &str, label: &str, rows: &[(&str, usize)]| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &[label])?;
            for (value, number) in rows {
                gauge.with_label_values(&[value]).set(i64::try_from(*number).unwrap_or(i64::MAX));
            }
            families.extend(gauge.collect());
            Ok::<_, Error>(())
        };
        if let Ok(view) = view {
            let (help, epoch) =
                ("The epoch of the store, the same for every replica", view.epoch.id.to_string());
            gauge("weir_ledger_epoch_info", help, "epoch", &[(&epoch, 1)])?;
        }
        let masters = view.map_or_else(|unusable| vec![unusable.state()], View::states);
        let states = ["up", "away", "refuses"];
        let masters = states.map(|state| (state, masters.iter().filter(|found| **found == state).count()));
        gauge("weir_ledger_store_masters", "Masters of the store by state", "state", &masters)?;
        let (help, (current, earlier)) = ("Gateways heard in the last 10 seconds by epoch", gateways);
        gauge("weir_ledger_gateways", help, "epoch", &[("current", current), ("earlier", earlier)])?;
        let settling =
            IntGauge::new("weir_ledger_settling", "1 while the store settles and nothing is granted")?;
        settling.set(view.is_ok_and(|view| view.epoch.is_settling()).into());
        families.extend(settling.collect());
        TextEncoder::new().encode_to_string(&families)
    }
}
