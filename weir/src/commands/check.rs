//! `weir check`

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use envoy_config::configuration::bytes;
use filter::config::{Config, Rule};
use filter::count::entry::most_bytes;
use host_sim_cli::failure::Failure;
use serde_json::{Value, json};

use crate::configuration::{Checked, Mistake, Refusal, parse};
use crate::filter::fields;
use crate::output::{Format, print};
use crate::table;

/// Records of an entry in shared data, in the mean.
const RECORDS_OF_AN_ENTRY: u32 = 4;

/// Checks configurations of the filter, as the filter itself does when it starts
///
/// A file is JSON or YAML, also of several documents, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway; every filter in it is
/// checked. Prints the quotas of each plan and class, and the records that the keys need, and warns of what the filter accepts but can
/// hardly be meant. All mistakes of all files are listed, each with its line and column. Exit code 0 if the filter accepts all, 1 if it
/// refuses one, or with --strict if there is a warning, 2 if a file cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir check limits.json
  weir check --strict envoy.yaml operators.yaml
  helm template . | weir check -")]
pub(crate) struct Check {
    /// The configurations; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Refuses what is warned of
    #[arg(long)]
    strict: bool,
    /// The form of the result
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A filter of a file, and what comes of its check.
struct Filter {
    file: String,
    /// Its name, if there are several in the file.
    name: String,
    checked: Option<Checked>,
    mistakes: Vec<Mistake>,
    warnings: Vec<String>,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (mut unreadable, mut filters) = (Vec::new(), Vec::new());
        for file in &self.files {
            match bytes(file) {
                Ok(text) => filters.extend(filters_of(&file.display().to_string(), &text)),
                Err(error) => unreadable.push(format!("{}: {error}", file.display())),
            }
        }
        let differing: Vec<_> = filters.iter().map(|filter| differing(filter, &filters)).collect();
        filters.iter_mut().zip(differing).for_each(|(filter, differing)| filter.warnings.extend(differing));
        match self.format {
            Format::Json => print(format_args!("{:#}", Value::from_iter(filters.iter().map(Filter::json))))?,
            Format::Text => filters.iter().filter(|filter| filter.checked.is_some()).try_for_each(print)?,
        }
        let mistake = |filter: &Filter, mistake: &Mistake| format!("{}{}{mistake}", filter.file, filter.name);
        let mistakes =
            filters.iter().flat_map(|filter| filter.mistakes.iter().map(move |of| mistake(filter, of)));
        let mistakes: Vec<_> = mistakes.collect();
        let is_warned = filters.iter().any(|filter| !filter.warnings.is_empty());
        if !unreadable.is_empty() {
            let unreadable = unreadable.join("\nerror: ");
            let lines: Vec<_> = std::iter::once(unreadable).chain(mistakes).collect();
            return Err(Failure::Unusable(lines.join("\n")));
        }
        match mistakes.is_empty() {
            false => Err(Failure::Missed(mistakes.join("\n"))),
            true if self.strict && is_warned => {
                Err(Failure::Missed("--strict: there are warnings".to_owned()))
            }
            true => Ok(()),
        }
    }
}

fn filters_of(file: &str, text: &[u8]) -> Vec<Filter> {
    let of = |name: String, checked: Result<Checked, Refusal>| {
        let (checked, mistakes) = match checked {
            Ok(checked) => (Some(checked), Vec::new()),
            Err(Refusal::Mistakes(mistakes)) => (None, mistakes),
            Err(Refusal::Several(_)) => (None, Vec::new()),
        };
        let warnings = checked.as_ref().map(|checked| warnings(&checked.config)).unwrap_or_default();
        Filter { file: file.to_owned(), name, checked, mistakes, warnings }
    };
    match parse(text, None) {
        Err(Refusal::Several(names)) => {
            // The second filter is 2, whatever its name is.
            let filters = names.iter().zip(1..);
            let checked = |number: i32| parse(text, Some(&number.to_string()));
            filters.map(|(name, number)| of(format!(", filter {name}"), checked(number))).collect()
        }
        checked => vec![of(String::new(), checked)],
    }
}

impl Filter {
    fn json(&self) -> Value {
        let mistakes = self.mistakes.iter().map(|mistake| {
            let (line, column) = mistake.place.unzip();
            json!({"line": line, "column": column, "field": mistake.pointer, "message": mistake.message})
        });
        json!({
            "file": self.file,
            "filter": format!("{}{}", self.file, self.name),
            "accepted": self.checked.is_some(),
            "mistakes": mistakes.collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

/// What is printed of a filter that is accepted.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.checked.as_ref().map(|checked| summary(&checked.config)).unwrap_or_default();
        write!(f, "{}{}\n{summary}", self.file, self.name)?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

/// A filter of operators must have the plans and classes of the public one, whose counts it reads.
fn differing(filter: &Filter, filters: &[Filter]) -> Vec<String> {
    const FIELDS: [&str; 4] = ["plans", "classes", "default_class", "count_by"];
    let config = |filter: &Filter| {
        let checked = filter.checked.as_ref()?;
        Some((fields(&checked.plugin), checked.config.settings.operators.is_some()))
    };
    let Some((own, true)) = config(filter) else { return Vec::new() };
    let differs = |public: &Filter| {
        let (fields, is_of_operators) = config(public)?;
        let is_of_same = !is_of_operators && fields.get("namespace") == own.get("namespace");
        let other: Vec<_> = FIELDS.into_iter().filter(|field| fields.get(field) != own.get(field)).collect();
        let (names, file, name) = (other.join(", "), &public.file, &public.name);
        (is_of_same && !other.is_empty()).then(|| {
            format!("the operators' {names} differ from those of {file}{name}, whose counts they read")
        })
    };
    filters.iter().filter_map(differs).collect()
}

/// Plans and classes as a table, the records that the keys need, and the memory.
pub(crate) fn summary(config: &Config) -> String {
    let plans = table::plans(config);
    let (roster, capacity) = (config.subscribers.roster(), config.settings.counters);
    let records = config.subscribers.records(config.settings.count_by);
    let more = if config.settings.directory.is_some() { " and those of the directory" } else { "" };
    let entries = (capacity.known.saturating_add(capacity.strangers) / RECORDS_OF_AN_ENTRY).saturating_add(1);
    let windows = config.catalog.plans.iter().flat_map(|(_, plan)| plan.iter());
    let windows = windows.map(|entitlement| entitlement.quotas().len()).max().unwrap_or(0);
    let bytes = u64::from(entries) * most_bytes(windows.max(1), config.fleet.is_some()) as u64;
    format!(
        "{plans}keys: {}{more}; subscribers: {}; records: {records} of {}; shared data: {} MB at most\n",
        roster.keys(),
        roster.subscribers(),
        capacity.known,
        bytes.div_ceil(1_000_000),
    )
}

/// What the filter accepts but can hardly be meant.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let hidden = config.hidden().map(|(class, place, by)| {
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
        format!("class {}, match[{place}]: never used, because {what}", config.class_name(class))
    });
    let lost = config.lost_with_process().map(|(plan, class)| {
        let (plan, class) = (config.plan_name(plan), config.class_name(class));
        format!("plan {plan}, class {class}: counts of a day or longer are lost when the gateway's process ends, because there is no fleet")
    });
    let apart = config.apart_in_fleet().map(|(plan, class)| {
        let (plan, class) = (config.plan_name(plan), config.class_name(class));
        format!(
            "plan {plan}, class {class}: each gateway of the fleet counts rates and requests in flight by itself"
        )
    });
    hidden.chain(lost).chain(apart).collect()
}
