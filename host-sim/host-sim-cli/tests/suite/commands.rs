//! The command `host-sim`, as a user starts it.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::guests;

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
    assert!(out.contains("requests per second") && out.contains("host calls per request"), "{out}");
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
