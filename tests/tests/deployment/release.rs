//! The demo of a release, which builds nothing.

use std::process::Command;

use tests::artifacts::{self, command, filter_wasm};

#[test]
fn the_demo_of_a_release_tells_its_version_and_commit_and_builds_nothing() {
    let release = tempfile::tempdir_in(artifacts::root().join("target")).unwrap();
    for name in ["backend", "host-sim", "weir-demo"] {
        std::fs::copy(command(name), release.path().join(name)).unwrap();
    }
    std::fs::copy(filter_wasm(), release.path().join("filter.wasm")).unwrap();
    std::fs::write(release.path().join("VERSION"), "0.1.0, commit 0123abc\n").unwrap();
    let played = Command::new("make")
        .args([
            "--no-print-directory",
            "demo",
            "CARGO=false",
            &format!("WEIR_DIST={}", release.path().display()),
        ])
        .current_dir(artifacts::root())
        // A build of the module would need it.
        .env("RUSTUP_TOOLCHAIN", "none")
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let [printed, said] = [&played.stdout, &played.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(played.status.success(), "{printed}{said}");
    assert!(printed.starts_with("Weir 0.1.0, commit 0123abc, from "), "{printed}");
    assert!(printed.ends_with("Done: every step behaved as expected.\n"), "{printed}");
}
