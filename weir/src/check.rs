//! `weir check`

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use envoy_config::{ConfigurationError, configuration};
use filter::config::Config;
use filter::count::entry::most_bytes;
use serde::de::IgnoredAny;

use crate::failure::Failure;
use crate::table;
use crate::unclosed::unclosed;

/// Records of an entry in shared data, in the mean.
const RECORDS_OF_AN_ENTRY: u32 = 4;

/// Checks configurations of the filter, as the filter itself does when it starts
///
/// A file is JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway; in these every filter is checked. Prints
/// the quotas of each plan and class, and the records that the keys need. Exit code 0 if the filter takes all, 1 if it refuses
/// one, 2 if a file cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir check limits.json
  weir check envoy.yaml wasmplugin.yaml")]
pub(crate) struct Check {
    /// The configurations
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut refused = Vec::new();
        for file in &self.files {
            let text =
                fs::read(file).map_err(|error| Failure::Unusable(format!("{}: {error}", file.display())))?;
            for (name, checked) in check(&text) {
                let name = titled(file, name.as_deref());
                match checked {
                    Ok(summary) => print(&format!("{name}\n{summary}"))?,
                    Err(message) => refused.push(format!("{name}: {message}")),
                }
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(Failure::Refused(refused.join("\n"))) }
    }
}

fn titled(file: &Path, filter: Option<&str>) -> String {
    match filter {
        Some(filter) => format!("{}, filter {filter}", file.display()),
        None => file.display().to_string(),
    }
}

/// A closed pipe is an error like any other: what is not seen was not checked.
fn print(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}").map_err(|error| Failure::Unusable(error.to_string()))
}

/// The name of a filter, if the text has several, and what is to be said of its configuration or why it is refused.
type Checked = (Option<String>, Result<String, String>);

fn check(text: &[u8]) -> Vec<Checked> {
    if let Some(problem) = malformed(text) {
        return vec![(None, Err(problem))];
    }
    match configuration::parse(text, None) {
        Err(ConfigurationError::SeveralFilters { names }) => {
            let of = |name: String| {
                // What stands before the name is its number.
                let number = name.split_once(':').map_or(&*name, |(number, _)| number);
                let plugin = configuration::parse(text, Some(number));
                (
                    Some(name),
                    plugin.map_err(|error| error.to_string()).and_then(|plugin| told(&plugin.configuration)),
                )
            };
            names.into_iter().map(of).collect()
        }
        parsed => {
            let told =
                parsed.map_err(|error| error.to_string()).and_then(|plugin| told(&plugin.configuration));
            vec![(None, told)]
        }
    }
}

/// What is wrong with a text that is meant to be JSON, by the filter's own message. YAML would take some of it, and Envoy would not.
fn malformed(text: &[u8]) -> Option<String> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let ends_early = serde_json::from_slice::<IgnoredAny>(text).err()?.is_eof();
    let error = Config::from_json(text).err()?;
    Some(match unclosed(text).filter(|_| ends_early) {
        Some((line, column)) => {
            format!("{error}: what begins at line {line} column {column} is not closed")
        }
        None => error.to_string(),
    })
}

fn told(configuration: &[u8]) -> Result<String, String> {
    let config = Config::from_json(configuration).map_err(|error| error.to_string())?;
    let mut told = table::plans(&config);
    let (roster, capacity) = (config.subscribers.roster(), config.settings.counters);
    let records = config.subscribers.records(config.settings.count_by);
    let more = if config.settings.directory.is_some() { ", and those of the directory" } else { "" };
    let entries = (capacity.known.saturating_add(capacity.strangers) / RECORDS_OF_AN_ENTRY).saturating_add(1);
    let windows = config.catalog.plans.iter().flat_map(|(_, plan)| plan.iter());
    let windows = windows.map(|entitlement| entitlement.quotas().len()).max().unwrap_or(0);
    let bytes = u64::from(entries) * most_bytes(windows.max(1), config.fleet.is_some()) as u64;
    // Writing to a string cannot fail.
    let _written = writeln!(
        told,
        "{} keys of {} subscribers{more}: {records} of {} records; shared data takes {} MB at most",
        roster.len(),
        roster.subscribers(),
        capacity.known,
        bytes.div_ceil(1_000_000),
    );
    Ok(told)
}
