//! The host's counters of one configuration.

use crate::config::Config;
use crate::decide::limiter::{Limiter, SettlementEvent};
use crate::decide::metric;
use crate::decide::outcome::NO_PLAN;
use crate::decide::paused::{Event, PausedStreams};
use crate::decide::tally::{Label, Tally};
use crate::host::Metric;
use crate::plugin::root::{log_error, log_failure};

/// Outcomes that were not handed to the host yet, and the counters for them.
pub(super) struct Metrics {
    tally: Tally,
    requests: Vec<Option<Metric>>,
    /// In the order of [`Event::ALL`]; none without a fleet.
    fleet: Vec<Option<Metric>>,
    /// In the order of [`SettlementEvent::ALL`]; none if nothing is settled.
    settlements: Vec<Option<Metric>>,
}

impl Metrics {
    pub(super) fn define(config: &Config) -> Self {
        let tally = Tally::new(config.catalog.plans.len(), config.catalog.classes.len());
        let requests = tally.labels().map(|label| request_counter(config, label)).collect();
        let events = config.fleet.iter().flat_map(|_| Event::ALL);
        let fleet = events.map(|event| counter(event.metric())).collect();
        let events = SettlementEvent::ALL.into_iter().filter(|_| config.settles());
        let settlements = events.map(|event| counter(event.metric())).collect();
        Self { tally, requests, fleet, settlements }
    }

    pub(super) fn count(&mut self, label: Label) {
        self.tally.add(label);
    }

    /// Hands everything to the host that was counted since the last time.
    pub(super) fn flush<S>(&mut self, limiter: &mut Limiter, paused: &mut PausedStreams<S>) {
        let settlements = self.settlements.iter().zip(limiter.drain_settlements());
        for (metric, sum) in self.fleet.iter().zip(paused.drain()).chain(settlements) {
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
