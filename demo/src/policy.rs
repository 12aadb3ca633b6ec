//! `envoy/envoy.yaml` as data: the contract, and what a case changes in it.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::artifacts;

/// JSON pointer to the HTTP filters of the bootstrap, the filter among them.
pub const HTTP_FILTERS: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// The bootstrap as it is in the repository.
///
/// # Errors
/// When it cannot be read as YAML.
pub fn bootstrap() -> anyhow::Result<Value> {
    yaml("envoy/envoy.yaml")
}

/// A YAML file of the repository.
///
/// # Errors
/// When it cannot be read as YAML.
pub fn yaml(path: &str) -> anyhow::Result<Value> {
    let path = artifacts::root().join(path);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is no YAML", path.display()))
}

/// The documents of a YAML file of the repository.
///
/// # Errors
/// When it cannot be read as YAML.
pub fn documents(path: &str) -> anyhow::Result<Vec<Value>> {
    let path = artifacts::root().join(path);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML", path.display()))
}

/// The filter among the bootstrap's HTTP filters, whatever a control plane has made of its name.
///
/// # Errors
/// When there is none.
pub fn weir_filter(bootstrap: &mut Value) -> anyhow::Result<&mut Value> {
    bootstrap
        .pointer_mut(HTTP_FILTERS)
        .and_then(Value::as_array_mut)
        .and_then(|filters| {
            filters
                .iter_mut()
                .find(|filter| filter["name"].as_str().is_some_and(|name| name.contains("weir")))
        })
        .context("no filter's name contains weir")
}

/// The filter's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy(Value);

impl Policy {
    /// The contract's without its directory and its reports, for a case that names its subscribers itself.
    ///
    /// # Errors
    /// When `envoy/envoy.yaml` holds no configuration.
    pub fn contract() -> anyhow::Result<Self> {
        Ok(Self::deployed()?.without("directory").without("usage"))
    }

    /// The contract's as `envoy/envoy.yaml` has it: the keys come from the backend's directory, and what they use is reported to the backend.
    ///
    /// # Errors
    /// When the file holds none.
    pub fn deployed() -> anyhow::Result<Self> {
        let mut bootstrap = bootstrap()?;
        let text = weir_filter(&mut bootstrap)?
            .pointer("/typed_config/config/configuration/value")
            .and_then(Value::as_str)
            .context("envoy.yaml holds no configuration of the filter")?;
        Ok(Self(serde_json::from_str(text).context("the filter's configuration in envoy.yaml")?))
    }

    /// Sets a top-level field.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }

    /// Removes a top-level field.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        if let Some(fields) = self.0.as_object_mut() {
            fields.remove(field);
        }
        self
    }

    /// Sets the value at a JSON pointer.
    ///
    /// # Panics
    /// When the policy has no such place: then the case would test something else than it says.
    #[must_use]
    pub fn with_at(mut self, pointer: &str, value: Value) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        match self.0.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.insert(name.to_owned(), value);
            }
            _ => panic!("the policy has no object at {parent:?}"),
        }
        self
    }

    /// Adds a subscriber with one key.
    #[must_use]
    pub fn subscriber(self, id: &str, plan: &str, key: &str) -> Self {
        self.agreed(id, plan, key, &json!({}))
    }

    /// Adds a subscriber with one key and limits of its own.
    #[must_use]
    pub fn agreed(mut self, id: &str, plan: &str, key: &str, limits: &Value) -> Self {
        let subscriber = json!({"id": id, "plan": plan, "keys": [hash(key)], "limits": limits});
        match self.0["subscribers"].as_array_mut() {
            Some(subscribers) => subscribers.push(subscriber),
            None => self.0["subscribers"] = json!([subscriber]),
        }
        self
    }

    /// The cluster that the directory is in.
    ///
    /// # Errors
    /// When there is no directory.
    pub fn directory_cluster(&self) -> anyhow::Result<&str> {
        self.0.pointer("/directory/cluster").and_then(Value::as_str).context("the policy has no directory")
    }

    /// As JSON.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for Policy {
    /// Any other configuration, right or wrong.
    fn from(configuration: Value) -> Self {
        Self(configuration)
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A key as the configuration takes it.
#[must_use]
pub fn hash(key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(key)))
}
