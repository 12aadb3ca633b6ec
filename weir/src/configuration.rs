//! A configuration of the filter, read from whatever holds it and checked by the filter's own parser.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;

use envoy_config::places::{Place, place};
use envoy_config::{ConfigurationError, Plugin, configuration, syntax};
use filter::config::{Config, ConfigError, Secret, digest, hex};
use host_sim_cli::failure::Failure;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::filter::fields;

/// A configuration that the filter takes.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The gateway's configuration of the filter.
    pub(crate) plugin: Plugin,
    pub(crate) config: Config,
}

/// Why a text is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It has several filters, of these numbers and names.
    Several(Vec<String>),
    /// The filter, or the gateway that would read it, refuses it: for each of these, the first of which is the filter's own.
    Mistakes(Vec<Mistake>),
}

/// What is wrong in a text.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// Line and column, if the text has the field.
    pub(crate) place: Option<Place>,
    /// The JSON pointer of the field; empty if it is not about one.
    pub(crate) pointer: String,
    /// The path of the field, and what is wrong with it.
    pub(crate) message: String,
}

impl Refusal {
    /// What a command that needs one configuration says of its file.
    pub(crate) fn of(self, file: &Path) -> Failure {
        let file = file.display();
        match self {
            Self::Mistakes(mistakes) => {
                let lines = mistakes.iter().map(|mistake| format!("{file}{mistake}"));
                Failure::Missed(lines.collect::<Vec<_>>().join("\n"))
            }
            Self::Several(names) => Failure::Unusable(format!(
                "{file}: several Wasm filters ({}): choose one with --plugin, by its name or number",
                names.join(", ")
            )),
        }
    }
}

impl Mistake {
    /// One that is not about a field.
    fn of_all(place: Option<Place>, message: String) -> Self {
        Self { place, pointer: String::new(), message }
    }
}

/// What follows the name of the file: `:3:14: ` and the message, where its place is known.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Reads the configuration in a text. `filter` is the name or the number of a filter, if the text has several.
pub(crate) fn parse(text: &[u8], filter: Option<&str>) -> Result<Checked, Refusal> {
    // YAML would take some of what is meant to be JSON, and Envoy would not.
    let is_json = syntax::encoding(text).is_none() && text.trim_ascii_start().starts_with(b"{");
    if is_json && let Err(error) = serde_json::from_slice::<IgnoredAny>(text) {
        return Err(Refusal::Mistakes(vec![unreadable(text, &error)]));
    }
    let plugin = configuration::parse(text, filter).map_err(|error| match error {
        ConfigurationError::SeveralFilters { names } => Refusal::Several(names),
        other => Refusal::Mistakes(vec![Mistake::of_all(None, other.to_string())]),
    })?;
    match Config::from_json(&plugin.configuration) {
        Ok(config) => Ok(Checked { plugin, config }),
        Err(first) => Err(Refusal::Mistakes(mistakes(first, text, &plugin.configuration))),
    }
}

/// What is wrong with a text that is no JSON.
fn unreadable(text: &[u8], error: &serde_json::Error) -> Mistake {
    let place = (error.line() as u64, error.column() as u64);
    let (place, cause) = match syntax::unclosed(text).filter(|_| error.is_eof()) {
        Some(begin) => (begin, Some("what begins here is not closed")),
        None => (place, syntax::cause(text, place)),
    };
    // serde_json quotes nothing where it does not know what is expected.
    let message = cause.map_or_else(|| error.to_string(), |cause| format!("not JSON: {cause}"));
    Mistake::of_all(Some(place), message)
}

/// The filter's message, and what else it would say once each mistake was mended.
fn mistakes(first: ConfigError, text: &[u8], configuration: &[u8]) -> Vec<Mistake> {
    let mut mistakes: Vec<Mistake> = Vec::new();
    let given: Value = match serde_json::from_slice(configuration) {
        Ok(given) => given,
        Err(_) if configuration.trim_ascii().is_empty() => {
            return vec![Mistake::of_all(None, first.to_string())];
        }
        Err(error) => {
            let mut mistake = unreadable(configuration, &error);
            // The text has the configuration within another.
            if let Some((line, column)) = mistake.place.take_if(|_| configuration != text) {
                mistake.message =
                    format!("line {line}, column {column} of the configuration: {}", mistake.message);
            }
            return vec![mistake];
        }
    };
    let (mut mended, mut error) = (given.clone(), first);
    loop {
        let pointer = error.pointer();
        // What is wrong with what was mended, or lacks since, follows from how it was mended.
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_known = |known: &Mistake| is_in(&known.pointer, &pointer) || is_in(&pointer, &known.pointer);
        let follows =
            mistakes.iter().any(is_known) || !mistakes.is_empty() && given.pointer(&pointer).is_none();
        if follows || mistakes.len() == MOST {
            return mistakes;
        }
        let hint = given.pointer(&pointer).and_then(Value::as_str).and_then(|text| {
            text.parse().ok().map(|address: Ipv6Addr| format!("\"[{address}]\"")).or_else(|| meant(text))
        });
        let hint = hint.map(|form| format!("; write {form}")).unwrap_or_default();
        let place = place(text, configuration, &pointer);
        let is_mended = mend(&mut mended, &pointer, mistakes.len());
        mistakes.push(Mistake { place, pointer, message: format!("{error}{hint}") });
        match Config::from_json(mended.to_string().as_bytes()) {
            Err(next) if is_mended => error = next,
            Ok(_) | Err(_) => return mistakes,
        }
    }
}

/// Puts something that the filter takes in the place of a field, or takes it out. Says whether it could.
fn mend(configuration: &mut Value, pointer: &str, number: usize) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    let plan = configuration["plans"].as_object().and_then(|plans| plans.keys().next().cloned());
    match configuration.pointer_mut(parent) {
        Some(Value::Object(fields)) if name == "plan" && !parent.is_empty() => {
            fields.insert(name, plan.into());
            true
        }
        Some(Value::Object(fields)) => fields.remove(&name).is_some(),
        Some(Value::Array(list)) => {
            let Some(entry) = name.parse::<usize>().ok().and_then(|index| list.get_mut(index)) else {
                return false;
            };
            *entry = if parent.ends_with("/keys") {
                format!("sha256:{}", hex(digest(&number.to_le_bytes()))).into()
            } else {
                // A window that no other quota has.
                json!({"limit": u32::MAX, "window": format!("{}s", LONG - number)})
            };
            true
        }
        _ => false,
    }
}

/// Most mistakes of a configuration that are listed.
const MOST: usize = 20;

/// Seconds that are no window which people write.
const LONG: usize = 7_654_321;

/// Units, in the order in which an abbreviation means them.
const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// Words between a limit and its unit.
const BETWEEN: [&str; 4] = ["per ", "a ", "requests/", "r/"];

/// The form of a quota that another limiter would have written so: `60/min`, `60/5m`, `60 per minute`.
fn meant(quota: &str) -> Option<String> {
    let split = |text: &str| text.find(|character: char| !character.is_ascii_digit());
    let (limit, rest) = quota.split_at(split(quota).filter(|at| *at > 0)?);
    let rest = rest.trim_start_matches(['/', ' ']);
    let rest = BETWEEN.iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest).trim_start();
    let (times, unit) = rest.split_at(split(rest)?);
    let unit = unit.trim().to_ascii_lowercase().replace("hr", "h");
    let unit = unit.strip_suffix('s').filter(|unit| !unit.is_empty()).unwrap_or(&unit);
    let name = UNITS.iter().find(|name| name.starts_with(unit))?;
    match (times, *name) {
        ("" | "1", _) => Some(format!("\"{limit}/{name}\"")),
        (_, "week" | "month" | "year") => None,
        _ => Some(format!("{{\"limit\": {limit}, \"window\": \"{times}{}\"}}", &name[..1])),
    }
}

impl Checked {
    /// With the variables that the gateway would pass on, read from this process's environment.
    pub(crate) fn in_environment(mut self) -> Result<Self, Refusal> {
        let settings = &self.config.settings;
        let secrets = [
            settings.directory.as_ref().and_then(|directory| directory.bearer.as_ref()),
            settings.fleet.as_ref().and_then(|fleet| fleet.bearer.as_ref()),
            settings.usage.as_ref().and_then(|usage| usage.bearer.as_ref()),
        ];
        // The configuration alone does not say what its gateway passes on, and one of a gateway does.
        if self.plugin == Plugin::new(self.plugin.configuration.clone()) {
            let variables = secrets.into_iter().flatten().filter_map(|secret| match secret {
                Secret::Variable(name) => Some(name.clone()),
                Secret::Given(_) => None,
            });
            self.plugin.host_environment.extend(variables);
        }
        host_sim_cli::setup::pass_environment(&mut self.plugin);
        let variable = |name: &str| self.plugin.environment.get(name).cloned();
        let config = self.config.with_environment(variable);
        let refusal = |error: ConfigError| Refusal::Mistakes(vec![Mistake::of_all(None, error.to_string())]);
        self.config = config.map_err(refusal)?;
        Ok(self)
    }

    /// The same, and the filter logs its decisions.
    pub(crate) fn logging_decisions(mut self) -> Self {
        let mut fields = fields(&self.plugin);
        fields["log_decisions"] = true.into();
        self.plugin.configuration = fields.to_string().into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_in_another_limiters_words_has_its_own_form() {
        let rows = [
            ("60/min", Some("\"60/minute\"")),
            ("60/5m", Some(r#"{"limit": 60, "window": "5m"}"#)),
            ("100/10s", Some(r#"{"limit": 100, "window": "10s"}"#)),
            ("60 per minute", Some("\"60/minute\"")),
            ("60 a day", Some("\"60/day\"")),
            ("5r/s", Some("\"5/second\"")),
            ("60/Minute", Some("\"60/minute\"")),
            ("60/minutes", Some("\"60/minute\"")),
            ("2/3 weeks", None),
            ("60/fortnight", None),
            ("many", None),
            ("60", None),
            ("/minute", None),
        ];
        for (given, expected) in rows {
            assert_eq!(meant(given).as_deref(), expected, "{given}");
        }
    }
}
