//! Limitador's configuration: a list of limits, each with the conditions under which it applies.

use std::fmt::Write as _;

use filter::config::{Config, FleetSettings};
use serde::Serialize;

use crate::envoyproxy::yaml;
use crate::error::Error;
use crate::quotas::Quotas;
use crate::{heading, remarks};

#[derive(Serialize)]
struct Limit<'a> {
    namespace: &'a str,
    name: String,
    max_value: u32,
    seconds: u32,
    conditions: Vec<String>,
    variables: [String; 2],
}

/// A descriptor's entry in CEL.
fn entry(key: &str) -> String {
    format!("descriptors[0][\"{key}\"]")
}

fn is(key: &str, value: &str) -> String {
    format!("{} == \"{value}\"", entry(key))
}

pub(crate) fn limits(fleet: &FleetSettings, config: &Config, quotas: &Quotas) -> Result<String, Error> {
    let mut limits = Vec::new();
    for (class, windows) in &quotas.0 {
        for (unit, plans) in windows {
            for (plan, of_plan) in plans {
                let limit = |name: &str, max_value: u32, who: Option<String>| {
                    let mut conditions =
                        vec![is("class", class), is("window", unit.name()), is("plan", plan)];
                    conditions.extend(who);
                    Limit {
                        namespace: &fleet.domain,
                        name: format!("{class}/{}/{name}", unit.name()),
                        max_value,
                        seconds: unit.seconds(),
                        conditions,
                        variables: [entry("who"), entry("index")],
                    }
                };
                // Limitador applies every limit whose conditions hold, so the plan's must not hold for those who have their own.
                let except = of_plan.agreed.keys().fold(String::new(), |mut list, id| {
                    let comma = if list.is_empty() { "" } else { ", " };
                    // Writing to a String cannot fail.
                    let _ = write!(list, "{comma}\"{id}\"");
                    list
                });
                let except = (!except.is_empty()).then(|| format!("!({} in [{except}])", entry("who")));
                limits.extend(of_plan.limit.map(|max_value| limit(plan, max_value, except)));
                let agreed = of_plan.agreed.iter();
                limits.extend(agreed.map(|(id, agreed)| {
                    limit(&format!("{plan}/{}", agreed.subscriber), agreed.limit, Some(is("who", id)))
                }));
            }
        }
    }
    Ok(heading(fleet, "Limitador") + remarks(config) + &yaml(&limits)?)
}
