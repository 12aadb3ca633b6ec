//! Budgets: a file with what callbacks may take in each scenario.

use std::{collections::BTreeMap, fs, io, path::Path};

use host_sim_cli::{
    failure::Failure,
    scenario::{StepReport, Usages, exceeded},
};

use super::{Ran, print};

/// What callbacks may take, by scenario.
type Budgets = BTreeMap<String, Usages>;

/// What the report calls the comparison.
const STEP: &str = "budgets";

/// A file that does not hold budgets.
fn malformed(path: &Path) -> impl Fn(serde_json::Error) -> Failure {
    move |error| Failure::from(error).about(path.display())
}

/// The budgets of a file; none where there is no such file.
fn read(path: &Path) -> Result<Option<Budgets>, Failure> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(malformed(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file(path)(error)),
    }
}

/// Holds what callbacks have taken against the budgets of a file. Where there is no such file yet, or it is to be renewed, it
/// is written.
pub(super) fn apply(path: &Path, renew: bool, runs: &mut [Ran]) -> Result<(), Failure> {
    let budgets = read(path)?.filter(|_| !renew);
    if let Some(budgets) = budgets {
        let none = Usages::new();
        for ran in runs {
            let misses = exceeded(&ran.report.usages, budgets.get(&ran.name).unwrap_or(&none));
            ran.report.steps.push(StepReport { name: STEP.to_owned(), misses, ..StepReport::default() });
        }
        return Ok(());
    }
    let taken: Budgets = runs.iter().map(|ran| (ran.name.clone(), ran.report.usages.clone())).collect();
    let text = serde_json::to_string_pretty(&taken).map_err(malformed(path))?;
    fs::write(path, text + "\n").map_err(Failure::file(path))
}

/// Prints what the callbacks of a scenario have taken at most.
pub(super) fn print_usages(ran: &Ran) {
    print(format_args!(
        "  {:<44} {:>13} {:>10} {:>11} {:>13}",
        "at most, in one callback", "instructions", "host calls", "host memory", "memory growth"
    ));
    for (callback, usage) in &ran.report.usages {
        print(format_args!(
            "  {callback:<44} {:>13} {:>10} {:>11} {:>13}",
            usage.instructions, usage.host_calls, usage.host_memory, usage.memory_growth
        ));
    }
}
