//! The limits that a service has configured: envoyproxy/ratelimit's YAML, by its rules.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::wire::{RateLimitDescriptor, Unit};

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Hits in a window.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
    /// Whether it is only counted.
    pub shadow: bool,
}

/// What the configuration says about a descriptor that it has an entry for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `unlimited: true`. The service counts nothing.
    Unlimited,
    /// A limit, which the service counts against.
    Limited(Limit),
}

/// The domains that a service knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    domains: HashMap<String, Tree>,
}

/// Descriptors by `key` or `key_value`.
type Tree = HashMap<String, Node>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    rule: Option<Rule>,
    below: Tree,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    domain: String,
    #[serde(default)]
    descriptors: Vec<RawNode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    key: String,
    #[serde(default)]
    value: String,
    rate_limit: Option<RawLimit>,
    #[serde(default)]
    descriptors: Vec<Self>,
    #[serde(default)]
    shadow_mode: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimit {
    #[serde(default)]
    requests_per_unit: u32,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    unlimited: bool,
}

impl Configuration {
    /// Reads one file of the service.
    ///
    /// # Errors
    /// What envoyproxy/ratelimit would refuse too, and what this stand-in does not know: `name`, `replaces`, `detailed_metric`
    /// and keys that end in `*`.
    pub fn from_yaml(yaml: &str) -> anyhow::Result<Self> {
        let root: Root = serde_saphyr::from_str(yaml).context("the configuration")?;
        ensure!(!root.domain.is_empty(), "config file cannot have empty domain");
        let tree = tree(root.descriptors, &root.domain)?;
        Ok(Self { domains: HashMap::from([(root.domain, tree)]) })
    }

    /// The rule for a descriptor: the limit that the descriptor carries, otherwise the rule at the end of the path that its
    /// entries lead to. A descriptor in a domain that is not configured has no rule, even if it carries a limit.
    pub(super) fn rule(
        &self,
        domain: &str,
        descriptor: &RateLimitDescriptor,
    ) -> Result<Option<Rule>, String> {
        let Some(mut tree) = self.domains.get(domain) else { return Ok(None) };
        if let Some(limit) = &descriptor.limit {
            let unit = Unit::from_number(limit.unit).ok_or_else(|| format!("unit {}", limit.unit))?;
            let limit = Limit { requests_per_unit: limit.requests_per_unit, unit, shadow: false };
            return Ok(Some(Rule::Limited(limit)));
        }
        let mut found = None;
        for (place, entry) in descriptor.entries.iter().enumerate() {
            let with_value = tree.get(&format!("{}_{}", entry.key, entry.value));
            let Some(node) = with_value.or_else(|| tree.get(&entry.key)) else { break };
            if place + 1 == descriptor.entries.len() {
                found = node.rule;
            }
            tree = &node.below;
        }
        Ok(found)
    }
}

fn tree(raw: Vec<RawNode>, path: &str) -> anyhow::Result<Tree> {
    let mut tree = Tree::new();
    for RawNode { key, value, rate_limit, descriptors, shadow_mode } in raw {
        ensure!(!key.is_empty(), "{path}: descriptor has empty key");
        let name = if value.is_empty() { key } else { format!("{key}_{value}") };
        let path = format!("{path}.{name}");
        ensure!(!name.ends_with('*'), "{path}: this stand-in knows no wildcards");
        let rule = rate_limit.map(|raw| rule(&raw, shadow_mode).with_context(|| path.clone())).transpose()?;
        let node = Node { rule, below: self::tree(descriptors, &path)? };
        ensure!(tree.insert(name, node).is_none(), "duplicate descriptor composite key '{path}'");
    }
    Ok(tree)
}

fn rule(raw: &RawLimit, shadow: bool) -> anyhow::Result<Rule> {
    let unit = Unit::from_name(&raw.unit);
    if raw.unlimited {
        ensure!(unit.is_none(), "should not specify rate limit unit when unlimited");
        return Ok(Rule::Unlimited);
    }
    let unit = unit.with_context(|| format!("invalid rate limit unit '{}'", raw.unit))?;
    Ok(Rule::Limited(Limit { requests_per_unit: raw.requests_per_unit, unit, shadow }))
}
