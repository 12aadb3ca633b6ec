//! A configuration of the filter, read from whatever holds it and checked by the filter's own parser.

use envoy_config::{ConfigurationError, Plugin, configuration};
use filter::config::{Config, ConfigError, Secret};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::unclosed::unclosed;

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
    /// The filter, or the gateway that would read it, refuses it.
    Because(String),
}

/// Reads the configuration in a text. `filter` is the name or the number of a filter, if the text has several.
pub(crate) fn parse(text: &[u8], filter: Option<&str>) -> Result<Checked, Refusal> {
    if let Some(problem) = malformed(text) {
        return Err(Refusal::Because(problem));
    }
    let plugin = configuration::parse(text, filter).map_err(|error| match error {
        ConfigurationError::SeveralFilters { names } => Refusal::Several(names),
        other => Refusal::Because(other.to_string()),
    })?;
    match Config::from_json(&plugin.configuration) {
        Ok(config) => Ok(Checked { plugin, config }),
        Err(error) => Err(Refusal::Because(located(&error, &plugin.configuration))),
    }
}

/// What is wrong with a text that is meant to be JSON, by the filter's own message. YAML would take some of it, and Envoy would not.
fn malformed(text: &[u8]) -> Option<String> {
    if !text.trim_ascii_start().starts_with(b"{") || serde_json::from_slice::<IgnoredAny>(text).is_ok() {
        return None;
    }
    Config::from_json(text).err().map(|error| located(&error, text))
}

/// The filter's message, and where the JSON began what it does not end, if it ends too early.
fn located(error: &ConfigError, json: &[u8]) -> String {
    let ends_early = serde_json::from_slice::<IgnoredAny>(json).is_err_and(|error| error.is_eof());
    match unclosed(json).filter(|_| ends_early) {
        Some((line, column)) => {
            format!("{error}: what begins at line {line} column {column} is not closed")
        }
        None => error.to_string(),
    }
}

impl Checked {
    /// With the variables that the gateway would pass on, read from this process's environment.
    pub(crate) fn in_environment(mut self) -> Result<Self, Refusal> {
        let settings = &self.config.settings;
        let secrets = [
            settings.directory.as_ref().and_then(|directory| directory.bearer.as_ref()),
            settings.fleet.as_ref().and_then(|fleet| fleet.bearer.as_ref()),
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
        self.config = config.map_err(|error| Refusal::Because(error.to_string()))?;
        Ok(self)
    }

    /// The same, and the filter logs its decisions.
    pub(crate) fn logging_decisions(mut self) -> Self {
        // The filter takes it, so it is an object.
        let fields = serde_json::from_slice::<Map<_, _>>(&self.plugin.configuration);
        let mut fields = fields.unwrap_or_default();
        fields.insert("log_decisions".to_owned(), true.into());
        self.plugin.configuration = Value::Object(fields).to_string().into();
        self
    }
}
