//! The cases that a real gateway answers alike (see `../cases/README.md`).

use std::path::Path;

use host_sim::{Host, Module, Plugin};
use host_sim_cli::scenario::{self, Scenario};

use crate::guests;

#[test]
fn every_case_is_as_described() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let plugin =
        Plugin { name: "case".into(), root_id: "root".into(), vm_id: "vm".into(), ..Plugin::default() };
    let mut cases = 0;
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        let guest = name.split('.').next().unwrap();
        let module = Module::compile(guests::guest(guest)).unwrap();
        let scenario = Scenario::read(&path).unwrap();
        let report = scenario::run(&scenario, Host::builder(), &module, &plugin, &directory).unwrap();
        assert!(report.passed(), "{name}: {:#?}", report.steps);
        cases += report.steps.len();
    }
    assert!(cases >= 30, "{cases} cases");
}
