//! The host's counters of one configuration.

use crate::config::Config;
use crate::decide::limiter::{Limiter, SettlementEvent};
use crate::decide::metric;
use crate::decide::outcome::NO_PLAN;
use crate::decide::tally::{Label, Tally};
use crate::host::Metric;
use crate::plugin::root::{log_error, log_failure};

/// Outcomes that were not handed to the host yet, and the counters for them.
pub(super) struct Metrics {
    tally: Tally,
    requests: Vec<Option<Metric>>,
    /// In the order of [`SettlementEvent::ALL`]; `None` for events that cannot occur.
    settlements: [Option<Metric>; SettlementEvent::ALL.len()],
}

impl Metrics {
    pub(super) fn define(limiter: &Limiter) -> Self {
        let config = limiter.config();
        let tally = Tally::new(config.catalog.plans.len(), config.catalog.classes.len());
        let requests = tally.labels().map(|label| request_counter(config, label)).collect();
        let mut metrics = Self { tally, requests, settlements: Default::default() };
        metrics.define_settlements(limiter);
        metrics
    }

    /// Defines the metrics of the events that may occur now that the directory has answered.
    pub(super) fn define_settlements(&mut self, limiter: &Limiter) {
        for (event, metric) in SettlementEvent::ALL.into_iter().zip(&mut self.settlements) {
            if metric.is_none() && limiter.may_see(event) {
                *metric = counter(event.metric());
            }
        }
    }

    pub(super) fn count(&mut self, label: Label) {
        self.tally.add(label);
    }

    /// Hands everything to the host that was counted since the last time.
    pub(super) fn flush(&mut self, limiter: &mut Limiter) {
        let settlements = self.settlements.iter().zip(limiter.drain_settlements());
        for (metric, sum) in settlements {
            if let (Some(metric), 1..) = (metric, sum) {
                log_failure(metric.add(sum));
            }
        }
        for (place, sum) in self.tally.drain() {
            if let Some(metric) = self.requests.get(place).copied().flatten() {
                log_failure(metric.add(sum));
            }
        }
    }
}

fn request_counter(config: &Config, label: Label) -> Option<Metric> {
    if !label.outcome.is_of(label.plan.is_some()) {
        return None;
    }
    let plan = label.plan.map_or(NO_PLAN, |plan| config.plan_name(plan));
    counter(&metric::requests(plan, config.class_name(label.class), label.outcome))
}

pub(super) fn counter(name: &str) -> Option<Metric> {
    Metric::counter(name).map_err(log_error).ok()
}
