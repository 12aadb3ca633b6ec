//! Which filter to run, with what, and in what kind of host.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use host_sim::{
    Builder, Compiler, EnvoyVersion, FailurePolicy, Flavour, Host, LoadError, Module, Plugin, configuration,
};
use host_sim_cli::{failure::Failure, setup};
use serde_json::Value as Json;

use super::print_beside;

/// The filter and how it is configured; or several filters, which requests pass in the order in which they are given.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// The filter's module; given several times, one after the other in a chain
    #[arg(long, value_name = "FILE", required = true)]
    wasm: Vec<PathBuf>,
    /// Its configuration: JSON, YAML, or an Envoy configuration that holds the filter, whatever the file is named, or - for the
    /// standard input; one for each filter, or one for all
    #[arg(long, value_name = "FILE")]
    pub(super) config: Vec<PathBuf>,
    /// Which filter, where the Envoy configuration holds several: its name, or its number counted from 1; one for each filter
    #[arg(long, value_name = "NAME", requires = "config")]
    plugin: Vec<String>,
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

/// Loads filters into a host, in their order.
pub(super) fn load(host: &mut Host, chain: &[(Module, Plugin)]) -> Result<(), LoadError> {
    host.load_chain(chain.iter().map(|(module, plugin)| (module, plugin.clone())))
}

/// The value for a filter of several: its own, or the one that is for all.
fn of<T>(values: &[T], filter: usize) -> Option<&T> {
    if values.len() == 1 { values.first() } else { values.get(filter) }
}

fn compile(file: &Path, compiler: Compiler) -> Result<Module, Failure> {
    Ok(setup::module(file, compiler, print_beside)?)
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
        for path in &self.config {
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

    /// The files of modules and configurations, which may change.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.wasm.iter().chain(&self.config).filter(|path| !is_stdin(path)).cloned().collect()
    }

    /// The filters in their order.
    pub(super) fn chain(&self) -> Result<Vec<(Module, Plugin)>, Failure> {
        self.chain_by(Compiler::default())
    }

    /// As [`chain`](Self::chain), the modules compiled by `compiler`.
    fn chain_by(&self, compiler: Compiler) -> Result<Vec<(Module, Plugin)>, Failure> {
        let counts = [self.wasm.len(), self.config.len(), self.plugin.len()];
        let filters = counts.into_iter().max().unwrap_or(0);
        if counts.into_iter().any(|count| count > 1 && count != filters) {
            return Err(Failure::Unusable(format!(
                "{filters} filters need --wasm, --config and --plugin once for all of them or {filters} times: they \
                 were given {} times",
                counts.map(|count| count.to_string()).join(", ")
            )));
        }
        let mut modules: BTreeMap<&Path, Module> = BTreeMap::new();
        let mut chain = Vec::new();
        for filter in 0..filters {
            let Some(file) = of(&self.wasm, filter) else { continue };
            let module = match modules.get(file.as_path()) {
                Some(module) => module.clone(),
                None => modules.entry(file).or_insert(compile(file, compiler)?).clone(),
            };
            chain.push((module, self.plugin(filter)?));
        }
        Ok(chain)
    }

    /// The file of the first filter's module.
    #[cfg(feature = "scenarios")]
    pub(super) fn first_module(&self) -> &Path {
        self.wasm.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Whether requests have properties of the command's.
    #[cfg(feature = "scenarios")]
    pub(super) fn has_properties(&self) -> bool {
        !self.properties.is_empty()
    }

    /// The filter, where a command takes one alone.
    #[cfg(feature = "scenarios")]
    pub(super) fn only(&self, compiler: Compiler) -> Result<(Module, Plugin), Failure> {
        let mut chain = self.chain_by(compiler)?;
        let several = chain.len() > 1;
        chain.pop().filter(|_| !several).ok_or_else(|| {
            Failure::Unusable("one filter is run: a scenario names those after it under \"then\"".to_owned())
        })
    }

    fn plugin(&self, filter: usize) -> Result<Plugin, Failure> {
        let name = of(&self.plugin, filter).map(String::as_str);
        let mut plugin = match of(&self.config, filter) {
            Some(path) => configuration::parse(&self.bytes(path)?, name)
                .map_err(|error| Failure::from(error).about(path.display()))?,
            None => Plugin::default(),
        };
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
