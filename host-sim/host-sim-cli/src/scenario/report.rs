//! How a scenario went, and how two runs of it differ.

use std::num::NonZeroUsize;

use host_sim::{Framing, LogLine, TracedCallback};
use serde::Serialize;

use super::{check::Miss, mask::Masks};

/// 16 KiB: what Envoy reads at once from many connections.
const CHUNK: NonZeroUsize = NonZeroUsize::new(16 * 1024).expect("it is not zero");

/// The framings that a filter must not tell apart.
pub const FRAMINGS: [Framing; 4] =
    [Framing::Http1, Framing::Http2, Framing::Pieces(NonZeroUsize::MIN), Framing::Pieces(CHUNK)];

/// How a step went.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepReport {
    /// Its name, or what it does.
    pub name: String,
    /// What was not as expected.
    pub misses: Vec<Miss>,
    /// What could not be compared with an Envoy, and why.
    pub not_comparable: Vec<String>,
    /// What the host warns of: it goes as in a gateway, and hardly as it was meant.
    pub warnings: Vec<String>,
    /// Where the filter trapped and which host calls were refused, where something was not as expected.
    pub causes: Vec<String>,
    /// What the filter has logged: of the request that missed, where one did, else during the step.
    pub log: Vec<LogLine>,
    /// What filter and host said to each other: of the request that missed, where one did, else during the step.
    pub trace: Vec<TracedCallback>,
    /// What client and upstream saw of each request, to be compared line by line.
    #[serde(skip)]
    pub seen: Vec<String>,
    /// What clusters were asked, in the same form.
    #[serde(skip)]
    pub calls: String,
}

/// How a scenario went.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
}

impl StepReport {
    /// What client, upstream and clusters have seen otherwise in `other`, the same step of another run.
    fn differences(&self, other: &Self) -> impl Iterator<Item = Miss> {
        let numbered = |(index, pair)| (format!("request {}", index + 1), pair);
        let requests = self.seen.iter().zip(&other.seen).enumerate().map(numbered);
        let all = requests.chain([("calls to clusters".to_owned(), (&self.calls, &other.calls))]);
        let differ = all.filter(|(_, (here, there))| here != there);
        differ.map(|(what, (here, there))| Miss { what, expected: here.clone(), found: there.clone() })
    }

    /// Leaves in `there`, what an Envoy did in this step, what differs from this run of it, and what Envoy alone did otherwise than
    /// expected. What both missed in the same way says nothing about a difference between them.
    pub(crate) fn against(self, mut there: Self, in_order: bool, masks: &Masks<'_>) -> Self {
        let (alike, own): (Vec<_>, Vec<_>) =
            there.misses.drain(..).partition(|miss| self.misses.contains(miss));
        there.not_comparable.extend(alike.into_iter().map(|Miss { what, expected, found }| {
            format!(
                "{what}: expected {expected:?}; over sockets and on the real clock, host-sim and Envoy both have {found:?}"
            )
        }));
        let lines = |step: &Self| log_lines(&step.log, in_order, masks).join("\n");
        let (expected, found) = (lines(&self), lines(&there));
        // Contexts on several threads log in any order.
        let log = (expected != found).then(|| Miss { what: "log".to_owned(), expected, found });
        let differ = self.differences(&there).chain(log);
        let differ: Vec<_> =
            differ.map(|miss| Miss { what: format!("{}: - host-sim, + Envoy", miss.what), ..miss }).collect();
        let own = own.into_iter().map(|miss| Miss { what: format!("{} in Envoy", miss.what), ..miss });
        there.misses = differ.into_iter().chain(own).collect();
        there
    }
}

impl Report {
    /// Of a scenario whose filter refuses what it is given.
    pub fn refused(refusal: String) -> Self {
        let miss = Miss { what: "start".to_owned(), expected: "the filter runs".to_owned(), found: refusal };
        let name = "the start of the filter".to_owned();
        Self { steps: vec![StepReport { name, misses: vec![miss], ..StepReport::default() }] }
    }

    /// Of a scenario that expects this of the filter's refusal, which is none where the filter runs.
    pub(crate) fn of_refusal(expected: &str, refusal: Option<&str>) -> Self {
        let found = refusal.unwrap_or("the filter runs").to_owned();
        let missed = refusal.is_none_or(|refusal| !refusal.contains(expected));
        let miss = || Miss { what: "refused".to_owned(), expected: expected.to_owned(), found };
        let name = "the filter refuses its configuration".to_owned();
        let misses = missed.then(miss).into_iter().collect();
        Self { steps: vec![StepReport { name, misses, ..StepReport::default() }] }
    }

    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.misses.is_empty())
    }

    /// Adds as misses what was seen otherwise in `other`, a run of the same scenario with another framing.
    pub fn compare(&mut self, other: Self, framing: Framing) {
        for (step, other) in self.steps.iter_mut().zip(other.steps) {
            let mut differences: Vec<_> = step.differences(&other).collect();
            if differences.is_empty() {
                continue;
            }
            for miss in &mut differences {
                miss.what = format!("{} with framing {framing}", miss.what);
            }
            step.misses.extend(differences);
            if step.causes.is_empty() {
                (step.log, step.trace) = (other.log, other.trace);
                step.causes = host_sim::causes(&step.trace);
            }
        }
    }
}

/// What filters have logged, to be compared line by line.
pub(crate) fn log_lines(log: &[LogLine], in_order: bool, masks: &Masks<'_>) -> Vec<String> {
    let own = log.iter().filter(|line| !line.by_host);
    let mut lines: Vec<_> = own.map(|line| masks.hide(&line.message)).collect();
    if !in_order {
        lines.sort_unstable();
    }
    lines
}
