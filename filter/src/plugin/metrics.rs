//! The host's counters of one configuration.

use super::log::logged;
use crate::config::{Config, NO_PLAN};
use crate::decide::decision::Decided;
use crate::decide::limiter::Limiter;
use crate::decide::metric::{self, Event, Label, RequestSums};
use crate::host::{Gateway, Metric};

/// Sums that were not handed to the host yet, and the counters for them.
pub(super) struct Metrics {
    sums: RequestSums,
    requests: Vec<Option<Metric>>,
    /// In the order of [`Event::ALL`]; `None` for events that cannot occur.
    events: [Option<Metric>; Event::ALL.len()],
}

impl Metrics {
    pub(super) fn define(config: &Config) -> Self {
        let sums = RequestSums::new(config.catalog.plans.len(), config.catalog.classes.len());
        let requests = sums.labels().map(|label| request_counter(config, label)).collect();
        let events = Event::ALL.map(|(event, name)| is_possible(config, event).then(|| counter(name))?);
        Self { sums, requests, events }
    }

    pub(super) fn count(&mut self, decided: &Decided) {
        self.sums.add(decided.plan, decided.class, decided.outcomes);
    }

    /// Hands everything to the host that was counted since the last time.
    pub(super) fn flush(&mut self, limiter: &mut Limiter) {
        for (metric, sum) in self.events.iter().zip(limiter.drain_events(&mut Gateway)) {
            if let (Some(metric), 1..) = (metric, sum) {
                logged(metric.add(sum));
            }
        }
        for (place, sum) in self.sums.drain() {
            if let Some(metric) = self.requests.get(place).copied().flatten() {
                logged(metric.add(sum));
            }
        }
    }
}

/// Whether an event may occur. Organisations may come with the directory.
fn is_possible(config: &Config, event: Event) -> bool {
    let has_organisations = config.directory.is_some() || config.subscribers.has_organisations();
    match event {
        Event::DirectoryUpdated
        | Event::DirectoryUnchanged
        | Event::DirectoryFailed
        | Event::DirectorySkipped
        | Event::DirectoryOverCapacity => config.directory.is_some(),
        Event::CostRefunded | Event::CostUnknown => config.settles(),
        Event::CostUnsettled => config.settles() || has_organisations,
        Event::OrganisationGivenBack => has_organisations,
        Event::CountersRepaired => true,
    }
}

fn request_counter(config: &Config, Label { plan, class, outcome }: Label) -> Option<Metric> {
    if !outcome.is_of(plan.is_some()) {
        return None;
    }
    let plan = plan.map_or(NO_PLAN, |plan| config.plan_name(plan));
    counter(&metric::requests(plan, config.class_name(class), outcome))
}

fn counter(name: &str) -> Option<Metric> {
    logged(Metric::counter(name).map(Some))
}
