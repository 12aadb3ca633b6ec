//! `host-sim run`, as a user starts it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

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

#[test]
fn a_scenario_that_cannot_be_run_keeps_no_other_from_it() {
    let folder = folder(&[("a.yaml", "stps: []"), ("b.yaml", ASKS), ("c.yaml", "name: nothing")]);
    for (form, of_b) in [
        ("text", "b.yaml\n  ok "),
        ("json", r#""name": "./b.yaml""#),
        ("junit", r#"name="./b.yaml" tests="1""#),
    ] {
        let (code, out, err) = run(&folder, &format!("--format {form} ."));
        assert!(code == Some(2) && out.contains(of_b), "{form}: {code:?} {out}{err}");
        let told: Vec<_> = err.lines().filter(|line| line.starts_with("error: ./")).collect();
        assert_eq!(told.len(), 2, "{form}: {err}");
        assert!(told[1].ends_with("a scenario has either steps or refused"), "{form}: {err}");
        assert!(err.ends_with("2 scenarios not run\n"), "{form}: {err}");
    }
}

#[test]
fn scenarios_are_found_in_subfolders_and_chosen_by_their_names() {
    let folder = folder(&[("a.yaml", ASKS)]);
    for (path, name) in [("sub/b.yaml", "of b"), ("sub/deeper/c.yml", "of c"), (".hidden/d.yaml", "of d")] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("name: {name}\n{ASKS}")).unwrap();
    }
    //  names, exit code, scenarios
    let rows: [(&str, i32, &[&str]); 4] = [
        ("", 0, &["./a.yaml", "./sub/b.yaml: of b", "./sub/deeper/c.yml: of c"]),
        ("--name deeper", 0, &["./sub/deeper/c.yml: of c"]),
        ("--name b.yaml --name a.yaml", 0, &["./a.yaml", "./sub/b.yaml: of b"]),
        ("--name absent", 2, &[]),
    ];
    for (names, expected, scenarios) in rows {
        let (code, out, err) = run(&folder, format!("{names} .").trim());
        let found: Vec<_> = out.lines().filter(|line| line.starts_with("./")).collect();
        assert_eq!((code, found.as_slice()), (Some(expected), scenarios), "{names}: {err}");
    }
}

#[test]
fn a_scenario_may_expect_that_the_filter_does_not_start() {
    //  configuration, what is expected, exit code, what is found
    let rows = [
        ("bad", "refused its configuration", 0, "ok "),
        ("bad", "configure bad", 0, "ok "),
        ("bad", "another reason", 1, "+ "),
        ("good", "", 1, "+ the filter runs"),
    ];
    for (config, expected, code, said) in rows {
        let folder = folder(&[("a.yaml", &format!("config: {config}\nrefused: '{expected}'"))]);
        let (found, out, err) = run(&folder, "a.yaml");
        assert!(found == Some(code) && out.contains(said), "{config}, {expected}: {found:?} {out}{err}");
    }
}

#[test]
fn scenarios_are_run_again_when_something_changes() {
    let folder = folder(&[("a.yaml", ASKS)]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_host-sim"))
        .args(["run", "--wasm", "filter.wasm", "--watch", "."])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut runs = lines.filter(|line| line.contains("scenario, ") || line.contains("scenarios, "));
    assert_eq!(runs.next().unwrap(), "1 scenario, 1 step, 0 missed");
    fs::write(folder.path().join("b.yaml"), ASKS).unwrap();
    assert_eq!(runs.next().unwrap(), "2 scenarios, 2 steps, 0 missed");
    fs::write(folder.path().join("a.yaml"), format!("{ASKS}\n---\n{ASKS}")).unwrap();
    assert_eq!(runs.next().unwrap(), "3 scenarios, 3 steps, 0 missed");
    child.kill().unwrap();
    child.wait().unwrap();
}
