//! Outcomes, summed in the VM and handed to the gateway's metrics now and then: a host call for each request would cost more than
//! the sum.

use crate::decide::outcome::Outcome;

/// The sums of one VM: plans × classes × outcomes, where the plan after the last stands for strangers.
#[derive(Debug)]
pub struct Tally {
    classes: usize,
    plans: usize,
    sums: Vec<u32>,
}

/// What a sum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The plan, as an index into [`crate::config::Catalog::plans`]; `None` for strangers.
    pub plan: Option<usize>,
    /// The class, as an index into [`crate::config::Catalog::classes`].
    pub class: usize,
    /// The outcome.
    pub outcome: Outcome,
}

impl Tally {
    /// Sums of zero.
    #[must_use]
    pub fn new(plans: usize, classes: usize) -> Self {
        Self { classes, plans, sums: vec![0; (plans + 1) * classes * Outcome::ALL.len()] }
    }

    /// All labels, in the order of [`Tally::drain`]'s places.
    pub fn labels(&self) -> impl Iterator<Item = Label> + use<> {
        let (plans, classes) = (self.plans, self.classes);
        (0..=plans).flat_map(move |plan| {
            (0..classes).flat_map(move |class| {
                let plan = (plan < plans).then_some(plan);
                Outcome::ALL.into_iter().map(move |outcome| Label { plan, class, outcome })
            })
        })
    }

    /// Adds one.
    pub fn add(&mut self, label: Label) {
        let plan = label.plan.unwrap_or(self.plans);
        let place = (plan * self.classes + label.class) * Outcome::ALL.len() + label.outcome as usize;
        if let Some(sum) = self.sums.get_mut(place) {
            *sum = sum.saturating_add(1);
        }
    }

    /// Takes every sum that is not 0, with its place among the labels.
    pub fn drain(&mut self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.sums.iter_mut().map(core::mem::take).enumerate().filter(|(_, sum)| *sum > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_under_a_label_is_drained_at_its_place_once() {
        let mut tally = Tally::new(2, 3);
        let labels: Vec<_> = tally.labels().collect();
        for (times, label) in labels.iter().enumerate() {
            for _ in 0..times {
                tally.add(*label);
            }
        }
        let drained: Vec<_> = tally.drain().collect();
        let expected: Vec<_> =
            (1..labels.len()).map(|place| (place, u32::try_from(place).unwrap())).collect();
        assert_eq!(drained, expected);
        assert_eq!(tally.drain().count(), 0);
    }
}
