//! The cases that a real gateway answers alike (see `../cases/README.md`).

use std::path::Path;

use host_sim::{CallAnswer, Host, Module, Plugin, Status, TracedCall};
use host_sim_cli::scenario::{self, Options, Scenario};

use crate::guests;

#[test]
fn every_case_is_as_described() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let plugin = Plugin::default().name("case").root_id("root").vm_id("vm");
    let (mut cases, mut refused) = (0, 0);
    let options = Options { keep_all: true, ..Options::default() };
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        let guest = name.split('.').next().unwrap();
        let module = Module::compile(guests::guest(guest)).unwrap();
        let scenario = Scenario::read(&path).unwrap();
        let report =
            scenario::run(&scenario, Host::builder(), &module, &plugin, &directory, options).unwrap();
        assert!(report.passed(), "{name}: {:#?}", report.steps);
        cases += report.steps.len();
        let callbacks = report.steps.iter().flat_map(|step| &step.trace);
        for call in callbacks.flat_map(|callback| &callback.calls) {
            refused += usize::from(has_its_cause(name, call));
        }
    }
    assert!(cases >= 30, "{cases} cases");
    assert!(refused >= 100, "{refused} calls were refused");
}

/// Whether a host call was refused; then its trace says why, and says more than the status does.
fn has_its_cause(case: &str, call: &TracedCall) -> bool {
    let CallAnswer::Status(status) = call.answer else { return false };
    let refused = status != Status::Ok;
    if refused {
        let why = call.why.as_deref().unwrap_or_default();
        assert!(!why.is_empty() && !why.contains(&status.to_string()), "{case}: {call}");
    }
    refused
}
