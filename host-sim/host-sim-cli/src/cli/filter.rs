//! Which filter to run, with what, and in what kind of host.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use host_sim::{
    Builder, Compiler, EnvoyVersion, FailurePolicy, Flavour, Host, Module, Plugin, configuration,
};
use host_sim_cli::{failure::Failure, setup};
use serde_json::Value as Json;

use super::print_beside;

/// The filter and how it is configured.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// The filter's module
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// Its configuration: JSON, YAML, or an Envoy configuration that holds the filter, whatever the file is named, or - for the
    /// standard input
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which filter, where the Envoy configuration holds several: its name, or its number counted from 1
    #[arg(long, value_name = "NAME", requires = "config")]
    plugin: Option<String>,
    /// The file with the configuration of its VM; overrides what the configuration says
    #[arg(long, value_name = "FILE")]
    vm_config: Option<PathBuf>,
    /// A variable of its environment, NAME=VALUE, or NAME for one of this process's environment; may be repeated
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// The vm_id; overrides the configuration's
    #[arg(long, value_name = "ID")]
    vm_id: Option<String>,
    /// The root_id; overrides the configuration's
    #[arg(long, value_name = "ID")]
    root_id: Option<String>,
    /// What happens when a VM fails; overrides the configuration's
    #[arg(long, value_enum)]
    failure_policy: Option<Policy>,
    /// The host to behave like: envoy-1.36 to envoy-1.40; for `check` also ngx
    #[arg(long, value_name = "HOST", default_value_t)]
    pub(super) host: Flavour,
    /// A property of every request, NAME=VALUE, as in xds.cluster_name=backend or
    /// 'metadata.filter_metadata."envoy.filters.http.jwt_authn".sub=acme'; the value is JSON or, failing that, text; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = setup::property)]
    properties: Vec<(Vec<String>, Json)>,
    /// What the standard input said.
    #[arg(skip)]
    stdin: OnceCell<Vec<u8>>,
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// 503 for every request of that worker
    Closed,
    /// Later requests pass the filter by
    Open,
    /// A new VM after a backoff
    Reload,
}

impl Filter {
    /// The Envoy to behave like.
    pub(super) fn version(&self) -> Result<EnvoyVersion, Failure> {
        match self.host {
            Flavour::Envoy(version) => Ok(version),
            other => Err(Failure::Unusable(format!(
                "--host {other} is for check, which tells whether the filter loads there: this command behaves as Envoy does"
            ))),
        }
    }

    /// A host that is like the Envoy asked for, and knows what the configuration says of the gateway.
    pub(super) fn builder(&self) -> Result<Builder, Failure> {
        self.builder_of(Flavour::Envoy(self.version()?))
    }

    /// As [`builder`](Self::builder), like this gateway.
    pub(super) fn builder_of(&self, flavour: Flavour) -> Result<Builder, Failure> {
        let mut builder = Host::builder().flavour(flavour);
        if let Some(path) = &self.config {
            builder = setup::in_surroundings(builder, &self.bytes(path)?);
        }
        Ok(self
            .properties
            .iter()
            .fold(builder, |builder, (path, value)| builder.property(path, value.clone())))
    }

    /// The bytes of a configuration. The standard input is read once.
    fn bytes(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        let read = || configuration::bytes(path).map_err(Failure::file(path));
        if !is_stdin(path) {
            return read();
        }
        match self.stdin.get() {
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = read()?;
                Ok(self.stdin.get_or_init(|| bytes).clone())
            }
        }
    }

    /// The files of module and configurations, which may change.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let files = self.wasm.iter().chain(&self.config).chain(&self.vm_config);
        files.filter(|path| !is_stdin(path)).cloned().collect()
    }

    /// The module's file.
    pub(super) fn wasm(&self) -> Result<&Path, Failure> {
        let missing = || Failure::Unusable("which filter? Give its module: --wasm FILE".to_owned());
        self.wasm.as_deref().ok_or_else(missing)
    }

    /// The module and how it is configured.
    pub(super) fn load(&self) -> Result<(Module, Plugin), Failure> {
        Ok((setup::module(self.wasm()?, Compiler::default(), print_beside)?, self.configured()?))
    }

    /// As [`load`](Self::load), and a filter that lets all pass where none is given.
    pub(super) fn load_or_empty(&self) -> Result<(Module, Plugin), Failure> {
        match self.wasm {
            Some(_) => self.load(),
            None => Ok((Module::compile(setup::EMPTY)?, self.configured()?)),
        }
    }

    /// Whether a module is given.
    pub(super) fn is_given(&self) -> bool {
        self.wasm.is_some()
    }

    /// Whether requests have properties of the command's.
    #[cfg(feature = "scenarios")]
    pub(super) fn has_properties(&self) -> bool {
        !self.properties.is_empty()
    }

    fn configured(&self) -> Result<Plugin, Failure> {
        let mut plugin = match &self.config {
            Some(path) => configuration::parse(&self.bytes(path)?, self.plugin.as_deref())
                .map_err(|error| Failure::from(error).about(path.display()))?,
            None => Plugin::default(),
        };
        if let Some(path) = &self.vm_config {
            plugin.vm_configuration = self.bytes(path)?.into();
        }
        for variable in &self.environment {
            match variable.split_once('=') {
                Some((name, value)) => drop(plugin.environment.insert(name.to_owned(), value.to_owned())),
                None => drop(plugin.host_environment.insert(variable.clone())),
            }
        }
        setup::pass_environment(&mut plugin);
        if let Some(vm_id) = &self.vm_id {
            plugin.vm_id.clone_from(vm_id);
        }
        if let Some(root_id) = &self.root_id {
            plugin.root_id.clone_from(root_id);
        }
        match self.failure_policy {
            Some(Policy::Closed) => plugin.failure_policy = FailurePolicy::FailClosed,
            Some(Policy::Open) => plugin.failure_policy = FailurePolicy::FailOpen,
            Some(Policy::Reload) => plugin.failure_policy = FailurePolicy::FailReload,
            None => {}
        }
        Ok(plugin)
    }
}
