//! `host-sim run`

mod against;
mod machines;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use host_sim::{LoadError, LogLevel, Module, Plugin};
use host_sim_cli::{
    failure::Failure,
    scenario::{self, FRAMINGS, Options, Report, Scenario, ScenarioError},
    stop::Stop,
    watch::Files,
};

use self::against::Opponent;
use super::{Filter, Trace, log_level, print, print_beside};

/// Runs scenarios: requests, steps of the clock and faults, with what is expected of them
///
/// For a step that misses, it prints where the filter trapped or which host call was refused, the filter's log, and the trace.
/// With --against, it runs each scenario in a real Envoy, too, and prints how Envoy's answers, its requests to upstreams and
/// clusters, and its log differ, line by line. Exit code 0 if every expectation was met and Envoy did the same, 1 if an
/// expectation was missed or Envoy differed, 2 if a scenario cannot be run or Envoy does not start, 3 if nothing was missed but
/// some steps could not be compared with Envoy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-sim run --wasm filter.wasm --config limits.json minute.yaml
  host-sim run --wasm filter.wasm scenarios/
  host-sim run --wasm filter.wasm --watch --name minute scenarios/
  host-sim run --wasm filter.wasm --format junit scenarios/ >report.xml
  host-sim run --wasm filter.wasm --framings scenarios/
  host-sim run --wasm filter.wasm --against envoy scenarios/
  host-sim run --wasm filter.wasm --against /usr/local/bin/envoy --mask 'retry-after: ' minute.yaml

A scenario:
  steps:
  - name: five requests pass
    request: {path: /links, headers: {authorization: Bearer k}}
    repeat: 5
    expect: {status: 200}
  - name: the sixth is refused
    request: {path: /links, headers: {authorization: Bearer k}}
    expect: {status: 429, headers: {retry-after: \"60\"}}
  - advance: 60s

Every field of a scenario: host-sim/scenarios.md.")]
pub(super) struct Run {
    #[command(flatten)]
    filter: Filter,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    trace: Trace,
    /// Runs each scenario again with other framings of bodies, over HTTP/1, over HTTP/2, byte by byte and in 16 KiB: a difference
    /// to the client or the upstream is a miss
    #[arg(long)]
    framings: bool,
    /// Runs each scenario in this Envoy, too, and compares: the path of the binary, or its name on PATH
    #[arg(long, value_name = "ENVOY")]
    against: Option<PathBuf>,
    /// A text in log lines, headers ("name: value") and bodies that is followed by a value that differs in every run, which is not
    /// compared with Envoy: the rest of the line, or what a * in the text stands for; may be repeated
    #[arg(long = "mask", value_name = "TEXT", requires = "against")]
    masked: Vec<String>,
    /// Runs the scenarios alone whose names contain this text; may be repeated
    #[arg(long = "name", value_name = "TEXT")]
    names: Vec<String>,
    /// Runs the scenarios again whenever they, the module or the configuration change
    #[arg(long)]
    watch: bool,
    /// Minimum log level that the filter sees and that is looked at: trace, debug, info, warn, error or critical
    #[arg(long, value_name = "LEVEL", default_value = "trace", value_parser = log_level)]
    log_level: LogLevel,
    /// Scenarios, and directories of them with their subdirectories (every .yaml, .yml and .json)
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, as the scenarios run
    Text,
    /// One object, with the log and trace of what missed
    Json,
    /// The XML that CI systems read
    Junit,
}

/// The scenarios at a path: itself, or those of a directory and its subdirectories, sorted.
fn scenarios_at(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    gather(path, &mut |path, is_folder| found.extend((!is_folder).then_some(path)))?;
    if found.is_empty() {
        return Err(Failure::Unusable(format!("{}: no .yaml, .yml or .json in it", path.display())));
    }
    found.sort_unstable();
    Ok(found)
}

/// Finds the scenarios of a directory, and the directories below it that are not hidden.
fn gather(folder: &Path, found: &mut impl FnMut(PathBuf, bool)) -> Result<(), Failure> {
    let unreadable = Failure::file(folder);
    for entry in fs::read_dir(folder).map_err(&unreadable)? {
        let entry = entry.map_err(&unreadable)?;
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if entry.file_type().map_err(&unreadable)?.is_dir() {
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                gather(&path, found)?;
                found(path, true);
            }
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            found(path, false);
        }
    }
    Ok(())
}

/// How a scenario went.
struct Ran {
    /// Its file, and what it is called there where the file has several or gives it a name.
    name: String,
    report: Report,
    /// It could not be run.
    broken: bool,
}

impl Ran {
    /// A scenario that could not be run, which does not keep the others from it.
    fn broken(name: String, failure: Failure) -> Self {
        print_beside(&failure);
        Self { name, report: Report::refused(failure.into_message()), broken: true }
    }
}

/// The names of a file's scenarios.
fn names_of(path: &Path, scenarios: &[Scenario]) -> Vec<String> {
    let named = |(index, scenario): (usize, &Scenario)| match (&scenario.name, scenarios.len()) {
        (Some(name), _) => format!("{}: {name}", path.display()),
        (None, 1) => path.display().to_string(),
        (None, _) => format!("{}: scenario {}", path.display(), index + 1),
    };
    scenarios.iter().enumerate().map(named).collect()
}

impl Run {
    pub(super) fn run(self) -> Result<(), Failure> {
        if !self.watch {
            return self.once();
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut signal = Stop::new()?;
            loop {
                // As they are before they are read: what changes after that is read again.
                let mut files = Files::new(self.files());
                if let Err(failure) = self.once() {
                    print_beside(failure);
                }
                print("waiting for a change");
                tokio::select! {
                    () = signal.wait() => return Ok(()),
                    () = files.changed() => {}
                }
            }
        })
    }

    /// What the scenarios depend on: files, and the directories that they lie in.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.filter.files();
        for given in &self.scenarios {
            files.push(given.clone());
            // What cannot be read is told by the run.
            let _ = gather(given, &mut |path, _| files.push(path));
        }
        files
    }

    /// Runs all scenarios.
    fn once(&self) -> Result<(), Failure> {
        let opponent = self
            .against
            .as_deref()
            .map(|envoy| Opponent::find(envoy, &self.masked, &self.filter))
            .transpose()?;
        let (module, plugin) = self.filter.load()?;
        let mut runs = Vec::new();
        let mut ended = |ran: Ran| {
            if self.format == Format::Text && !ran.broken {
                text::print_run(&ran, self.trace.trace);
            }
            runs.push(ran);
        };
        for given in &self.scenarios {
            for path in scenarios_at(given)? {
                let scenarios = match Scenario::read_all(&path) {
                    Ok(scenarios) => scenarios,
                    Err(error) => {
                        ended(Ran::broken(path.display().to_string(), error.into()));
                        continue;
                    }
                };
                let base = path.parent().unwrap_or_else(|| Path::new("."));
                let named = names_of(&path, &scenarios).into_iter().zip(&scenarios);
                for (name, scenario) in named.filter(|(name, _)| self.is_chosen(name)) {
                    let filter = (&module, &plugin);
                    let report = self.report(scenario, filter, base).and_then(|mut report| {
                        if let Some(opponent) = &opponent {
                            opponent.compare(scenario, filter, &self.filter, base, &mut report)?;
                        }
                        Ok(report)
                    });
                    ended(match report {
                        Ok(report) => Ran { name, report, broken: false },
                        // A filter that refuses what it is given has failed its scenario.
                        Err(Failure::Missed(refusal)) => {
                            Ran { name, report: Report::refused(refusal), broken: false }
                        }
                        Err(failure) => Ran::broken(name.clone(), failure.about(name)),
                    });
                }
            }
        }
        if runs.is_empty() {
            return Err(Failure::Unusable(format!("no scenario is named so: {}", self.names.join(", "))));
        }
        match self.format {
            Format::Text => {}
            Format::Json => print(machines::json(&runs)),
            Format::Junit => print(machines::junit(&runs)),
        }
        let steps: Vec<_> = runs.iter().flat_map(|ran| &ran.report.steps).collect();
        let missed = steps.iter().filter(|step| !step.misses.is_empty()).count();
        let (scenarios, all) = (number_of(runs.len(), "scenario"), number_of(steps.len(), "step"));
        let mut summary = format!("{scenarios}, {all}, {missed} missed");
        let not_comparable = steps.iter().filter(|step| !step.not_comparable.is_empty()).count();
        if let Some(Opponent { program, .. }) = &opponent {
            let release = program.release();
            summary = format!("{summary}, {not_comparable} not comparable with Envoy {release}");
        }
        let broken = runs.iter().filter(|ran| ran.broken).count();
        if broken > 0 {
            return Err(Failure::Unusable(format!("{summary}, {} not run", number_of(broken, "scenario"))));
        }
        if missed > 0 {
            return Err(Failure::Missed(summary));
        }
        if not_comparable > 0 {
            return Err(Failure::NotComparable(summary));
        }
        if self.format == Format::Text {
            print(summary);
        }
        Ok(())
    }

    /// Whether a scenario of this name is to be run.
    fn is_chosen(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|text| name.contains(text))
    }

    fn report(
        &self,
        scenario: &Scenario,
        (module, plugin): (&Module, &Plugin),
        base: &Path,
    ) -> Result<Report, Failure> {
        let run = |options: Options| -> Result<Report, Failure> {
            let builder = self.filter.builder()?.log_level(self.log_level);
            scenario::run(scenario, builder, module, plugin, base, options).map_err(|error| match error {
                ScenarioError::Load(LoadError::Refused { .. }) => Failure::Missed(error.to_string()),
                other => other.into(),
            })
        };
        let mut report = run(Options { keep_all: self.trace.trace.is_some(), ..Options::default() })?;
        for framing in FRAMINGS.into_iter().filter(|_| self.framings) {
            let other = run(Options { framing: Some(framing), keep_all: true })?;
            report.compare(other, framing);
        }
        Ok(report)
    }
}

/// A number of things, such as `1 step`.
fn number_of(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
