//! `weir replay`

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use flate2::bufread::MultiGzDecoder;
use host_sim::{Clock, LogLevel};
use host_sim_cli::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use weir::replay::{self, Callers, Comparison, Entry, Fields, Log, Seen, Side, Summary, since_epoch};

use crate::filter::{Filter, Ready, not_loaded, said};
use crate::keys::Keys;
use crate::output::{print, say};

/// The progress bar moves in steps of this number of bytes.
const STEP: u64 = 1 << 16;

/// Bytes of a file that are read at once.
const CHUNK: usize = 1 << 18;

/// Time before the log, in which the filter fetches the keys of its directory.
const BEFORE: Duration = Duration::from_secs(1);

/// Rows of a table on a terminal, and in a comment on a pull request.
const ROWS: usize = 10;
const MARKDOWN_ROWS: usize = 50;

/// Exit code if somebody is refused more than by the baseline.
const WORSE: u8 = 3;

/// Replays access logs and reports which requests the filter would have refused
///
/// Logs are those of Envoy, Istio, Envoy Gateway and nginx, as JSON or in their default text formats, also gzipped; lines are taken in the
/// order of their time. The caller of a request is known by a header that was logged and is named with --header, as the key or as its
/// SHA-256, or by the field weir. Exit code 0 if the log was replayed, 1 if the filter refuses the configuration or fails, 2 if a file
/// cannot be read or does not say who its callers are, 3 if with --baseline a caller is refused more than before.
#[derive(Debug, Args)]
#[command(after_help = "Examples, for a log that has the key in a field \"authorization\":
  weir replay limits.json --header authorization=authorization access.log
  weir replay envoy.yaml --keys keys.json --header authorization=authorization --html week.html a.log.gz b.log.gz
  weir replay --baseline old.json new.json --format markdown access.log")]
pub(crate) struct Replay {
    /// The configuration, unless --config names it, and the logs; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The configuration: JSON or YAML, an Envoy bootstrap, or a manifest of Istio or Envoy Gateway; all other files are logs then
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The configuration before, to report who is refused more or less than by it
    #[arg(long, value_name = "FILE", conflicts_with = "html")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// A request header and the field that it was logged as; may be repeated
    #[arg(long = "header", value_name = "NAME=FIELD", value_parser = pair)]
    headers: Vec<(String, String)>,
    /// The field that has the time, method, path, authority, client, forwarded_for, status, details or weir of a request; may be repeated
    #[arg(long = "field", value_name = "WHAT=FIELD", value_parser = pair)]
    fields: Vec<(String, String)>,
    /// Takes the class of a request from the field weir, and not from its path
    #[arg(long)]
    class_from_log: bool,
    /// File to write a page with plots to
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Number of workers, which take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object
    Json,
    /// For a comment on a pull request; with --baseline
    Markdown,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, field) = text.split_once('=').ok_or("expected NAME=FIELD, as in authorization=api_key")?;
    Ok((name.to_owned(), field.to_owned()))
}

/// A log, and its size where that is known.
fn open(path: &Path) -> io::Result<(Box<dyn BufRead>, Option<u64>)> {
    let (file, size): (Box<dyn Read>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        (Box::new(file), Some(size))
    };
    let mut reader = BufReader::with_capacity(CHUNK, file);
    if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok((Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(reader))), None));
    }
    Ok((Box::new(reader), size))
}

/// A configuration, and what of the log it knows.
struct Prepared {
    ready: Ready,
    configuration: Value,
    keys: Option<Keys>,
    callers: Callers,
}

/// What was found.
enum Report {
    Summary(Box<Summary>),
    Comparison(Comparison),
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.format == Format::Markdown && self.baseline.is_none() {
            return Err(Failure::Unusable("--format markdown: only with --baseline".to_owned()));
        }
        let (config, logs) = match (&self.config, self.files.split_first()) {
            (Some(config), _) => (config, &*self.files),
            (None, Some((config, logs))) => (config, logs),
            (None, None) => return Err(Failure::Unusable("no configuration".to_owned())),
        };
        if logs.is_empty() {
            return Err(Failure::Unusable(format!(
                "no access log beside the configuration {}",
                config.display()
            )));
        }
        let after = self.prepare(config)?;
        let mut sides: Vec<_> =
            self.baseline.iter().map(|before| self.prepare(before)).collect::<Result<_, _>>()?;
        sides.push(after);
        let (fields, mut log, size) = self.log(logs)?;
        let bar = progress(size);
        let report = self.replay(&sides, &fields, &mut log, &bar);
        bar.finish_and_clear();
        let title = logs.iter().map(|log| log.display().to_string()).collect::<Vec<_>>().join(", ");
        self.print(&report.map_err(|failure| failure.about(&title))?, &title)
    }

    fn prepare(&self, file: &Path) -> Result<Prepared, Failure> {
        let ready = self.filter.ready(file, false)?;
        // The filter takes it, so it is JSON.
        let configuration: Value = serde_json::from_slice(&ready.plugin.configuration).unwrap_or_default();
        let keys = self.filter.keys(&ready.config)?;
        let callers = Callers::new(&ready.config, &configuration, keys.as_ref().map(Keys::value).as_ref());
        Ok(Prepared { ready, configuration, keys, callers })
    }

    fn log(&self, files: &[PathBuf]) -> Result<(Fields, Log, Option<u64>), Failure> {
        let headers = self.headers.iter();
        let fields = headers.fold(Fields::default(), |fields, (name, field)| fields.header(name, field));
        let mut given = self.fields.iter();
        let fields = given.try_fold(fields, |fields, (what, field)| fields.field(what, field));
        let fields = fields.map_err(Failure::Unusable)?;
        let mut size = Some(0);
        let mut sources = Vec::new();
        for file in files {
            let (reader, length) = open(file).map_err(Failure::file(file))?;
            size = size.zip(length).map(|(size, length)| size + length);
            sources.push((file.clone(), reader));
        }
        Ok((fields.clone(), Log::new(fields, sources), size))
    }

    fn replay(
        &self,
        prepared: &[Prepared],
        fields: &Fields,
        log: &mut Log,
        bar: &ProgressBar,
    ) -> Result<Report, Failure> {
        let mut seen: Vec<Seen> = prepared.iter().map(|_| Seen::default()).collect();
        let mut unseen = 0;
        let mut read = |seen: &mut [Seen], entry: Option<&Entry>, bytes: usize| {
            unseen += bytes as u64;
            if unseen >= STEP {
                bar.inc(std::mem::take(&mut unseen));
            }
            for (seen, prepared) in seen.iter_mut().zip(prepared) {
                entry.into_iter().for_each(|entry| seen.add(&prepared.callers, entry));
            }
        };
        log.fill(|entry, bytes| read(&mut seen, entry, bytes))?;
        let begins = since_epoch(log.begins()?);
        log.is_mostly_read()?;
        let mut sides = Vec::new();
        for (prepared, seen) in prepared.iter().zip(&mut seen) {
            seen.is_whole = log.has_ended();
            seen.is_worth_a_replay(fields, log, &prepared.callers, &prepared.ready.config)?;
            sides.push(self.side(prepared, seen, begins)?);
        }
        let mut seen_on = |entry: Option<&Entry>, bytes| read(&mut seen, entry, bytes);
        let mut report = match &*sides {
            [before, after] => Report::Comparison(replay::compare([before, after], log, &mut seen_on)?),
            [side, ..] => Report::Summary(Box::new(replay::replay(side, log, &mut seen_on)?)),
            [] => return Err(Failure::Unusable("no configuration".to_owned())),
        };
        log.is_mostly_read()?;
        for side in &sides {
            for worker in 0..side.host.workers() {
                if let Some(failure) = side.host.worker(worker).vm_failure() {
                    return Err(Failure::Missed(format!("worker {worker}: {failure}")));
                }
            }
        }
        if let (Some(prepared), Some(seen)) = (prepared.last(), seen.last()) {
            let Prepared { ready, configuration, callers, .. } = prepared;
            let notes = seen.notes(log, callers, &ready.config, configuration);
            match &mut report {
                Report::Summary(summary) => summary.note(notes, self.class_from_log),
                Report::Comparison(comparison) => comparison.notes = notes,
            }
        }
        Ok(report)
    }

    /// The filter with a configuration, from when the log begins.
    fn side<'p>(&self, prepared: &'p Prepared, seen: &Seen, begins: Duration) -> Result<Side<'p>, Failure> {
        let Prepared { ready, configuration, keys, callers } = prepared;
        let keys = keys.as_ref().map(|keys| keys.answering(&Callers::document(keys.value(), seen)));
        let mut plugin = ready.plugin.clone();
        plugin.configuration =
            callers.for_replay(configuration.clone(), seen, self.class_from_log).to_string().into();
        let mut host = self
            .filter
            .builder(ready, keys.as_ref())
            .workers(self.workers.into())
            .clock(Clock::at(UNIX_EPOCH + begins.saturating_sub(BEFORE)))
            .log_level(LogLevel::Warn)
            .log_capacity(100)
            .on_log(|line| {
                // What the filter logs of requests would be as long as the log.
                if line.by_host && line.level == LogLevel::Warn {
                    say(line);
                }
            })
            .build();
        host.load(&ready.module, plugin).map_err(not_loaded)?;
        host.advance(BEFORE);
        said(&host).iter().filter(|line| !line.by_host).for_each(say);
        Ok(Side { host, callers, class_from_log: self.class_from_log })
    }

    fn print(&self, report: &Report, title: &str) -> Result<ExitCode, Failure> {
        let text = match (report, self.format) {
            (Report::Summary(summary), Format::Json) => format!("{:#}", summary.json()),
            (Report::Summary(summary), _) => summary.text(ROWS),
            (Report::Comparison(comparison), Format::Text) => comparison.text(ROWS),
            (Report::Comparison(comparison), Format::Json) => format!("{:#}", comparison.json()),
            (Report::Comparison(comparison), Format::Markdown) => comparison.markdown(MARKDOWN_ROWS),
        };
        print(text.trim_end())?;
        match report {
            Report::Comparison(comparison) if comparison.is_worse() => Ok(ExitCode::from(WORSE)),
            Report::Comparison(_) => Ok(ExitCode::SUCCESS),
            Report::Summary(summary) => {
                if let Some(html) = &self.html {
                    let page = replay::page(summary, &format!("Replay of {title}"));
                    fs::write(html, page).map_err(Failure::file(html))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(size: Option<u64>) -> ProgressBar {
    let bar = size.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = if size.is_some() {
        "{bar:40} {percent}% {bytes_per_sec}, {eta} left"
    } else {
        "{spinner} {bytes} {bytes_per_sec}"
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
