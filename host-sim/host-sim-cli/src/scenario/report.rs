//! How a scenario went.

use host_sim::{LogLine, TracedCallback};

use super::{check::Miss, usage::Usages};

/// How a step went.
#[derive(Debug, Clone, Default)]
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
    /// What became of each request, for comparison.
    pub outcomes: Vec<String>,
}

/// How a scenario went.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
    /// The most that one run of each callback has taken. Instructions are counted where the module was compiled to.
    pub usages: Usages,
}

impl Report {
    /// Of a scenario whose filter refuses what it is given.
    pub fn refused(refusal: String) -> Self {
        let miss = Miss { what: "start".to_owned(), expected: "the filter runs".to_owned(), found: refusal };
        let name = "the start of the filter".to_owned();
        let step = StepReport { name, misses: vec![miss], ..StepReport::default() };
        Self { steps: vec![step], usages: Usages::new() }
    }

    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.misses.is_empty())
    }
}
