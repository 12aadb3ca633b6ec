//! envoyproxy/ratelimit's configuration: a tree that follows a descriptor's entries.

use filter::config::{Config, FleetSettings};
use serde::Serialize;

use crate::error::Error;
use crate::quotas::{OfPlan, Quotas, Unit};
use crate::{heading, remarks};

const NAME: &str = "envoyproxy/ratelimit";

#[derive(Serialize)]
struct Root<'a> {
    domain: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descriptors: Vec<Node<'a>>,
}

#[derive(Default, Serialize)]
struct Node<'a> {
    key: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descriptors: Vec<Self>,
}

#[derive(Serialize)]
struct RateLimit {
    unit: &'static str,
    requests_per_unit: u32,
}

/// The file for limits that come with the requests.
pub(crate) fn domain_only(fleet: &FleetSettings) -> Result<String, Error> {
    let explanation = "# The gateways send each quota with the request that asks for it (\"limits\": \"sent\"), so the service needs to know its domain\n\
                       # and nothing else. Without the domain it would limit nothing.\n";
    let root = Root { domain: &fleet.domain, descriptors: Vec::new() };
    Ok(heading(fleet, NAME) + explanation + &yaml(&root)?)
}

/// The file for limits that the service has itself.
pub(crate) fn tree(fleet: &FleetSettings, config: &Config, quotas: &Quotas) -> Result<String, Error> {
    let mut descriptors = Vec::new();
    for (class, windows) in &quotas.0 {
        let windows = windows.iter().map(|(unit, plans)| {
            let plans = plans.iter().map(|(plan, limits)| Node {
                key: "plan",
                value: Some(plan),
                descriptors: below_plan(fleet, *unit, limits),
                ..Node::default()
            });
            Node { key: "window", value: Some(unit.name()), descriptors: plans.collect(), ..Node::default() }
        });
        let class =
            Node { key: "class", value: Some(class), descriptors: windows.collect(), ..Node::default() };
        descriptors.push(class);
    }
    let root = Root { domain: &fleet.domain, descriptors };
    Ok(heading(fleet, NAME) + remarks(config) + &yaml(&root)?)
}

fn below_plan<'a>(fleet: &FleetSettings, unit: Unit, limits: &'a OfPlan) -> Vec<Node<'a>> {
    let who = |value, limit| Node {
        key: "who",
        value,
        rate_limit: Some(RateLimit { unit: unit.name(), requests_per_unit: limit }),
        descriptors: Vec::new(),
    };
    let everybody = limits.limit.map(|limit| who(None, limit));
    let agreed = limits.agreed.iter().map(|(id, agreed)| who(Some(id.as_str()), agreed.limit));
    let all = everybody.into_iter().chain(agreed).collect();
    if fleet.window_index { vec![Node { key: "index", descriptors: all, ..Node::default() }] } else { all }
}

/// YAML in which every text is quoted: a plan may be named `no`, and 32 hexadecimal digits may look like a number.
pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! { quote_all: true };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| Error::Yaml(error.to_string()))
}
