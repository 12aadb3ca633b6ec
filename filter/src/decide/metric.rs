//! The metrics of requests: their names, and their sums in the VM, which are handed to the gateway now and then, because a host call for each
//! request would cost more than the sum. [`crate::event`] and [`crate::directory::GAUGES`] have the others.
//!
//! Names are in the form of Istio's custom metrics. A tag stands in the name as `<tag>=.=<value>;.;`. Istio's regular expression
//! `(<tag>=\.=(.*?);\.;)`, which `envoy.yaml` carries as well, takes it out of the name and makes it a label:
//! `weir_requests_total{plan, class, outcome}` on `/stats/prometheus`. The names that a configuration may give to plans and classes contain none
//! of `.`, `;` and `=`, so no name ends its tag or starts another.

use super::outcome::{Outcome, Outcomes};

/// Sums of requests: plans × classes × outcomes, where the plan after the last stands for strangers.
#[derive(Debug)]
pub struct RequestSums<C> {
    classes: usize,
    plans: usize,
    /// What stands for the counter of each sum, and the sum.
    sums: Vec<(C, u32)>,
}

impl<C> RequestSums<C> {
    /// Sums of zero. `counter` makes what stands for the counter of a plan (`None` for strangers), a class and an outcome.
    pub fn new(plans: usize, classes: usize, counter: impl Fn(Option<usize>, usize, Outcome) -> C) -> Self {
        let mut sums = Vec::with_capacity((plans + 1) * classes * Outcome::ALL.len());
        for plan in (0..plans).map(Some).chain([None]) {
            for class in 0..classes {
                sums.extend(Outcome::ALL.map(|outcome| (counter(plan, class, outcome), 0)));
            }
        }
        Self { classes, plans, sums }
    }

    /// Counts a request under each of its outcomes.
    pub fn add(&mut self, plan: Option<usize>, class: usize, outcomes: Outcomes) {
        let first = (plan.unwrap_or(self.plans) * self.classes + class) * Outcome::ALL.len();
        for outcome in outcomes.iter() {
            if let Some((_, sum)) = self.sums.get_mut(first + outcome as usize) {
                *sum = sum.saturating_add(1);
            }
        }
    }

    /// Takes every sum that is not 0, with its counter.
    pub fn drain(&mut self) -> impl Iterator<Item = (&C, u32)> {
        self.sums
            .iter_mut()
            .map(|(counter, sum)| (&*counter, core::mem::take(sum)))
            .filter(|(_, sum)| *sum > 0)
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
    fn what_is_added_under_a_label_is_drained_with_it_once() {
        let mut labels = Vec::new();
        for plan in [Some(0), Some(1), None] {
            for class in 0..3 {
                labels.extend(Outcome::ALL.map(|outcome| (plan, class, outcome)));
            }
        }
        let mut sums = RequestSums::new(2, 3, |plan, class, outcome| (plan, class, outcome));
        for (times, (plan, class, outcome)) in labels.iter().enumerate() {
            for _ in 0..times {
                sums.add(*plan, *class, (*outcome).into());
            }
        }
        let drained: Vec<_> = sums.drain().collect();
        let expected: Vec<_> = labels.iter().zip(0..).skip(1).collect();
        assert_eq!(drained, expected);
        assert_eq!(sums.drain().count(), 0);
    }

    #[test]
    fn a_request_is_counted_under_each_of_its_outcomes() {
        let mut sums = RequestSums::new(1, 1, |plan, _, outcome| (plan, outcome));
        let mut outcomes = Outcomes::from(Outcome::UnknownKey);
        outcomes.add(Outcome::Limited);
        sums.add(None, 0, outcomes);
        let drained: Vec<_> = sums.drain().collect();
        assert_eq!(drained, [(&(None, Outcome::Limited), 1), (&(None, Outcome::UnknownKey), 1)]);
    }
}
