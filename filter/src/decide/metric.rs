//! The metrics: their names, and their sums in the VM, which are handed to the gateway now and then, because a host call for each request would
//! cost more than the sum.
//!
//! Names are in the form of Istio's custom metrics. A tag stands in the name as `<tag>=.=<value>;.;`. Istio's regular expression
//! `(<tag>=\.=(.*?);\.;)`, which `envoy.yaml` carries as well, takes it out of the name and makes it a label:
//! `weir_requests_total{plan, class, outcome}` on `/stats/prometheus`. The names that a configuration may give to plans and classes contain none
//! of `.`, `;` and `=`, so no name ends its tag or starts another.

use super::outcome::{Outcome, Outcomes};

/// Something that happens and is counted, apart from requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A poll of the directory brought a new document.
    DirectoryUpdated,
    /// A poll of the directory brought no change.
    DirectoryUnchanged,
    /// A poll of the directory had no good answer.
    DirectoryFailed,
    /// A row of the directory is malformed, repeats a key, or names a plan or class that is not configured.
    DirectorySkipped,
    /// `counters.known` has no records for a row of the directory.
    DirectoryOverCapacity,
    /// The response's status gave back what the request was charged.
    CostRefunded,
    /// The actual cost of a request did not become known, so that its reserve stands.
    CostUnknown,
    /// A settlement could not be stored, so that the charge stands.
    CostUnsettled,
    /// A caller got its charge back, because its organisation did not admit the request.
    OrganisationGivenBack,
    /// A malformed entry of the counters was begun again.
    CountersRepaired,
}

impl Event {
    /// All events, and the names of their counters.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::DirectoryUpdated, "weir.directory.updated_total"),
        (Self::DirectoryUnchanged, "weir.directory.unchanged_total"),
        (Self::DirectoryFailed, "weir.directory.failed_total"),
        (Self::DirectorySkipped, "weir.directory.skipped_total"),
        (Self::DirectoryOverCapacity, "weir.directory.over_capacity_total"),
        (Self::CostRefunded, "weir.cost.refunded_total"),
        (Self::CostUnknown, "weir.cost.unknown_total"),
        (Self::CostUnsettled, "weir.cost.unsettled_total"),
        (Self::OrganisationGivenBack, "weir.organisation.given_back_total"),
        (Self::CountersRepaired, "weir.counters.repaired_total"),
    ];

    /// The name of the counter.
    #[must_use]
    pub fn metric(self) -> &'static str {
        Self::ALL.get(self as usize).map_or("", |(_, name)| name)
    }
}

/// Sums of events.
#[derive(Debug, Default)]
pub struct EventSums([u32; Event::ALL.len()]);

impl EventSums {
    /// Adds to an event's sum.
    pub fn add(&mut self, event: Event, times: u32) {
        if let Some(sum) = self.0.get_mut(event as usize) {
            *sum = sum.saturating_add(times);
        }
    }

    /// Takes the sums since the last time, in the order of [`Event::ALL`].
    pub fn drain(&mut self) -> [u32; Event::ALL.len()] {
        core::mem::take(&mut self.0)
    }
}

/// Sums of requests: plans × classes × outcomes, where the plan after the last stands for strangers.
#[derive(Debug)]
pub struct RequestSums {
    classes: usize,
    plans: usize,
    sums: Vec<u32>,
}

/// What a sum of requests is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The plan, as an index into [`crate::config::Catalog::plans`]; `None` for strangers.
    pub plan: Option<usize>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// The outcome.
    pub outcome: Outcome,
}

impl RequestSums {
    /// Sums of zero.
    #[must_use]
    pub fn new(plans: usize, classes: usize) -> Self {
        Self { classes, plans, sums: vec![0; (plans + 1) * classes * Outcome::ALL.len()] }
    }

    /// All labels, in the order of [`RequestSums::drain`]'s places.
    pub fn labels(&self) -> impl Iterator<Item = Label> + use<> {
        let (plans, classes) = (self.plans, self.classes);
        (0..=plans).flat_map(move |plan| {
            (0..classes).flat_map(move |class| {
                let plan = (plan < plans).then_some(plan);
                Outcome::ALL.into_iter().map(move |outcome| Label { plan, class, outcome })
            })
        })
    }

    /// Counts a request under each of its outcomes.
    pub fn add(&mut self, plan: Option<usize>, class: usize, outcomes: Outcomes) {
        let first = (plan.unwrap_or(self.plans) * self.classes + class) * Outcome::ALL.len();
        for outcome in outcomes.iter() {
            if let Some(sum) = self.sums.get_mut(first + outcome as usize) {
                *sum = sum.saturating_add(1);
            }
        }
    }

    /// Takes every sum that is not 0, with its place among the labels.
    pub fn drain(&mut self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.sums.iter_mut().map(core::mem::take).enumerate().filter(|(_, sum)| *sum > 0)
    }
}

/// Requests of a plan and class, by outcome.
#[must_use]
pub fn requests(plan: &str, class: &str, outcome: Outcome) -> String {
    format!("weir.plan=.={plan};.;class=.={class};.;outcome=.={outcome};.;requests_total")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Takes a tag out of a name as `(<tag>=\.=(.*?);\.;)` does.
    fn take(name: &str, tag: &str) -> (String, String) {
        let (before, rest) = name.split_once(&format!("{tag}=.=")).unwrap();
        let (value, after) = rest.split_once(";.;").unwrap();
        (format!("{before}{after}"), value.to_owned())
    }

    #[test]
    fn no_plan_or_class_that_can_be_configured_breaks_the_form() {
        let printable = (b' '..=b'~').map(char::from).chain(['\n', '\0', 'é']);
        let mut names: Vec<_> = printable.map(|c| format!("a{c}b")).collect();
        names.extend(
            ["plan", "class", "outcome", "requests_total", "tag", "cache", "-", "_"].map(str::to_owned),
        );
        names.extend(["class=.=x;.;", "x;.;", ";.", "", "none"].map(str::to_owned));
        let mut accepted = 0;
        for (plan, class) in names.iter().flat_map(|plan| names.iter().map(move |class| (plan, class))) {
            let json = serde_json::json!({"plans": {plan: {class: ["1/minute"]}}, "default_class": class});
            if Config::from_json(json.to_string().as_bytes()).is_err() {
                continue;
            }
            accepted += 1;
            let (name, outcome) = take(&requests(plan, class, Outcome::ShadowLimited), "outcome");
            let (name, found_class) = take(&name, "class");
            let (name, found_plan) = take(&name, "plan");
            let expected = ("weir.requests_total", plan, class, "shadow_limited");
            assert_eq!((name.as_str(), &found_plan, &found_class, outcome.as_str()), expected);
        }
        assert!(accepted > 1000, "{accepted}");
    }

    #[test]
    fn what_is_added_under_a_label_is_drained_at_its_place_once() {
        let mut sums = RequestSums::new(2, 3);
        let labels: Vec<_> = sums.labels().collect();
        for (times, Label { plan, class, outcome }) in labels.iter().enumerate() {
            for _ in 0..times {
                sums.add(*plan, *class, (*outcome).into());
            }
        }
        let drained: Vec<_> = sums.drain().collect();
        let expected: Vec<_> =
            (1..labels.len()).map(|place| (place, u32::try_from(place).unwrap())).collect();
        assert_eq!(drained, expected);
        assert_eq!(sums.drain().count(), 0);
    }

    #[test]
    fn a_request_is_counted_under_each_of_its_outcomes() {
        let mut sums = RequestSums::new(1, 1);
        let mut outcomes = Outcomes::from(Outcome::UnknownKey);
        outcomes.add(Outcome::Limited);
        sums.add(None, 0, outcomes);
        let labels: Vec<_> = sums.labels().collect();
        let drained: Vec<_> =
            sums.drain().map(|(place, sum)| (labels[place].plan, labels[place].outcome, sum)).collect();
        assert_eq!(drained, [(None, Outcome::Limited, 1), (None, Outcome::UnknownKey, 1)]);
    }
}
