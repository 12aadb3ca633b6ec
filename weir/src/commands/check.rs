//! `weir check`

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use clap::Args;
use filter::config::{Config, Rule};
use filter::count::entry::most_bytes;
use host_sim_cli::failure::Failure;
use serde_json::{Value, json};

use crate::configuration::{Checked, Mistake, Refusal, parse};
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
    /// Its file, and its name if there are several in it.
    name: String,
    file: String,
    checked: Result<Checked, Vec<Mistake>>,
    warnings: Vec<String>,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut unreadable = Vec::new();
        let mut filters = Vec::new();
        for file in &self.files {
            match read(file) {
                Ok(text) => filters.extend(filters_of(&file.display().to_string(), &text)),
                Err(error) => unreadable.push(format!("error: {}: {error}", file.display())),
            }
        }
        for place in 0..filters.len() {
            let differing = differing(&filters, place);
            if let Some(filter) = filters.get_mut(place) {
                filter.warnings.extend(differing);
            }
        }
        let mistakes: Vec<String> = filters.iter().flat_map(Filter::mistakes).collect();
        match self.format {
            Format::Json => print(format_args!("{:#}", Value::from_iter(filters.iter().map(Filter::json))))?,
            Format::Text => filters.iter().filter(|filter| filter.checked.is_ok()).try_for_each(print)?,
        }
        let is_warned = filters.iter().any(|filter| !filter.warnings.is_empty());
        let complaints =
            unreadable.iter().chain(&mistakes).map(String::as_str).collect::<Vec<_>>().join("\n");
        match (unreadable.is_empty(), mistakes.is_empty()) {
            // It begins with this word already.
            (false, _) => Err(Failure::Unusable(complaints.trim_start_matches("error: ").to_owned())),
            (true, false) => Err(Failure::Missed(complaints)),
            (true, true) if self.strict && is_warned => {
                Err(Failure::Missed("--strict: there are warnings".to_owned()))
            }
            (true, true) => Ok(()),
        }
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file);
    }
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

fn filters_of(file: &str, text: &[u8]) -> Vec<Filter> {
    let of = |name: String, checked: Result<Checked, Refusal>| {
        let checked = checked.map_err(|refusal| match refusal {
            Refusal::Mistakes(mistakes) => mistakes,
            Refusal::Several(_) => Vec::new(),
        });
        let warnings = checked.as_ref().map(|checked| warnings(&checked.config)).unwrap_or_default();
        Filter { name, file: file.to_owned(), checked, warnings }
    };
    match parse(text, None) {
        Err(Refusal::Several(names)) => {
            // What stands before the name is its number.
            let number = |name: &str| name.split_once(':').map_or(name, |(number, _)| number).to_owned();
            names
                .iter()
                .map(|name| of(format!("{file}, filter {name}"), parse(text, Some(&number(name)))))
                .collect()
        }
        checked => vec![of(file.to_owned(), checked)],
    }
}

impl Filter {
    /// Each mistake behind the file, and the filter if it has several.
    fn mistakes(&self) -> Vec<String> {
        let filter = self.name.strip_prefix(&self.file).unwrap_or_default();
        let mistakes = self.checked.as_ref().err().into_iter().flatten();
        mistakes.map(|mistake| format!("{}{filter}{mistake}", self.file)).collect()
    }

    fn json(&self) -> Value {
        let mistakes = self.checked.as_ref().err().into_iter().flatten().map(|mistake| {
            let (line, column) = mistake.place.unzip();
            json!({"line": line, "column": column, "field": mistake.pointer, "message": mistake.message})
        });
        json!({
            "file": self.file,
            "filter": self.name,
            "accepted": self.checked.is_ok(),
            "mistakes": mistakes.collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

/// What is printed of a filter that is accepted.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(checked) = &self.checked else { return Ok(()) };
        write!(f, "{}\n{}", self.name, summary(&checked.config))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

/// A filter of operators must have the plans and classes of the public one, whose counts it reads.
fn differing(filters: &[Filter], place: usize) -> Vec<String> {
    let config = |filter: &Filter| {
        filter
            .checked
            .as_ref()
            .ok()
            .map(|checked| (checked.fields(), checked.config.settings.operators.is_some()))
    };
    let Some((own, true)) = filters.get(place).and_then(config) else { return Vec::new() };
    let public = filters.iter().filter_map(|filter| Some((&filter.name, config(filter)?)));
    let public = public.filter(|(_, (fields, is_of_operators))| {
        !is_of_operators && fields.get("namespace") == own.get("namespace")
    });
    let names = ["plans", "classes", "default_class", "count_by"];
    let differs = |(name, (fields, _)): (&String, (Value, bool))| {
        let other: Vec<_> = names.into_iter().filter(|field| fields.get(field) != own.get(field)).collect();
        (!other.is_empty()).then(|| {
            format!("the operators' {} differ from those of {name}, whose counts they read", other.join(", "))
        })
    };
    public.filter_map(differs).collect()
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
