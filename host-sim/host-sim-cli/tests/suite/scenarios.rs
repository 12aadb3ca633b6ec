//! Scenarios, and the command that runs them.

use std::{fs, path::Path};

use host_sim::{Module, Plugin};
use host_sim_cli::scenario::{self, Options, Scenario, ScenarioError};

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
    run_guest("limiter", text)
}

fn run_guest(guest: &str, text: &str) -> Result<scenario::Report, ScenarioError> {
    let scenario: Scenario = serde_saphyr::from_str(text).unwrap();
    let module = Module::compile(guests::guest(guest)).unwrap();
    scenario::run(
        &scenario,
        host_sim::Host::builder(),
        &module,
        &Plugin::default(),
        Path::new("."),
        Options::default(),
    )
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
    assert_eq!((code, err.as_str()), (Some(1), "1 scenario, 1 step, 1 missed\n"));
    assert!(
        out.contains(
            "  MISS   1  GET /\n            status\n            - 429\n            + 200\n            trace:\n"
        ),
        "{out}"
    );

    let (code, _, err) = host_sim(&["run", "--wasm", "filter.wasm", "absent.yaml"], directory.path());
    assert_eq!((code, err.starts_with("error: absent.yaml: ")), (Some(2), true), "{err}");
}

/// Every way in which a cluster can answer. The filter waits 5 s for an answer, and lets requests pass on 200.
const ANSWERS: &str = r#"
clusters:
  auth:
  - {status: 200, body: "yes"}
  - {status: 403}
  - {reset: true}
  - {status: 200, after: 2s}
  - {never: true}
  - {status: 200, after: 6s}
steps:
- name: it is asked once, and the request goes on
  request: {path: /}
  expect:
    status: 200
    forwarded: true
    callouts: [{cluster: auth, headers: {":path": /check, ":method": GET, x-absent: null}, body: ask, body_contains: sk}]
    not_logged: [denied, trapped]
- name: the second answer
  request: {path: /}
  expect: {status: 403, forwarded: false, details: denied}
- name: a connection that is closed
  request: {path: /}
  expect: {status: 403}
- name: an answer that is late
  request: {path: /}
  expect: {status: 200, ends: true}
- name: no answer
  request: {path: /}
  expect: {status: 403, log: ["answer of 3 headers"]}
- name: an answer that comes too late, which is repeated
  request: {path: /}
  repeat: 2
  expect: {status: 403}
- name: no call to a cluster that does not exist
  request: {path: /unknown}
  expect: {status: 200, callouts: []}
"#;

#[test]
fn clusters_answer_in_sequence_late_with_a_reset_or_not_at_all() {
    let report = run_guest("callouts", ANSWERS).unwrap();
    assert!(report.passed(), "{report:#?}");
    let rows = [
        ("callouts: []", "callouts: auth: GET /check not 0 calls"),
        ("callouts: [{}, {}]", "callouts: auth: GET /check not 2 calls"),
        ("callouts: [{cluster: other}]", "callouts[0].cluster: auth not other"),
        ("callouts: [{body: tell}]", "callouts[0].body: ask not tell"),
        ("callouts: [{headers: {':path': /}}]", "callouts[0].headers.:path: /check not /"),
        ("not_logged: [call 0]", "not_logged: call 0 not no line with \"call 0\""),
        ("forwarded: false", "forwarded: true not false"),
        ("forwarded_body: x", "forwarded_body:  not x"),
        ("forwarded_trailers: {x: y}", "forwarded_trailers.x: (absent) not y"),
        ("trailers: {x: y}", "trailers.x: (absent) not y"),
    ];
    for (expect, expected) in rows {
        let text =
            format!("{{clusters: {{auth: {{}}}}, steps: [{{request: {{path: /}}, expect: {{{expect}}}}}]}}");
        let report = run_guest("callouts", &text).unwrap();
        let found = report.steps[0]
            .misses
            .iter()
            .map(|miss| format!("{}: {} not {}", miss.what, miss.found, miss.expected));
        assert_eq!(found.collect::<Vec<_>>(), [expected], "{text}");
    }
}

#[test]
fn upstreams_answer_in_sequence_and_late_while_timers_fire() {
    const UPSTREAMS: &str = r#"
upstream: [{status: 201}, {status: 202, after: 3s}, {never: true}, {reset: true}, {status: 200, after: 20s}]
steps:
- {request: {path: /a}, expect: {status: 201}}
- {request: {path: /b}, expect: {status: 202}}
- {request: {path: /c}, expect: {status: 504, details: response_timeout}}
- {request: {path: /d}, upstream: {status: 204}, expect: {status: 204}}
- {request: {path: /e}, expect: {status: 503}}
- {request: {path: /f}, repeat: 2, expect: {status: 504}}
"#;
    let report = run(UPSTREAMS).unwrap();
    assert!(report.passed(), "{report:#?}");
    let ticks =
        "{upstream: {after: 1s}, steps: [{request: {path: /}, expect: {status: 200, log: [tick 3]}}]}";
    let report = run_guest("ticks", ticks).unwrap();
    assert!(report.passed(), "{report:#?}");
}

#[test]
fn bodies_come_in_the_chunks_that_a_scenario_gives() {
    let text = r#"
upstream: {chunks: [de, f], trailers: {x-end: "1"}}
steps:
- request: {method: POST, path: /pass, chunks: [ab, c], trailers: {x-sum: "6"}}
  expect:
    body: def
    trailers: {x-end: "1"}
    forwarded_body: abc
    forwarded_trailers: {x-sum: "6"}
    log: ["body 0 of 2: ab", "body 0 of 1: c", "body 1 of 2: de", "body 1 of 1: f"]
- request: {method: POST, path: /pass, chunks: [ab, c]}
  expect: {forwarded_headers: {content-length: "3"}}
- request: {method: POST, path: /pass, chunks: [ab, c], chunked: true}
  expect: {forwarded_headers: {content-length: null}}
"#;
    let report = run_guest("bodies", text).unwrap();
    assert!(report.passed(), "{report:#?}");
}

#[test]
fn a_time_without_a_unit_is_told_what_to_write() {
    let error = serde_saphyr::from_str::<Scenario>("{steps: [{advance: 60}]}").unwrap_err().to_string();
    assert!(error.contains("60 has no unit: write 60s"), "{error}");
}

#[test]
fn a_file_holds_several_scenarios_and_each_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::guest("limiter")).unwrap();
    let two = "steps: [{request: {path: /}}]\n---\nname: the second\nsteps: [{request: {path: /}, expect: {status: 429}}]\n";
    fs::write(directory.path().join("two.yaml"), two).unwrap();
    let run = |more: &[&str]| {
        host_sim(&[&["run", "--wasm", "filter.wasm", "two.yaml"], more].concat(), directory.path())
    };
    let (code, out, err) = run(&[]);
    assert_eq!((code, err.as_str()), (Some(1), "2 scenarios, 2 steps, 1 missed\n"), "{out}");
    assert!(
        out.starts_with("two.yaml: scenario 1\n  ok     1  GET /\ntwo.yaml: the second\n  MISS   1  GET /\n"),
        "{out}"
    );
    let (_, out, _) = run(&["--format", "junit"]);
    assert!(out.contains("<testsuites tests=\"2\" failures=\"1\">"), "{out}");
    let (_, out, _) = run(&["--trace"]);
    assert_eq!(out.matches("worker 0: proxy_on_request_headers(").count(), 2, "{out}");
    fs::write(directory.path().join("two.yaml"), "").unwrap();
    let (code, _, err) = run(&[]);
    assert_eq!((code, err.starts_with("error: two.yaml: ")), (Some(2), true), "{err}");
}
