//! `host-sim run`, as a user starts it.

use std::fs;

use crate::{commands::host_sim, guests};

/// Answers with its configuration in `x-configuration`, and refuses `bad`.
const GUEST: &str = "configuration";

const ASKS: &str = "steps: [{request: {path: /}, expect: {status: 200}}]";

/// A folder with the filter and scenarios, by their names.
fn folder(scenarios: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("filter.wasm"), guests::guest(GUEST)).unwrap();
    for (name, text) in scenarios {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn run(folder: &tempfile::TempDir, arguments: &str) -> (Option<i32>, String, String) {
    let arguments: Vec<_> = "run --wasm filter.wasm".split(' ').chain(arguments.split(' ')).collect();
    host_sim(&arguments, folder.path())
}

#[test]
fn a_filter_that_refuses_its_configuration_fails_its_scenario_and_the_others_are_told() {
    let folder = folder(&[("a.yaml", &format!("config: bad\n{ASKS}")), ("b.yaml", ASKS)]);
    //  form, what it says of the one, of the other
    let rows = [
        ("text", "the filter refused its configuration", "b.yaml\n  ok "),
        ("json", "the filter refused its configuration", r#""name": "b.yaml""#),
        (
            "junit",
            "the filter refused its configuration",
            r#"<testsuite name="b.yaml" tests="1" failures="0">"#,
        ),
    ];
    for (form, of_a, of_b) in rows {
        let (code, out, err) = run(&folder, &format!("--format {form} a.yaml b.yaml"));
        assert_eq!((code, err.trim()), (Some(1), "2 scenarios, 2 steps, 1 missed"), "{form}: {out}");
        assert!(out.contains(of_a), "{form}: {out}");
        assert!(out.contains(of_b), "{form}: {out}");
    }
}

#[test]
fn a_configuration_that_is_a_path_is_one_whether_the_file_is_there_or_not() {
    let steps = |expected: &str| {
        format!("steps: [{{request: {{path: /}}, expect: {{headers: {{x-configuration: {expected}}}}}}}]")
    };
    //  the scenario's configuration, exit code, what is said
    let rows = [
        ("text", "text", 0, ""),
        ("of.json", "'{\"a\":1}'", 0, ""),
        ("off.json", "x", 2, "error: a.yaml: off.json: No such file"),
        ("sub/off.yaml", "x", 2, "error: a.yaml: sub/off.yaml: No such file"),
    ];
    for (config, expected, code, said) in rows {
        let scenario = format!("config: {config}\n{}", steps(expected));
        let folder = folder(&[("a.yaml", &scenario), ("of.json", "{\"a\":1}")]);
        let (found, out, err) = run(&folder, "a.yaml");
        assert!(found == Some(code) && err.contains(said), "{config}: {found:?}\n{out}\n{err}");
    }
}
