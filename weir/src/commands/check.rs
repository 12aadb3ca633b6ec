//! `weir check`

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use filter::config::{Config, Rule};
use filter::count::entry::most_bytes;
use host_sim_cli::failure::Failure;

use crate::configuration::{Checked, Refusal, parse};
use crate::output::print;
use crate::table;

/// Records of an entry in shared data, in the mean.
const RECORDS_OF_AN_ENTRY: u32 = 4;

/// Checks configurations of the filter, as the filter itself does when it starts
///
/// A file is JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway; in these every filter is checked. Prints
/// the quotas of each plan and class, and the records that the keys need, and warns of what the filter accepts but can hardly be meant. Exit code
/// 0 if the filter accepts all, 1 if it refuses one, 2 if a file cannot be read.
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
            let text = fs::read(file).map_err(Failure::file(file))?;
            for (name, checked) in check(&text) {
                let name = titled(file, name.as_deref());
                match checked {
                    Ok(summary) => print(format_args!("{name}\n{summary}"))?,
                    Err(message) => refused.push(format!("{name}: {message}")),
                }
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(Failure::Missed(refused.join("\n"))) }
    }
}

fn titled(file: &Path, filter: Option<&str>) -> String {
    match filter {
        Some(filter) => format!("{}, filter {filter}", file.display()),
        None => file.display().to_string(),
    }
}

/// The name of a filter, if the text has several, and what is to be said of its configuration or why it is refused.
type Told = (Option<String>, Result<String, String>);

fn check(text: &[u8]) -> Vec<Told> {
    let of = |name: Option<String>, checked: Result<Checked, Refusal>| {
        let told = match checked {
            Ok(checked) => Ok(summary(&checked.config)),
            Err(Refusal::Because(problem)) => Err(problem),
            Err(Refusal::Several(names)) => Err(names.join(", ")),
        };
        (name, told)
    };
    match parse(text, None) {
        Err(Refusal::Several(names)) => names
            .into_iter()
            .map(|name| {
                // What stands before the name is its number.
                let checked = parse(text, Some(name.split_once(':').map_or(&*name, |(number, _)| number)));
                of(Some(name), checked)
            })
            .collect(),
        checked => vec![of(None, checked)],
    }
}

/// Plans and classes as a table, the records that the keys need, and the memory.
pub(crate) fn summary(config: &Config) -> String {
    let mut told = table::plans(config);
    let (roster, capacity) = (config.subscribers.roster(), config.settings.counters);
    let records = config.subscribers.records(config.settings.count_by);
    let more = if config.settings.directory.is_some() { " and those of the directory" } else { "" };
    let entries = (capacity.known.saturating_add(capacity.strangers) / RECORDS_OF_AN_ENTRY).saturating_add(1);
    let windows = config.catalog.plans.iter().flat_map(|(_, plan)| plan.iter());
    let windows = windows.map(|entitlement| entitlement.quotas().len()).max().unwrap_or(0);
    let bytes = u64::from(entries) * most_bytes(windows.max(1), config.fleet.is_some()) as u64;
    // Writing to a string cannot fail.
    let _written = writeln!(
        told,
        "keys: {}{more}; subscribers: {}; records: {records} of {}; shared data: {} MB at most",
        roster.keys(),
        roster.subscribers(),
        capacity.known,
        bytes.div_ceil(1_000_000),
    );
    for (class, place, by) in config.hidden() {
        let what = match by {
            Rule::Exempt => "an earlier match exempts all of its requests".to_owned(),
            Rule::Usage => "its only request is that of usage_path".to_owned(),
            Rule::Class(earlier) => {
                format!(
                    "a match of class {} comes first and matches all of its requests",
                    config.class_name(earlier)
                )
            }
        };
        let class = config.class_name(class);
        let _written = writeln!(told, "warning: class {class}, match[{place}]: never used, because {what}");
    }
    if let Some((plan, class)) = config.lost_with_process() {
        let (plan, class) = (config.plan_name(plan), config.class_name(class));
        let _written = writeln!(
            told,
            "warning: plan {plan}, class {class}: counts of a day or longer are lost when the gateway's process ends, because there is no fleet"
        );
    }
    if let Some((plan, class)) = config.apart_in_fleet() {
        let (plan, class) = (config.plan_name(plan), config.class_name(class));
        let _written = writeln!(
            told,
            "warning: plan {plan}, class {class}: each gateway of the fleet counts rates and requests in flight by itself"
        );
    }
    told
}
