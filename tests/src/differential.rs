//! The simulator against a real Envoy: one case, the same guest, the same bytes from the client and from the upstream,
//! and what each gateway makes of them ([`host_sim_cli::against`]).
//!
//! A case is a scenario of `host-sim/host-sim-cli/tests/cases` with the guest of its name.

#[path = "../../host-sim/host-sim/tests/guests/mod.rs"]
#[expect(dead_code, reason = "one of them is for random host calls alone")]
mod guests;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use host_sim::{EnvoyVersion, Plugin};
pub use host_sim_cli::against::Upstream;
use host_sim_cli::against::{ChainedFilter, Envoy, Program, Settings, compare};
use host_sim_cli::scenario::{self, Scenario};
use serde_json::Value;

use crate::artifacts;

/// What stands in log lines before something that is another in every run.
const MASKED: [&str; 7] = [
    "seconds ",
    "random bytes ",
    "source\0address ",
    "source\0port ",
    "connection\0id ",
    "connection_id ",
    // Addresses in a guest's memory.
    "0x",
];

/// The Envoys that the simulator is compared with: the newest that it follows, and the oldest that its package has.
pub const VERSIONS: [EnvoyVersion; 2] = [EnvoyVersion::V1_36, EnvoyVersion::V1_40];

/// The names of all cases.
///
/// # Errors
/// When their folder cannot be read.
pub fn names() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in cases().read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn cases() -> PathBuf {
    artifacts::root().join("host-sim/host-sim-cli/tests/cases")
}

/// The headers of which Envoy keeps one entry, of requests and of responses, as it tells when it starts.
///
/// # Errors
/// When it does not start, or does not tell.
pub fn inline_headers() -> anyhow::Result<[Vec<String>; 2]> {
    let case = Case::named("phases")?;
    let lines = Envoy::start(&case.scenario, &case.filters()?, &envoy(EnvoyVersion::V1_40)?)?.lines();
    let told = |kind: &str| -> anyhow::Result<Vec<String>> {
        let names = lines.iter().find_map(|line| line.split_once(kind)?.1.split_once(" bytes: "));
        let (_, names) = names.with_context(|| format!("Envoy tells no {kind}"))?;
        Ok(names.split(',').map(str::to_owned).collect())
    };
    Ok([told("request header map: ")?, told("response header map: ")?])
}

/// A scenario from its text.
///
/// # Errors
/// When it is none.
pub fn scenario(text: &str) -> anyhow::Result<Scenario> {
    Ok(serde_saphyr::from_str(text)?)
}

/// The Envoy of a version, from its package.
pub(crate) fn envoy(version: EnvoyVersion) -> anyhow::Result<Program> {
    Ok(Program::find(artifacts::envoy_of(release(version))?)?)
}

/// A release of a version whose package has V8.
fn release(version: EnvoyVersion) -> &'static str {
    match version {
        EnvoyVersion::V1_36 => "1.36.2",
        EnvoyVersion::V1_37 => "1.37.0",
        EnvoyVersion::V1_38 => "1.38.2",
        EnvoyVersion::V1_39 => "1.39.3",
        EnvoyVersion::V1_40 => "1.40.0",
    }
}

/// A case: a scenario and the guest that it is about.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The plugin's `root_id`.
    pub root_id: String,
    /// The guest's module.
    pub wasm: Vec<u8>,
    /// The plugin's configuration, where it is no text: an `Any` as Envoy takes it.
    pub message: Option<Value>,
    /// What happens.
    pub scenario: Scenario,
}

impl Case {
    /// The case of this name. What follows a full stop in it tells apart cases of one guest.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let path = artifacts::root().join("host-sim/host-sim-cli/tests/cases").join(format!("{name}.yaml"));
        let guest = name.split('.').next().unwrap_or(name);
        let (name, root_id) = (name.to_owned(), "root".to_owned());
        Ok(Self { name, root_id, wasm: guests::guest(guest), message: None, scenario: Scenario::read(path)? })
    }

    /// A guest with a configuration that is no text, which has one request.
    ///
    /// # Errors
    /// Never, but by a mistake in the scenario's text.
    pub fn configured(guest: &str, message: Value) -> anyhow::Result<Self> {
        let scenario = scenario("steps: [{request: {path: /}, expect: {status: 200}}]")?;
        let name = format!("{guest} configured with {message}");
        let wasm = guests::guest(guest);
        Ok(Self { name, root_id: "root".to_owned(), wasm, message: Some(message), scenario })
    }

    /// The filters of the chain, all of this guest.
    pub(crate) fn filters(&self) -> anyhow::Result<Vec<ChainedFilter>> {
        let module = artifacts::compiled(&self.wasm)?;
        let mut plugin = Plugin::default().name("case").root_id(&self.root_id).vm_id("vm");
        if let Some(message) = &self.message {
            let document = serde_json::json!({"vm_config": {}, "configuration": message}).to_string();
            plugin.configuration = host_sim::configuration::parse(document.as_bytes(), None)?.configuration;
        }
        let chain = scenario::chain(&self.scenario, &module, &plugin, &cases())?.into_iter();
        Ok(chain
            .map(|(_, module, plugin)| ChainedFilter {
                wasm: self.wasm.clone(),
                module,
                plugin,
                any: self.message.clone(),
            })
            .collect())
    }

    /// Runs the case on both gateways, with each Envoy of [`VERSIONS`] that it is about.
    ///
    /// # Errors
    /// As [`compare_with`](Self::compare_with).
    pub fn compare(&self) -> anyhow::Result<()> {
        for version in VERSIONS.into_iter().filter(|version| *version >= self.scenario.since) {
            self.compare_with(version).with_context(|| format!("beside Envoy {version}"))?;
        }
        Ok(())
    }

    /// Runs the case on both gateways.
    ///
    /// # Errors
    /// With every difference between what they did, and everything that Envoy did otherwise than the case expects.
    pub fn compare_with(&self, version: EnvoyVersion) -> anyhow::Result<()> {
        compare_chain(&self.name, &self.scenario, &self.filters()?, version)
    }
}

/// Runs filters on both gateways.
///
/// # Errors
/// As [`Case::compare_with`].
pub(crate) fn compare_chain(
    name: &str,
    scenario: &Scenario,
    filters: &[ChainedFilter],
    version: EnvoyVersion,
) -> anyhow::Result<()> {
    let base = cases();
    let settings = Settings { base: &base, masked: &MASKED };
    let report = compare(scenario, filters, &envoy(version)?, settings)?;
    let mut differences = String::new();
    for step in report.steps {
        let name = step.name;
        for text in step.misses.iter().map(difference).chain(step.not_comparable) {
            let _ = writeln!(differences, "{name}: {text}");
        }
    }
    ensure!(differences.is_empty(), "{name}:\n{differences}");
    Ok(())
}

/// What is only expected and what is only found, line by line.
fn difference(miss: &scenario::Miss) -> String {
    let diff = similar::TextDiff::from_lines(&miss.expected, &miss.found);
    format!("{}\n{}", miss.what, diff.unified_diff().context_radius(1))
}
