//! The command `host-sim`, as a user starts it.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use host_sim_cli::setup::EMPTY;

use crate::guests;

/// Logs the configuration of its VM, and its environment.
const SURROUNDED: &str = r#"(module
  (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environment (param i32 i32) (result i32)))
  ;; prelude
  (func (export "proxy_on_vm_start") (param $root i32) (param $size i32) (result i32)
    (drop (call $buffer (i32.const 6) (i32.const 0) (local.get $size) (i32.const 16) (i32.const 20)))
    (call $put (i32.load (i32.const 16)) (i32.load (i32.const 20))) (call $say)
    (drop (call $sizes (i32.const 16) (i32.const 20)))
    (drop (call $environment (i32.const 32768) (i32.const 33024)))
    (call $put (i32.const 33024) (i32.load (i32.const 20))) (call $say)
    (i32.const 1)))"#;

/// Traps where the log has another level than warn.
const LEVEL: &str = r#"(module
  (import "env" "proxy_get_log_level" (func $level (param i32) (result i32)))
  ;; prelude
  (func (export "proxy_on_request_headers") (param $id i32) (param $n i32) (param $end i32) (result i32)
    (drop (call $level (i32.const 16)))
    (if (i32.ne (i32.load (i32.const 16)) (i32.const 3)) (then unreachable))
    (i32.const 0)))"#;

/// Runs the command in a folder: its exit code, standard output and standard error.
pub(crate) fn host_sim(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_host-sim")).args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn check_and_bench_tell_what_they_found() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("filter.wasm"), guests::guest("configuration")).unwrap();
    fs::write(at("good"), "good one").unwrap();
    fs::write(at("bad"), "bad one").unwrap();
    let (code, out, _) = host_sim(&["check", "--wasm", "filter.wasm", "--config", "good"], directory.path());
    assert_eq!((code, out.contains("[info] configure good one\n")), (Some(0), true), "{out}");
    let (code, out, err) = host_sim(&["check", "--wasm", "filter.wasm", "--config", "bad"], directory.path());
    assert_eq!((code, out.contains("[info] configure bad one\n")), (Some(1), true), "{out}");
    assert!(err.contains("refused its configuration"), "{err}");

    let (code, out, _) = host_sim(&["bench", "--wasm", "filter.wasm", "--seconds", "1"], directory.path());
    assert_eq!(code, Some(0));
    for row in [
        "requests per second ",
        "microseconds per request, empty filter ",
        "microseconds, p99.9 ",
        "host calls per request ",
    ] {
        assert!(out.contains(row), "{row}: {out}");
    }
}

#[test]
fn check_and_bench_print_json() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::guest("configuration")).unwrap();
    fs::write(directory.path().join("bad"), "bad one").unwrap();
    let json = |arguments: &str| -> (Option<i32>, serde_json::Value) {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let (code, out, err) = host_sim(
            &[&arguments, &["--wasm", "filter.wasm", "--format", "json"][..]].concat(),
            directory.path(),
        );
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
    };
    let (code, found) = json("check");
    assert_eq!((code, &found["ok"], &found["abi"]), (Some(0), &true.into(), &"0.2.1".into()), "{found}");
    for (list, name) in [("imports", "env.proxy_log"), ("exports", "proxy_on_configure")] {
        assert!(found[list].as_array().unwrap().contains(&name.into()), "{list}: {found}");
    }
    let (code, found) = json("check --config bad");
    assert_eq!((code, &found["ok"]), (Some(1), &false.into()), "{found}");
    let log = found["log"].as_array().unwrap();
    assert!(log.iter().any(|line| line["message"] == "configure bad one"), "{found}");
    assert!(found["error"].as_str().unwrap().contains("refused its configuration"), "{found}");
    let (code, found) = json("check --hosts all");
    let hosts = found["hosts"].as_array().unwrap();
    let of = |name: &str| &hosts.iter().find(|host| host["host"] == name).unwrap()["ok"];
    assert_eq!((code, of("envoy-1.36"), of("ngx")), (Some(1), &true.into(), &false.into()), "{found}");
    let (code, found) = json("bench --seconds 1");
    let figure = |name: &str| found[name].as_f64().unwrap_or_else(|| panic!("{name}: {found}"));
    assert_eq!(code, Some(0));
    assert!(figure("microseconds_p50") <= figure("microseconds_p99"), "{found}");
    assert!(figure("microseconds_per_request_empty_filter") > 0.0, "{found}");
}

#[test]
fn check_tells_the_abi_imports_and_exports() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), EMPTY).unwrap();
    let (code, out, err) = host_sim(&["check", "--wasm", "filter.wasm"], directory.path());
    let expected = "ABI 0.2.1\nimports: \nexports: malloc, memory, proxy_abi_version_0_2_1\nOK: configuration accepted\n";
    assert_eq!((code, out.as_str()), (Some(0), expected), "{err}");
}

#[test]
fn the_empty_filter_is_as_described() {
    let text = r#"(module (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
        (func (export "malloc") (param i32) (result i32) (i32.const 64)))"#;
    assert_eq!(wat::parse_str(text).unwrap(), EMPTY);
}

#[test]
fn the_vm_gets_its_configuration_and_environment_from_the_command() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::assemble(SURROUNDED).unwrap()).unwrap();
    fs::write(directory.path().join("vm"), "of the VM").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_host-sim"))
        .args(["check", "--wasm", "filter.wasm", "--vm-config", "vm"])
        .args(["--env", "GIVEN=a=b", "--env", "PASSED", "--env", "UNSET"])
        .env("PASSED", "on")
        .env_remove("UNSET")
        .current_dir(directory.path())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    for line in ["[info] of the VM\n", "[info] GIVEN=a=b\0PASSED=on\0\n"] {
        assert!(out.contains(line), "{line:?}: {out:?}");
    }
}

#[test]
fn the_filter_sees_the_log_level_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::assemble(LEVEL).unwrap()).unwrap();
    fs::write(directory.path().join("a.yaml"), "steps: [{request: {path: /}, expect: {status: 200}}]")
        .unwrap();
    //  command, exit code: the filter traps at any level but warn
    let mut rows = vec![("bench --seconds 1 --log-level warn", 0), ("bench --seconds 1", 1)];
    if cfg!(feature = "scenarios") {
        rows.extend([("run a.yaml --log-level warn", 0), ("run a.yaml", 1)]);
    }
    for (command, code) in rows {
        let arguments: Vec<_> = command.split(' ').chain(["--wasm", "filter.wasm"]).collect();
        let (found, out, err) = host_sim(&arguments, directory.path());
        assert_eq!(found, Some(code), "{command}: {out}{err}");
    }
}

#[test]
fn shells_complete_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, err) = host_sim(&["completions", shell], Path::new("."));
        assert!(code == Some(0) && out.contains("access-log"), "{shell}: {out}{err}");
    }
}

#[test]
fn check_tells_which_hosts_take_a_filter() {
    let directory = tempfile::tempdir().unwrap();
    let filter = |more: &str| {
        let source = format!(
            r#"(module (import "wasi_snapshot_preview1" "fd_tell" (func (param i32 i32) (result i32)))
                (memory (export "memory") 1) (func (export "proxy_abi_version_0_2_1"))
                (func (export "malloc") (param i32) (result i32) (i32.const 64)) {more})"#
        );
        fs::write(directory.path().join("filter.wasm"), wat::parse_str(source).unwrap()).unwrap();
    };
    let check = |host: &[&str]| {
        let arguments: Vec<&str> = ["check", "--wasm", "filter.wasm"].iter().chain(host).copied().collect();
        host_sim(&arguments, directory.path())
    };
    filter("");
    //  host, exit code, what standard output or standard error says
    let rows = [
        ("envoy-1.36", 1, "fd_tell"),
        ("envoy-1.38", 1, "fd_tell"),
        ("envoy-1.39", 0, "OK: configuration accepted"),
        ("envoy-1.40", 0, "OK: configuration accepted"),
        ("ngx", 1, "filter missing one of: on_context_create, on_vm_start, on_plugin_start"),
        ("mosn", 2, "there are envoy-1.36"),
        ("envoy-1.0", 2, "there are envoy-1.36"),
    ];
    for (host, code, said) in rows {
        let (found, out, err) = check(&["--host", host]);
        assert!(found == Some(code) && (out + &err).contains(said), "{host}: {found:?} {err}");
    }
    let (code, out, err) = check(&["--hosts", "all"]);
    assert_eq!(code, Some(1), "{out}{err}");
    let table: Vec<(&str, &str)> = out.lines().filter_map(|line| line.split_once(' ')).collect();
    let verdicts: Vec<_> =
        table.iter().map(|(host, rest)| (*host, rest.trim_start().split(' ').next().unwrap())).collect();
    let expected = [
        ("envoy-1.36", "no"),
        ("envoy-1.37", "no"),
        ("envoy-1.38", "no"),
        ("envoy-1.39", "yes"),
        ("envoy-1.40", "yes"),
        ("ngx", "no"),
    ];
    assert_eq!(verdicts, expected, "{out}");
    assert!(err.contains("4 of 6 hosts do not take the filter"), "{err}");

    filter(r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) unreachable)"#);
    let (code, _, err) = check(&[]);
    assert!(code == Some(1) && err.contains("accepts its configuration and fails a request"), "{err}");
}

#[test]
fn only_check_behaves_like_another_host_than_envoy() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("filter.wasm", &guests::guest("configuration"));
    write("scenario.yaml", b"steps: [{request: {path: /}}]");
    let mut commands = vec!["bench", "serve --listen 127.0.0.1:0 --upstream http://127.0.0.1:1"];
    if cfg!(feature = "scenarios") {
        commands.push("run scenario.yaml");
    }
    for command in commands {
        let filter = ["--wasm", "filter.wasm", "--host", "ngx"];
        let arguments: Vec<&str> = command.split(' ').chain(filter).collect();
        let (code, out, err) = host_sim(&arguments, directory.path());
        let why = "--host ngx is for check, which tells whether the filter loads there";
        assert!(code == Some(2) && err.contains(why), "{command}: {code:?}\n{out}\n{err}");
    }
}

#[test]
fn a_configuration_comes_from_the_standard_input_by_its_dash() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::guest("configuration")).unwrap();
    //  what is said, exit code
    for (said, code) in [("good", 0), ("bad", 1)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_host-sim"))
            .args(["check", "--wasm", "filter.wasm", "--config", "-"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{said}");
    }
}

#[test]
fn a_url_with_a_path_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("filter.wasm"), guests::guest("configuration")).unwrap();
    for options in [
        "--upstream http://127.0.0.1:1/api",
        "--upstream http://127.0.0.1:1 --cluster a=http://127.0.0.1:1/a?b",
    ] {
        let serve = "serve --wasm filter.wasm --listen 127.0.0.1:0".split(' ');
        let arguments: Vec<_> = serve.chain(options.split(' ')).collect();
        let (code, _, err) = host_sim(&arguments, directory.path());
        assert!(
            code == Some(2) && err.contains("expected http://host:port without a path"),
            "{options}: {err}"
        );
    }
}
