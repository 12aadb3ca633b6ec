//! How a module is to be run: Envoy's `PluginConfig` and `VmConfig`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::Deserialize;

/// What happens to requests when a VM has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailurePolicy {
    /// Every request of that worker is answered 503. Envoy's default.
    #[default]
    FailClosed,
    /// Later requests of that worker pass the filter by; the one that trapped and those in flight are answered 503.
    FailOpen,
    /// As `FailClosed`, but a new VM is made when a stream begins and at least the backoff (one second, up to half as
    /// much more by chance) has passed since the last one was made.
    FailReload,
    /// `fail_open: true`, which Envoy deprecates: requests in flight pass too.
    DeprecatedFailOpen,
}

/// A module's place in the gateway's configuration.
///
/// ```
/// use envoy_config::{FailurePolicy, Plugin};
///
/// let plugin = Plugin::new(r#"{"rules": {}}"#)
///     .name("limits")
///     .vm_id("limits")
///     .failure_policy(FailurePolicy::FailReload);
/// assert_eq!(plugin.configuration, r#"{"rules": {}}"#);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plugin {
    /// `name`, which `plugin_name` gives and log lines carry.
    pub name: String,
    /// `root_id`, by which a module distinguishes its root contexts.
    pub root_id: String,
    /// `vm_id`: VMs of one id share data and queues. `""` is an id like any other.
    pub vm_id: String,
    /// `vm_config.configuration`, which `proxy_on_vm_start` reads.
    pub vm_configuration: Bytes,
    /// `configuration`, which `proxy_on_configure` reads.
    pub configuration: Bytes,
    /// What happens when a VM fails.
    pub failure_policy: FailurePolicy,
    /// `allow_on_headers_stop_iteration`: whether 1 from a headers callback lets body callbacks run.
    pub allow_on_headers_stop_iteration: bool,
    /// `capability_restriction_config`: the host calls and callbacks that there are for the filter; all when it names
    /// none. Any other call answers `InternalFailure` (10), and one of WASI 76.
    pub allowed_capabilities: BTreeSet<String>,
    /// `environment_variables`, as WASI gives them.
    pub environment: BTreeMap<String, String>,
    /// Names of variables that the VM gets from the gateway's own environment, if they are set there: `host_env_keys`.
    pub host_environment: BTreeSet<String>,
}

impl Plugin {
    /// A plugin with this configuration and Envoy's defaults for the rest.
    pub fn new(configuration: impl Into<Bytes>) -> Self {
        Self { configuration: configuration.into(), ..Self::default() }
    }

    /// Sets `name`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets `root_id`.
    #[must_use]
    pub fn root_id(mut self, root_id: impl Into<String>) -> Self {
        self.root_id = root_id.into();
        self
    }

    /// Sets `vm_id`.
    #[must_use]
    pub fn vm_id(mut self, vm_id: impl Into<String>) -> Self {
        self.vm_id = vm_id.into();
        self
    }

    /// Sets `vm_config.configuration`.
    #[must_use]
    pub fn vm_configuration(mut self, configuration: impl Into<Bytes>) -> Self {
        self.vm_configuration = configuration.into();
        self
    }

    /// Sets what happens when a VM fails.
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// Sets `allow_on_headers_stop_iteration`.
    #[must_use]
    pub fn allow_on_headers_stop_iteration(mut self) -> Self {
        self.allow_on_headers_stop_iteration = true;
        self
    }

    /// Sets the host calls and callbacks that there are for the filter.
    #[must_use]
    pub fn allowed_capabilities<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.allowed_capabilities = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Whether this plugin runs in the other's VM where both have the same module: what Envoy tells VMs apart by.
    pub fn shares_vm_with(&self, other: &Self) -> bool {
        (&self.vm_id, &self.vm_configuration, &self.allowed_capabilities)
            == (&other.vm_id, &other.vm_configuration, &other.allowed_capabilities)
            && (&self.environment, &self.host_environment) == (&other.environment, &other.host_environment)
    }

    /// Whether a host call or a callback of this name is there for the filter.
    pub fn allows(&self, capability: &str) -> bool {
        self.allowed_capabilities.is_empty() || self.allowed_capabilities.contains(capability)
    }
}
