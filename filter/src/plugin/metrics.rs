//! The host's counters of one configuration.

use proxy_wasm::types::MetricType;

use super::log::logged;
use crate::config::{Config, NO_PLAN};
use crate::decide::decision::Decided;
use crate::decide::limiter::Limiter;
use crate::decide::metric::{self, RequestSums};
use crate::directory::GAUGES;
use crate::event::Event;
use crate::host::{Gateway, Metric};

/// The counters, and the sums of requests that were not handed to the host yet.
pub(super) struct Metrics {
    /// `None` for outcomes that requests of a plan, or of strangers, cannot come to.
    requests: RequestSums<Option<Metric>>,
    /// In the order of [`Event::ALL`]; `None` for events that cannot occur.
    events: [Option<Metric>; Event::ALL.len()],
    /// In the order of [`GAUGES`]; `None` without a directory.
    list: [Option<Metric>; GAUGES.len()],
    /// What `list` shows.
    shown: Option<[u64; GAUGES.len()]>,
}

impl Metrics {
    pub(super) fn define(config: &Config) -> Self {
        let (plans, classes) = (config.catalog.plans.len(), config.catalog.classes.len());
        let requests = RequestSums::new(plans, classes, |plan, class, outcome| {
            let name = plan.map_or(NO_PLAN, |plan| config.plan_name(plan));
            let name = metric::requests(name, config.class_name(class), outcome);
            metric(MetricType::Counter, &name, outcome.is_of(plan.is_some()))
        });
        let events =
            Event::ALL.map(|event| metric(MetricType::Counter, event.metric(), event.is_possible(config)));
        let list = GAUGES.map(|name| metric(MetricType::Gauge, name, config.settings.directory.is_some()));
        Self { requests, events, list, shown: None }
    }

    /// Shows the state of the directory's list.
    pub(super) fn show(&mut self, status: [u64; GAUGES.len()]) {
        if self.shown.replace(status) == Some(status) {
            return;
        }
        for (metric, value) in self.list.iter().zip(status) {
            logged(metric.map_or(Ok(()), |metric| metric.set(value)));
        }
    }

    pub(super) fn count(&mut self, decided: &Decided) {
        self.requests.add(decided.plan, decided.class, decided.outcomes);
    }

    /// Hands everything to the host that was counted since the last time.
    pub(super) fn flush(&mut self, limiter: &mut Limiter) {
        let events = self.events.iter().zip(limiter.drain_events(&mut Gateway));
        for (metric, sum) in events.chain(self.requests.drain()) {
            if let (Some(metric), 1..) = (metric, sum) {
                logged(metric.add(sum));
            }
        }
    }
}

fn metric(kind: MetricType, name: &str, is_possible: bool) -> Option<Metric> {
    logged(is_possible.then(|| Metric::define(kind, name)).transpose())
}
