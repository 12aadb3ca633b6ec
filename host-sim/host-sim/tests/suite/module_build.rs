//! Modules that tests build themselves.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
};

use host_sim::{Host, ModuleBuild, Plugin, Request};

use crate::{guests, ok};

/// A file of these tests.
macro_rules! file {
    ($name:literal) => {
        concat!(env!("CARGO_TARGET_TMPDIR"), "/module-build-", $name)
    };
}

#[test]
fn a_module_is_built_once_for_all_tests_of_a_process() {
    static FILTER: ModuleBuild = ModuleBuild::new(
        &["sh", "-c", "echo run >>\"$0.runs\" && cp \"$0.source\" \"$0\"", file!("limiter.wasm")],
        file!("limiter.wasm"),
    );
    fs::write(file!("limiter.wasm.source"), guests::guest("limiter")).unwrap();
    fs::write(file!("limiter.wasm.runs"), "").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut host = Host::builder().build();
                host.load(&FILTER.module().unwrap(), Plugin::default()).unwrap();
                assert_eq!(host.send(Request::get("/"), ok).status(), 200);
            });
        }
    });
    assert_eq!(fs::read_to_string(file!("limiter.wasm.runs")).unwrap(), "run\n");
}

#[test]
fn a_module_that_is_not_built_says_why() {
    fs::write(file!("text"), "no module").unwrap();
    //  command, artefact, parts of what `unwrap` shows
    let rows: [(&[&str], &str, &[&str]); 6] = [
        (
            &["sh", "-c", "echo error: no such crate >&2; exit 101"],
            "x",
            &["`sh -c echo", "101", "\nerror: no such crate"],
        ),
        (&["sh", "-c", "echo on standard output; exit 1"], "x", &["\non standard output"]),
        (&["no-such-program", "build"], "x", &["`no-such-program build` cannot be started: "]),
        (
            &["true"],
            file!("absent"),
            &["`true` has succeeded, and ", "/module-build-absent cannot be read: "],
        ),
        (&["true"], file!("text"), &["/module-build-text: "]),
        (&[], "x", &["a command without a program"]),
    ];
    for (command, artefact, parts) in rows {
        let build = ModuleBuild::new(command, artefact);
        let shown = format!("{:?}", build.module().map(|_| ()).unwrap_err());
        for part in parts {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
    }
}

/// Fails while it runs elsewhere.
static SHARED: ModuleBuild = ModuleBuild::new(
    &[
        "sh",
        "-c",
        "mkdir \"$0.busy\" && echo run >>\"$0.runs\" && sleep 0.1 && cp \"$0.source\" \"$0\" && rmdir \"$0.busy\"",
        file!("shared.wasm"),
    ],
    file!("shared.wasm"),
);

/// Builds in a process of its own, where the next test asks for it.
#[test]
fn a_process_that_builds() {
    if env::var_os("HOST_SIM_TEST_BUILDS").is_some() {
        SHARED.module().unwrap();
    }
}

#[test]
fn processes_build_one_after_the_other_and_once_in_a_run_of_nextest_and_compile_once() {
    fs::write(file!("shared.wasm.source"), guests::guest("limiter")).unwrap();
    let cache = file!("cache");
    // What an earlier run has left.
    let _ = fs::remove_dir_all(cache);
    let _ = fs::remove_dir_all(file!("shared.wasm.busy"));
    //  run of nextest, runs of the command by eight processes
    for (run, runs) in [("", 8), ("one", 1), ("one", 0), ("two", 1)] {
        fs::write(file!("shared.wasm.runs"), "").unwrap();
        let start = |_| {
            let mut program = Command::new(env::current_exe().unwrap());
            program.args(["module_build::a_process_that_builds", "--exact"]);
            program.env("HOST_SIM_TEST_BUILDS", "1").env("HOST_SIM_CACHE", cache).env("NEXTEST_RUN_ID", run);
            program.stdout(Stdio::null()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..8).map(start).collect();
        let passed = processes.into_iter().map(|mut process| process.wait().unwrap().success());
        assert_eq!(passed.filter(|passed| *passed).count(), 8, "{run}");
        assert_eq!(fs::read_to_string(file!("shared.wasm.runs")).unwrap().lines().count(), runs, "{run}");
    }
    let kept = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let (locks, modules): (Vec<_>, Vec<_>) =
        kept.partition(|path| path.extension().is_some_and(|extension| extension == "lock"));
    assert_eq!((locks.len(), modules.len()), (1, 1), "{modules:?}");
}
