//! Commands that judge files.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tests::artifacts;

/// What a command said on both streams, and whether it succeeded.
pub(crate) fn run(command: &mut Command) -> (bool, String) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    (output.status.success(), said(&output))
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let (succeeded, said) = run(command);
    assert!(succeeded, "{command:?}: {said}");
    said
}

/// Runs a command on some input.
pub(crate) fn pipe(command: &mut Command, input: &[u8]) -> (bool, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), said(&output))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A script of `tests/schemas`, with its packages.
pub(crate) fn schema_script(name: &str) -> Command {
    let mut node = Command::new(artifacts::node());
    node.arg(artifacts::root().join("tests/schemas").join(name));
    node.arg(artifacts::node_modules("tests/schemas"));
    node
}

/// What a script printed, as JSON.
pub(crate) fn json_of((succeeded, said): (bool, String)) -> Value {
    assert!(succeeded, "{said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A file of the repository.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let path = artifacts::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
