//! What a gateway needs, made by the project's own scripts, so that nothing stale is run, or taken from a release.
//!
//! Each artifact is brought up to date once per process, which is quick when nothing has changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context as _, ensure};

/// Names the folder with a release's files, if these are to be used.
const RELEASE: &str = "WEIR_DIST";

/// The repository. Programs of a release were built elsewhere, and are run in it.
///
/// # Panics
/// If a release is used, and the current folder does not exist.
#[must_use]
pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os(RELEASE) {
        Some(_) => std::env::current_dir().unwrap_or_else(|error| panic!("the current folder: {error}")),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default(),
    });
    &ROOT
}

/// The filter as gateways load it: a release's, or built by `filter/build-wasm.sh`.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn filter_wasm() -> &'static Path {
    static WASM: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(release) = std::env::var_os(RELEASE) {
            return Path::new(&release).join("filter.wasm");
        }
        script("filter/build-wasm.sh", &[]).unwrap_or_else(|error| panic!("{error:#}"));
        root().join("target/wasm/filter.wasm")
    });
    &WASM
}

/// A real Envoy, found or fetched by `envoy/get-envoy.sh`.
///
/// # Panics
/// When the script fails; it has said why on standard error.
#[must_use]
pub fn envoy() -> &'static Path {
    static ENVOY: LazyLock<PathBuf> = LazyLock::new(|| {
        PathBuf::from(script("envoy/get-envoy.sh", &[]).unwrap_or_else(|error| panic!("{error:#}")))
    });
    &ENVOY
}

/// Runs one of the repository's scripts and returns what it printed, without the trailing newline. Scripts run one after another, because two of
/// them may make the same thing.
///
/// # Errors
/// When it fails, or prints no UTF-8; its standard error is this process's.
pub fn script(path: &str, arguments: &[&str]) -> anyhow::Result<String> {
    static RUNNING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(root().join(path))
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {path}"))?;
    ensure!(output.status.success(), "{path}: {}", output.status);
    let printed = String::from_utf8(output.stdout).with_context(|| format!("{path} printed no UTF-8"))?;
    Ok(printed.trim_end().to_owned())
}
