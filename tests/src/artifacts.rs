//! What the suites run, made by the project's own scripts and by cargo, so that nothing stale passes.
//!
//! Each artifact is brought up to date once per test process, which is quick when nothing has changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context as _, ensure};
use demo::artifacts::script;
pub use demo::artifacts::{envoy, filter_wasm, root};
use host_sim::{CodeCache, Compiler, Module};
use serde_json::Value;

/// The module of `wasm` for the simulator, compiled once for all test programs.
///
/// # Errors
/// When the simulator cannot run it, or the compiled module cannot be kept.
pub fn compiled(wasm: &[u8]) -> anyhow::Result<Module> {
    let folder = root().join("target/compiled");
    let (module, kept) = Module::compile_cached(wasm, Compiler::Plain, &CodeCache::at(&folder))?;
    match kept.error {
        None => Ok(module),
        Some(error) => Err(error).with_context(|| format!("a compiled module in {}", folder.display())),
    }
}

/// A guest of `tests/guests`, built by the same script.
///
/// # Errors
/// When the script fails; it has said why on standard error.
pub fn guest_wasm(package: &str) -> anyhow::Result<PathBuf> {
    script("filter/build-wasm.sh", &["--guest", package])?;
    Ok(root().join(format!("target/wasm/{package}.wasm")))
}

/// The filter with another form of what it keeps in shared data, as a later version may have.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn next_form_wasm() -> &'static Path {
    static WASM: LazyLock<PathBuf> =
        LazyLock::new(|| guest_wasm("next-form").unwrap_or_else(|error| panic!("{error:#}")));
    &WASM
}

/// A guest of `tests/guests` in another language than Rust, built by `scripts/guest.sh`.
///
/// # Errors
/// When the script fails; it has said why on standard error.
pub fn foreign_guest_wasm(language: &str) -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(script("scripts/guest.sh", &[language])?))
}

/// An Envoy of a release, found or fetched by `envoy/get-envoy.sh`.
///
/// # Errors
/// When the script fails; it has said why on standard error.
pub fn envoy_of(release: &str) -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(script("envoy/get-envoy.sh", &[release])?))
}

/// A Python that has what `<folder>/requirements.txt` pins, made by `scripts/venv.sh`.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn python_with(folder: &str) -> PathBuf {
    path_from("scripts/venv.sh", &[folder])
}

/// The folder with what `<folder>/package-lock.json` pins, made by `scripts/node-modules.sh`.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn node_modules(folder: &str) -> PathBuf {
    path_from("scripts/node-modules.sh", &[folder])
}

/// A Node.js of version 20 or later, found or fetched by `scripts/node.sh`.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn node() -> PathBuf {
    path_from("scripts/node.sh", &[])
}

fn path_from(path: &str, arguments: &[&str]) -> PathBuf {
    PathBuf::from(script(path, arguments).unwrap_or_else(|error| panic!("{error:#}")))
}

/// A command of this workspace.
///
/// # Panics
/// When the workspace does not build, or has no such command.
#[must_use]
pub fn command(name: &str) -> &'static Path {
    static COMMANDS: LazyLock<BTreeMap<String, PathBuf>> =
        LazyLock::new(|| build_commands().unwrap_or_else(|error| panic!("{error:#}")));
    COMMANDS.get(name).unwrap_or_else(|| panic!("the workspace has no command {name}"))
}

/// Names the profile that commands are built with, if it is another than cargo's default: that of the tests themselves.
const PROFILE: &str = "WEIR_PROFILE";

/// Builds the commands of the workspace's default members, as the tests themselves are built, so that nothing is compiled twice.
fn build_commands() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let profile = std::env::var_os(PROFILE);
    build(&profile.iter().flat_map(|profile| ["--profile".as_ref(), profile.as_os_str()]).collect::<Vec<_>>())
}

/// A command of a package, as `cargo install` builds it.
///
/// # Errors
/// When the package does not build, or has no such command.
pub fn released(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let mut commands = build(&["--release", "--package", package].map(OsStr::new))?;
    commands.remove(name).with_context(|| format!("{package} has no command {name}"))
}

fn build(arguments: &[&OsStr]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build").args(arguments);
    // What an outer cargo tells a test about its package would look to build scripts like a change.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo
        .current_dir(root())
        .args(["--quiet", "--locked", "--bins"])
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo build: {}", output.status);
    let mut commands = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("cargo's messages")?;
        if let (Some(name), Some(path)) = (message["target"]["name"].as_str(), message["executable"].as_str())
        {
            commands.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(commands)
}
