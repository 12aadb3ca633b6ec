//! The filter that a command runs: its module, its configuration, and the keys of its directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::Args;
use envoy_config::{Plugin, configuration::bytes};
use filter::config::Config;
use host_sim::{Builder, Compiler, Host, LoadError, LogLine, Module, VmName};
use host_sim_cli::failure::Failure;
use host_sim_cli::setup;
use serde_json::Value;

use crate::configuration::{Checked, parse};
use crate::keys::Keys;
use crate::output::say;

/// The module in a folder that `make wasm` writes to, from the repository.
const BUILT: &str = "target/wasm/filter.wasm";

/// Which filter runs, and with what.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// The filter's module; by default filter.wasm beside this command, else target/wasm/filter.wasm
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// The filter to use if the configuration has several: its name, or its number counted from 1
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// The document that answers the configuration's directory: the known keys, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// A property of every request, NAME=VALUE, as in
    /// 'metadata.filter_metadata."envoy.filters.http.jwt_authn".sub=acme'; the value is JSON or, failing that, text; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = setup::property)]
    properties: Vec<(Vec<String>, Value)>,
}

/// A filter that can be loaded.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The configuration's file, whole.
    text: Vec<u8>,
    pub(crate) config: Config,
    pub(crate) plugin: Plugin,
    pub(crate) module: Module,
}

impl Filter {
    /// The filter with the configuration of a file, if it takes it; it logs its decisions if `logs_decisions`.
    pub(crate) fn ready(&self, file: &Path, logs_decisions: bool) -> Result<Ready, Failure> {
        let text = bytes(file).map_err(Failure::file(file))?;
        let checked = parse(&text, self.plugin.as_deref()).and_then(Checked::in_environment);
        let checked = checked.map_err(|refusal| refusal.of(file))?;
        let Checked { config, plugin } = if logs_decisions { checked.logging_decisions() } else { checked };
        let module = setup::module(&self.module()?, Compiler::default(), say)?;
        Ok(Ready { text, config, plugin, module })
    }

    /// The module's file.
    pub(crate) fn module(&self) -> Result<PathBuf, Failure> {
        if let Some(given) = &self.wasm {
            return Ok(given.clone());
        }
        let command = std::env::current_exe().unwrap_or_default();
        let beside = command.with_file_name("filter.wasm");
        let places = [beside, PathBuf::from(BUILT)];
        places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
            let [beside, built] = places.each_ref().map(|place| place.display());
            Failure::Unusable(format!(
                "no module of the filter: --wasm names none, and there is neither {beside} nor {built}; `make wasm` builds it"
            ))
        })
    }

    /// The keys of `--keys`, for a configuration that has a directory.
    pub(crate) fn keys(&self, config: &Config) -> Result<Option<Keys>, Failure> {
        self.keys.as_deref().map(|file| Keys::read(file, config)).transpose()
    }

    /// A host for it, in which the directory answers with these keys.
    pub(crate) fn builder(&self, ready: &Ready, keys: Option<&Keys>) -> Builder {
        let mut builder = setup::in_surroundings(Host::builder(), &ready.text);
        if let (Some(keys), Some(directory)) = (keys.cloned(), &ready.config.settings.directory) {
            builder = builder.cluster(directory.cluster.to_string(), move |poll| keys.answer(poll));
        }
        let properties = self.properties.iter();
        properties.fold(builder, |builder, (path, value)| builder.property(path, value.clone()))
    }
}

/// Takes what the VMs of a host have logged so far, each message once. Not only the VM that serves: one polls the directory for all.
pub(crate) fn said(host: &Host) -> Vec<LogLine> {
    let mut messages = HashSet::new();
    let mut lines = host.logs().take();
    lines.retain(|line| line.vm != VmName::Canary && messages.insert(line.message.clone()));
    lines
}

/// The fields of a configuration that the filter takes, which is JSON therefore.
pub(crate) fn fields(plugin: &Plugin) -> Value {
    serde_json::from_slice(&plugin.configuration).unwrap_or_default()
}

/// A module that does not load, though the configuration is good.
pub(crate) fn not_loaded(error: LoadError) -> Failure {
    Failure::from(error).of_filter()
}
