//! The command `host-sim`, as a user starts it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
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
fn commands_take_a_chain_of_filters() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write("chain.wasm", &guests::guest("chain"));
    write("limits.wasm", &guests::guest("limiter"));
    write("a", b"a");
    write("b", b"b");
    let check = |arguments: &str| {
        let arguments: Vec<&str> = ["check"].into_iter().chain(arguments.split(' ')).collect();
        host_sim(&arguments, directory.path())
    };
    //  arguments, exit code, a line of standard output or of standard error
    let rows = [
        ("--wasm chain.wasm --config a --wasm limits.wasm --config b", 0, "[info] a configured 1"),
        ("--wasm chain.wasm --config a --config b", 0, "[info] b configured 1"),
        ("--wasm chain.wasm --wasm limits.wasm --config a", 0, "[info] a configured 1"),
        (
            "--wasm chain.wasm --wasm limits.wasm --wasm limits.wasm --config a --config b",
            2,
            "error: 3 filters need --wasm, --config and --plugin once for all of them or 3 times: they were given 3, 2, 0 times",
        ),
    ];
    for (arguments, code, line) in rows {
        let (found, out, err) = check(arguments);
        let told = out.lines().chain(err.lines()).any(|told| told == line);
        assert!(found == Some(code) && told, "{arguments}: {found:?}\n{out}\n{err}");
    }
}
