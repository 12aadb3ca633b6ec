//! `host-sim run --against`

use std::{fs, path::Path};

use host_sim::{Module, Plugin};
use host_sim_cli::{
    against::{ChainedFilter, Program, Settings, compare},
    failure::Failure,
    scenario::{Report, Scenario, chain},
};

use super::Filter;
use crate::cli::print_beside;

/// The Envoy that scenarios are compared with.
pub(super) struct Opponent<'a> {
    pub(super) program: Program,
    masked: Vec<&'a str>,
}

impl<'a> Opponent<'a> {
    /// Finds the Envoy, and warns where host-sim does not behave like its version.
    pub(super) fn find(named: &Path, masked: &'a [String], filter: &Filter) -> Result<Self, Failure> {
        let program = Program::find(named)?;
        let version = filter.version()?;
        if version != program.version() {
            print_beside(format_args!(
                "warning: expectations are checked in a host like Envoy {version}, and this is Envoy {}: give --host envoy-{}",
                program.release(),
                program.version()
            ));
        }
        Ok(Self { program, masked: masked.iter().map(String::as_str).collect() })
    }

    /// Compares a scenario, and adds to its report what differs and what could not be compared.
    pub(super) fn compare(
        &self,
        scenario: &Scenario,
        (module, plugin): (&Module, &Plugin),
        filter: &Filter,
        base: &Path,
        report: &mut Report,
    ) -> Result<(), Failure> {
        if filter.has_properties() {
            let why = "--property: Envoy has the properties of the real request".to_owned();
            report.steps.iter_mut().for_each(|step| step.not_comparable.push(why.clone()));
            return Ok(());
        }
        let filters = filters(scenario, (module, plugin), filter.wasm()?, base)?;
        let settings = Settings { base, masked: &self.masked };
        let compared = compare(scenario, &filters, &self.program, settings)?;
        let mut compared = compared.steps.into_iter();
        for (step, compared) in report.steps.iter_mut().zip(&mut compared) {
            step.misses.extend(compared.misses);
            step.not_comparable.extend(compared.not_comparable);
        }
        report.steps.extend(compared);
        Ok(())
    }
}

/// The filters of a scenario with their modules' bytes, which Envoy loads.
fn filters(
    scenario: &Scenario,
    (module, plugin): (&Module, &Plugin),
    wasm: &Path,
    base: &Path,
) -> Result<Vec<ChainedFilter>, Failure> {
    let chain = chain(scenario, module, plugin, base)?;
    let filters = chain.into_iter().map(|(file, module, plugin)| {
        let file = file.as_deref().unwrap_or(wasm);
        let wasm = fs::read(file).map_err(Failure::file(file))?;
        Ok(ChainedFilter { wasm, module, plugin, any: None })
    });
    filters.collect()
}
