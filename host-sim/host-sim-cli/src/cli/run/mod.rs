//! `host-sim run`

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use host_sim_cli::scenario::{self, Miss, Scenario};
use similar::{ChangeTag, TextDiff};

use super::{Error, Filter, print};

/// Runs scenarios: requests, steps of the clock, faults, and what is expected of them
///
/// Exit code 0 when everything was as expected, 1 on a miss, 2 when a scenario cannot be run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim run --wasm filter.wasm --config limits.json minute.yaml
  host-sim run --wasm filter.wasm scenarios/

A scenario:
  steps:
  - name: five requests pass
    request: {path: /links, headers: {authorization: Bearer k}}
    repeat: 5
    expect: {status: 200}
  - name: the sixth is refused
    request: {path: /links, headers: {authorization: Bearer k}}
    expect: {status: 429, headers: {retry-after: \"60\"}}
  - advance: 60s")]
pub(super) struct Run {
    #[command(flatten)]
    filter: Filter,
    /// Scenarios, and directories of them (every .yaml, .yml and .json)
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
}

/// The scenarios at a path: itself, or those of a directory, sorted.
fn scenarios_at(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error| Error::Failed(format!("{}: {error}", path.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(Error::Failed(format!("{}: no .yaml, .yml or .json in it", path.display())));
    }
    found.sort_unstable();
    Ok(found)
}

impl Run {
    pub(super) fn run(self) -> Result<(), Error> {
        let (module, plugin) = self.filter.only()?;
        let (mut scenarios, mut steps, mut missed) = (0, 0, 0);
        for given in &self.scenarios {
            for path in scenarios_at(given)? {
                let scenario = Scenario::read(&path).map_err(|error| Error::failed(&error))?;
                let base = path.parent().unwrap_or_else(|| Path::new("."));
                let report = scenario::run(&scenario, self.filter.builder()?, &module, &plugin, base)
                    .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
                print(path.display());
                for (index, step) in report.steps.iter().enumerate() {
                    let word = if step.misses.is_empty() { "ok  " } else { "MISS" };
                    print(format_args!("  {word} {:>3}  {}", index + 1, step.name));
                    step.misses.iter().for_each(print_miss);
                    step.warnings
                        .iter()
                        .for_each(|warning| print(format_args!("            warning: {warning}")));
                    missed += usize::from(!step.misses.is_empty());
                }
                scenarios += 1;
                steps += report.steps.len();
            }
        }
        let summary = format!("{scenarios} scenarios, {steps} steps, {missed} missed");
        if missed > 0 {
            return Err(Error::Missed(summary));
        }
        print(summary);
        Ok(())
    }
}

/// Prints what was expected and what was found, line by line.
fn print_miss(miss: &Miss) {
    print(format_args!("            {}", miss.what));
    for change in TextDiff::from_lines(&miss.expected, &miss.found).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        print(format_args!("            {sign} {}", change.value().trim_end_matches('\n')));
    }
}
