//! Scenarios, and the command that runs them.

use std::{fs, path::Path};

use host_sim::{Module, Plugin};
use host_sim_cli::scenario::{self, Scenario, ScenarioError};

use crate::{commands::host_sim, guests};

const LIMITER: &str = r#"
workers: 2
clock: 2026-03-01T00:00:00Z
upstream: {status: 201, headers: {x-up: ["a", "b"]}, body: made}
steps:
- name: five pass
  request: {path: /k}
  repeat: 5
  expect: {status: 201, body: made, local_reply: false, headers: {x-up: "a,b", retry-after: null}}
- name: the sixth is refused
  request: {path: /k, worker: 1}
  expect: {status: 429, details: limited, local_reply: true}
- fault: {call: proxy_get_shared_data, status: InternalFailure, worker: 0}
- name: an unknown status ends the VM
  request: {path: /k}
  expect: {status: 503, details: wasm_fail_stream, log: [trapped]}
- clear_faults: true
- advance: 1m 30s
- wall: 2026-02-01T00:00:00Z
- name: eight at once
  interleave:
    seed: 3
    requests: [{path: /i, worker: 1}, {path: /i, worker: 1}, {path: /i, worker: 1}, {path: /i, worker: 1},
      {path: /i, worker: 1}, {path: /i, worker: 1}]
  expect: {statuses: {201: 5, 429: 1}, shared_data_entries_at_most: 2}
"#;

fn run(text: &str) -> Result<scenario::Report, ScenarioError> {
    let scenario: Scenario = serde_saphyr::from_str(text).unwrap();
    let module = Module::compile(guests::guest("limiter")).unwrap();
    scenario::run(&scenario, host_sim::Host::builder(), &module, &Plugin::default(), Path::new("."))
}

#[test]
fn a_scenario_passes_when_all_is_as_expected() {
    let report = run(LIMITER).unwrap();
    assert!(report.passed(), "{report:#?}");
    assert_eq!(report.steps.len(), 8);
}

#[test]
fn a_miss_says_what_was_expected_and_what_was_found() {
    let report =
        run("{steps: [{request: {path: /k}, repeat: 6, expect: {status: 200, headers: {x: y}}}]}").unwrap();
    let misses: Vec<_> = report.steps[0]
        .misses
        .iter()
        .map(|miss| format!("{}: {} not {}", miss.what, miss.found, miss.expected))
        .collect();
    assert_eq!(misses, ["headers.x: (absent) not y", "status: 429 not 200"]);
}

#[test]
fn a_step_that_makes_no_sense_is_named() {
    let rows = [
        ("{steps: [{}]}", "step 1: give exactly one of request"),
        ("{steps: [{advance: 1s}, {advance: 1s, clear_faults: true}]}", "step 2: give exactly one of"),
        ("{steps: [{request: {path: /, worker: 1}}]}", "step 1: worker 1 of 1"),
        ("{steps: [{advance: -1s}]}", "step 1: advance: time goes forward only"),
        (
            "{steps: [{fault: {call: proxy_log, status: Nope}}]}",
            "step 1: no status is named \"Nope\": there are Ok, ",
        ),
        (
            "{steps: [{fault: {call: proxy_nope, status: Ok}}]}",
            "step 1: no host call is named \"proxy_nope\"",
        ),
    ];
    for (text, expected) in rows {
        let error = run(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_command_runs_directories_and_tells_a_miss_by_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("filter.wasm"), guests::guest("limiter")).unwrap();
    fs::create_dir(at("scenarios")).unwrap();
    fs::write(at("scenarios/a.yaml"), LIMITER).unwrap();
    fs::write(at("scenarios/b.json"), r#"{"steps": [{"name": "one", "request": {"path": "/"}}]}"#).unwrap();
    let (code, out, err) = host_sim(&["run", "--wasm", "filter.wasm", "scenarios"], directory.path());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.contains("ok     1  five pass\n") && out.ends_with("2 scenarios, 9 steps, 0 missed\n"),
        "{out}"
    );

    fs::write(at("miss.yaml"), "{steps: [{request: {path: /}, expect: {status: 429}}]}").unwrap();
    let (code, out, err) = host_sim(&["run", "--wasm", "filter.wasm", "miss.yaml"], directory.path());
    assert_eq!((code, err.as_str()), (Some(1), "1 scenarios, 1 steps, 1 missed\n"));
    assert!(
        out.ends_with("  MISS   1  GET /\n            status\n            - 429\n            + 200\n"),
        "{out}"
    );

    let (code, _, err) = host_sim(&["run", "--wasm", "filter.wasm", "absent.yaml"], directory.path());
    assert_eq!((code, err.starts_with("error: absent.yaml: ")), (Some(2), true), "{err}");
}
