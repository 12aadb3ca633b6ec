//! How a scenario went.

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// What: `status`, `headers.retry-after`, …
    pub what: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// How a step went.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// Its name, or what it does.
    pub name: String,
    /// What was not as expected.
    pub misses: Vec<Miss>,
    /// What the host warns of: it goes as in a gateway, and hardly as it was meant.
    pub warnings: Vec<String>,
}

/// How a scenario went.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
}

impl Report {
    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.misses.is_empty())
    }
}
