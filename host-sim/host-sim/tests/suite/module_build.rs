//! Modules that tests build themselves.

use std::{fs, thread};

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
