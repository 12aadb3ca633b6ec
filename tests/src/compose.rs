//! A compose file, checked without running it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::{artifacts, policy};

/// The fields of a service that the repository's files use; anything else is a slip.
const FIELDS: [&str; 10] = [
    "<<",
    "command",
    "depends_on",
    "environment",
    "image",
    "network_mode",
    "ports",
    "profiles",
    "pull_policy",
    "volumes",
];

/// A compose file of the repository.
#[derive(Debug)]
pub struct Compose {
    folder: PathBuf,
    services: Map<String, Value>,
    volumes: Value,
}

impl Compose {
    /// Reads it, extension fields being put where `<<` names them.
    ///
    /// # Errors
    /// When it has no services.
    pub fn read(file: &str) -> anyhow::Result<Self> {
        let compose = policy::yaml(file)?;
        let folder = artifacts::root().join(Path::new(file).parent().context("a file in a folder")?);
        let services = compose["services"].as_object().with_context(|| format!("{file} has no services"))?;
        let inherited = |service: &Value| match service.get("<<") {
            Some(Value::Object(base)) => {
                let mut fields = base.clone();
                fields.extend(service.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
                Value::Object(fields)
            }
            _ => service.clone(),
        };
        let services = services.iter().map(|(name, service)| (name.clone(), inherited(service))).collect();
        Ok(Self { folder, services, volumes: compose["volumes"].clone() })
    }

    /// Its services.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.services.keys().map(String::as_str).collect()
    }

    /// What would keep it from starting: unknown fields, images without a version or with a registry, and files, volumes or services
    /// that are named and not there.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        // The filter is built, not committed.
        let missing = (!artifacts::filter_wasm().is_file()).then(|| "no filter.wasm".to_owned());
        let services = self.services.iter();
        missing
            .into_iter()
            .chain(services.flat_map(|(name, service)| self.problems_of(name, service)))
            .collect()
    }

    fn problems_of(&self, name: &str, service: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        let fields = service.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        problems.extend(
            fields
                .filter(|field| !FIELDS.contains(field))
                .map(|field| format!("{name}: unknown field {field}")),
        );
        let image = service["image"].as_str().unwrap_or_default();
        let (repository, tag) = image.trim_end_matches('}').rsplit_once(':').unwrap_or_default();
        if tag.is_empty() || tag == "latest" {
            problems.push(format!("{name}: image {image} without a version"));
        }
        if repository.split('/').next().is_some_and(|host| host.contains('.')) {
            problems.push(format!("{name}: image {image} names a registry"));
        }
        for mount in strings(&service["volumes"]) {
            let (from, to) = mount.split_once(':').unwrap_or_default();
            if from.starts_with('.') {
                if !self.folder.join(from).exists() {
                    problems.push(format!("{name}: {from} is not there"));
                }
                if !to.ends_with(":ro") {
                    problems.push(format!("{name}: {mount} is writable"));
                }
            } else if self.volumes.get(from).is_none() {
                problems.push(format!("{name}: no volume {from}"));
            }
        }
        let network = service["network_mode"].as_str().and_then(|mode| mode.strip_prefix("service:"));
        for other in strings(&service["depends_on"]).chain(network) {
            if !self.services.contains_key(other) {
                problems.push(format!("{name}: no service {other}"));
            }
        }
        problems
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
