//! The command as its users call it.

#[path = "../../../host-sim/host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one of them is for random host calls alone")]
mod guests;

mod baselines;
mod checks;
mod explanations;
mod modules;
mod page;
mod replays;
mod serving;
#[path = "../../../tests/src/soak.rs"]
#[expect(unreachable_pub, reason = "shared with a library")]
mod soak;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A configuration that the filter takes, for guests that read none.
const CONFIGURATION: &str = r#"{"plans": {"free": {"standard": ["60/minute"]}}}"#;

/// Runs the command in a folder: its exit code, standard output and standard error.
fn weir_in(folder: &Path, arguments: &[&str], input: &str) -> (i32, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).current_dir(folder), input)
}

fn run(command: &mut Command, input: &str) -> (i32, String, String) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails at once reads nothing.
    let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
